"""Write the models that `crates/russet/tests/conversations.rs` talks with (environment of `coreai_lm.py`, which is imported).

    python conformance/turns.py --lm FOLDER-OF-coreai_lm.py --out fixtures/turns

They are those of `coreai_lm.py` but for two things. Their rotations get the positions as positions, so that a call does not depend
on how the tokens before it were cut into calls. And their caches are of open length, so that they can grow. One more, `one`,
takes a token at a time.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any


FIXED = {"one": 1}


def patched(folder: Path) -> Any:
    """The module `coreai_lm` with positions that are positions, caches that are open, and nothing recorded."""
    sys.path.insert(0, str(folder))
    import coreai_lm as lm
    import coreai_torch
    import torch

    forward = lm.RoPE.forward

    def by_position(self: Any, input: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return forward(self, input, position_ids=position_ids)

    # The exporter reads the types themselves.
    by_position.__annotations__ = {"input": torch.Tensor, "position_ids": torch.Tensor, "return": torch.Tensor}
    lm.RoPE.forward = by_position

    def convert(model: Any, dtype: torch.dtype) -> Any:
        s = model.s
        fixed = FIXED.get(s.name)
        args = {"input_ids": torch.zeros(1, fixed or 4, dtype=torch.int32), "position_ids": torch.arange(12, dtype=torch.int32)[None]}
        args |= lm.states(model, 64, dtype)
        dim = torch.export.Dim
        query, total, rows = dim("query", min=1, max=s.ctx - 2), dim("total", min=(fixed or 0) + 1, max=s.ctx - 1), dim("rows", min=9, max=s.ctx)
        dynamic: dict[str, Any] = {k: {3: rows} if k.endswith("Cache") else None for k in args}
        dynamic |= {"input_ids": None if fixed else {1: query}, "position_ids": {1: total}}
        converter = coreai_torch.TorchConverter(mode=coreai_torch.TorchConverter.Mode.RELEASE)

        def export(module: torch.nn.Module) -> Any:
            with torch.no_grad():
                program = torch.export.export(module, args=(), kwargs=args, dynamic_shapes=dynamic)
            return program.run_decompositions(coreai_torch.get_decomp_table())

        converter.add_pytorch_module(
            model, export_fn=export,
            externalize_modules=[coreai_torch.ExternalizeSpec(target_class=c, composite_op_name=n, composite_attrs=a)
                                 for c, n, a in lm.EXTERNAL],
            input_names=("input_ids", "position_ids"), output_names=("logits",),
            state_names=tuple(k for k in args if k not in ("input_ids", "position_ids")),
        )
        program = converter.to_coreai()
        if hasattr(program, "optimize"):
            program.optimize()
        return program

    async def nothing(*_: Any) -> dict[str, Any]:
        return {}

    lm.convert, lm.converse, lm.save_file = convert, nothing, lambda *_, **__: None
    return lm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    lm = patched(args.lm)
    wanted = ("llama", "qwen2", "qwen3-4bit", "gemma3", "moe", "delta")
    llama = next(s for s in lm.SHAPES if s.name == "llama")
    for shape in lm.SHAPES + [replace(llama, name=name) for name in FIXED]:
        if shape.name in (args.only or wanted + tuple(FIXED)):
            lm.write(replace(shape, ctx=512, tie=False), args.seed, args.out)
            print(shape.name, flush=True)


if __name__ == "__main__":
    main()
