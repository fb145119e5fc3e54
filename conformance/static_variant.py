"""Write a second static bundle: palettized weights, and inputs whose buffers have hardware constraints (environment of `coreai_static.py`).

    python conformance/static_variant.py --static FOLDER-OF-coreai_static.py --out fixtures/static-palette

Every eight channels of a weight hold sixteen values, so that the palettes of the exporter are exact; constraints are set with the calls
that exporters use. `tokens.json` has what the weights give in float32 (`static_tokens.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

GROUP, LEVELS = 8, 16


def few_values(weight: torch.Tensor) -> torch.Tensor:
    """The weight with sixteen values for every eight output channels."""
    groups = weight.reshape(weight.shape[0] // GROUP, -1)
    low, high = groups.min(1, keepdim=True).values, groups.max(1, keepdim=True).values
    steps = torch.round((groups - low) / (high - low) * (LEVELS - 1))
    values = low + (high - low) * torch.arange(LEVELS) / (LEVELS - 1)
    return torch.gather(values.half().float(), 1, steps.long()).reshape(weight.shape)


def constrain(program: Any, queries: tuple[int, ...]) -> None:
    """An interleaved embedding table and aligned rows of activations."""
    from coreai._compiler.types import AllocationType, HardwareConstraints

    surface = AllocationType.IOSurface
    table = HardwareConstraints(surface, alignments=[1, 1, 1, 1], interleave=[8, 1, 1])
    rows = HardwareConstraints(surface, alignments=[1, 1, 1, 64, 1], interleave=[1, 1, 1, 1])
    program.set_hardware_constraints("load_embeddings", {"embedding_table": table})
    for n in queries:
        program.set_hardware_constraints(f"gather_embeddings_{n}", {"embedding_table": table, "gathered_embeddings": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--static", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    sys.path.insert(0, str(args.static))
    import coreai_static as cs
    from coreai_opt.coreai_utils.common import CompressionGranularity
    from coreai_opt.coreai_utils.passes.weight_palettization import palettize_weights
    from static_tokens import record

    torch.manual_seed(args.seed)
    extend, prompt = cs.Extend(), cs.PromptOpt()
    with torch.no_grad():
        for name, weight in extend.named_parameters():
            if weight.dim() == 4 and weight.shape[0] > 1:
                weight.copy_(few_values(weight))
    prompt.load_state_dict(extend.state_dict())
    reference = cs.Extend()
    reference.load_state_dict({k: v.half().float() if v.dim() == 4 else v for k, v in extend.state_dict().items()})
    embedding = torch.randn(cs.VOCAB, 1, cs.HIDDEN)
    scale = float(np.float16(embedding.abs().max().item() / 127))
    table = torch.clamp(torch.round(embedding / scale), -127, 127).to(torch.int8)
    for module in (extend, prompt):
        module.scale = scale
        module.half().eval().requires_grad_(False)
    program = cs.convert(extend, prompt, table, scale)
    palettize_weights(program, None, n_bits=4, granularity=CompressionGranularity.PER_GROUPED_CHANNEL, group_size=GROUP,
                      enable_fast_kmeans_mode=False, num_kmeans_workers=1, in_place=True)
    constrain(program, cs.QUERIES)
    bundle = args.out / "palette"
    bundle.mkdir(parents=True, exist_ok=True)
    program.save_asset(bundle / "palette.aimodel")
    cs.tokenizer(bundle / "tokenizer", cs.VOCAB)
    (bundle / "metadata.json").write_text(json.dumps({
        "metadata_version": "0.2", "kind": "llm", "name": "palette", "assets": {"main": "palette.aimodel"},
        "language": {"tokenizer": "example/palette", "vocab_size": cs.VOCAB, "max_context_length": cs.LADDER[-1],
                     "embedded_tokenizer": True},
        "source": {"model_definition": "torch", "hf_model_id": "example/palette"}, "compression": "4bit",
        "compilation": {"date": "2026-11-30T00:00:00+00:00", "targets": []}}, indent=2))
    record(cs, reference, table, scale, args.seed, args.out / "tokens.json")


if __name__ == "__main__":
    main()
