//! Small graphs as exporters write them: what is left of them, and that they compute the same.

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::mem::SharedBytes;

use super::recognise;
use crate::graph::{ConstantData, Graph, Module, Storage, ValueId};
use crate::interpret;
use crate::ops::Op;
use crate::ops::constant::Constant;
use crate::ops::gelu::{Approximate, Gelu};
use crate::ops::*;
use crate::tensor::Tensor;
use crate::types::{DType, TensorType};
use crate::verify::verify;

/// A graph of floats under construction.
struct Body(Graph);

impl Body {
    fn input(&mut self, shape: &[usize]) -> ValueId {
        let name = format!("in{}", self.0.inputs.len());
        self.0
            .add_input(&name, TensorType::fixed(DType::F32, shape))
    }

    fn positions(&mut self, n: usize) -> ValueId {
        self.0
            .add_input("positions", TensorType::fixed(DType::I32, &[n]))
    }

    fn op(&mut self, op: impl Into<Op>, inputs: &[ValueId], shape: &[usize]) -> ValueId {
        let ty = TensorType::fixed(DType::F32, shape);
        self.0.push(op, inputs, [ty.into()])[0]
    }

    fn constant(&mut self, tensor: &Tensor) -> ValueId {
        let data = ConstantData {
            ty: tensor.ty(),
            storage: Storage::Dense(SharedBytes::from_vec(tensor.bytes().to_vec())),
        };
        let ty = data.ty.clone();
        self.0.push(Constant(Arc::new(data)), &[], [ty.into()])[0]
    }

    fn ints(&mut self, values: &[i64]) -> ValueId {
        let tensor = Tensor::from_ints(DType::I32, &[values.len()], values).unwrap();
        self.constant(&tensor)
    }

    fn axis(&mut self, at: i64) -> ValueId {
        let tensor = Tensor::from_ints(DType::I32, &[], &[at]).unwrap();
        self.constant(&tensor)
    }

    fn number(&mut self, value: f64) -> ValueId {
        let tensor = Tensor::from_floats(DType::F32, &[], &[value]).unwrap();
        self.constant(&tensor)
    }

    fn shape(&self, id: ValueId) -> Vec<usize> {
        let ty = self.0.ty(id).and_then(|t| t.as_tensor()).unwrap();
        ty.fixed_shape().unwrap()
    }

    /// A function of two operands, one of which repeats to the shape of the first.
    fn two(&mut self, op: impl Into<Op>, a: ValueId, b: ValueId) -> ValueId {
        let shape = self.shape(a);
        self.op(op, &[a, b], &shape)
    }

    fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.two(broadcasting_mul::BroadcastingMul, a, b)
    }

    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.two(broadcasting_add::BroadcastingAdd, a, b)
    }

    fn times(&mut self, a: ValueId, by: f64) -> ValueId {
        let by = self.number(by);
        self.mul(a, by)
    }

    fn and(&mut self, a: ValueId, more: f64) -> ValueId {
        let more = self.number(more);
        self.add(a, more)
    }

    fn one(&mut self, op: impl Into<Op>, a: ValueId) -> ValueId {
        let shape = self.shape(a);
        self.op(op, &[a], &shape)
    }

    fn join(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let (at, mut shape) = (self.axis(-1), self.shape(a));
        *shape.last_mut().unwrap() += self.shape(b).last().unwrap();
        self.op(concat::Concat, &[at, a, b], &shape)
    }

    /// Elements of the rows, from and to.
    fn part(&mut self, x: ValueId, from: usize, to: usize) -> ValueId {
        let (mut shape, ones) = (self.shape(x), vec![1; self.shape(x).len()]);
        let mut begin = vec![0; shape.len()];
        let mut end: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        *begin.last_mut().unwrap() = from as i64;
        *end.last_mut().unwrap() = to as i64;
        *shape.last_mut().unwrap() = to - from;
        let bounds = [begin, end, ones].map(|v| self.ints(&v));
        self.op(slice::Slice, &[x, bounds[0], bounds[1], bounds[2]], &shape)
    }

    fn reduced(&mut self, op: impl Into<Op>, x: ValueId, axis: i64) -> ValueId {
        let (axes, mut shape) = (self.ints(&[axis]), self.shape(x));
        let at = usize::try_from(axis).unwrap_or(shape.len() - 1);
        shape[at] = 1;
        self.op(op, &[x, axes], &shape)
    }

    fn reshaped(&mut self, x: ValueId, shape: &[usize]) -> ValueId {
        let ints: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        let ints = self.ints(&ints);
        self.op(reshape::Reshape, &[x, ints], shape)
    }

    fn transposed(&mut self, x: ValueId, order: &[usize]) -> ValueId {
        let from = self.shape(x);
        let shape: Vec<usize> = order.iter().map(|&a| from[a]).collect();
        let ints: Vec<i64> = order.iter().map(|&a| a as i64).collect();
        let ints = self.ints(&ints);
        self.op(transpose::Transpose, &[x, ints], &shape)
    }

    fn product(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let mut shape = self.shape(a);
        *shape.last_mut().unwrap() = *self.shape(b).last().unwrap();
        self.op(
            broadcasting_batch_matmul::BroadcastingBatchMatmul,
            &[a, b],
            &shape,
        )
    }

    fn softmax(&mut self, x: ValueId, at: i64) -> ValueId {
        let (at, shape) = (self.axis(at), self.shape(x));
        self.op(softmax::Softmax, &[x, at], &shape)
    }
}

fn numbers(shape: &[usize], step: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n)
        .map(|i| (i * step % 23) as f64 / 8.0 - 1.25)
        .collect();
    Tensor::from_floats(DType::F32, shape, &values).unwrap()
}

/// The operations that the results need, without constants and what only moves elements.
fn needed(graph: &Graph) -> Vec<&'static str> {
    let mut wanted = graph.body.results.clone();
    let mut names = Vec::new();
    for node in graph.body.nodes.iter().rev() {
        if node.outputs.iter().any(|id| wanted.contains(id)) {
            wanted.extend(&node.inputs);
            let moves = ["slice", "reshape", "expand_dims", "shrink_dims"];
            if !matches!(node.op, Op::Constant(_)) && !moves.contains(&node.op.name()) {
                names.push(node.op.name());
            }
        }
    }
    names.reverse();
    names
}

/// What is needed of a graph after it was rewritten; it computes the same.
fn rewritten(make: impl FnOnce(&mut Body) -> ValueId) -> Vec<&'static str> {
    let mut body = Body(Graph::new("main"));
    let out = make(&mut body);
    body.0.add_output("y", out);
    let module = |graph| Module {
        graphs: vec![graph],
        attributes: Vec::new(),
    };
    let mut graph = body.0.clone();
    let before = module(body.0);
    verify(&before).unwrap();
    recognise(&before, &mut graph).unwrap();
    let names = needed(&graph);
    let after = module(graph);
    verify(&after).unwrap();
    let mut inputs = HashMap::new();
    for (i, port) in before.graphs[0].inputs.iter().enumerate() {
        let ty = port.ty.as_tensor().unwrap();
        let shape = ty.fixed_shape().unwrap();
        let value = match ty.dtype {
            DType::I32 => Tensor::from_ints(DType::I32, &shape, &[3, 1, 2, 0][..shape[0]]).unwrap(),
            _ => numbers(&shape, 7 + 4 * i),
        };
        inputs.insert(port.name.to_string(), value);
    }
    let run = |m: &Module| {
        let mut states = interpret::States::new();
        interpret::run(m, &m.graphs[0], &inputs, &mut states).unwrap()[0]
            .1
            .floats()
    };
    let (want, got) = (run(&before), run(&after));
    assert_eq!(want.len(), got.len());
    let far = want.iter().zip(&got);
    let far = far.map(|(a, b)| (a - b).abs() / (1.0 + a.abs()));
    let far = far.fold(0.0, f64::max);
    assert!(far <= 1e-5, "{names:?}: {far}");
    names
}

/// The first half of the layer norm of `[x, other]`.
fn layer_norm(b: &mut Body, x: ValueId, other: ValueId, axis: i64) -> ValueId {
    let (width, both) = (b.shape(x)[2], b.join(x, other));
    let mean = b.reduced(reduce_mean::ReduceMean, both, axis);
    let away = b.two(broadcasting_sub::BroadcastingSub, both, mean);
    let squares = b.mul(away, away);
    let variance = b.reduced(reduce_mean::ReduceMean, squares, axis);
    let sum = b.and(variance, 1e-3);
    let root = b.one(rsqrt::Rsqrt, sum);
    let normal = b.mul(away, root);
    b.part(normal, 0, width)
}

#[test]
fn norms_of_both_signs() {
    let scaled = |by: f64, axis| {
        rewritten(move |b| {
            let x = b.input(&[2, 3, 8]);
            let negative = b.times(x, by);
            let normal = layer_norm(b, x, negative, axis);
            let scale = b.constant(&numbers(&[8], 5));
            b.mul(normal, scale)
        })
    };
    assert_eq!(scaled(-1.0, -1), ["rms_norm"]);
    // What is left without the mean is normalised; the mean has to be taken.
    assert!(scaled(-0.5, -1).contains(&"reduce_mean"));
    assert!(!scaled(-1.0, 1).contains(&"rms_norm"));
}

/// `x / √(mean(x²) + eps)`.
fn mean_square(b: &mut Body, x: ValueId, of: ValueId, axis: i64) -> ValueId {
    let squares = b.mul(of, of);
    let mean = b.reduced(reduce_mean::ReduceMean, squares, axis);
    let (sum, shape) = (b.and(mean, 1e-6), b.shape(x));
    let root = b.one(rsqrt::Rsqrt, sum);
    b.op(broadcasting_mul::BroadcastingMul, &[x, root], &shape)
}

#[test]
fn norms_by_the_mean_square() {
    let norm = |axis, same: bool| {
        rewritten(move |b| {
            let (x, other) = (b.input(&[2, 3, 8]), b.input(&[2, 3, 8]));
            mean_square(b, x, if same { x } else { other }, axis)
        })
    };
    assert_eq!(norm(-1, true), ["rms_norm"]);
    assert!(!norm(1, true).contains(&"rms_norm"));
    assert!(!norm(-1, false).contains(&"rms_norm"));
}

/// A sigmoid by a hyperbolic tangent.
fn sigmoid(b: &mut Body, x: ValueId, half: f64) -> ValueId {
    let inner = b.times(x, half);
    let tanh = b.one(tanh::Tanh, inner);
    let low = b.times(tanh, 0.5);
    b.and(low, 0.5)
}

#[test]
fn activations_are_known_by_their_values() {
    let of = |half| {
        rewritten(move |b| {
            let x = b.input(&[3, 8]);
            sigmoid(b, x, half)
        })
    };
    assert_eq!(of(0.5), ["sigmoid"]);
    assert!(of(0.6).contains(&"tanh"));
    let silu = |same: bool| {
        rewritten(move |b| {
            let (x, other) = (b.input(&[3, 8]), b.input(&[3, 8]));
            let s = sigmoid(b, x, 0.5);
            b.mul(if same { x } else { other }, s)
        })
    };
    assert_eq!(silu(true), ["silu"]);
    assert_eq!(silu(false), ["sigmoid", "broadcasting_mul"]);
}

#[test]
fn gelus_are_known_by_their_values() {
    let gelu = |by| {
        rewritten(move |b| {
            let x = b.input(&[3, 8]);
            let (cubic, half) = (b.times(x, by), b.times(x, 0.5));
            let cubic = b.mul(cubic, x);
            let inner = b.and(cubic, 1.0);
            let inner = b.mul(x, inner);
            let inner = b.times(inner, 0.797_884_560_8);
            let tanh = b.one(tanh::Tanh, inner);
            let sum = b.and(tanh, 1.0);
            b.mul(half, sum)
        })
    };
    assert_eq!(gelu(0.044_715), ["gelu"]);
    assert!(gelu(0.05).contains(&"tanh"));
    let exact = rewritten(|b| {
        let x = b.input(&[3, 8]);
        let inner = b.times(x, std::f64::consts::FRAC_1_SQRT_2);
        let erf = b.one(erf::Erf, inner);
        let (sum, half) = (b.and(erf, 1.0), b.times(x, 0.5));
        b.mul(half, sum)
    });
    assert_eq!(exact, ["gelu"]);
    let known = rewritten(|b| {
        let x = b.input(&[3, 8]);
        let approximate = Approximate::Tanh;
        b.one(Gelu { approximate }, x)
    });
    assert_eq!(known, ["gelu"]);
}

/// Rows of a table of 4 rows, whose halves are alike but for `off`, put in the place of rows `[1, heads, 4, width]`.
fn table(b: &mut Body, at: ValueId, width: usize, (step, off): (usize, f64)) -> ValueId {
    let mut values = numbers(&[4, width], step).floats();
    for row in values.chunks_mut(width) {
        row.copy_within(..width / 2, width / 2);
        row[width - 1] += off;
    }
    let table = Tensor::from_floats(DType::F32, &[4, width], &values).unwrap();
    let (table, axes) = (b.constant(&table), b.ints(&[0, 1]));
    let rows = b.op(gather_nd::GatherNd, &[table, at], &[4, width]);
    b.op(expand_dims::ExpandDims, &[rows, axes], &[1, 1, 4, width])
}

fn rotated(b: &mut Body, x: ValueId, at: ValueId, off: f64) -> ValueId {
    let (width, half) = (b.shape(x)[3], b.shape(x)[3] / 2);
    let [cos, sin] = [(3, 0.0), (5, off)].map(|kind| table(b, at, width, kind));
    let (second, first) = (b.part(x, half, width), b.part(x, 0, half));
    let second = b.times(second, -1.0);
    let turned = b.join(second, first);
    let (a, c) = (b.mul(x, cos), b.mul(turned, sin));
    b.add(a, c)
}

fn places(b: &mut Body) -> ValueId {
    let (positions, one) = (b.positions(4), b.ints(&[1]));
    let ty = TensorType::fixed(DType::I32, &[4, 1]);
    b.0.push(expand_dims::ExpandDims, &[positions, one], [ty.into()])[0]
}

#[test]
fn rotations_by_tables() {
    let whole = |off| {
        rewritten(move |b| {
            let (x, at) = (b.input(&[1, 2, 4, 6]), places(b));
            rotated(b, x, at, off)
        })
    };
    assert_eq!(whole(0.0), ["gather_nd", "gather_nd", "rope"]);
    assert!(!whole(0.5).contains(&"rope"));
    let first = |from| {
        rewritten(move |b| {
            let (x, at) = (b.input(&[1, 2, 4, 10]), places(b));
            let (turned, rest) = (b.part(x, 0, 6), b.part(x, from, from + 4));
            let turned = rotated(b, turned, at, 0.0);
            b.join(turned, rest)
        })
    };
    assert_eq!(first(6), ["gather_nd", "gather_nd", "rope"]);
    assert!(first(5).contains(&"concat"));
}

#[test]
fn rotations_half_by_half() {
    let halves = |crossed: bool| {
        rewritten(move |b| {
            let (x, at) = (b.input(&[1, 2, 4, 6]), places(b));
            let [cos, sin] = [(3, 0.0), (5, 0.0)].map(|kind| table(b, at, 6, kind));
            let [cos, sin] = [cos, sin].map(|t| b.part(t, 0, 3));
            let (first, second) = (b.part(x, 0, 3), b.part(x, 3, 6));
            let (a, c) = (b.mul(first, cos), b.mul(second, sin));
            let (d, e) = if crossed {
                (first, second)
            } else {
                (second, first)
            };
            let (d, e) = (b.mul(d, cos), b.mul(e, sin));
            let low = b.two(broadcasting_sub::BroadcastingSub, a, c);
            let high = b.add(e, d);
            b.join(low, high)
        })
    };
    assert_eq!(halves(false), ["gather_nd", "gather_nd", "rope"]);
    assert!(!halves(true).contains(&"rope"));
}

/// Two heads, each for a group of two.
fn grouped(b: &mut Body, x: ValueId) -> ValueId {
    let two = b.ints(&[2]);
    let x = b.op(expand_dims::ExpandDims, &[x, two], &[1, 2, 1, 5, 4]);
    let shape = b.ints(&[1, 2, 2, 5, 4]);
    let x = b.op(broadcast_to::BroadcastTo, &[x, shape], &[1, 2, 2, 5, 4]);
    b.reshaped(x, &[1, 4, 5, 4])
}

#[test]
fn attention_over_groups() {
    let attention = |at: i64, whole: bool, parts: bool| {
        rewritten(move |b| {
            let q = b.input(&[1, 4, 3, 4]);
            let [k, v] = [(); 2].map(|()| b.input(&[1, 2, 5, 4]));
            let mask = b.input(&[1, 1, 3, 5]);
            let (k, v) = (grouped(b, k), grouped(b, v));
            let k = b.transposed(k, &[0, 1, 3, 2]);
            let scores = b.product(q, k);
            let scores = b.times(scores, 0.375);
            let mut scores = b.add(scores, mask);
            if !whole {
                scores = b.one(tanh::Tanh, scores);
            }
            let shares = if parts {
                let most = b.reduced(reduce_max::ReduceMax, scores, -1);
                let below = b.two(broadcasting_sub::BroadcastingSub, scores, most);
                let power = b.one(exp::Exp, below);
                let sum = b.reduced(reduce_sum::ReduceSum, power, -1);
                b.two(broadcasting_divide::BroadcastingDivide, power, sum)
            } else {
                b.softmax(scores, at)
            };
            b.product(shares, v)
        })
    };
    let one = ["scaled_dot_product_attention"];
    assert_eq!(attention(-1, true, false), one);
    assert_eq!(attention(-1, true, true), one);
    assert!(!attention(2, true, false).contains(&one[0]));
    assert!(!attention(-1, false, false).contains(&one[0]));
}

#[test]
fn functions_work_on_rows_as_they_lie() {
    let names = rewritten(|b| {
        let (x, y) = (b.input(&[1, 3, 8]), b.input(&[1, 3, 8]));
        let [x, y] = [x, y].map(|v| b.transposed(v, &[0, 2, 1]));
        let axes = b.ints(&[2]);
        let [x, y] = [x, y].map(|v| b.op(expand_dims::ExpandDims, &[v, axes], &[1, 8, 1, 3]));
        let x = b.one(silu::Silu, x);
        let x = b.mul(x, y);
        let x = b.times(x, 2.0);
        let x = b.op(shrink_dims::ShrinkDims, &[x, axes], &[1, 8, 3]);
        b.transposed(x, &[0, 2, 1])
    });
    assert_eq!(names, ["silu", "broadcasting_mul", "broadcasting_mul"]);
    let names = rewritten(|b| {
        let (x, y) = (b.input(&[1, 3, 8]), b.input(&[1, 8, 3]));
        let x = b.transposed(x, &[0, 2, 1]);
        b.mul(x, y)
    });
    assert_eq!(names, ["transpose", "broadcasting_mul"]);
}

/// How an inverse by block doubling is spelled.
#[derive(Clone, Copy, PartialEq)]
enum Doubling {
    Plain,
    /// The mask on the left, the product from the right.
    Turned,
    /// An identity that is repeated for every head, masks that are cast.
    Repeated,
    /// The first level without products.
    Short,
    /// Masks that choose.
    Chosen,
    /// Heads and one more axis for the differences, one axis of both for the products.
    Grouped,
    /// A place of a mask that is 1 and should not be.
    WrongBit,
    /// Something else than the identity.
    WrongStart,
    /// The last level is not there.
    Shallow,
    /// The first two levels are the other way round.
    Unordered,
    /// Another matrix at the last level.
    Other,
    /// A sum.
    Added,
}

/// `[heads, n, n]` or `[n, n]`.
fn pattern(
    b: &mut Body,
    dtype: DType,
    shape: &[usize],
    one: impl Fn(usize, usize) -> bool,
) -> ValueId {
    let n = shape[shape.len() - 1];
    let values = (0..shape.iter().product()).map(|i: usize| i64::from(one(i / n % n, i % n)));
    let values: Vec<i64> = values.collect();
    let floats: Vec<f64> = values.iter().map(|v| *v as f64).collect();
    let tensor = match dtype.is_float() {
        true => Tensor::from_floats(dtype, shape, &floats),
        false => Tensor::from_ints(dtype, shape, &values),
    };
    b.constant(&tensor.unwrap())
}

fn mask(b: &mut Body, kind: Doubling, n: usize, block: usize) -> ValueId {
    let one = |row: usize, column: usize| {
        let wrong = kind == Doubling::WrongBit && block == 2 && (row, column) == (3, 2);
        wrong || row / block % 2 == 1 && column / block + 1 == row / block
    };
    match kind {
        Doubling::Repeated => {
            let bits = pattern(b, DType::Bool, &[n, n], one);
            b.op(cast::Cast { to: DType::F32 }, &[bits], &[n, n])
        }
        Doubling::Chosen => pattern(b, DType::Bool, &[n, n], one),
        Doubling::Turned => pattern(b, DType::F32, &[1, n, n], one),
        _ => pattern(b, DType::F32, &[n, n], one),
    }
}

fn identity(b: &mut Body, kind: Doubling, shape: &[usize]) -> ValueId {
    let (n, wrong) = (shape[shape.len() - 1], kind == Doubling::WrongStart);
    let one = |row, column| row == column && !(wrong && row == 2);
    match kind {
        Doubling::Repeated => {
            let one = pattern(b, DType::F32, &[1, n, n], one);
            let times = b.ints(&[shape[0] as i64, 1, 1]);
            b.op(tile::Tile, &[one, times], shape)
        }
        _ => pattern(b, DType::F32, shape, one),
    }
}

/// One level: `x - x (lower ∘ mask) x`.
fn level(b: &mut Body, kind: Doubling, (x, lower): (ValueId, ValueId), block: usize) -> ValueId {
    let shape = b.shape(x);
    let mask = mask(b, kind, shape[2], block);
    let masked = match kind {
        Doubling::Chosen => {
            let zero = b.number(0.0);
            b.op(
                broadcasting_where::BroadcastingWhere,
                &[mask, lower, zero],
                &shape,
            )
        }
        Doubling::Turned => b.op(broadcasting_mul::BroadcastingMul, &[mask, lower], &shape),
        _ => b.mul(lower, mask),
    };
    let away = if kind == Doubling::Turned {
        let right = b.product(masked, x);
        b.product(x, right)
    } else if kind == Doubling::Short && block == 1 {
        masked
    } else if kind == Doubling::Grouped {
        let n = shape[2];
        let [start, masked] = [x, masked].map(|v| b.reshaped(v, &[1, 2, n, n]));
        let start = if block == 1 {
            identity(b, kind, &[1, 2, n, n])
        } else {
            start
        };
        let left = b.product(start, masked);
        let away = b.product(left, start);
        b.reshaped(away, &shape)
    } else {
        let left = b.product(x, masked);
        b.product(left, x)
    };
    match kind {
        Doubling::Added => b.add(x, away),
        _ => b.two(broadcasting_sub::BroadcastingSub, x, away),
    }
}

fn doubled(kind: Doubling, n: usize) -> Vec<&'static str> {
    rewritten(move |b| {
        let [input, other] = [(); 2].map(|()| b.input(&[2, n, n]));
        let [lower, other] = [input, other].map(|x| b.times(x, 0.125));
        let mut blocks: Vec<usize> = (0..8).map(|i| 1 << i).filter(|b| *b < n).collect();
        match kind {
            Doubling::Shallow => drop(blocks.pop()),
            Doubling::Unordered => blocks.swap(0, 1),
            _ => {}
        }
        let last = *blocks.last().unwrap();
        let mut x = identity(b, kind, &[2, n, n]);
        for block in blocks {
            let wrong = kind == Doubling::Other && block == last;
            x = level(b, kind, (x, if wrong { other } else { lower }), block);
        }
        x
    })
}

#[test]
fn inverses_by_block_doubling() {
    use Doubling::*;
    for (kind, n) in [
        (Plain, 8),
        (Plain, 6),
        (Plain, 2),
        (Turned, 8),
        (Repeated, 8),
    ] {
        assert_eq!(doubled(kind, n), ["broadcasting_mul", "unit_lower_inverse"]);
    }
    for kind in [Short, Chosen, Grouped] {
        assert_eq!(doubled(kind, 4), ["broadcasting_mul", "unit_lower_inverse"]);
    }
    for kind in [WrongBit, WrongStart, Shallow, Unordered, Other, Added] {
        assert!(!doubled(kind, 8).contains(&"unit_lower_inverse"));
    }
}

#[test]
fn an_inverse_leaves_what_else_is_wanted_of_its_parts() {
    let names = rewritten(|b| {
        let input = b.input(&[2, 4, 4]);
        let lower = b.times(input, 0.125);
        let start = identity(b, Doubling::Plain, &[2, 4, 4]);
        let half = level(b, Doubling::Plain, (start, lower), 1);
        let whole = level(b, Doubling::Plain, (half, lower), 2);
        let sum = b.add(whole, half);
        b.add(sum, lower)
    });
    assert!(names.contains(&"unit_lower_inverse") && names.contains(&"broadcasting_sub"));
}
