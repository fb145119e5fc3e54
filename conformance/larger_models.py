"""Write decoder-only models with random weights as Core AI bundles, large enough to measure speed with.

    python larger_models.py --models DIR_WITH_coreai_lm.py --out DIR [--only moe-4bit]

`coreai_lm.py` defines tiny models and writes them; here it writes shapes of 12 layers and width 1,024 in int4 by 32, and
SmolLM2-135M's shape in float16. Nothing is recorded. Needs the packages that `coreai_lm.py` names (coreai-core 1.0.0b2).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def experts_of(lm: Any) -> type:
    class Experts(nn.Module):
        """Experts as the public exporter stores them: `[experts, out, in]`, turned in the graph."""

        def __init__(self, s: Any) -> None:
            super().__init__()
            self.s = s
            self.router = nn.Linear(s.hidden, s.experts, bias=False)
            self.gate_up = nn.Parameter(torch.randn(s.experts, 2 * s.inter, s.hidden) * s.hidden**-0.5)
            self.down = nn.Parameter(torch.randn(s.experts, s.hidden, s.inter) * s.inter**-0.5)
            self.gather_mm = lm.GatherMM()

        def forward(self, x: Tensor) -> Tensor:
            s, q = self.s, x.shape[1]
            scores = torch.softmax(self.router(x).to(torch.float32), -1)
            weight, chosen = torch.topk(scores, s.top_k, dim=-1)
            weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
            chosen = chosen.view(q, s.top_k).to(torch.int32)
            rows = x.view(q, 1, 1, s.hidden)
            gate, up = self.gather_mm(rows, self.gate_up.transpose(-1, -2), None, chosen).chunk(2, dim=-1)
            down = self.gather_mm(F.silu(gate) * up, self.down.transpose(-1, -2), None, chosen)
            return (down.squeeze(2) * weight.view(q, s.top_k, 1)).sum(1).view(1, q, s.hidden)

    return Experts


def shapes(lm: Any) -> list[Any]:
    big = {"vocab": 32000, "hidden": 1024, "inter": 3072, "layers": 12, "heads": 16, "kv_heads": 8, "head_dim": 64, "ctx": 4096}
    some = {**big, "inter": 512, "experts": 16}
    return [
        lm.Shape("smollm2-f16", vocab=49152, hidden=576, inter=1536, layers=30, heads=9, kv_heads=3, head_dim=64, ctx=4096, base=1e5),
        lm.Shape("qwen3-4bit", qk_norm=True, bits=4, base=1e6, **big),
        lm.Shape("gemma3-4bit", qk_norm=True, window=512, plus_one=True, embed_scale=True, gelu=True, bits=4, **big),
        lm.Shape("moe-4bit", qk_norm=True, bits=4, **some),
        lm.Shape("delta-4bit", qk_norm=True, delta=True, bits=4, **big),
    ]


def compress_more(lm: Any) -> None:
    """Leave norms alone (theirs is a sum, which the quantizer would take for weights), and compress the experts' stacks too."""
    from coreai_opt.quantization import QuantizerConfig

    plain, block = QuantizerConfig.from_dict, {"type": "per_block", "block_size": (1, 1, 32)}
    stack = {"dtype": "int4", "qscheme": "symmetric_with_clipping", "granularity": block}
    nothing = {"op_state_spec": None, "op_input_spec": None, "op_output_spec": None}

    def from_dict(config: dict[str, Any]) -> Any:
        top = config["quantization_config"]
        types, weight = top["module_type_configs"], top["global_config"]["op_state_spec"]["weight"]
        types[f"{lm.Norm.__module__}.{lm.Norm.__qualname__}"] = nothing
        types[f"{lm.Experts.__module__}.{lm.Experts.__qualname__}"] = {
            **nothing,
            "op_state_spec": {"weight": weight},
            "module_state_spec": {"gate_up": stack, "down": stack},
        }
        return plain(config)

    QuantizerConfig.from_dict = from_dict


async def nothing_recorded(*_: Any) -> dict[str, Tensor]:
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="folder that holds coreai_lm.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    sys.path.insert(0, str(args.models))
    import coreai_lm as lm

    lm.Experts = experts_of(lm)
    lm.converse, lm.save_file = nothing_recorded, lambda *_, **__: None
    compress_more(lm)
    for shape in shapes(lm):
        if not args.only or shape.name in args.only:
            lm.write(shape, 1, args.out)
            print(f"{shape.name}: written", flush=True)


if __name__ == "__main__":
    main()
