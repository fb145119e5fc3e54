"""Write Core ML packages of single operations, with what coremltools computes for them.

    python3 -m venv .oracle && .oracle/bin/pip install coremltools==9.0 safetensors
    .oracle/bin/python coreml_ops.py OUT

`OUT/GROUP.mlpackage` holds the cases of a group as one program, an output a case; `OUT/GROUP.safetensors` its inputs
(`in.<name>`) and outputs (`out.<name>`). What an output should be is what coremltools folds the same operation to when its
operands are constants: its value inference in numpy. Operations without one have a few lines of numpy here.
"""

import logging
import os
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
os.environ["TQDM_DISABLE"] = "1"

import coremltools as ct
import numpy as np
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program, types
from safetensors.numpy import save_file

KINDS = {np.dtype("float32"): types.fp32, np.dtype("float16"): types.fp16, np.dtype("int32"): types.int32,
         np.dtype("bool"): types.bool}
OPSET = ct.target.iOS18
random = np.random.default_rng(7)


def floats(*shape, low=-3.0, high=3.0, kind=np.float32):
    return random.uniform(low, high, shape).astype(kind)


def ints(*shape, low=-9, high=9):
    return random.integers(low, high, shape).astype(np.int32)


class Case:
    def __init__(self, op, reference=None, outputs=1, fixed=(), **arguments):
        """Arrays become inputs, but for those named in `fixed`; everything else is a constant."""
        self.op, self.reference, self.outputs = op, reference, outputs
        self.arguments = arguments
        self.inputs = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray) and k not in fixed and v.ndim > 0}

    def build(self, operands):
        return getattr(mb, self.op)(**{**self.arguments, **operands})

    def expected(self):
        if self.reference is not None:
            several = self.reference if isinstance(self.reference, list) else [self.reference]
            return [np.asarray(v) for v in several]
        with Function({}, opset_version=OPSET) as function:
            operands = {k: mb.const(val=v) for k, v in self.inputs.items()}
            result = self.build(operands)
            found = result if isinstance(result, (list, tuple)) else [result]
            function.set_outputs(list(found))
        if self.op.startswith("constexpr"):
            return [np.asarray(v.op.materialized_val_inference()) for v in found]
        return [None if v.val is None else np.asarray(v.val) for v in found]


UNARY = {"abs": {}, "ceil": {}, "cos": {}, "erf": {}, "exp": {}, "exp2": {}, "floor": {}, "relu": {}, "relu6": {},
         "round": {}, "sigmoid": {}, "sign": {}, "sin": {}, "softplus": {}, "softsign": {}, "square": {},
         "tanh": {}, "atan": {}, "sinh": {}, "cosh": {}, "identity": {}}
LIMITED = {"acos": (-0.9, 0.9), "asin": (-0.9, 0.9), "atanh": (-0.8, 0.8), "log": (0.2, 5.0), "rsqrt": (0.1, 4.0),
           "sqrt": (0.0, 9.0), "inverse": (0.3, 3.0), "tan": (-1.2, 1.2)}
PARAMETERS = {"clip": {"alpha": -1.0, "beta": 1.5}, "elu": {"alpha": 0.7}, "leaky_relu": {"alpha": 0.1},
              "clamped_relu": {"alpha": 0.3, "beta": 1.2}, "linear_activation": {"alpha": 1.5, "beta": -0.25},
              "sigmoid_hard": {"alpha": 0.3, "beta": 0.4}, "scaled_tanh": {"alpha": 1.3, "beta": 0.7},
              "threshold": {"alpha": 0.5}, "thresholded_relu": {"alpha": 0.4}}
BINARY = ["add", "sub", "mul", "real_div", "maximum", "minimum", "floor_div", "mod", "pow"]
COMPARE = ["equal", "greater", "greater_equal", "less", "less_equal", "not_equal"]
SHAPES = [((2, 3), (2, 3)), ((2, 1, 4), (3, 1)), ((5,), (1,))]


def elementwise():
    for kind in (np.float32, np.float16):
        for op in UNARY:
            yield Case(op, x=floats(2, 3, 4, kind=kind))
        for op, (low, high) in LIMITED.items():
            yield Case(op, x=floats(7, low=low, high=high, kind=kind))
        for op, arguments in PARAMETERS.items():
            yield Case(op, x=floats(3, 5, kind=kind), **{k: kind(v) for k, v in arguments.items()})
        x = floats(2, 9, kind=kind)
        yield Case("silu", x=x, reference=(x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))).astype(kind))
        for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"):
            yield Case("gelu", x=floats(2, 9, kind=kind), mode=mode)
        yield Case("prelu", x=floats(1, 3, 4, kind=kind), alpha=np.full(3, 0.25, kind), fixed=("alpha",))


def binary():
    for a, b in SHAPES:
        for kind in (np.float32, np.float16):
            for op in BINARY:
                low = 0.2 if op in ("pow", "real_div", "floor_div", "mod") else -3.0
                yield Case(op, x=floats(*a, low=max(low, -3.0) if op == "pow" else -3.0, kind=kind),
                           y=floats(*b, low=low, kind=kind))
            for op in COMPARE:
                yield Case(op, x=np.round(floats(*a, kind=kind)), y=np.round(floats(*b, kind=kind)))
        for op in BINARY[:8]:
            if op != "real_div":
                yield Case(op, x=ints(*a), y=ints(*b, low=1, high=5))
        for op in COMPARE:
            yield Case(op, x=ints(*a, low=0, high=3), y=ints(*b, low=0, high=3))
        for op in ("logical_and", "logical_or", "logical_xor"):
            yield Case(op, x=ints(*a) > 0, y=ints(*b) > 0)
        yield Case("select", cond=ints(*a) > 0, a=floats(*a), b=floats(*a))
    yield Case("logical_not", x=ints(4, 4) > 0)


def casts():
    for source in (floats(9), floats(9, kind=np.float16), ints(9), ints(9) > 0):
        for target in ("fp32", "fp16", "int32", "bool"):
            yield Case("cast", x=source, dtype=target)


def reductions():
    for kind in (np.float32, np.float16):
        for axes in ([-1], [0, 2], [1]):
            for keep in (True, False):
                for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_l1_norm",
                           "reduce_l2_norm", "reduce_log_sum_exp", "reduce_sum_square"):
                    yield Case(op, x=floats(2, 3, 4, low=-1.5, high=1.5, kind=kind), axes=axes, keep_dims=keep)
        yield Case("reduce_log_sum", x=floats(3, 4, low=0.1, kind=kind), axes=[0], keep_dims=False)
        for axis in (0, -1):
            for op in ("reduce_argmax", "reduce_argmin"):
                yield Case(op, x=floats(4, 5, kind=kind), axis=axis, keep_dims=axis == 0)
            yield Case("softmax", x=floats(4, 5, kind=kind), axis=axis)
            for reverse in (True, False):
                yield Case("cumsum", x=floats(3, 4, kind=kind), axis=axis, reverse=reverse, exclusive=False)


def norm(x, axes, gamma, beta, epsilon):
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axis=axes, keepdims=True), wide.var(axis=axes, keepdims=True)
    out = (wide - mean) / np.sqrt(variance + epsilon)
    if gamma is not None:
        out = out * gamma + beta
    return out.astype(x.dtype)


def norms():
    for kind in (np.float32, np.float16):
        x = floats(2, 3, 8, kind=kind)
        gamma, beta = floats(8, kind=kind), floats(8, kind=kind)
        yield Case("layer_norm", x=x, axes=[-1], epsilon=kind(1e-3), reference=norm(x, (-1,), None, None, 1e-3))
        yield Case("layer_norm", x=x, axes=[-1], gamma=gamma, beta=beta, epsilon=kind(1e-3), fixed=("gamma", "beta"),
                   reference=norm(x, (-1,), gamma.astype(np.float64), beta.astype(np.float64), 1e-3))
        x = floats(1, 3, 4, 2, kind=kind)
        scale = 1.0 / np.sqrt((x.astype(np.float64) ** 2).sum(axis=(1, 2, 3), keepdims=True) + 1e-6)
        yield Case("l2_norm", x=x, epsilon=kind(1e-6), reference=(x * scale).astype(kind))


def moves():
    x = floats(2, 3, 4)
    for a in (x, x.astype(np.float16), ints(2, 3, 4)):
        yield Case("transpose", x=a, perm=[2, 0, 1])
        yield Case("transpose", x=a, perm=[-1, -2, -3])
        yield Case("reshape", x=a, shape=[4, 6])
        yield Case("reshape", x=a, shape=[-1, 2])
        yield Case("expand_dims", x=a, axes=[0, -1])
        yield Case("squeeze", x=a[:1], axes=[0])
        yield Case("squeeze", x=a[:1, :1])
        yield Case("tile", x=a, reps=[1, 2, 1])
        yield Case("tile", x=a[:, :1], reps=[1, 5, 1])
        yield Case("reverse", x=a, axes=[0, 2])
        yield Case("reverse", x=a)
        yield Case("flatten2d", x=a, axis=2)
        yield Case("split", x=a, num_splits=3, axis=1, outputs=3)
        yield Case("split", x=a, split_sizes=[1, 3], axis=-1, outputs=2)
        yield Case("slice_by_index", x=a, begin=[0, 1, 1], end=[2, 3, 4])
        yield Case("slice_by_index", x=a, begin=[0, -2, 0], end=[2, -1, 4], stride=[1, 1, 2])
        yield Case("slice_by_index", x=a, begin=[1, 0, 3], end=[0, 3, 0], stride=[1, 1, -1], begin_mask=[True, False, False],
                   end_mask=[True, False, True])
        yield Case("slice_by_index", x=a, begin=[1, 0, -1], end=[0, 0, 0], end_mask=[False, True, False],
                   squeeze_mask=[True, False, True])
        yield Case("slice_by_size", x=a, begin=[1, 0, 2], size=[1, -1, 2])
        yield Case("fill_like", ref_tensor=a, value=a.dtype.type(3), reference=np.full_like(a, 3))
    for mode, amounts in (("constant", [1, 2]), ("reflect", [2, 1]), ("replicate", [0, 3])):
        yield Case("pad", x=x, pad=amounts, mode=mode, constant_val=np.float32(1.5))
    yield Case("range_1d", start=1, end=9, step=3, reference=np.arange(1, 9, 3, dtype=np.int32))
    yield Case("shape", x=x, reference=np.array([2, 3, 4], np.int32))


def joins():
    for kind in (np.float32, np.float16):
        a, b = floats(2, 3, kind=kind), floats(2, 3, kind=kind)
        for axis in (0, 1, -1):
            yield Joined("concat", [a, b], axis=axis)
            # The value inference of coremltools passes over `interleave`; this is what its documentation says.
            woven = np.stack([a, b], axis=2 if axis else 1).reshape((2, 6) if axis else (4, 3))
            yield Joined("concat", [a, b], axis=axis, interleave=True, reference=woven)
            yield Joined("stack", [a, b], axis=axis)


class Joined(Case):
    def __init__(self, op, values, reference=None, **arguments):
        super().__init__(op, reference, **arguments)
        self.inputs = {f"values{i}": v for i, v in enumerate(values)}

    def build(self, operands):
        return getattr(mb, self.op)(values=list(operands.values()), **self.arguments)


def products():
    for kind in (np.float32, np.float16):
        for a, b, x, y in (((2, 3), (3, 4), False, False), ((3, 2), (3, 4), True, False), ((2, 3), (4, 3), False, True),
                           ((2, 1, 2, 3), (5, 3, 2), False, False)):
            left, right = floats(*a, kind=kind), floats(*b, kind=kind)
            wide = [v.astype(np.float64).swapaxes(-1, -2) if turned else v.astype(np.float64)
                    for v, turned in ((left, x), (right, y))]
            yield Case("matmul", x=left, y=right, transpose_x=x, transpose_y=y, reference=(wide[0] @ wide[1]).astype(kind))
        for bias in (None, floats(4, kind=kind)):
            x, weight = floats(2, 5, kind=kind), floats(4, 5, kind=kind)
            more = {} if bias is None else {"bias": bias}
            wide = x.astype(np.float64) @ weight.T.astype(np.float64) + (0 if bias is None else bias)
            yield Case("linear", x=x, weight=weight, fixed=("weight", "bias"), reference=wide.astype(kind), **more)
        for shape, weights, groups, strides, dilations, pads in (
                ((1, 4, 6), (5, 4, 1), 1, [1], [1], None), ((2, 4, 9), (6, 2, 3), 2, [2], [1], [1, 2]),
                ((1, 4, 9), (4, 1, 3), 4, [1], [2], None), ((1, 3, 5, 6), (2, 3, 2, 3), 1, [1, 2], [1, 1], [1, 0, 0, 1]),
                ((1, 3, 1, 6), (4, 3, 1, 1), 1, [1, 1], [1, 1], None)):
            x, weight, bias = floats(*shape, kind=kind), floats(*weights, kind=kind), floats(weights[0], kind=kind)
            padding = {"pad_type": "valid"} if pads is None else {"pad_type": "custom", "pad": pads}
            yield Case("conv", x=x, weight=weight, bias=bias, groups=groups, strides=strides, dilations=dilations,
                       fixed=("weight", "bias"), reference=convolve(x, weight, bias, groups, strides, dilations, pads),
                       **padding)
        q, k, v = (floats(1, 2, n, 4, kind=kind) for n in (3, 5, 5))
        mask = np.where(ints(1, 1, 3, 5) > 4, -1e4, 0.0).astype(kind)
        for arguments, added in (({}, 0.0), ({"attn_mask": mask}, mask.astype(np.float64))):
            scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / 2.0 + added
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out = shares / shares.sum(axis=-1, keepdims=True) @ v.astype(np.float64)
            yield Case("scaled_dot_product_attention", query=q, key=k, value=v, reference=out.astype(kind), **arguments)


def convolve(x, weight, bias, groups, strides, dilations, pads):
    rank = x.ndim - 2
    pads = pads or [0] * 2 * rank
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0)] + [tuple(pads[2 * i:2 * i + 2]) for i in range(rank)])
    reach = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations)]
    extents = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides)]
    made, depth = weight.shape[0], weight.shape[1]
    out = np.zeros((x.shape[0], made, *extents))
    for at in np.ndindex(*extents):
        window = tuple(slice(a * s, a * s + r, d) for a, s, r, d in zip(at, strides, reach, dilations))
        for o in range(made):
            first = o // (made // groups) * depth
            part = x[(slice(None), slice(first, first + depth), *window)]
            out[(slice(None), o, *at)] = (part * weight[o].astype(np.float64)).reshape(len(x), -1).sum(axis=1) + bias[o]
    return out.astype(weight.dtype)


def picks():
    for kind in (np.float32, np.float16):
        x = floats(4, 5, 3, kind=kind)
        for axis, indices in ((0, ints(2, low=0, high=4)), (1, ints(2, 2, low=0, high=5)), (-1, ints(4, low=0, high=3))):
            yield Case("gather", x=x, indices=indices, axis=axis, reference=np.take(x, indices, axis=axis))
        own = ints(4, 2, low=0, high=5)
        yield Case("gather", x=x, indices=own, axis=1, batch_dims=1, reference=np.stack([a[i] for a, i in zip(x, own)]))
        own = ints(4, 2, low=0, high=3)
        yield Case("gather", x=x, indices=own, axis=2, batch_dims=1,
                   reference=np.stack([a[:, i] for a, i in zip(x, own)]))
        along = ints(4, 2, 3, low=0, high=5)
        yield Case("gather_along_axis", x=x, indices=along, axis=1, reference=np.take_along_axis(x, along, axis=1))
        places = np.array([[0, 1], [3, 4], [2, 0]], np.int32)
        yield Case("gather_nd", x=x, indices=places, reference=x[places[:, 0], places[:, 1]])
        updates = floats(3, 3, kind=kind)
        changed = x.copy()
        changed[places[:, 0], places[:, 1]] = updates
        yield Case("scatter_nd", data=x, indices=places, updates=updates, mode="update", reference=changed)
        for mode in ("update", "add", "max"):
            data, one = floats(4, 3, kind=kind), np.array([[0, 1, 2], [3, 3, 0]], np.int32)
            more, want = floats(2, 3, kind=kind), None
            want = data.copy()
            for (i, j), to in np.ndenumerate(one):
                old, new = want[to, j], more[i, j]
                want[to, j] = {"update": new, "add": old + new, "max": max(old, new)}[mode]
            yield Case("scatter_along_axis", data=data, indices=one, updates=more, axis=0, mode=mode, reference=want)
        box = floats(2, 2, 3, kind=kind)
        changed = x.copy()
        changed[1:3, 2:4] = box
        yield Case("slice_update", x=x, update=box, begin=[1, 2, 0], end=[3, 4, 0], end_mask=[False, False, True],
                   reference=changed)
        changed = x.copy()
        changed[3, :, 1] = box[0, 0, 0]
        yield Case("slice_update", x=x, update=np.full((5,), box[0, 0, 0]), begin=[3, 0, 1], end=[0, 5, 0],
                   squeeze_mask=[True, False, True], reference=changed)
        for axis in (0, -1):
            for up in (True, False):
                order = np.argsort(x if up else -x, axis=axis, kind="stable").astype(np.int32)
                yield Case("argsort", x=x, axis=axis, ascending=up, reference=order)
                best = np.take(order, [0, 1], axis=axis)
                yield Case("topk", x=x, k=2, axis=axis, ascending=up, outputs=2,
                           reference=[np.take_along_axis(x, best, axis=axis), best])
    for indices, axis, on, off in ((ints(5, low=0, high=4), -1, 2, -1), (ints(2, 3, low=0, high=4), 1, 1, 0)):
        hot = np.moveaxis(np.where(np.eye(4, dtype=bool)[indices], on, off), -1, axis).astype(np.int32)
        yield Case("one_hot", indices=indices, one_hot_vector_size=4, axis=axis, on_value=on, off_value=off, reference=hot)


def compressed():
    for kind in (np.float32, np.float16):
        for bits, dtype in ((1, "uint1"), (2, "uint2"), (3, "uint3"), (4, "uint4"), (6, "uint6"), (8, "uint8")):
            for groups in ((1, 1), (4, 1), (1, 2)):
                entries = 2**bits
                indices = random.integers(0, entries, (8, 6)).astype(types.nptype_from_builtin(types.string_to_builtin(dtype)))
                lut = floats(*groups, entries, 1, kind=kind)
                yield Case("constexpr_lut_to_dense", indices=indices, lut=lut, fixed=("indices", "lut"))
        for dtype, low, high in (("int4", -8, 8), ("uint4", 0, 16), ("int8", -128, 128), ("uint8", 0, 256)):
            np_kind = types.nptype_from_builtin(types.string_to_builtin(dtype))
            for blocks in ((8, 1), (1, 1), (8, 3)):
                data = random.integers(low, high, (8, 6)).astype(np_kind)
                scale = floats(*blocks, low=0.01, high=0.1, kind=kind)
                yield Case("constexpr_blockwise_shift_scale", data=data, scale=scale, fixed=("data", "scale"))
                offset = random.integers(low, high, blocks).astype(np_kind)
                yield Case("constexpr_blockwise_shift_scale", data=data, scale=scale, offset=offset,
                           fixed=("data", "scale", "offset"))


def compressed16():
    for kind in (np.float32, np.float16):
        data = random.integers(-128, 128, (8, 6)).astype(np.int8)
        for scale, zero, axis in ((kind(0.05), np.int8(3), 0), (floats(8, low=0.01, high=0.1, kind=kind), np.int8(0), 0),
                                  (floats(6, low=0.01, high=0.1, kind=kind), random.integers(-9, 9, 6).astype(np.int8), 1)):
            yield Case("constexpr_affine_dequantize", quantized_data=data, scale=scale, zero_point=zero, axis=axis,
                       fixed=("quantized_data", "scale", "zero_point"))
        for bits in (1, 2, 4, 6, 8):
            stream = random.integers(0, 256, 48 * bits // 8).astype(np.uint8)
            yield Case("constexpr_lut_to_dense", indices=stream, lut=floats(2**bits, kind=kind),
                       shape=np.array([8, 6], np.uint32), fixed=("indices", "lut", "shape"))
        mask = random.integers(0, 2, 48).astype(np.uint8)
        yield Case("constexpr_sparse_to_dense", nonzero_data=floats(int(mask.sum()), kind=kind),
                   mask=np.packbits(mask, bitorder="little"), shape=np.array([8, 6], np.uint32),
                   fixed=("nonzero_data", "mask", "shape"))


def sparse():
    bit = types.nptype_from_builtin(types.string_to_builtin("uint1"))
    for kind in (np.float32, np.float16):
        mask = random.integers(0, 2, (8, 6))
        yield Case("constexpr_sparse_to_dense", nonzero_data=floats(int(mask.sum()), kind=kind), mask=mask.astype(bit),
                   fixed=("nonzero_data", "mask"))


class Doubled(Case):
    """The inverse of a unit lower triangular matrix by block doubling, as packages of the chunked delta rule spell it."""

    def __init__(self, lower, start, turned):
        size = lower.shape[-1]
        unit = np.tril(lower.astype(np.float64), -1) + np.eye(size)
        super().__init__("inverse", np.linalg.inv(unit).astype(lower.dtype), x=lower)
        self.start, self.turned = start, turned

    def build(self, operands):
        x, kind = operands["x"], self.inputs["x"].dtype
        heads, size = x.shape[0], x.shape[-1]
        index = np.arange(size)
        eye = np.eye(size, dtype=kind)[None]
        inverse = mb.tile(x=eye, reps=[heads, 1, 1]) if self.start == "tile" else np.repeat(eye, heads, axis=0)
        block = 1
        while block < size:
            at = index // block
            mask = ((at[:, None] % 2 == 1) & (at[None] == at[:, None] - 1)).astype(kind)
            masked = mb.mul(x=mask, y=x) if self.turned else mb.mul(x=x, y=mask)
            if self.turned:
                away = mb.matmul(x=inverse, y=mb.matmul(x=masked, y=inverse))
            else:
                away = mb.matmul(x=mb.matmul(x=inverse, y=masked), y=inverse)
            inverse = mb.sub(x=inverse, y=away)
            block *= 2
        return inverse


def doubling():
    for kind in (np.float32, np.float16):
        for size in (16, 12):
            for start, turned in (("const", False), ("tile", True)):
                yield Doubled(floats(3, size, size, low=-0.25, high=0.25, kind=kind), start, turned)


class Experts(Case):
    """A mixture of experts that is evaluated densely, its three matrices compressed; the weights of some experts are zero."""

    HIDDEN, COUNT, WIDTH, TOKENS = 32, 5, 32, 3

    def __init__(self, matrix):
        inner = self.COUNT * self.WIDTH
        self.weights = [matrix(rows, columns) for rows, columns in ((inner, self.HIDDEN),) * 2 + ((self.HIDDEN, inner),)]
        x = floats(1, self.HIDDEN, 1, self.TOKENS, low=-1, high=1, kind=np.float16)
        route = np.float16([[0.5, -1, 0.25, -2, -1], [-1, -1, -1, -1, 1], [-0.5, 0.75, 0.5, -1, 0.25]])[None]
        super().__init__("experts", self.dense(x, route), x=x, route=route)

    def dense(self, x, route):
        wide = [np.asarray(w.expected()[0], np.float64)[:, :, 0, 0] for w in self.weights]
        gate, up = (x[0, :, 0].T.astype(np.float64) @ w.T for w in wide[:2])
        inner = (gate / (1 + np.exp(-gate)) * up).reshape(1, self.TOKENS, self.COUNT, self.WIDTH)
        inner = (inner * np.maximum(route, 0)[..., None]).reshape(self.TOKENS, -1)
        return (inner @ wide[2].T).T[None, :, None].astype(np.float16)

    def build(self, operands):
        # The weights come first, as in packages: products before them cannot leave anything out.
        route = mb.expand_dims(x=mb.relu(x=operands["route"]), axes=[-1])
        gate, up, down = (w.build({}) for w in self.weights)
        gate, up = (mb.conv(x=operands["x"], weight=w, pad_type="valid") for w in (gate, up))
        inner = mb.mul(x=mb.silu(x=gate), y=up)
        inner = mb.transpose(x=mb.squeeze(x=inner, axes=[2]), perm=[0, 2, 1])
        inner = mb.reshape(x=inner, shape=[1, self.TOKENS, self.COUNT, self.WIDTH])
        inner = mb.mul(x=inner, y=route)
        inner = mb.reshape(x=inner, shape=[1, self.TOKENS, self.COUNT * self.WIDTH])
        inner = mb.expand_dims(x=mb.transpose(x=inner, perm=[0, 2, 1]), axes=[2])
        return mb.conv(x=inner, weight=down, pad_type="valid")


def codes(bits, shape, signed=False):
    kind = types.nptype_from_builtin(types.string_to_builtin(f"{'' if signed else 'u'}int{bits}"))
    low = -(2 ** (bits - 1)) if signed else 0
    return random.integers(low, low + 2**bits, shape).astype(kind)


def experts():
    def palette(bits, down, across, vector=1):
        def matrix(rows, columns):
            indices = codes(bits, (rows // vector, columns, 1, 1))
            blocks = (rows // vector // down if down else 1, columns // across if across else 1)
            lut = floats(*blocks, 1, 1, 2**bits, vector, low=-0.4, high=0.4, kind=np.float16)
            more = {"vector_axis": 0} if vector > 1 else {}
            return Case("constexpr_lut_to_dense", indices=indices, lut=lut, fixed=("indices", "lut"), **more)
        return matrix

    def blocks(bits, across, signed, offset):
        def matrix(rows, columns):
            shape = (rows, columns // across if across else 1, 1, 1)
            scale = floats(*shape, low=0.2, high=0.8, kind=np.float16) / np.float16(2**bits)
            more = {"offset": codes(bits, shape, signed)} if offset else {}
            return Case("constexpr_blockwise_shift_scale", data=codes(bits, (rows, columns, 1, 1), signed), scale=scale,
                        fixed=("data", "scale", "offset"), **more)
        return matrix

    for bits, down, across in ((4, 8, 0), (6, 0, 0), (4, 0, 32), (2, 0, 16), (8, 16, 0), (3, 8, 0), (1, 8, 0)):
        yield Experts(palette(bits, down, across))
    yield Experts(palette(4, 8, 0, vector=2))
    for bits, across, signed, offset in ((4, 32, True, False), (4, 16, False, True), (8, 0, True, False), (8, 32, True, False)):
        yield Experts(blocks(bits, across, signed, offset))


GROUPS = {f.__name__: f for f in (elementwise, binary, casts, reductions, norms, moves, joins, products, picks, compressed,
                                    compressed16, sparse, doubling, experts)}


def plain(value):
    """As inputs and outputs of a model have it: no truth values, no integers of 64 bits."""
    kind = {np.dtype("bool"): np.float32, np.dtype("int64"): np.int32, np.dtype("float64"): np.float32}.get(value.dtype)
    return np.ascontiguousarray(value if kind is None else value.astype(kind))


def write(name, cases, out):
    kept, tensors, skipped = [], {}, []
    for number, case in enumerate(cases):
        try:
            expected = case.expected()
        except Exception as error:  # noqa: BLE001
            skipped.append(f"{case.op}: {str(error)[:90]}")
            continue
        if any(v is None for v in expected):
            skipped.append(f"{case.op}: no value")
            continue
        kept.append((f"c{number}", case, expected))
    inputs = {f"{label}_{k}": (label, k, v) for label, case, _ in kept for k, v in case.inputs.items()}
    inputs = inputs or {"unused": ("", "", np.zeros(1, np.float32))}
    places = {key: mb.placeholder(shape=v.shape, dtype=KINDS[v.dtype]) for key, (_, _, v) in inputs.items()}
    with Function(places, opset_version=OPSET) as function:
        outputs, failed = [], set()
        for label, case, expected in kept:
            operands = {k: function.inputs[f"{label}_{k}"] for k in case.inputs}
            try:
                result = case.build(operands)
            except Exception as error:  # noqa: BLE001
                skipped.append(f"{case.op}: {str(error)[:90]}")
                failed.add(label)
                continue
            result = list(result) if isinstance(result, (list, tuple)) else [result]
            for i, (var, value) in enumerate(zip(result, expected)):
                # A result that is an input or held by the file is an output only behind an operation.
                var = mb.identity(x=var) if var.op is None or var.op.op_type.startswith("const") else var
                var.name = f"{label}_{case.op}_{i}"
                outputs.append(var)
                tensors[f"out.{var.name}"] = plain(np.asarray(value))
        function.set_outputs(outputs)
    program = Program()
    program.add_function("main", function)
    model = ct.convert(program, convert_to="mlprogram", minimum_deployment_target=OPSET, compute_precision=ct.precision.FLOAT32,
                       pass_pipeline=ct.PassPipeline.EMPTY, skip_model_load=True)
    model.save(str(out / f"{name}.mlpackage"))
    tensors |= {f"in.{k}": plain(v) for k, (_, _, v) in inputs.items()}
    save_file(tensors, out / f"{name}.safetensors")
    print(f"{name}: {len(outputs)} results of {len(kept) - len(failed)} cases", *sorted(set(skipped)), sep="\n  ")


def main():
    global OPSET
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, cases in GROUPS.items():
        OPSET = ct.target.iOS16 if name.endswith("16") else ct.target.iOS18
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            write(name, list(cases()), out)


if __name__ == "__main__":
    main()
