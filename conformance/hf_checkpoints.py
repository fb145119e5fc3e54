"""Write tiny random Hugging Face checkpoints, and what transformers computes for them in float32.

    python3 -m venv .oracle && .oracle/bin/pip install torch==2.9.0 transformers==5.5.0 safetensors tokenizers
    .oracle/bin/python hf_checkpoints.py --out DIR [--seeds 1 2 3] [--only qwen3 ...] [--list]

`DIR/<name>-<seed>/` is a checkpoint as its family is released: `config.json` in the old or the new spelling of rotary
embedding, `model.safetensors` or shards with an index, and the prefixes of keys that real releases have.
`DIR/<name>-<seed>.safetensors` holds `tokens` int32 [n] and `logits` float32 [n, vocab] of one call; and, where they differ
because frequencies depend on the length of the sequence, `steps`, the logits of one call a token. Otherwise calls of one token
each were seen to give `logits` within 2e-5 of their scale.

Where transformers can load the folder as a language model, the logits are those of the loaded folder; else (composite models
whose vision part is left out) those of the model in memory whose weights were written.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM

Config = dict[str, Any]
Weights = dict[str, torch.Tensor]

TOKENS = 28
PLAIN = dict(vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
DELTA = dict(PLAIN, head_dim=16, linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=12,
             linear_num_key_heads=2, linear_num_value_heads=4)


@dataclass
class Variant:
    """One model: a config class with its values, and what is done to the files that transformers would write."""

    name: str
    family: str
    values: Config
    edit: Callable[[Config], Config] = lambda c: c
    rename: Callable[[Weights], Weights] = lambda w: w
    loads: bool = True
    dtype: torch.dtype = torch.float32
    shards: int = 1
    steps: bool = True
    committed: bool = False
    classes: tuple[str, str] = field(default=("", ""))


def old_rope(config: Config) -> Config:
    """The spelling before transformers 5: `rope_theta` and `rope_scaling`."""
    config = dict(config)
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    kind = rope.pop("rope_type", "default")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, "rope_type": kind, **rope}
    return config


def old_gemma3(config: Config) -> Config:
    config = dict(config)
    rope = config.pop("rope_parameters")
    scaling = {k: v for k, v in rope["full_attention"].items() if k != "rope_theta"}
    config["rope_theta"] = rope["full_attention"]["rope_theta"]
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
    config.pop("layer_types")
    config["sliding_window_pattern"] = 3
    return config


def nested(kind: str, architecture: str, **outer: Any) -> Callable[[Config], Config]:
    """The config of a model with a vision part, which is left out here."""

    def edit(config: Config) -> Config:
        text = {k: v for k, v in config.items() if k != "architectures"}
        return {"architectures": [architecture], "model_type": kind, "text_config": text,
                "vision_config": {"model_type": kind + "_vision", "hidden_size": 8}, **outer}

    return edit


def prefixed(old: str, new: str, extra: tuple[str, ...] = (), head: str = "") -> Callable[[Weights], Weights]:
    """Keys under another prefix, beside weights of other parts that a language model leaves alone."""

    def rename(weights: Weights) -> Weights:
        out = {new + k.removeprefix(old) if k.startswith(old) else head + k: v for k, v in weights.items()}
        return out | {name: torch.ones(4, 4) for name in extra}

    return rename


def per_expert(weights: Weights) -> Weights:
    """The stacked experts of the model in memory as one weight each, as released."""
    out: Weights = {}
    for key, value in weights.items():
        if key.endswith("experts.gate_up_proj"):
            base = key.removesuffix("gate_up_proj")
            for i, both in enumerate(value):
                gate, up = both.chunk(2)
                out[f"{base}{i}.gate_proj.weight"] = gate.contiguous()
                out[f"{base}{i}.up_proj.weight"] = up.contiguous()
        elif key.endswith("experts.down_proj"):
            for i, down in enumerate(value):
                out[f"{key.removesuffix('down_proj')}{i}.down_proj.weight"] = down.contiguous()
        else:
            out[key] = value
    return out


def then(*steps: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return run


def without(*keys: str) -> Callable[[Config], Config]:
    return lambda c: {k: v for k, v in c.items() if k not in keys}


LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16)
LONG = dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.1, 1.2, 1.4], long_factor=[1.0, 1.5, 2.0, 4.0])
LONG3 = dict(LONG, partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.3], long_factor=[1.0, 1.7, 3.0])
GEMMA = dict(PLAIN, head_dim=12, num_hidden_layers=3, query_pre_attn_scalar=10, sliding_window=7,
             layer_types=["sliding_attention", "sliding_attention", "full_attention"],
             rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                              "full_attention": {"rope_type": "linear", "rope_theta": 900.0, "factor": 8.0}})
GEMMA4 = dict(PLAIN, head_dim=8, global_head_dim=16, num_hidden_layers=6, sliding_window=6, vocab_size_per_layer_input=48,
              hidden_size_per_layer_input=8, num_kv_shared_layers=2, use_double_wide_mlp=True, final_logit_softcapping=12.0,
              layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
              rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                               "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                                  "rope_theta": 900.0}})
MIXERS = ["linear_attention", "linear_attention", "full_attention"]
TOWER = ("mtp.layers.0.input_layernorm.weight", "model.visual.blocks.0.attn.qkv.weight")


def variants() -> list[Variant]:
    rope = lambda **kw: dict(rope_parameters=dict(dict(rope_type="default", rope_theta=100.0), **kw))  # noqa: E731
    all_ = [
        Variant("llama", "Llama", PLAIN | rope(), committed=True),
        Variant("llama-old-llama3", "Llama", PLAIN | dict(rope_parameters=LLAMA3, tie_word_embeddings=True),
                edit=old_rope, committed=True, dtype=torch.bfloat16),
        Variant("llama-biases", "Llama", PLAIN | rope() | dict(attention_bias=True, mlp_bias=True, head_dim=12)),
        Variant("llama-linear", "Llama", PLAIN | rope(rope_type="linear", factor=4.0), edit=old_rope),
        Variant("llama-dynamic", "Llama", PLAIN | rope(rope_type="dynamic", factor=4.0), edit=old_rope),
        Variant("llama-sharded", "Llama", PLAIN | rope() | dict(num_key_value_heads=4), shards=3, dtype=torch.float16,
                committed=True),
        Variant("mistral", "Mistral", PLAIN | rope() | dict(sliding_window=9), edit=old_rope, committed=True,
                dtype=torch.bfloat16),
        Variant("mistral-full", "Mistral", PLAIN | rope() | dict(sliding_window=None, head_dim=16)),
        Variant("mistral-yarn", "Mistral", PLAIN | dict(rope_parameters=YARN, sliding_window=None)),
        Variant("qwen2", "Qwen2", PLAIN | rope() | dict(tie_word_embeddings=True), edit=old_rope, committed=True),
        Variant("qwen2-windows", "Qwen2", PLAIN | rope() | dict(use_sliding_window=True, sliding_window=5,
                max_window_layers=1), edit=then(old_rope, without("layer_types"))),
        Variant("qwen2-yarn", "Qwen2", PLAIN | dict(rope_parameters=YARN), edit=old_rope),
        Variant("qwen3", "Qwen3", PLAIN | rope() | dict(head_dim=16, tie_word_embeddings=True), committed=True,
                dtype=torch.bfloat16),
        Variant("qwen3-yarn", "Qwen3", PLAIN | dict(rope_parameters=dict(YARN, beta_fast=4.0, beta_slow=0.5), head_dim=16,
                attention_bias=True), edit=old_rope, committed=True),
        Variant("phi3", "Phi3", PLAIN | rope(), edit=old_rope, committed=True),
        Variant("phi3-long", "Phi3", PLAIN | dict(rope_parameters=LONG, original_max_position_embeddings=16,
                sliding_window=60), edit=old_rope, steps=False, committed=True),
        Variant("phi3-partial", "Phi3", PLAIN | dict(rope_parameters=LONG3, original_max_position_embeddings=64,
                max_position_embeddings=64, tie_word_embeddings=True), edit=old_rope),
        Variant("phi3-partial-long", "Phi3", PLAIN | dict(rope_parameters=LONG3, original_max_position_embeddings=8,
                max_position_embeddings=64), steps=False),
        Variant("gemma3", "Gemma3Text", GEMMA, edit=old_gemma3, committed=True, dtype=torch.float16,
                classes=("", "Gemma3ForCausalLM")),
        Variant("gemma3-nested", "Gemma3Text", GEMMA, loads=False, classes=("", "Gemma3ForCausalLM"),
                edit=then(old_gemma3, nested("gemma3", "Gemma3ForConditionalGeneration")),
                rename=prefixed("model.", "language_model.model.", ("vision_tower.vision_model.head.probe",
                                "multi_modal_projector.mm_input_projection_weight"), "language_model.")),
        Variant("gemma3-new", "Gemma3Text", GEMMA | dict(final_logit_softcapping=5.0), classes=("", "Gemma3ForCausalLM")),
    ]
    moe = PLAIN | dict(head_dim=16, moe_intermediate_size=20, num_experts=6, num_experts_per_tok=2, num_hidden_layers=3)
    all_ += [
        Variant("qwen3_moe", "Qwen3Moe", moe | rope() | dict(norm_topk_prob=True), edit=old_rope, rename=per_expert,
                committed=True, dtype=torch.bfloat16),
        Variant("qwen3_moe-mixed", "Qwen3Moe", moe | rope() | dict(norm_topk_prob=False, mlp_only_layers=[1],
                tie_word_embeddings=True), rename=per_expert),
        Variant("qwen3_moe-sparse", "Qwen3Moe", moe | rope() | dict(norm_topk_prob=True, decoder_sparse_step=2,
                use_sliding_window=True, sliding_window=6)),
    ]
    delta = DELTA | rope(partial_rotary_factor=0.25) | dict(num_hidden_layers=3, layer_types=MIXERS)
    delta_moe = delta | dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
                             shared_expert_intermediate_size=20)
    linear = without("layer_types")
    all_ += [
        Variant("qwen3_5", "Qwen3_5Text", delta, classes=("", "Qwen3_5ForCausalLM"), committed=True,
                dtype=torch.bfloat16),
        Variant("qwen3_5-nested", "Qwen3_5Text", delta | dict(tie_word_embeddings=True), classes=("", "Qwen3_5ForCausalLM"),
                edit=then(lambda c: linear(c) | dict(full_attention_interval=3),
                          nested("qwen3_5", "Qwen3_5ForConditionalGeneration", tie_word_embeddings=True)),
                rename=prefixed("model.", "model.language_model.", TOWER), loads=False, dtype=torch.bfloat16,
                committed=True),
        Variant("qwen3_5_moe", "Qwen3_5MoeText", delta_moe, classes=("", "Qwen3_5MoeForCausalLM"), rename=per_expert),
        Variant("qwen3_5_moe-nested", "Qwen3_5MoeText", delta_moe, classes=("", "Qwen3_5MoeForCausalLM"),
                edit=nested("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
                rename=prefixed("model.", "model.language_model.", TOWER), loads=False, committed=True,
                dtype=torch.bfloat16),
        Variant("gemma4", "Gemma4Text", GEMMA4, classes=("", "Gemma4ForCausalLM"), committed=True, dtype=torch.bfloat16),
        Variant("gemma4-nested", "Gemma4Text", GEMMA4 | dict(num_kv_shared_layers=0, hidden_size_per_layer_input=0,
                attention_k_eq_v=True, num_global_key_value_heads=1), classes=("", "Gemma4ForCausalLM"),
                edit=nested("gemma4", "Gemma4ForConditionalGeneration"), loads=False,
                rename=prefixed("model.", "model.language_model.", ("model.vision_tower.patch.weight",
                                "model.embed_vision.embedding_projection.weight"))),
        Variant("gemma4-experts", "Gemma4Text", GEMMA4 | dict(enable_moe_block=True, num_experts=5, top_k_experts=2,
                moe_intermediate_size=12, num_kv_shared_layers=0, use_double_wide_mlp=False, global_head_dim=8),
                classes=("", "Gemma4ForCausalLM")),
    ]
    return all_


def randomize(model: torch.nn.Module, seed: int, dtype: torch.dtype) -> None:
    """Weights of this type that keep the logits between 1 and 10, and make every part of the model matter."""
    g = torch.Generator().manual_seed(seed)
    tensors = list(model.named_parameters()) + [b for b in model.named_buffers() if b[0].endswith("layer_scalar")]
    for name, p in tensors:
        noise = torch.randn(p.shape, generator=g)
        if name.endswith("layer_scalar"):
            new = 1 + 0.2 * noise
        elif name.endswith("A_log"):
            new = 0.5 * noise - 1.5  # much is kept: else a norm of next to nothing follows, and errors grow with it
        elif p.dim() == 1 and bool((p == p[0]).all()):
            new = p.detach() + 0.3 * noise
        elif "embed_tokens" in name:
            new = noise * (0.3 if model.config.tie_word_embeddings else 1.0)
        elif "conv1d" in name:
            new = 0.5 * noise
        else:
            new = 1.2 * noise / p.shape[-1] ** 0.5
        with torch.no_grad():
            p.copy_(new.to(dtype))


def logits(model: torch.nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        whole = model(tokens[None], use_cache=True).logits[0].float()
        cache, rows = None, []
        for token in tokens:
            out = model(token[None, None], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            rows.append(out.logits[0, -1].float())
    return whole, torch.stack(rows)


def store(folder: Path, weights: Weights, shards: int) -> None:
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    index, names = {}, sorted(weights)
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {k: weights[k] for k in names[i::shards]}
        save_file(part, folder / name, metadata={"format": "pt"})
        index |= dict.fromkeys(part, name)
    size = sum(w.numel() * w.element_size() for w in weights.values())
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=1)
    (folder / "model.safetensors.index.json").write_text(text)


def tokenizer(folder: Path, vocab: int) -> None:
    """A word for every token, so that the folder can be talked to."""
    words = {f"w{i}": i for i in range(vocab)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.decoder = decoders.Fuse()
    made.save(str(folder / "tokenizer.json"))


def write(v: Variant, seed: int, out: Path) -> str:
    config = getattr(transformers, v.classes[0] or f"{v.family}Config")(
        **v.values, bos_token_id=1, eos_token_id=2, pad_token_id=0, attn_implementation="eager")
    torch.manual_seed(seed)
    model = getattr(transformers, v.classes[1] or f"{v.family}ForCausalLM")(config).float().eval()
    randomize(model, seed, v.dtype)
    folder = out / f"{v.name}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    weights = {k: w.to(v.dtype).contiguous().clone() for k, w in model.state_dict().items()}
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    store(folder, v.rename(weights), v.shards)
    named = complete(config) | {"model_type": config.model_type, "architectures": [type(model).__name__]}
    written = v.edit(named)
    (folder / "config.json").write_text(json.dumps(written, indent=1, default=str) + "\n")
    tokenizer(folder, config.vocab_size)
    g = torch.Generator().manual_seed(seed + 1000)
    tokens = torch.randint(0, config.vocab_size, (TOKENS,), generator=g)
    whole, steps = logits(model, tokens)
    if v.loads:
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        again, steps = logits(loaded, tokens)
        assert (again - whole).abs().max() < 1e-6, f"{v.name}: the folder loads as another model"
    apart = float((steps - whole).abs().max())
    scale = float(whole.abs().max())
    record = {"tokens": tokens.int(), "logits": whole}
    if v.steps:
        assert apart < 2e-5 * max(scale, 1.0), f"{v.name}: token by token differs by {apart}"
    else:
        record["steps"] = steps
    save_file(record, out / f"{folder.name}.safetensors", metadata={"seed": str(seed), "transformers": transformers.__version__})
    return f"{folder.name}: largest logit {scale:.2f}, steps differ by {apart:.1e}"


def complete(config: Any) -> Config:
    """What `save_pretrained` writes: every field of the class, also those that have their default."""
    return {k: v for k, v in config.to_dict().items() if not k.startswith("_") and k not in ("dtype", "transformers_version")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--committed", action="store_true", help="only those that fixtures/checkpoint holds")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    chosen = [v for v in variants() if (not args.only or v.name in args.only) and (v.committed or not args.committed)]
    for v in chosen:
        for seed in args.seeds:
            print(v.name if args.list else write(v, seed, args.out), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
