"""Export the composites of `coreai-torch` one by one, with what the Core AI runtime computes for them.

    python composites.py --out DIR [--only rope]

needs `coreai-core`, `coreai-torch` and `torch` (1.0.0b2 and 2.9 were used). Every case is one module of `coreai_torch.composite_ops`
(or, for `unknown`, one of our own) exported as a composite, which a function `main` calls: `DIR/NAME/CASE.aimodel` is the asset,
`DIR/NAME/CASE.safetensors` holds every input as `in.NAME` and the result as `out.NAME`. `cargo xtask conformance ops DIR` repeats
the calls, with the composite whole and by its body.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

import coreai_torch
from coreai.runtime import NDArray
from coreai_torch.composite_ops import SDPA, GatedDeltaUpdate, GatherMM, RMSNormImpl, RoPE

F16, F32, BF16 = torch.float16, torch.float32, torch.bfloat16
SHORT = {F16: "f16", F32: "f32", BF16: "bf16"}
R = torch.Generator().manual_seed(11)


class Halved(nn.Module):
    """A composite that nobody knows: it runs by its body."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * self.by + x.mean(-1, keepdim=True)


class Caller(nn.Module):
    """Calls a composite with keyword operands."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


@dataclass
class Case:
    op: str
    name: str
    module: nn.Module
    attributes: list[str]
    inputs: dict[str, Tensor]
    dynamic: dict[str, dict[int, str]] = field(default_factory=dict)


CASES: list[Case] = []


def case(op: str, name: str, module: nn.Module, attributes: list[str], inputs: dict[str, Tensor], **dynamic: dict[int, str]) -> None:
    CASES.append(Case(op, name, module, attributes, inputs, dynamic))


def normal(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.randn(*shape, generator=R).to(dtype)


def whole(*shape: int, high: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.randint(0, high, shape, generator=R).to(dtype)


# ---- the composites and their variants -------------------------------------------------------------------------------------------


def norms() -> None:
    def add(name: str, x: Tensor, scale: Tensor, eps: float = 1e-6, **dynamic: dict[int, str]) -> None:
        case("rms_norm", name, RMSNormImpl(eps=eps), ["axes", "eps"], {"input": x, "scale": scale}, **dynamic)

    for dtype in (F32, F16, BF16):
        add(SHORT[dtype], normal(1, 3, 20, dtype=dtype), normal(20, dtype=dtype))
    add("heads", normal(1, 3, 4, 16, dtype=F16), normal(3, 1, 16, dtype=F16), 1e-5)
    add("dynamic", normal(1, 5, 24, dtype=F16), normal(24, dtype=F16), input={1: "q"})
    add("wide_scale", normal(2, 3, 16, dtype=F16), normal(16, dtype=F32))
    add("wide_scale_bf16", normal(1, 3, 16, dtype=BF16), normal(16, dtype=F32), 1e-5)


def attentions() -> None:
    attributes = ["scale", "is_causal", "window_size"]

    def add(name: str, q: int, s: int, *, dtype: torch.dtype = F16, batch: int = 1, heads: int = 4, groups: int = 2, dynamic: bool = False,
            mask: tuple[int, ...] | None = None, sinks: bool = False, width: int = 16, values: int = 16, **how: Any) -> None:
        inputs = {"query": normal(batch, heads, q, width, dtype=dtype), "key": normal(batch, groups, s, width, dtype=dtype),
                  "value": normal(batch, groups, s, values, dtype=dtype)}
        if mask is not None:
            hidden = torch.rand(*mask, generator=R) < 0.4
            inputs["attn_mask"] = ~hidden
        if sinks:
            inputs["sinks"] = normal(heads, dtype=dtype)
        lengths = {"query": {2: "q"}, "key": {2: "s"}, "value": {2: "s"}} if dynamic else {}
        case("scaled_dot_product_attention", name, SDPA(**how), attributes, inputs, **lengths)

    for dtype in (F32, F16, BF16):
        add(f"plain_{SHORT[dtype]}", 3, 5, dtype=dtype)
        add(f"causal_{SHORT[dtype]}", 3, 5, dtype=dtype, is_causal=True)
        add(f"sinks_{SHORT[dtype]}", 2, 5, dtype=dtype, is_causal=True, sinks=True)
    add("causal_square", 4, 4, is_causal=True)
    add("causal_one", 1, 7, is_causal=True)
    add("causal_dynamic", 3, 9, is_causal=True, dynamic=True)
    add("scale", 2, 4, scale=0.31, is_causal=True)
    add("window", 3, 9, is_causal=True, window_size=4)
    add("window_dynamic", 3, 9, is_causal=True, window_size=4, dynamic=True)
    add("window_both_sides", 5, 9, window_size=3)
    add("window_few_keys", 6, 4, dtype=F32, is_causal=True, window_size=2)
    add("mask", 3, 6, mask=(3, 6))
    add("mask_f32", 3, 6, dtype=F32, mask=(1, 1, 3, 6))
    add("mask_bf16", 3, 6, dtype=BF16, mask=(1, 1, 3, 6))
    add("mask_heads", 3, 6, mask=(1, 4, 3, 6))
    add("mask_row", 3, 6, mask=(1, 1, 1, 6))
    add("mask_batch", 2, 6, batch=2, mask=(2, 1, 2, 6))
    add("mask_over_causal", 3, 6, mask=(3, 6), is_causal=True, window_size=2)
    add("sinks_window", 3, 9, is_causal=True, window_size=4, sinks=True)
    add("sinks_mask", 3, 6, mask=(3, 6), sinks=True)
    add("sinks_dynamic", 3, 9, is_causal=True, sinks=True, dynamic=True)
    add("batch", 2, 5, batch=2, is_causal=True)
    add("alone", 3, 5, heads=3, groups=3, is_causal=True)
    add("narrow_values", 3, 5, is_causal=True, values=8)


def rotations() -> None:
    attributes = ["scale", "base", "dims", "interleaved"]

    def add(name: str, x: Tensor, extra: dict[str, Tensor] | None = None, lengths: dict[str, dict[int, str]] | None = None, **how: Any) -> None:
        case("rope", name, RoPE(**how), attributes, {"input": x} | (extra or {}), **(lengths or {}))

    for dtype in (F32, F16, BF16):
        for interleaved in (False, True):
            kind = f"{'pairs' if interleaved else 'halves'}_{SHORT[dtype]}"
            add(kind, normal(1, 2, 5, 16, dtype=dtype), {"position_ids": whole(1, 5, high=90)}, interleaved=interleaved)
    positions = {"position_ids": whole(1, 5, high=90)}
    add("no_positions", normal(1, 2, 5, 16, dtype=F16))
    add("dims", normal(1, 2, 5, 16, dtype=F16), positions, dims=8)
    add("dims_pairs", normal(1, 2, 5, 16, dtype=F16), positions, dims=6, interleaved=True)
    add("scale", normal(1, 2, 5, 16, dtype=F16), positions, scale=0.25, base=5e5)
    add("dynamic", normal(1, 2, 5, 16, dtype=F16), positions, {"input": {2: "q"}, "position_ids": {1: "q"}})
    add("dynamic_pairs", normal(1, 2, 5, 16, dtype=F16), positions, {"input": {2: "q"}, "position_ids": {1: "q"}}, interleaved=True)
    add("batch", normal(2, 3, 4, 8, dtype=F16), {"position_ids": whole(2, 4, high=50)})
    add("freqs", normal(1, 2, 5, 16, dtype=F16), positions | {"freqs": torch.rand(8, generator=R)}, scale=0.5)
    add("freqs_no_positions", normal(1, 2, 5, 16, dtype=F16), {"freqs": torch.rand(8, generator=R)})
    add("offset", normal(1, 2, 5, 16, dtype=F16), {"offset": torch.tensor(7, dtype=torch.int32)})
    add("offset_batch", normal(2, 2, 5, 16, dtype=F16), {"offset": torch.tensor([3, 11], dtype=torch.int32)})
    angles = torch.rand(5, 8, generator=R) * 6
    tables = {"cos": angles.cos().to(F16), "sin": angles.sin().to(F16)}
    add("tables", normal(1, 2, 5, 16, dtype=F16), tables)
    add("tables_pairs", normal(1, 2, 5, 16, dtype=F16), tables, interleaved=True)
    angles = torch.rand(2, 1, 5, 4, generator=R) * 6
    add("tables_batch", normal(2, 3, 5, 16, dtype=F16), {"cos": angles.cos().to(F16), "sin": angles.sin().to(F16)}, dims=8)


def gathered_products() -> None:
    def add(name: str, lhs: Tensor, rhs: Tensor, left: Tensor | None, right: Tensor | None, axes: int = 0,
            lengths: dict[str, dict[int, str]] | None = None) -> None:
        inputs = {"lhs": lhs, "rhs": rhs}
        inputs |= {k: v for k, v in (("lhs_indices", left), ("rhs_indices", right)) if v is not None}
        case("gather_mm", name, GatherMM(axes), ["num_batch_axes"], inputs, **(lengths or {}))

    for dtype in (F32, F16, BF16):
        add(f"experts_{SHORT[dtype]}", normal(3, 1, 1, 16, dtype=dtype), normal(5, 16, 12, dtype=dtype), None, whole(3, 2, high=5))
    add("experts_dynamic", normal(3, 1, 1, 16, dtype=F16), normal(5, 16, 12, dtype=F16), None, whole(3, 2, high=5),
        lengths={"lhs": {0: "q"}, "rhs_indices": {0: "q"}})
    add("experts_down", normal(3, 2, 1, 16, dtype=F16), normal(5, 16, 12, dtype=F16), None, whole(3, 2, high=5))
    add("narrow_indices", normal(3, 1, 1, 16, dtype=F16), normal(5, 16, 12, dtype=F16), None, whole(3, 2, high=5, dtype=torch.uint16))
    add("left", normal(4, 3, 8, dtype=F32), normal(8, 6, dtype=F32), whole(2, high=4), None)
    add("both", normal(4, 3, 8, dtype=F32), normal(5, 8, 6, dtype=F32), whole(6, high=4), whole(6, high=5))
    add("both_broadcast", normal(4, 3, 8, dtype=F16), normal(5, 8, 6, dtype=F16), whole(2, 1, high=4), whole(1, 3, high=5))
    add("neither", normal(2, 3, 8, dtype=F16), normal(8, 6, dtype=F16), None, None)
    add("batch_axis", normal(2, 3, 3, 8, dtype=F16), normal(2, 5, 8, 6, dtype=F16), None, whole(3, high=5), 1)
    add("batch_axis_both", normal(2, 4, 3, 8, dtype=F32), normal(2, 5, 8, 6, dtype=F32), whole(3, high=4), whole(3, high=5), 1)


def delta_rules() -> None:
    for name, dtype, gates, s, normalised in (
            ("f16", F16, F32, 3, True), ("f32", F32, F32, 4, True), ("one", F16, F16, 1, True), ("bf16", BF16, F32, 3, True),
            ("not_normalised", F32, F32, 3, False)):
        inputs = {"query": normal(1, 2, s, 8, dtype=dtype), "key": normal(1, 2, s, 8, dtype=dtype), "value": normal(1, 2, s, 6, dtype=dtype),
                  "g": -torch.rand(1, 2, s, generator=R).to(gates), "beta": torch.rand(1, 2, s, generator=R).to(dtype),
                  "initial_state": normal(1, 2, 8, 6, dtype=dtype)}
        case("gated_delta_update", name, GatedDeltaUpdate(normalised), ["use_qk_l2_norm"], inputs)


def unknown() -> None:
    for dtype in (F32, F16):
        case("unknown_composite", SHORT[dtype], Halved(0.5), ["by"], {"x": normal(2, 3, 8, dtype=dtype)})
    case("unknown_composite", "dynamic", Halved(0.25), ["by"], {"x": normal(2, 3, 8, dtype=F16)}, x={1: "q"})


# ---- export, run, write ----------------------------------------------------------------------------------------------------------


def caller(c: Case) -> nn.Module:
    """A module whose `forward` takes the case's operands by name, in their order, and hands them on by name."""
    names = ", ".join(c.inputs)
    scope: dict[str, Any] = {}
    exec(f"def forward(self, {names}):\n    return self.inner({', '.join(f'{n}={n}' for n in c.inputs)})", scope)
    return type("Caller", (Caller,), {"forward": scope["forward"]})(c.module)


def convert(c: Case) -> Any:
    lengths = {s: torch.export.Dim(s, min=1, max=64) for d in c.dynamic.values() for s in d.values()}
    shapes = {n: {a: lengths[s] for a, s in c.dynamic[n].items()} if n in c.dynamic else None for n in c.inputs}

    def export(module: nn.Module) -> Any:
        with torch.no_grad():
            program = torch.export.export(module, args=(), kwargs=c.inputs, dynamic_shapes=shapes)
        return program.run_decompositions(coreai_torch.get_decomp_table())

    converter = coreai_torch.TorchConverter(mode=coreai_torch.TorchConverter.Mode.RELEASE)
    op = "halved" if c.op == "unknown_composite" else c.op
    spec = coreai_torch.ExternalizeSpec(target_class=type(c.module), composite_op_name=op, composite_attrs=c.attributes)
    results = 2 if c.op == "gated_delta_update" else 1
    converter.add_pytorch_module(caller(c), export_fn=export, externalize_modules=[spec], input_names=tuple(c.inputs),
                                 output_names=tuple(f"out{i}" for i in range(results)))
    program = converter.to_coreai()
    if hasattr(program, "optimize"):  # older releases; newer ones do it while converting
        program.optimize()
    return program


def array(t: Tensor) -> np.ndarray:
    return t.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if t.dtype is BF16 else t.numpy()


async def run(asset: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    async with asset.executable() as model:
        wrap = lambda v: NDArray(v if v.ndim == 0 else np.ascontiguousarray(v))  # noqa: E731
        results = await model.load_function("main")(inputs={k: wrap(v) for k, v in inputs.items()})
        return {k: np.array(v.numpy()) for k, v in results.items()}


def write(c: Case, out: Path) -> None:
    folder = out / c.op
    folder.mkdir(parents=True, exist_ok=True)
    inputs = {k: array(v) for k, v in c.inputs.items()}
    asset = convert(c).save_asset(folder / f"{c.name}.aimodel")
    results = asyncio.run(run(asset, inputs))
    tensors = {f"in.{k}": v for k, v in inputs.items()} | {f"out.{k}": v for k, v in results.items()}
    save_file({k: np.ascontiguousarray(v).reshape(v.shape) for k, v in tensors.items()}, folder / f"{c.name}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    for family in (norms, attentions, rotations, gathered_products, delta_rules, unknown):
        family()
    refused = 0
    for c in CASES:
        if args.only and c.op not in args.only:
            continue
        # One process a case: a case that traps in the runtime must not end the suite.
        read, writer = os.pipe()
        if os.fork() == 0:
            try:
                write(c, args.out)
                reason = ""
            except BaseException as error:  # noqa: BLE001
                reason = f"{type(error).__name__}: {error}"
            os.write(writer, f"done {reason}"[:400].encode())
            os._exit(0)
        os.close(writer)
        answer = os.read(read, 65536).decode()
        os.close(read)
        os.wait()
        if answer != "done ":
            refused += 1
            print(f"{c.op}/{c.name}: {answer.removeprefix('done ') or 'trapped'}", file=sys.stderr)
    print(f"{len(CASES)} cases, {refused} refused", file=sys.stderr)


if __name__ == "__main__":
    main()
