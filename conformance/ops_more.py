"""Write assets for operations and operand kinds that other suites lack, with what the Core AI runtime computes for them.

    python ops_more.py --out DIR [--only while]

needs `coreai-core` (1.0.0b3 was used), `ml_dtypes` and `safetensors`. Every case is a small program in the dialect's text form:
`DIR/OP/CASE.aimodel` is its asset, `DIR/OP/CASE.safetensors` holds every input as `in.NAME`, every state before the call as
`state.NAME` and after it as `after.NAME`, every result as `out.NAME`. A case that the compiler or the runtime refuses is listed with
its reason on standard error. `cargo xtask conformance ops DIR` repeats the calls. Images are not in the runtime of the wheel: their
results are computed here, as the documentation of the dialect says. `composites.py` does the same for the composites of `coreai-torch`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterable

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import serialize_module_to_bytecode
from coreai._compiler.ir import Module
from coreai.authoring import AIModelAsset, AIProgram, Context
from coreai.runtime import NDArray

F16, F32, F64, BF16 = np.float16, np.float32, np.float64, ml_dtypes.bfloat16
I8, I16, I32, I64 = np.int8, np.int16, np.int32, np.int64
U8, U16, U32, U64, BOOL = np.uint8, np.uint16, np.uint32, np.uint64, np.bool_
E4M3, E5M2, E8M0, F4 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn

NAMES = {"bool": "i1", "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16", "complex64": "complex<f32>",
         "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2", "float8_e8m0fnu": "f8E8M0FNU", "float4_e2m1fn": "f4E2M1FN"}


def element(dtype: Any) -> str:
    name = np.dtype(dtype).name
    return NAMES.get(name) or re.sub("^(u?)int", lambda m: "ui" if m[1] else "si", name)


def tensor(dtype: Any, *shape: int | str) -> str:
    """`tensor<2x?xf32>`; the kind is a numpy type or the dialect's own name."""
    kind = dtype if isinstance(dtype, str) else element(dtype)
    return f"tensor<{''.join(f'{d}x' for d in shape)}{kind}>"


@dataclass
class Program:
    """A graph `main` under construction: every method appends a line and gives the name of a value."""

    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    states: dict[str, np.ndarray] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    before: str = ""
    last: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.inputs.items():
            self.types[f"%{name}"] = self.dynamic.get(name) or tensor(value.dtype, *value.shape)
        for name, value in self.states.items():
            self.types[f"%{name}"] = f"!coreai.handle<{tensor(value.dtype, *value.shape)}>"

    def fresh(self, ty: str) -> str:
        name = f"%v{len(self.types)}"
        self.types[name] = ty
        return name

    def const(self, value: Any, kind: str | None = None) -> str:
        """An inline constant; `kind` names elements that numpy does not know."""
        array = np.asarray(value)
        ty = tensor(kind or array.dtype, *array.shape)
        name = self.fresh(ty)
        if array.dtype == BOOL:
            text = str(array.tolist()).lower()
        elif kind in ("f8E4M3FN", "f8E5M2", "f8E8M0FNU", "f4E2M1FN") or array.dtype.kind not in "iu":
            text = re.sub(r"(?<![\w.])(-?[\d.]+(?:e[-+]?\d+)?)", lambda m: f"{float(m[0]):e}", str(array.astype(F64).tolist()))
        else:
            text = str(array.tolist())
        self.lines.append(f"{name} = coreai.constant dense<{text if array.size else ''}> : {ty}")
        return name

    def packed(self, codes: np.ndarray, kind: str, bits: int) -> str:
        """A constant of elements below a byte, packed as exporters pack them: in a resource, low bits first."""
        flat = codes.astype(np.int64).reshape(-1) & ((1 << bits) - 1)
        total = sum(int(c) << (i * bits) for i, c in enumerate(flat))
        data = total.to_bytes((len(flat) * bits + 7) // 8, "little")
        ty = tensor(kind, *codes.shape)
        name = self.fresh(ty)
        blob = f"blob{len(self.types)}"
        self.lines.append(f"{name} = coreai.constant dense_resource<{blob}> : {ty}")
        self.before += f'      {blob}: "0x01000000{data.hex().upper()}",\n'
        return name

    def op(self, name: str, operands: Iterable[str], *results: str, attrs: str = "", regions: str = "") -> Any:
        """An operation in the generic form; one result as its name, several as a list."""
        operands = list(operands)
        outs = [self.fresh(ty) for ty in results]
        left = f"{', '.join(outs)} = " if outs else ""
        ins = ", ".join(self.types[o] for o in operands)
        attrs = f" <{{{attrs}}}>" if attrs else ""
        regions = f" ({regions})" if regions else ""
        self.lines.append(f'{left}"coreai{"" if name.startswith("x.") else "."}{name}"({", ".join(operands)}){attrs}{regions} : ({ins}) -> ({", ".join(results)})')
        return outs[0] if len(outs) == 1 else outs

    def region(self, args: dict[str, str], body: Callable[..., list[str]], end: str = "yield") -> str:
        """A block with typed arguments that hands on what `body` gives."""
        mark = len(self.lines)
        for name, ty in args.items():
            self.types[f"%{name}"] = ty
        results = body(*[f"%{a}" for a in args])
        lines, self.lines = self.lines[mark:], self.lines[:mark]
        head = ", ".join(f"%{a}: {t}" for a, t in args.items())
        types = ", ".join(self.types[r] for r in results)
        lines.append(f'"coreai.{end}"({", ".join(results)}) : ({types}) -> ()')
        return "{\n^bb0(" + head + "):\n" + "\n".join(lines) + "\n}" if args else "{\n" + "\n".join(lines) + "\n}"

    def text(self, results: list[str], extra: str = "") -> str:
        args = ", ".join(f'%{n}: {self.types[f"%{n}"]} {{coreai.name = "{n}"}}' for n in [*self.inputs, *self.states])
        tokens = list(self.last.values())
        names = [*self.last, *(f"out{i}" for i in range(len(results)))]
        results = tokens + results
        outs = ", ".join(f'{self.types[r]} {{coreai.name = "{n}"}}' for n, r in zip(names, results))
        body = "\n".join(self.lines)
        end = f"coreai.output {', '.join(results)} : {', '.join(self.types[r] for r in results)}" if results else "coreai.output"
        resources = f"\n{{-#\n  dialect_resources: {{\n    builtin: {{\n{self.before.rstrip(chr(10)).rstrip(',')}\n    }}\n  }}\n#-}}\n"
        return f"module {{\n{extra}\ncoreai.graph @main({args}) -> ({outs}) {{\n{body}\n{end}\n}}\n}}\n{resources if self.before else ''}"


@dataclass
class Case:
    op: str
    name: str
    program: Program
    results: list[str]
    extra: str = ""
    rewrite: Callable[[str], str] | None = None
    """Changes the program in the form of the file, for what the compiler does not write."""
    documented: list[np.ndarray] | None = None
    """The results that the documentation gives, for what the runtime does not run."""


CASES: list[Case] = []
R = np.random.default_rng(7)


def case(op: str, name: str, program: Program, *results: str, extra: str = "", **more: Any) -> None:
    CASES.append(Case(op, name, program, list(results), extra, **more))


def normal(*shape: int, dtype: Any = F32) -> np.ndarray:
    return np.asarray(R.normal(size=shape) * 2).astype(dtype)


def whole(*shape: int, low: int = -9, high: int = 9, dtype: Any = I32) -> np.ndarray:
    return R.integers(low, high, size=shape, endpoint=True).astype(dtype)


# ---- control flow and states -----------------------------------------------------------------------------------------------------


def control_flow() -> None:
    for taken in (True, False):
        p = Program({"c": np.array(taken), "x": normal(2, 3)})
        ty = tensor(F32, 2, 3)
        then = p.region({}, lambda: [p.op("add", ["%x", "%x"], ty)])
        other = p.region({}, lambda: [p.op("mul", ["%x", "%x"], ty)])
        case("if", f"captured_{taken}".lower(), p, p.op("if", ["%c"], ty, regions=f"{then}, {other}"))
    for turns in (0, 5):
        p = Program({"n": np.array(turns, I32), "x": normal(4)})
        count, vector = tensor(I32), tensor(F32, 4)
        zero = p.const(np.array(0, I32))
        head = p.region({"i": count, "y": vector}, lambda i, y: [p.op("not_equal", [i, "%n"], tensor(BOOL)), i, y], "condition")

        def step(i: str, y: str) -> list[str]:
            return [p.op("add", [i, p.const(np.array(1, I32))], count), p.op("add", [y, "%x"], vector)]

        body = p.region({"j": count, "z": vector}, step)
        case("while", f"turns_{turns}", p, *p.op("while", [zero, "%x"], count, vector, regions=f"{head}, {body}"))
    p = Program({"n": np.array(3, I32)})
    count = tensor(I32)
    zero = p.const(np.array(0, I32))

    def inner(outer: str, total: str) -> list[str]:
        first = p.const(np.array(0, I32))
        head = p.region({"k": count, "t": count}, lambda k, t: [p.op("not_equal", [k, outer], tensor(BOOL)), k, t], "condition")
        one = lambda: p.const(np.array(1, I32))  # noqa: E731
        body = p.region({"k2": count, "t2": count}, lambda k, t: [p.op("add", [k, one()], count), p.op("add", [t, k], count)])
        _, sum_ = p.op("while", [first, total], count, count, regions=f"{head}, {body}")
        return [p.op("add", [outer, one()], count), sum_]

    head = p.region({"i": count, "s": count}, lambda i, s: [p.op("greater", ["%n", i], tensor(BOOL)), i, s], "condition")
    body = p.region({"i2": count, "s2": count}, inner)
    case("while", "nested", p, *p.op("while", [zero, zero], count, count, regions=f"{head}, {body}"))
    graph = ('coreai.graph private @twice(%a: tensor<3xf32> {coreai.name = "a"}) -> (tensor<3xf32> {coreai.name = "b"}) {\n'
             "%0 = coreai.add %a, %a : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\ncoreai.output %0 : tensor<3xf32>\n}")
    p = Program({"x": normal(3)})
    first, second = p.fresh(tensor(F32, 3)), p.fresh(tensor(F32, 3))
    for result, operand in ((first, "%x"), (second, first)):
        p.lines.append(f"{result} = coreai.invoke @twice({operand}) : (tensor<3xf32>) -> tensor<3xf32>")
    case("invoke", "twice", p, second, extra=graph)


def wrappers() -> None:
    vector = tensor(F32, 4)
    p = Program({"x": normal(4)})
    group = p.fresh(vector)
    p.lines.append(f'{group} = coreai.isolated_group<"Interpreter">(%x) : ({vector}) -> {vector} {{\n^bb0(%inner: {vector}):\n'
                   f'%grouped = "coreai.relu"(%inner) : ({vector}) -> {vector}\ncoreai.yield %grouped : {vector}\n}}')
    case("isolated_group", "relu", p, p.op("add", [group, "%x"], vector))
    body = (f"udml.func @twice(%a: {vector}) -> {vector} {{\n%0 = \"coreai.add\"(%a, %a) : ({vector}, {vector}) -> {vector}\n"
            f"udml.return %0 : {vector}\n}}")
    p = Program({"x": normal(4)})
    called = p.fresh(vector)
    p.lines.append(f"{called} = udml.call @twice(%x) : ({vector}) -> {vector}")
    case("udml_call", "twice", p, called, extra=body)
    for memory in ("IOSurface", "MTLBuffer"):
        hint = f"#coreaix.hw_constraints<{memory}, alignments: [1x1x16], interleave: [1x1]>"
        hinted = tensor(F32, 2, 4)[:-1] + f", {hint}>"
        p = Program({"x": normal(2, 4)})
        there = p.op("x.copy_with_constraints", ["%x"], hinted)
        back = p.op("x.copy_discarding_constraints", [there], tensor(F32, 2, 4))
        case("copy_with_constraints", memory, p, p.op("relu", [back], tensor(F32, 2, 4)))


def states() -> None:
    ty, token = tensor(F32, 4), "!coreai.token"
    p = Program({"x": normal(4)}, {"s": normal(4)})
    t0 = p.op("create_token", [], token)
    old, t1 = p.op("read_handle", ["%s", t0], ty, token)
    p.last["s"] = p.op("write_handle", ["%s", p.op("add", [old, "%x"], ty), t1], token)
    case("write_handle", "accumulate", p, old)
    p = Program({"x": normal(2)}, {"s": normal(4)})
    t0 = p.op("create_token", [], token)
    old, t1 = p.op("read_handle", ["%s", t0], ty, token)
    bounds = [p.const(np.array([v], I32)) for v in (1, 3, 1)]
    t2 = p.op("write_handle", ["%s", p.op("slice_update", [old, *bounds, "%x"], ty), t1], token)
    new, p.last["s"] = p.op("read_handle", ["%s", t2], ty, token)
    case("write_handle", "part", p, old, new)
    p = Program({"x": normal(4)}, {"s": normal(4), "r": normal(4)})
    t0, u0 = p.op("create_token", [], token), p.op("create_token", [], token)
    (a, t1), (b, u1) = p.op("read_handle", ["%s", t0], ty, token), p.op("read_handle", ["%r", u0], ty, token)
    joined = p.op("join_token", [t1, p.op("read_handle", ["%s", t0], ty, token)[1]], token)
    p.last["s"] = p.op("write_handle", ["%s", b, joined], token)
    p.last["r"] = p.op("write_handle", ["%r", p.op("mul", [a, "%x"], ty), u1], token)
    case("join_token", "swap", p, a, b)


def more_control_flow() -> None:
    ty, count, token = tensor(F32, 4), tensor(I32), "!coreai.token"
    for first, second in ((True, False), (False, True)):
        p = Program({"a": np.array(first), "b": np.array(second), "x": normal(2, 3)})
        plane = tensor(F32, 2, 3)
        inner = ", ".join(p.region({}, lambda op=op: [p.op(op, ["%x"], plane)]) for op in ("relu", "abs"))
        then = p.region({}, lambda: [p.op("if", ["%b"], plane, regions=inner), "%x"])
        other = p.region({}, lambda: ["%x", p.op("exp", ["%x"], plane)])
        case("if", f"nested_{first}_{second}".lower(), p, *p.op("if", ["%a"], plane, plane, regions=f"{then}, {other}"))
    # What a branch does to a state, and what a loop does to one.
    for taken in (True, False):
        p = Program({"c": np.array(taken), "x": normal(4)}, {"s": normal(4)})
        old, t1 = p.op("read_handle", ["%s", p.op("create_token", [], token)], ty, token)
        then = p.region({}, lambda: [p.op("add", [old, "%x"], ty)])
        other = p.region({}, lambda: [old])
        p.last["s"] = p.op("write_handle", ["%s", p.op("if", ["%c"], ty, regions=f"{then}, {other}"), t1], token)
        case("if", f"state_{taken}".lower(), p, old)
    p = Program({"n": np.array(3, I32), "x": normal(4)}, {"s": normal(4)})
    old, t1 = p.op("read_handle", ["%s", p.op("create_token", [], token)], ty, token)
    one, zero = p.const(np.array(1, I32)), p.const(np.array(0, I32))
    head = p.region({"i": count, "y": ty}, lambda i, y: [p.op("greater", ["%n", i], tensor(BOOL)), i, y], "condition")
    body = p.region({"j": count, "z": ty}, lambda j, z: [p.op("add", [j, one], count), p.op("add", [z, "%x"], ty)])
    turns, total = p.op("while", [zero, old], count, ty, regions=f"{head}, {body}")
    p.last["s"] = p.op("write_handle", ["%s", total, t1], token)
    case("while", "state", p, turns)
    # A branch inside of a loop, and a value that no turn changes.
    p = Program({"n": np.array(6, I32), "x": normal(4)})
    head = p.region({"i": count, "y": ty}, lambda i, y: [p.op("not_equal", [i, "%n"], tensor(BOOL)), i, y], "condition")

    def turn(i: str, y: str) -> list[str]:
        odd = p.op("equal", [p.op("modulo", [i, p.const(np.array(2, I32))], count), p.const(np.array(1, I32))], tensor(BOOL))
        then = p.region({}, lambda: [p.op("add", [y, "%x"], ty)])
        other = p.region({}, lambda: [p.op("mul", [y, "%x"], ty)])
        return [p.op("add", [i, p.const(np.array(1, I32))], count), p.op("if", [odd], ty, regions=f"{then}, {other}")]

    body = p.region({"i2": count, "y2": ty}, turn)
    case("while", "branches", p, *p.op("while", [p.const(np.array(0, I32)), "%x"], count, ty, regions=f"{head}, {body}"))
    p = Program({"x": np.array([3, 1], F32)})
    pair = tensor(F32, 2)
    head = p.region({"y": pair}, lambda y: [p.op("reshape", [p.op("any", [p.op("greater", [p.const(np.array([40, 40], F32)), y], tensor(BOOL, 2)),
                                                                        p.const(np.array([0], I32))], tensor(BOOL, 1)), p.const(np.array([], U32))],
                                                 tensor(BOOL)), y], "condition")
    body = p.region({"y2": pair}, lambda y: [p.op("add", [y, y], pair)])
    case("while", "until_all", p, p.op("while", ["%x"], pair, regions=f"{head}, {body}"))


def more_states() -> None:
    token = "!coreai.token"
    for dtype in (F16, BF16, I32, I8):
        value = (lambda: normal(3, 2, dtype=dtype)) if np.dtype(dtype).kind not in "iu" else (lambda: whole(3, 2, dtype=dtype))
        p = Program({"x": value()}, {"s": value()})
        ty = tensor(dtype, 3, 2)
        old, t1 = p.op("read_handle", ["%s", p.op("create_token", [], token)], ty, token)
        p.last["s"] = p.op("write_handle", ["%s", "%x", t1], token)
        case("write_handle", f"replace_{element(dtype)}", p, old)
    ty = tensor(F32, 4)
    p = Program({"x": normal(4)}, {"s": normal(4)})
    value, t = p.op("read_handle", ["%s", p.op("create_token", [], token)], ty, token)
    for _ in range(3):
        t = p.op("write_handle", ["%s", p.op("add", [value, "%x"], ty), t], token)
        value, t = p.op("read_handle", ["%s", t], ty, token)
    p.last["s"] = t
    case("write_handle", "three_times", p, value)
    p = Program({"x": normal(4)}, {"s": normal(4)})
    value, t = p.op("read_handle", ["%s", p.op("create_token", [], token)], ty, token)
    p.last["s"] = t
    case("read_handle", "only", p, p.op("mul", [value, "%x"], ty))
    p = Program({"x": normal(4)}, {"s": normal(4)})
    start = p.op("create_token", [], token)
    reads = [p.op("read_handle", ["%s", start], ty, token) for _ in range(3)]
    total = p.op("add", [p.op("add", [reads[0][0], reads[1][0]], ty), p.op("mul", [reads[2][0], "%x"], ty)], ty)
    p.last["s"] = p.op("write_handle", ["%s", total, p.op("join_token", [t for _, t in reads], token)], token)
    case("join_token", "three_reads", p, total)


def spans() -> None:
    """Slices whose bounds follow from extents or come from inputs, and cross."""
    x = normal(5, 4)
    for name, begin, end, step in (("crossed", [3, 0], [1, 4], [1, 1]), ("crossed_back", [1, 0], [3, 4], [-1, 1]), ("beyond", [4, 1], [99, 3], [1, 1]),
                                   ("before", [-99, 1], [2, 3], [1, 1]), ("back_to_start", [3, 3], [-99, -99], [-2, -1]),
                                   ("back_from_end", [-1, -1], [-4, -3], [-1, -1]), ("nothing", [2, 2], [2, 2], [1, 1])):
        n = [len(range(d)[slice(b, e, s)]) for d, b, e, s in zip(x.shape, begin, end, step)]
        p = Program({"x": x})
        bounds = [p.const(np.array(v, I32)) for v in (begin, end, step)]
        case("slice", f"span_{name}", p, p.op("slice", ["%x", *bounds], tensor(F32, *n)))
        p = Program({"x": x, "b": np.array(begin, I32), "e": np.array(end, I32)})
        case("slice", f"span_{name}_given", p, p.op("slice", ["%x", "%b", "%e", p.const(np.array(step, I32))], tensor(F32, "?", "?")))
    # The last rows but k of an unknown number, the rows before an end that is counted from it, and more than there are.
    for rows, back in ((5, 2), (5, 5), (3, 5)):
        p = Program({"x": normal(rows, 4)}, dynamic={"x": tensor(F32, "?", 4)})
        shape = p.op("get_shape", ["%x"], tensor(U32, 2))
        length = p.op("cast", [p.op("slice", [shape, *[p.const(np.array([v], I32)) for v in (0, 1, 1)]], tensor(U32, 1))], tensor(I32, 1))
        first = p.op("sub", [length, p.const(np.array([back], I32))], tensor(I32, 1))
        begin = p.op("concat", [p.const(np.array(0, I32)), first, p.const(np.array([0], I32))], tensor(I32, 2))
        end = p.op("concat", [p.const(np.array(0, I32)), length, p.const(np.array([4], I32))], tensor(I32, 2))
        case("slice", f"last_{back}_of_{rows}", p, p.op("slice", ["%x", begin, end, p.const(np.array([1, 1], I32))], tensor(F32, "?", 4)))
        p = Program({"x": normal(rows, 4)}, dynamic={"x": tensor(F32, "?", 4)})
        bounds = [p.const(np.array(v, I32)) for v in ([0, 0], [-back, 4], [1, 1])]
        case("slice", f"all_but_{back}_of_{rows}", p, p.op("slice", ["%x", *bounds], tensor(F32, "?", 4)))
        p = Program({"x": normal(rows, 4)}, dynamic={"x": tensor(F32, "?", 4)})
        bounds = [p.const(np.array(v, I32)) for v in ([-back, 0], [2**31 - 1, 4], [1, 1])]
        case("slice", f"from_{back}_of_{rows}", p, p.op("slice", ["%x", *bounds], tensor(F32, "?", 4)))


# ---- composites of models for phones -------------------------------------------------------------------------------------------------


def declared(name: str, operands: dict[str, str], results: dict[str, str], body: Callable[..., list[str]], attrs: str = "") -> str:
    """A private graph that is the body of a composite."""
    inner = Program()
    inner.types |= {f"%{n}": ty for n, ty in operands.items()}
    values = body(inner, *[f"%{n}" for n in operands])
    args = ", ".join(f'%{n}: {ty} {{coreai.name = "{n}"}}' for n, ty in operands.items())
    outs = ", ".join(f'{ty} {{coreai.name = "{n}"}}' for n, ty in results.items())
    listed = [", ".join(f'"{n}"' for n in names) for names in (operands, results)]
    what = f'#coreai.composite_declaration<"{name}" = {{input_names = [{listed[0]}], op_attrs = {{{attrs}version = 1 : si64}}, output_names = [{listed[1]}]}}>'
    lines = "\n".join(inner.lines)
    end = f"coreai.output {', '.join(values)} : {', '.join(results.values())}"
    return f"coreai.graph private noinline @body({args}) -> ({outs}) attributes {{composite_decl = {what}}} {{\n{lines}\n{end}\n}}"


def phones() -> None:
    for dtype, kind, q, dynamic in ((F16, U16, 3, False), (F32, I32, 4, False), (F16, U16, 5, True)):
        n, width, length = 12, 8, "?" if dynamic else q
        hint = "#coreaix.hw_constraints<IOSurface, alignments: [1x1x32x1], interleave: [1x1x1]>"
        plain = tensor(dtype, 1, length, width)
        hinted = plain[:-1] + f", {hint}>"

        def rows(b: Program, ids: str, *tables: str) -> list[str]:
            ids = b.op("cast", [ids], tensor(I32, 1, length))
            ids = b.op("expand_dims", [ids, b.const(np.array([2], I32))], tensor(I32, 1, length, 1))
            return [b.op("x.copy_with_constraints", [b.op("gather_nd", [t, ids], plain)], hinted) for t in tables]

        tables = {"cos": normal(n, width, dtype=dtype), "sin": normal(n, width, dtype=dtype)}
        p = Program({"pos": whole(1, q, low=0, high=n - 1, dtype=kind), **tables}, dynamic={"pos": tensor(kind, 1, "?")} if dynamic else {})
        operands = {"pos_ids": p.types["%pos"], "cos_cache": p.types["%cos"], "sin_cache": p.types["%sin"]}
        body = declared("rope_cached_cos_sin_gather", operands, {"gathered_cos": hinted, "gathered_sin": hinted}, rows)
        found = [p.fresh(hinted), p.fresh(hinted)]
        p.lines.append(f"{', '.join(found)} = coreai.invoke @body(%pos, %cos, %sin) : ({', '.join(operands.values())}) -> ({hinted}, {hinted})")
        name = f"{element(dtype)}_{element(kind)}{'_dynamic' if dynamic else ''}"
        case("rope_cached_cos_sin_gather", name, p, *[p.op("x.copy_discarding_constraints", [v], plain) for v in found], extra=body)
    for q, scale in ((3, 0.021), (1, 0.5), (8, 0.0078)):
        vocabulary, hidden = 16, 16
        hint = "#coreaix.hw_constraints<IOSurface, alignments: [1x1x1x1], interleave: [8x1x1]>"
        plain, out = tensor(I8, vocabulary, 1, hidden), tensor(F16, 1, q, 1, hidden)
        hinted = plain[:-1] + f", {hint}>"

        def decoded(b: Program, table: str, ids: str, scale: str, _: str) -> list[str]:
            table = b.op("x.copy_discarding_constraints", [table], plain)
            ids = b.op("expand_dims", [ids, b.const(np.array([2], I32))], tensor(I32, 1, q, 1))
            rows = b.op("gather_nd", [table, ids], tensor(I8, 1, q, 1, hidden))
            one = b.op("slice", [scale, *[b.const(np.array(v, I32)) for v in ([0, 0, 0], [1, 1, 1], [1, 1, 1])]], tensor(F16, 1, 1, 1))
            one = b.op("reshape", [one, b.const(np.array([], U32))], tensor(F16))
            zeros = [b.const(np.zeros((), dtype)) for dtype in (I8, F16)]
            return [b.op("blockwise_shift_scale", [rows, one, *zeros], out)]

        # The kernel of the runtime wants a table that is interleaved and a shape that is known: neither is an input.
        p = Program({"ids": whole(1, q, low=0, high=vocabulary - 1), "scale": np.array(scale, F16)})
        table = p.op("x.copy_with_constraints", [p.const(whole(vocabulary, 1, hidden, low=-127, high=127, dtype=I8))], hinted)
        shape = p.op("get_shape", ["%ids"], tensor(U32, 2))
        final = p.op("concat", [p.const(np.array(0, I32)), shape, p.const(np.array([1, hidden], U32))], tensor(U32, 4))
        last = p.op("slice", [final, *[p.const(np.array([v], I32)) for v in (1, 4, 1)]], tensor(U32, 3))
        repeated = p.op("broadcast_to", ["%scale", last], tensor(F16, q, 1, hidden))
        operands = {"embedding_table": hinted, "input_ids": p.types["%ids"], "scale": p.types[repeated], "final_shape": p.types[final]}
        body = declared("fused_interleaved_embedding_gather_dequant_reshape", operands, {"output": out}, decoded)
        found = p.fresh(out)
        p.lines.append(f"{found} = coreai.invoke @body({table}, %ids, {repeated}, {final}) : ({', '.join(operands.values())}) -> {out}")
        case("fused_interleaved_embedding_gather_dequant_reshape", f"tokens_{q}", p, found, extra=body)


def experts() -> None:
    """`gather_mm` over matrices that stay compressed: `[1, experts, out, in]` codes, a scale for every 32 of a row."""
    for tokens, kind, bits in ((1, "si4", 4), (24, "si4", 4), (3, "si8", 8)):
        count, n, k = 4, 6, 64
        p = Program({"x": normal(tokens, 1, 1, k, dtype=F16), "ids": whole(tokens, 2, low=0, high=count - 1)})
        low = -(1 << (bits - 1))
        codes = whole(1, count, n, k, low=low, high=-low - 1, dtype=I8)
        zeros = np.zeros((1, count, n, k // 32), I8)
        parts = [p.packed(codes, kind, bits) if bits < 8 else p.const(codes), p.const(R.uniform(0.01, 0.05, (1, count, n, k // 32)).astype(F16)),
                 p.packed(zeros, kind, bits) if bits < 8 else p.const(zeros), p.const(zeros.astype(F16))]
        w = p.op("blockwise_shift_scale", parts, tensor(F16, 1, count, n, k))
        w = p.op("shrink_dims", [w, p.const(np.array([0], I32))], tensor(F16, count, n, k))
        w = p.op("transpose", [w, p.const(np.array([0, 2, 1], U32))], tensor(F16, count, k, n))
        out = tensor(F16, tokens, 2, 1, n)

        def body(b: Program, lhs: str, rhs: str, ids: str) -> list[str]:
            ids = b.op("expand_dims", [ids, b.const(np.array([2], I32))], tensor(I32, tokens, 2, 1))
            picked = b.op("gather_nd", [rhs, ids], tensor(F16, tokens, 2, k, n))
            return [b.op("decomposable.broadcasting_batch_matmul", [lhs, picked], out)]

        operands = {"lhs": p.types["%x"], "rhs": p.types[w], "rhs_indices": p.types["%ids"]}
        extra = declared("gather_mm", operands, {"output": out}, body, "num_batch_axes = 0 : si64, ")
        found = p.fresh(out)
        p.lines.append(f"{found} = coreai.invoke @body(%x, {w}, %ids) : ({', '.join(operands.values())}) -> {out}")
        case("gather_mm", f"compressed_{kind}_{tokens}", p, found, extra=extra)


def images() -> None:
    """Images, which the runtime of the wheel does not have: the results are those of the documentation, by NumPy."""
    for name, planes in (("24RGB", 3), ("32BGRA", 4), ("32ARGB", 4), ("420YpCbCr8Planar", None)):
        h, w = 4, 6
        shape = (h, w, planes) if planes else (h * w + 2 * (h // 2) * (w // 2),)
        pixels = whole(*shape, low=0, high=255, dtype=U8)
        image, bytes_, wide = f"!coreai.image<<k{name}> x {h} : i64 x {w} : i64>", tensor(U8, *shape), tensor(F32, *shape)
        p = Program({"x": pixels})
        p.types["%x"] = image
        there = p.op("image_to_tensor", ["%x"], bytes_)
        halved = p.op("mul", [p.op("cast", [there], wide), p.const(np.full(shape, 0.5, F32))], wide)
        case("image_to_tensor", name, p, halved, documented=[pixels.astype(F32) * F32(0.5)])
        p = Program({"x": pixels})
        changed = p.op("maximum", ["%x", p.const(np.full(shape, 100, U8))], bytes_)
        case("tensor_to_image", name, p, p.op("tensor_to_image", [changed], image), documented=[np.maximum(pixels, U8(100))])
        p = Program({"x": pixels})
        p.types["%x"] = image
        reversed_ = p.op("reverse", [p.op("image_to_tensor", ["%x"], bytes_), p.const(np.array([0], I32))], bytes_)
        case("tensor_to_image", f"{name}_both_ways", p, p.op("tensor_to_image", [reversed_], image), documented=[pixels[::-1].copy()])


# ---- kinds of elements -----------------------------------------------------------------------------------------------------------


def complex_numbers() -> None:
    ty, c = tensor(F32, 2, 3), tensor("complex<f32>", 2, 3)
    parts = lambda n: {f"{n}{i}": normal(2, 3) for i in "ab"}  # noqa: E731

    def start(*names: str) -> tuple[Program, list[str]]:
        p = Program({k: v for n in names for k, v in parts(n).items()})
        return p, [p.op("create_complex", [f"%{n}a", f"%{n}b"], c) for n in names]

    def finish(name: str, p: Program, z: str, shape: str = ty) -> None:
        case("complex", name, p, p.op("real_part", [z], shape), p.op("imaginary_part", [z], shape))

    p, (z,) = start("z")
    finish("create_complex", p, z)
    for op in ("add", "sub", "mul", "divide"):
        p, (z, w) = start("z", "w")
        finish(op, p, p.op(op, [z, w], c))
    for op in ("exp", "sin", "cos", "sinh", "cosh", "tan", "log", "sigmoid", "silu"):
        p, (z,) = start("z")
        finish(op, p, p.op(op, [z], c))
    for op in ("equal", "not_equal"):
        p, (z, w) = start("z", "w")
        case("complex", op, p, p.op(op, [z, w], tensor(BOOL, 2, 3)))
    p, (z,) = start("z")
    turned = p.op("transpose", [z, p.const(np.array([1, 0], U32))], tensor("complex<f32>", 3, 2))
    finish("transpose", p, turned, tensor(F32, 3, 2))
    p, (z, w) = start("z", "w")
    w = p.op("reshape", [w, p.const(np.array([3, 2], I32))], tensor("complex<f32>", 3, 2))
    finish("batch_matmul", p, p.op("batch_matmul", [z, w], tensor("complex<f32>", 2, 2)), tensor(F32, 2, 2))


def narrow_kinds() -> None:
    for kind, bits in (("si4", 4), ("ui4", 4), ("si2", 2), ("ui2", 2)):
        low = -(1 << (bits - 1)) if kind[0] == "s" else 0
        codes = whole(3, 8, low=low, high=low + (1 << bits) - 1, dtype=I8)
        p = Program({"x": normal(1, 8)})
        wide = p.op("cast", [p.packed(codes, kind, bits)], tensor(F32, 3, 8))
        case("constant", f"packed_{kind}", p, p.op("decomposable.broadcasting_add", [wide, "%x"], tensor(F32, 3, 8)))
        p = Program({"x": normal(1, 8)})
        wide = p.op("cast", [p.const(codes, kind)], tensor(F32, 3, 8))
        case("constant", f"inline_{kind}", p, p.op("decomposable.broadcasting_add", [wide, "%x"], tensor(F32, 3, 8)))
    floats = {"f8E4M3FN": [0.5, -448, 1.125, 0.015625], "f8E5M2": [0.5, -57344, 1.25, 6.1e-5], "f8E8M0FNU": [0.5, 1, 256, 4],
              "f4E2M1FN": [0.5, -6, 1.5, 3]}
    for kind, values in floats.items():
        p = Program({"x": normal(4)})
        wide = p.op("cast", [p.const(np.array(values, F32), kind)], tensor(F32, 4))
        case("constant", f"inline_{kind}", p, p.op("add", [wide, "%x"], tensor(F32, 4)))
    for kind in ("f8E4M3FN", "f8E5M2"):
        p = Program({"x": np.concatenate([normal(24), np.array([0, -0.0, 1e9, -1e9, 448, 480, 1e-3, 61440, np.nan], F32)])})
        narrow = p.op("cast", ["%x"], tensor(kind, 33))
        case("cast", f"f32_to_{kind}", p, p.op("cast", [narrow], tensor(F32, 33)))
    for to in (F64, I64, U64):
        p = Program({"x": normal(9) * 50 if to is not U64 else np.abs(normal(9)) * 50})
        case("cast", f"f32_to_{element(to)}", p, p.op("cast", ["%x"], tensor(to, 9)))
    for dtype in (F64, I64, U64, I16):
        p = Program({"x": whole(3, 4, low=0).astype(dtype), "y": whole(3, 4, low=1).astype(dtype)})
        ty = tensor(dtype, 3, 4)
        s = p.op("add", ["%x", "%y"], ty)
        case("add", element(dtype), p, s, p.op("mul", [s, "%y"], ty), p.op("divide", ["%x", "%y"], ty), p.op("modulo", ["%x", "%y"], ty))
        p = Program({"x": whole(3, 4).astype(dtype) if dtype is not U64 else whole(3, 4, low=0).astype(dtype)})
        case("reduce_sum", element(dtype), p, p.op("reduce_sum", ["%x", p.const(np.array([0], I32))], tensor(dtype, 1, 4)))
    wide = {"f8E4M3FN": ("f16", "f32", "bf16", "f8E8M0FNU"), "f8E5M2": ("f32",), "f4E2M1FN": ("f8E8M0FNU", "f16", "bf16")}
    for data, scales in wide.items():
        for scale in scales:
            p = Program({"x": normal(1, 8)})
            codes = p.const(R.choice(np.array([0, 0.5, 1, -1.5, 3, -4, 6, 2], F32), size=(4, 8)), data)
            scaled = p.const(R.choice(np.array([0.5, 1, 2, 4], F32), size=(4, 2)), scale)
            to = {"f16": F16, "bf16": BF16}.get(scale, F32)
            zeros, bias = p.const(np.zeros((4, 2), F32), data), p.const(np.zeros((4, 2), F32), element(to))
            w = p.op("cast", [p.op("blockwise_shift_scale", [codes, scaled, zeros, bias], tensor(to, 4, 8))], tensor(F32, 4, 8))
            case("blockwise_shift_scale", f"{data}_{scale}", p, p.op("decomposable.broadcasting_mul", [w, "%x"], tensor(F32, 4, 8)))


def quantization() -> None:
    for dtype in (F32, F16):
        for axis in (0, 1, -1):
            p = Program({"x": normal(4, 5, dtype=dtype)})
            operands = ["%x", p.const(np.array([-128, 127], dtype)), p.const(np.array(axis, I32))]
            n = 4 if axis == 0 else 5
            name = f"{element(dtype)}_{axis}".replace("-", "m")
            case("symmetric_quantization_statistics", name, p, p.op("symmetric_quantization_statistics", operands, tensor(dtype, n)))
    for ends in (np.array([-60, 60], I8), np.array([-128, 127], I16), np.array([0, 255], U8), np.array([0, 255], F32)):
        x = normal(3, 6)
        x[0], x[1] = np.abs(x[0]), -np.abs(x[1])
        p = Program({"x": x})
        outs = p.op("asymmetric_quantization_statistics", ["%x", p.const(ends), p.const(np.array(0, I32))],
                    tensor(F32, 3), tensor(ends.dtype, 3))
        case("asymmetric_quantization_statistics", element(ends.dtype), p, *outs)
    for op, x in (("quantize", normal(3, 4)), ("dequantize", whole(3, 4, dtype=I8))):
        for axis, n in ((0, 3), (1, 4)):
            p = Program({"x": x})
            scale, zero, base = R.uniform(0.05, 0.2, n).astype(F32), whole(n, dtype=I8), normal(n)
            operands = ["%x", p.const(scale), p.const(zero), p.const(base), p.const(np.array(axis, I32))]
            case(op, f"axis_{axis}", p, p.op(op, operands, tensor(I8 if op == "quantize" else F32, 3, 4)))
        p = Program({"x": x})
        operands = ["%x", p.const(np.array(0.07, F32)), p.const(np.array(2, I8)), p.const(np.array(0.5, F32)), p.const(np.array([0, 1], I32))]
        case(op, "whole", p, p.op(op, operands, tensor(I8 if op == "quantize" else F32, 3, 4)))


def first_version(op: str) -> Callable[[str], str]:
    """Turns an operation with two offsets into its first version, which has no second one."""

    def rewrite(text: str) -> str:
        found = re.search(rf'^( *)(%\d+) = "aicode.{op}_v2"\((.*?)\)', text, re.M)
        assert found is not None
        end = re.compile(rf"^.*: \((.*)\) -> (.*)$", re.M) if "({" not in found[0] + text[found.end():][:3] else re.compile(
            rf"^{found[1]}\}}\) : \((.*)\) -> (.*)$", re.M)
        types = end.search(text, found.start())
        assert types is not None
        operands, kinds = found[3].split(", "), re.findall(r"!aicode.tensor_v1<[^>]*>", types[1])
        del operands[3], kinds[3]
        body = ""
        if "({" in text[found.end():][:3]:
            args = ", ".join(f"%w{i}: {kind}" for i, kind in enumerate(kinds))
            body = (f'({{\n^bb0({args}):\n%wide = "aicode.primitive.cast_v1"(%w0) : ({kinds[0]}) -> {types[2]}\n'
                    f'"aicode.dataflow.yield_v1"(%wide) : ({types[2]}) -> ()\n}})')
        line = f'{found[2]} = "aicode.{op}_v1"({", ".join(operands)}) {body} : ({", ".join(kinds)}) -> {types[2]}'
        return text[:found.start()] + line + text[types.end():]

    return rewrite


def first_versions() -> None:
    for dtype in (F16, F32):
        p = Program({"x": normal(1, 8, dtype=dtype)})
        parts = [p.const(whole(4, 8, dtype=I8)), p.const(R.uniform(0.1, 0.4, (4, 2)).astype(dtype)), p.const(whole(4, 2, dtype=I8)),
                 p.const(np.zeros((4, 2), dtype))]
        w = p.op("blockwise_shift_scale", parts, tensor(dtype, 4, 8))
        case("blockwise_shift_scale", f"first_version_{element(dtype)}", p, p.op("decomposable.broadcasting_mul", [w, "%x"], tensor(dtype, 4, 8)),
             rewrite=first_version("primitive.blockwise_shift_scale"))
    for op, x in (("quantize", normal(3, 4)), ("dequantize", whole(3, 4, dtype=I8))):
        p = Program({"x": x})
        scale, zero = R.uniform(0.05, 0.2, 3).astype(F32), whole(3, dtype=I8)
        operands = ["%x", p.const(scale), p.const(zero), p.const(np.zeros(3, F32)), p.const(np.array(0, I32))]
        case(op, "first_version", p, p.op(op, operands, tensor(I8 if op == "quantize" else F32, 3, 4)), rewrite=first_version(op))


def sparse() -> None:
    mask = R.random((4, 6)) < 0.4
    count = int(mask.sum())
    encoding = f"#coreai.sparse_tensor_encoding<bitmask, numNonZero = {count}, posWidth = 1, crdWidth = 1>"
    for dtype in (F16, F32, I8):
        p = Program({"x": normal(4, 6) if dtype is not I8 else whole(4, 6)})
        values = normal(count, dtype=dtype) if dtype is not I8 else whole(count, dtype=I8)
        s = p.op("build_sparse_with_bitmask", [p.const(values), p.packed(mask.astype(I8), "ui1", 1)], tensor(dtype, 4, 6)[:-1] + f", {encoding}>")
        dense = p.op("sparse_with_bitmask_to_dense", [s], tensor(dtype, 4, 6))
        wide = p.op("cast", [dense], p.types["%x"])
        case("build_sparse_with_bitmask", element(dtype), p, p.op("add", [wide, "%x"], p.types["%x"]))
    for vector in (1, 2):
        p = Program({"x": normal(4 * vector, 6, dtype=F16)})
        codes = p.packed(whole(count, low=0, high=3, dtype=I8), "ui2", 2)
        s = p.op("build_sparse_with_bitmask", [codes, p.packed(mask.astype(I8), "ui1", 1)], f"tensor<4x6xui2, {encoding}>")
        table = p.const(normal(1, 1, 4, vector, dtype=F16))
        wide = encoding.replace(f"numNonZero = {count}", f"numNonZero = {count * vector}")
        s = p.op("lut_to_sparse_with_bitmask", [s, table, p.const(np.array(0, I16))], f"tensor<{4 * vector}x6xf16, {wide}>")
        dense = p.op("sparse_with_bitmask_to_dense", [s], tensor(F16, 4 * vector, 6))
        case("lut_to_sparse_with_bitmask", f"vector_{vector}", p, p.op("add", [dense, "%x"], tensor(F16, 4 * vector, 6)))


# ---- shapes, windows, sampling ---------------------------------------------------------------------------------------------------


def shapes() -> None:
    x = normal(2, 3, 4)
    for dtype in (I16, I32, U16, U32):
        p = Program({"x": x})
        case("reshape", f"by_{element(dtype)}", p, p.op("reshape", ["%x", p.const(np.array([4, 6], dtype))], tensor(F32, 4, 6)))
    for dtype in (I16, I32):
        p = Program({"x": x})
        bounds = [p.const(np.array(v, dtype)) for v in ([0, 1, -3], [2, 3, 4], [1, 1, 2])]
        case("slice", f"by_{element(dtype)}", p, p.op("slice", ["%x", *bounds], tensor(F32, 2, 2, 2)))
        p = Program({"x": x})
        bounds = [p.const(np.array(v, dtype)) for v in ([1, 2, 3], [-3, 0, -5], [-1, -1, -2])]
        case("slice", f"back_by_{element(dtype)}", p, p.op("slice", ["%x", *bounds], tensor(F32, 2, 2, 2)))
        p = Program({"x": x, "i": whole(2, 2, 4, low=-3, high=2, dtype=dtype)})
        case("gather_along_axis", f"negative_by_{element(dtype)}", p,
             p.op("gather_along_axis", ["%x", "%i", p.const(np.array(1, I32))], tensor(F32, 2, 2, 4)))
        p = Program({"x": x, "i": whole(3, 1, low=-2, high=1, dtype=dtype)})
        case("gather_nd", f"negative_by_{element(dtype)}", p, p.op("gather_nd", ["%x", "%i"], tensor(F32, 3, 3, 4)))
    p = Program({"x": normal(3, 4), "u": normal(2, 4), "i": np.array([[2], [0]], I32)})
    region = p.region({"a": tensor(F32), "b": tensor(F32)}, lambda a, b: [b])
    case("scatter_nd", "rows", p, p.op("scatter_nd", ["%x", "%i", "%u"], tensor(F32, 3, 4), regions=region))
    for mode in ("add", "sub", "mul", "div", "max", "min"):
        p = Program({"x": normal(3, 4), "u": normal(2, 4), "i": np.array([[2, 0, 1, 2], [0, 2, 2, 1]], I32)})
        operands = ["%x", "%i", "%u", p.const(np.array(0, I32))]
        case("scatter_along_axis", mode, p, p.op("scatter_along_axis", operands, tensor(F32, 3, 4),
                                                 attrs=f"scatter_mode = #coreai.scatter_mode<{mode}>"))
    for mode in ("symmetric", "circular", "reflect", "replicate"):
        p = Program({"x": whole(3, 4)})
        operands = ["%x", p.const(np.array([1, 2, 2, 1], U32)), p.const(np.array(0, I32))]
        case("pad", mode, p, p.op("pad", operands, tensor(I32, 6, 7), attrs=f"padding_mode = #coreai.padding_mode<{mode}>"))
    p = Program({"x": normal(2, 7)})
    sizes = [p.const(np.array(3, U32)), p.const(np.array(-1, I32))]
    case("split", "by_size", p, *p.op("split", ["%x", *sizes], *[tensor(F32, 2, n) for n in (3, 3, 1)]))
    p = Program({"x": normal(2, 3)})
    case("tile", "last_only", p, p.op("tile", ["%x", p.const(np.array([2], U32))], tensor(F32, 2, 6)))
    p = Program({"x": normal(2, 3, 4)})
    case("expand_dims", "negative", p, p.op("expand_dims", ["%x", p.const(np.array([3, -4], I32))], tensor(F32, 2, 1, 3, 1, 4)))
    for approximate in ("sigmoid",):
        for dtype in (F32, F16, BF16):
            p = Program({"x": normal(4, 33, dtype=dtype)})
            case("gelu", f"{approximate}_{element(dtype)}", p,
                 p.op("gelu", ["%x"], tensor(dtype, 4, 33), attrs=f"approximate = #coreai.approximate<{approximate}>"))
    for dtype, bounds in ((F32, (0, 1, 0.1)), (F16, (-5, 5, 1)), (I32, (10, 0, -3)), (I64, (0, 20, 7)), (U32, (3, 9, 2))):
        p = Program({n: np.array(v, dtype) for n, v in zip("abc", bounds)})
        case("range", f"values_{element(dtype)}", p, p.op("range", ["%a", "%b", "%c"], tensor(dtype, "?")))


def empty_and_single() -> None:
    for op in ("relu", "exp", "abs"):
        for shape in ((), (0,), (2, 0, 3)):
            p = Program({"x": normal(*shape)})
            case(op, f"shape_{'x'.join(map(str, shape)) or 'scalar'}", p, p.op(op, ["%x"], tensor(F32, *shape)))
    for shape in ((), (0, 3)):
        p = Program({"x": normal(*shape), "y": normal(*shape)})
        case("add", f"shape_{'x'.join(map(str, shape)) or 'scalar'}", p, p.op("add", ["%x", "%y"], tensor(F32, *shape)))
    p = Program({"x": normal(2, 0), "y": normal(0, 3)})
    case("batch_matmul", "empty_inner", p, p.op("batch_matmul", ["%x", "%y"], tensor(F32, 2, 3)))
    p = Program({"x": normal(2, 0), "y": normal(2, 3)})
    case("concat", "empty_part", p, p.op("concat", [p.const(np.array(1, I32)), "%x", "%y"], tensor(F32, 2, 3)))
    for x in (np.zeros((2, 3), F32), np.array([[0, np.nan, -0.0], [np.inf, 1, 0]], F32)):
        p = Program({"x": x})
        case("non_zero", "some" if np.any(x) else "none", p, p.op("non_zero", ["%x"], tensor(I32, "?", 2)))


def dynamic() -> None:
    p = Program({"x": normal(3, 4)}, dynamic={"x": tensor(F32, "?", 4)})
    shape = p.op("get_shape", ["%x"], tensor(U32, 2))
    rows = p.op("slice", [shape, *[p.const(np.array([v], I32)) for v in (0, 1, 1)]], tensor(U32, 1))
    target = p.op("concat", [p.const(np.array(0, I32)), rows, p.const(np.array([2, 2], U32))], tensor(U32, 3))
    case("reshape", "dynamic", p, p.op("reshape", ["%x", target], tensor(F32, "?", 2, 2)))
    p = Program({"x": normal(5), "n": np.array(3, I32)}, dynamic={"x": tensor(F32, "?")})
    numbers = p.op("range", [p.const(np.array(0, I32)), "%n", p.const(np.array(1, I32))], tensor(I32, "?"))
    rows = p.op("expand_dims", [numbers, p.const(np.array([1], I32))], tensor(I32, "?", 1))
    case("range", "first_n", p, p.op("gather_nd", ["%x", rows], tensor(F32, "?")))
    p = Program({"x": np.array([0, 2, 0, 3, 4], F32)})
    places = p.op("non_zero", ["%x"], tensor(I32, "?", 1))
    case("non_zero", "gathered", p, p.op("gather_nd", ["%x", places], tensor(F32, "?")))
    p = Program({"x": normal(2, 6), "n": np.array([4], I32)})
    ends = p.op("concat", [p.const(np.array(0, I32)), p.const(np.array([2], I32)), "%n"], tensor(I32, 2))
    case("slice", "up_to_n", p, p.op("slice", ["%x", p.const(np.array([0, 0], I32)), ends, p.const(np.array([1, 1], I32))], tensor(F32, "?", "?")))


def windows() -> None:
    def numbers(p: Program, *lists: Iterable[int]) -> list[str]:
        return [p.const(np.array(v, U32)) for v in lists]

    for dtype in (F32, F16, I32):
        x = normal(1, 2, 7, 8, dtype=dtype) if dtype is not I32 else whole(1, 2, 7, 8)
        for ceil in (False, True):
            p = Program({"x": x})
            operands = ["%x", *numbers(p, [2, 3], [2, 2], [1, 2]), p.const(np.array(ceil))]
            h, w = ((7 - 2) // 2 + 1, (8 - 5) // 2 + 1) if not ceil else (-(-(7 - 2) // 2) + 1, -(-(8 - 5) // 2) + 1)
            case("max_pool_2d", f"{element(dtype)}_{'ceil' if ceil else 'floor'}", p, p.op("max_pool_2d", operands, tensor(dtype, 1, 2, h, w)))
        p = Program({"x": x})
        case("sum_pool_2d", element(dtype), p,
             p.op("sum_pool_2d", ["%x", *numbers(p, [2, 3], [2, 1], [1, 2])], tensor(dtype, 1, 2, 3, 4)))
    p = Program({"x": normal(1, 2, 4, 5, 6)})
    case("max_pool_3d", "f32", p, p.op("max_pool_3d", ["%x", *numbers(p, [2, 2, 3], [1, 2, 1], [1, 1, 1]), p.const(np.array(False))],
                                       tensor(F32, 1, 2, 3, 2, 4)))
    p = Program({"x": normal(1, 2, 4, 5, 6)})
    case("sum_pool_3d", "f32", p, p.op("sum_pool_3d", ["%x", *numbers(p, [2, 2, 3], [1, 2, 1], [1, 1, 1])], tensor(F32, 1, 2, 3, 2, 4)))
    for groups in (1, 2):
        p = Program({"x": normal(1, 4, 5, 6), "w": normal(4, 3, 3, 2)})
        operands = ["%x", "%w", *numbers(p, [2, 1], [1, 0], [1, 2], [1, 0]), p.const(np.array(groups, U32))]
        h, w = (5 - 1) * 2 - 2 + 2 + 1 + 1, (6 - 1) * 1 + 2 + 1
        case("conv_transpose2d", f"groups_{groups}", p, p.op("conv_transpose2d", operands, tensor(F32, 1, 3 * groups, h, w)))
    p = Program({"x": normal(1, 2, 3, 4, 3), "w": normal(2, 3, 2, 2, 3)})
    operands = ["%x", "%w", *numbers(p, [1, 2, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]), p.const(np.array(1, U32))]
    case("conv_transpose3d", "f32", p, p.op("conv_transpose3d", operands, tensor(F32, 1, 3, 4, 6, 5)))


def sampling() -> None:
    for dtype in (F32, F16):
        for mode in ("linear", "nearest_neighbor"):
            grids = {"half_pixel": ([1, 2, 9, 4], [1, 1, 1.5, 0.8], [0, 0, 0, 0]),
                     "align_corners": ([1, 2, 11, 3], [1, 1, 2, 0.5], [0, 0, -0.5, 0.25]),
                     "shifted": ([1, 2, 6, 5], [1, 1, 1, 1], [0, 0, 0.3, -1.7])}
            for name, (shape, scale, offset) in grids.items():
                p = Program({"x": normal(1, 2, 6, 5, dtype=dtype)})
                operands = ["%x", p.const(np.array(shape, I32)), p.const(np.array(scale, F32)), p.const(np.array(offset, F32))]
                case("interpolate", f"{element(dtype)}_{mode}_{name}", p, p.op(
                    "interpolate", operands, tensor(dtype, *shape), attrs=f"interpolation_mode = #coreai.interpolation_mode<{mode}>"))
            points = np.concatenate([R.uniform(-1, 6, size=(12, 2)), [[0, 0], [4, 5], [1.5, 2.5], [0.5, 3.5]]]).astype(F32)
            p = Program({"x": normal(5, 6, dtype=dtype), "c": points})
            case("interpolate_coordinates", f"{element(dtype)}_{mode}", p, p.op(
                "interpolate_coordinates", ["%x", "%c"], tensor(dtype, 16), attrs=f"interpolation_mode = #coreai.interpolation_mode<{mode}>"))


def draw() -> None:
    for family in (control_flow, wrappers, states, more_control_flow, more_states, spans, phones, experts, images, first_versions, complex_numbers, narrow_kinds, quantization, sparse, shapes, empty_and_single,
                   dynamic, windows, sampling):
        family()


async def run(c: Case, asset: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    wrap = lambda v: NDArray(v if v.ndim == 0 else np.ascontiguousarray(v))  # noqa: E731
    state = {k: wrap(np.array(v)) for k, v in c.program.states.items()}
    async with asset.executable() as model:
        function = model.load_function("main")
        result = await function(inputs={k: wrap(v) for k, v in c.program.inputs.items()}, state=state)
        return {k: np.array(v.numpy()) for k, v in result.items()}, {k: np.array(v.numpy()) for k, v in state.items()}


def rewritten(asset: AIModelAsset, path: Path, rewrite: Callable[[str], str]) -> AIModelAsset:
    """The asset with its program changed in the form that the file has."""
    program = path / "main.mlirb"
    with Context():
        module = Module.parse(rewrite(str(Module.parse(program.read_bytes()))))
        serialize_module_to_bytecode(module=module, package_path=program, dialect_version=20251112, bytecode_version=6)
    (path / "main.hash").write_bytes(hashlib.sha256(program.read_bytes()).digest())
    return AIModelAsset.load(path)


def write(c: Case, out: Path) -> str:
    folder = out / c.op
    folder.mkdir(parents=True, exist_ok=True)
    text = c.program.text(c.results, c.extra)
    if os.environ.get("SHOW"):
        print(text, file=sys.stderr)
    with Context():
        module = Module.parse(text)
        asset = AIProgram._from_mlir_module(module).save_asset(folder / f"{c.name}.aimodel")
    if c.rewrite is not None:
        asset = rewritten(asset, folder / f"{c.name}.aimodel", c.rewrite)
    if c.documented is not None:
        results, after = {f"out{i}": v for i, v in enumerate(c.documented)}, {}
    else:
        results, after = asyncio.run(run(c, asset))
    tensors = {f"in.{k}": v for k, v in c.program.inputs.items()} | {f"state.{k}": v for k, v in c.program.states.items()}
    tensors |= {f"out.{k}": v for k, v in results.items()} | {f"after.{k}": v for k, v in after.items()}
    save_file({k: np.ascontiguousarray(v).reshape(v.shape) for k, v in tensors.items()}, folder / f"{c.name}.safetensors")
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    draw()
    counts = {"written": 0, "refused": 0}
    for c in CASES:
        if args.only and c.op not in args.only:
            continue
        # One process a case: a case that traps in the runtime must not end the suite.
        read, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(read)
            try:
                reason = write(c, args.out)
            except BaseException as error:  # noqa: BLE001
                reason = f"{type(error).__name__}: {error}".strip()
            os.write(writer, f"done {reason}".encode())
            os._exit(0)
        os.close(writer)
        answer = b""
        while chunk := os.read(read, 65536):
            answer += chunk
        os.close(read)
        os.waitpid(pid, 0)
        if answer == b"done ":
            counts["written"] += 1
        else:
            counts["refused"] += 1
            print(f"{c.op}/{c.name}: {answer.decode().removeprefix('done ') or 'trapped'}", file=sys.stderr)
    print(counts, file=sys.stderr)


if __name__ == "__main__":
    main()
