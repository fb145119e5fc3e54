"""Write tiny Core ML packages of the shapes that ANEMLL's converters give beside plain ones, with what they compute.

    python coreml_anemll.py --models DIR_WITH_coreml_lm.py --out DIR [--only rotating]

`rotating`: two caches, one of a window's length, which functions of their own shift once it is full (`infer_rotate`,
`prefill_rotate`; tokens of one such batch see each other whole, as in ANEMLL's). `monolithic`: one file from tokens to logits, 8 parts
of unlike width, norms that subtract the mean, a softmax that is spelled out; `monolithic-argmax`: the same with a head that says only which
entry of each part is the largest. The layout of packages and recordings, and the packages that this needs, are those of `coreml_lm.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

PARTS = 8


def modules(ml: Any) -> dict[str, Any]:
    class MeanNorm(ml.Graph):
        """An RMS norm of what is left without the mean, as a layer norm is."""

        def __init__(self, number: Any, weight: Tensor) -> None:
            super().__init__(number)
            self.hold("weight", weight)

        def forward(self, x: Tensor) -> Tensor:
            x = x - x.mean(-1, keepdim=True)
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + ml.EPS) * self.weight

    def spelled(scores: Tensor) -> Tensor:
        power = torch.exp(scores - scores.amax(-1, keepdim=True))
        return power / power.sum(-1, keepdim=True)

    class Layer(ml.Graph):
        def __init__(self, s: Any, number: Any, w: Any, kind: str, slot: int, mean: bool) -> None:
            super().__init__(number)
            self.s, self.kind, self.slot, self.mean = s, kind, slot, mean
            norm = MeanNorm if mean else ml.Norm
            self.before, self.between = (norm(number, w[f"norm{i}"]) for i in range(2))
            self.query, self.key, self.value = (ml.Projection(number, w[n]) for n in "qkv")
            self.out = ml.Projection(number, w["o"], axes=3)
            self.mlp = ml.Mlp(number, {f"{n}_proj.weight": w[n] for n in ("gate", "up", "down")}, nn.functional.silu)

        def keys(self, x: Tensor, rope: Any) -> Any:
            s, length = self.s, x.shape[1]
            query = self.query(x).reshape(1, length, s.heads, s.head_dim).transpose(1, 2)
            key, value = (p(x).reshape(1, length, s.kv_heads, s.head_dim).transpose(1, 2) for p in (self.key, self.value))
            return ml.rotate(query, *rope), ml.rotate(key, *rope), value

        def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
            s, length = self.s, query.shape[2]
            times = s.heads // s.kv_heads
            scores = torch.matmul(query, ml.repeat_heads(key, times).transpose(2, 3)) * s.head_dim**-0.5 + mask
            shares = spelled(scores) if self.mean else torch.softmax(scores, -1)
            mixed = torch.matmul(shares, ml.repeat_heads(value, times))
            return self.out(mixed.transpose(1, 2).reshape(1, length, s.heads * s.head_dim))

        def forward(self, x: Tensor, rope: Any, mask: Tensor, position: Tensor, cache: Tensor, slots: int, rotate: bool) -> Tensor:
            query, key, value = self.keys(self.before(x), rope)
            length = x.shape[1]
            for row, new in ((self.slot, key), (slots + self.slot, value)):
                if rotate and self.kind == "sliding":
                    cache[row : row + 1] = torch.cat([cache[row : row + 1][:, :, length:], new], 2)
                else:
                    cache[row : row + 1, :, position : position + length] = new
            if self.kind == "sliding":
                mask = mask[..., : self.s.window]
            k, v = self.slot, slots + self.slot
            x = x + self.attend(query, cache[k : k + 1], cache[v : v + 1], mask)
            return x + self.mlp(self.between(x))

    class Decoder(ml.Graph):
        def __init__(self, s: Any, number: Any, w: Any, states: Any, rotate: bool, whole: bool, argmax: bool) -> None:
            super().__init__(number)
            self.s, self.rotate, self.whole, self.argmax = s, rotate, whole, argmax
            self.kinds = [{"s": "sliding", "f": "full"}[k] for k in s.kinds]
            self.layers = nn.ModuleList(
                Layer(s, number, ml.under(w, f"{i}."), k, self.kinds[:i].count(k), whole) for i, k in enumerate(self.kinds))
            self.norm = (MeanNorm if whole else ml.Norm)(number, w["norm"])
            cos, sin = ml.frequencies(s.base, s.head_dim, s.head_dim // 2, s.ctx)
            self.hold("cos", cos)
            self.hold("sin", sin)
            if whole:
                self.hold("table", w["table"])
                self.head = nn.ModuleList(ml.Projection(number, t) for t in w["table"].split(sizes(s)))
            for name, state in states.items():
                self.register_buffer(name, state)

        def forward(self, x: Tensor, position_ids: Tensor, causal_mask: Tensor, current_pos: Tensor) -> Any:
            if self.whole:
                x = nn.functional.embedding(x, self.table)
            rope = self.cos[position_ids][None, None], self.sin[position_ids][None, None]
            for layer in self.layers:
                cache = self.kv_cache_local if layer.kind == "sliding" else getattr(self, "kv_cache_0" if self.whole else "kv_cache_global")
                x = layer(x, rope, causal_mask, current_pos, cache, self.kinds.count(layer.kind), self.rotate)
            x = self.norm(x)
            if not self.whole:
                return x[:, -1:]
            logits = [part(x) for part in self.head]
            if not self.argmax:
                return tuple(logits)
            best = [torch.argmax(t, -1, keepdim=True) for t in logits]
            most = [torch.gather(t, -1, i) for t, i in zip(logits, best)]
            return torch.cat(best, -1).to(torch.int32), torch.cat(most, -1)

    return {"Decoder": Decoder}


def sizes(s: Any) -> list[int]:
    size, wider = divmod(s.vocab, PARTS)
    return [size + (i < wider) for i in range(PARTS)]


def draw(s: Any, random: torch.Generator) -> dict[str, Tensor]:
    def matrix(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random) / math.sqrt(shape[-1])

    weights = {"table": 0.3 * torch.randn(s.vocab, s.hidden, generator=random),
               "norm": 1 + 0.15 * torch.randn(s.hidden, generator=random)}
    for i in range(len(s.kinds)):
        own = {"q": matrix(s.heads * s.head_dim, s.hidden), "k": matrix(s.kv_heads * s.head_dim, s.hidden),
               "v": matrix(s.kv_heads * s.head_dim, s.hidden), "o": matrix(s.hidden, s.heads * s.head_dim),
               "gate": matrix(s.inter, s.hidden), "up": matrix(s.inter, s.hidden), "down": matrix(s.hidden, s.inter)}
        own |= {f"norm{n}": 1 + 0.15 * torch.randn(s.hidden, generator=random) for n in range(2)}
        weights |= {f"{i}.{k}": v for k, v in own.items()}
    return weights


def fresh(s: Any, whole: bool, number: Any) -> dict[str, Tensor]:
    kinds = {"kv_cache_local": ("s", s.window), ("kv_cache_0" if whole else "kv_cache_global"): ("f", s.ctx)}
    shapes = {k: (2 * s.kinds.count(kind), s.kv_heads, n, s.head_dim) for k, (kind, n) in kinds.items() if kind in s.kinds}
    return {k: number(torch.zeros(v)) for k, v in shapes.items()}


def calls(s: Any, start: int, end: int) -> list[tuple[int, int]]:
    """Full batches, one by one where less is left or a batch reaches over the end of the window."""
    found = []
    while start < end:
        whole = start + s.batch <= end and (not s.window or start >= s.window or start + s.batch <= s.window)
        found.append((start, s.batch if whole else 1))
        start += found[-1][1]
    return found


def play(ml: Any, s: Any, made: Any, weights: Any, sequence: Any, tokens: Tensor, whole: bool) -> tuple[Tensor, Any]:
    states = fresh(s, whole, ml.rounded)
    plain, turning = (made["Decoder"](s, ml.rounded, weights, states, rotate, whole, False) for rotate in (False, True))
    head = ml.Head(s, ml.rounded, {"lm_head.weight": weights["table"], "model.embed_tokens.weight": weights["table"]})
    mask = torch.full((s.ctx, s.ctx), -math.inf).triu(1)[None, None]
    logits = torch.full((len(tokens), s.vocab), math.nan)
    for position, length in sequence:
        span = slice(position, position + length)
        x = tokens[None, span] if whole else ml.rounded(nn.functional.embedding(tokens[None, span], ml.rounded(weights["table"])))
        model = turning if s.window and position >= s.window else plain
        out = model(x, torch.arange(s.ctx)[span], mask[:, :, span], torch.tensor([position]))
        out = torch.cat(out, -1) if whole else torch.cat(head(out), -1)
        logits[position + length - 1] = out[0, -1]
    return logits, states


def write(ml: Any, name: str, out: Path) -> None:
    whole, argmax = name.startswith("monolithic"), name.endswith("argmax")
    s = ml.Shape(name, vocab=203, hidden=40, inter=72, heads=4, kv_heads=2, head_dim=16, ctx=96, batch=8, tokens=75,
                 kinds="ff" if whole else "sfs", window=0 if whole else 32)
    made, random = modules(ml), torch.Generator().manual_seed(11)
    weights, tokens = draw(s, random), torch.randint(3, s.vocab, (s.tokens,), generator=random, dtype=torch.int32)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    functions = {}
    for function, length in (("infer", 1), ("prefill", s.batch), ("infer_rotate", 1), ("prefill_rotate", s.batch)):
        if "rotate" in function and whole:
            continue
        states = fresh(s, whole, ml.half)
        model = made["Decoder"](s, ml.half, weights, states, "rotate" in function, whole, argmax)
        first = torch.zeros(1, length, dtype=torch.int32) if whole else torch.zeros(1, length, s.hidden).half()
        inputs = {"input_ids" if whole else "hidden_states": first, "position_ids": torch.arange(length, dtype=torch.int32),
                  "causal_mask": torch.zeros(1, 1, length, s.ctx).half(), "current_pos": torch.zeros(1, dtype=torch.int32)}
        outputs = [f"logits{i + 1}" for i in range(PARTS)] if whole else ["output_hidden_states"]
        functions[function] = ml.convert(model, inputs, ["argmax_idx", "argmax_val"] if argmax else outputs, states)
    keys: dict[str, Any] = {"context_length": s.ctx, "batch_size": s.batch, "vocab_size": s.vocab, "prefill_dynamic_slice": True}
    if whole:
        ml.join(functions, folder / "llama_monolithic_full.mlpackage", s, {})
        keys |= {"lm_head_chunk_sizes": sizes(s), "argmax_in_model": argmax}
    else:
        ml.join(functions, folder / "gemma3_FFN_PF_chunk_01of01.mlpackage", s, {})
        both = {"lm_head.weight": weights["table"], "model.embed_tokens.weight": weights["table"]}
        model = ml.convert(ml.Embeddings(s, ml.half, both), {"input_ids": torch.zeros(1, 1, dtype=torch.int32)}, ["hidden_states"],
                           batch=s.batch)
        ml.finish(model, folder / "gemma3_embeddings.mlpackage", s, {})
        model = ml.convert(ml.Head(s, ml.half, both), {"hidden_states": torch.zeros(1, 1, s.hidden).half()},
                           [f"logits{i + 1}" for i in range(ml.HEAD_PARTS)])
        ml.finish(model, folder / "gemma3_lm_head.mlpackage", s, {})
        keys |= {"lm_head_chunk_sizes": s.head_sizes, "sliding_window": s.window, "prefill_last_token_output": True}
    (folder / "meta.yaml").write_text(ml.yaml.dump({"model_info": {
        "name": f"anemll-example-{name}", "version": "0.3.5", "architecture": "llama" if whole else "gemma3", "parameters": keys}},
        sort_keys=False, default_flow_style=None))
    ml.write_tokenizer(folder, s)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 2, "vocab_size": s.vocab}))
    record: dict[str, Tensor] = {"tokens": tokens}
    one, turn = calls(s, 0, s.tokens), calls(s, 0, 21) + [(p, 1) for p in range(21, 26)] + calls(s, 26, s.tokens)
    with torch.no_grad():
        record["turns.logits_f16"], _ = play(ml, s, made, weights, turn, tokens, whole)
        record["logits_f16"], states = play(ml, s, made, weights, one, tokens, whole)
    record |= {"calls": torch.tensor(one, dtype=torch.int32), "turns.calls": torch.tensor(turn, dtype=torch.int32)}
    record |= {f"state.model_model_{k}": v for k, v in states.items()}
    if argmax:
        del record["logits_f16"], record["turns.logits_f16"]
        logits, _ = play(ml, s, made, weights, one, tokens, whole)
        record["largest"] = torch.where(logits.isfinite().all(-1), logits.nan_to_num().argmax(-1), -1).int()
    ml.save_file({k: v.contiguous() for k, v in record.items()}, out / f"{name}.safetensors",
                 metadata={"shape": json.dumps(asdict(s))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="folder that holds coreml_lm.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    sys.path.insert(0, str(args.models))
    import coreml_lm as ml

    for name in ("rotating", "monolithic", "monolithic-argmax"):
        if not args.only or name in args.only:
            write(ml, name, args.out)
            print(f"{name}: written", flush=True)


if __name__ == "__main__":
    main()
