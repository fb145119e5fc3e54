"""How far torch itself is from the recorded conversations.

    python torch_distance.py --models DIR_WITH_coreai_lm.py --records DIR [--only qwen3]

`coreai_lm.py` defines tiny decoder-only models and wrote one recording for each: the seven calls of a conversation as
the Core AI runtime answered them, together with the float32 weights. This script loads the weights into the same torch
modules, in the precision of the recording, repeats the seven calls, and prints for each model

* the worst `|d| / (1 + |x|)` over all logits, `d` the difference and `x` the recorded value,
* the smallest cosine of a row of logits with the recorded row,
* rows whose argmax differs although the recorded top two lie further apart than the worst `|d|` of that row,
* the worst `|d| / (1 + |x|)` over the states at the end.

The figures are the torch columns of `docs/lm-distances.md`: any second implementation in the same precision lands at a
comparable distance, so they say what to expect of one.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def build(lm, record: dict[str, torch.Tensor], shape):
    """The torch model of a recording, in its precision, its weights compressed as they were."""
    model = (lm.Hybrid if shape.delta else lm.Plain)(shape)
    weights = {k.removeprefix("weights."): v for k, v in record.items() if k.startswith("weights.")}
    weights.setdefault("head.weight", weights["embed.weight"])
    model.load_state_dict(weights)
    dtype = getattr(torch, shape.dtype)
    model = model.to(dtype).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    kinds = model.attention_layers, model.delta_layers
    if shape.bits:
        model = lm.compress(model, shape.bits, dtype)
    model.s, (model.attention_layers, model.delta_layers) = shape, kinds
    return model, dtype


def distance(ours: torch.Tensor, recorded: torch.Tensor) -> float:
    return ((ours - recorded).abs() / (1 + recorded.abs())).max().item()


def rows(ours: torch.Tensor, recorded: torch.Tensor) -> tuple[float, int]:
    """The smallest cosine of a row, and the rows whose argmax differs without the excuse of a near tie."""
    a, b = ours.reshape(-1, ours.shape[-1]).double(), recorded.reshape(-1, recorded.shape[-1]).double()
    cosine = torch.nn.functional.cosine_similarity(a, b, dim=-1).min().item()
    top = b.topk(2, dim=-1).values
    decided = top[:, 0] - top[:, 1] > (a - b).abs().amax(dim=-1)
    return cosine, int(((a.argmax(-1) != b.argmax(-1)) & decided).sum())


def replay(lm, path: Path) -> str:
    record, metadata = read(path)
    shape = lm.Shape(**json.loads(metadata["shape"]))
    model, dtype = build(lm, record, shape)
    states = lm.states(model, shape.ctx, dtype)
    worst, cosine, misses, call = 0.0, 1.0, 0, 0
    while f"call{call}.logits" in record:
        inputs = [record[f"call{call}.{name}"] for name in ("input_ids", "position_ids")]
        with torch.no_grad():
            logits = model(*inputs, *states.values()).float()
        recorded = record[f"call{call}.logits"]
        worst = max(worst, distance(logits, recorded))
        least, missed = rows(logits, recorded)
        cosine, misses, call = min(cosine, least), misses + missed, call + 1
    ends = max(distance(value.float(), record[f"state.{name}"]) for name, value in states.items())
    return f"| {path.stem} | {shape.dtype} | {worst:.3g} | {1 - cosine:.2g} | {misses} | {ends:.3g} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="folder that holds coreai_lm.py")
    parser.add_argument("--records", type=Path, required=True, help="folder of <name>.safetensors")
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    sys.path.insert(0, str(args.models))
    import coreai_lm as lm

    torch.set_num_threads(1)
    print("| model | precision | worst logit | 1 - cosine | argmax misses | worst state |\n|---|---|---|---|---|---|")
    for path in sorted(args.records.glob("*.safetensors")):
        if not args.only or path.stem in args.only:
            print(replay(lm, path), flush=True)


if __name__ == "__main__":
    main()
