//! Random valid graphs, run by a plan and by the references, composites of the latter spelled out.
//!
//! [`check`] turns bytes into choices: a graph grows node by node, each on values that are there, with the reference's value of
//! every result beside it. Then the graph is verified, printed and parsed back, planned and run, and every value compared.
//! Inputs are small multiples of a quarter, so most arithmetic is exact; a value that is not (of a square root, say) is only
//! moved around from then on, and may differ by a few units in the last place. The fuzz target `graphs` includes this file.

use std::collections::HashMap;
use std::sync::Arc;

use russet_graph::exec::{Executor, Input, Plan, PlanError, PlanOptions, States};
use russet_graph::graph::{ConstantData, Graph, Module, Node, Storage, ValueId};
use russet_graph::interpret;
use russet_graph::ops::constant::Constant;
use russet_graph::ops::decompose::decompose;
use russet_graph::ops::*;
use russet_graph::tensor::{Scalar, Tensor};
use russet_graph::text;
use russet_graph::types::{Class, DType, Dim, TensorType, Type};
use russet_graph::verify::verify;
use russet_kernels::threads::Pool;

/// Bytes as choices; zeros where there are none left.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first) % n.max(1)
    }

    fn done(&self) -> bool {
        self.0.is_empty()
    }
}

/// A value of the graph with what the reference computes for it.
#[derive(Clone)]
struct Val {
    id: ValueId,
    tensor: Tensor,
    rough: bool,
}

struct Builder {
    graph: Graph,
    facts: HashMap<ValueId, Fact>,
    constants: HashMap<ValueId, Arc<ConstantData>>,
    values: Vec<Val>,
    inputs: Vec<(String, Tensor)>,
}

const KINDS: [DType; 7] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::I8,
    DType::U8,
    DType::Bool,
];
const MAX_ELEMENTS: usize = 4096;

/// Appends nodes, where the choices allow one.
type Grow = fn(&mut Builder, &mut Choices<'_>) -> Option<()>;

const GROW: [Grow; 15] = [
    unary, binary, compare, convert, reshape, transpose, slice, concat, broadcast, reduce, order,
    gather, matmul, composite, choose,
];

/// Builds a graph from choices and compares its runs: the number of nodes, or what differs.
pub(crate) fn check(choices: &mut Choices<'_>) -> Result<usize, String> {
    let mut b = Builder {
        graph: Graph::new("main"),
        facts: HashMap::new(),
        constants: HashMap::new(),
        values: Vec::new(),
        inputs: Vec::new(),
    };
    for _ in 0..1 + choices.below(3) {
        b.input(choices);
    }
    while !choices.done() && b.graph.body.nodes.len() < 60 {
        let grow = GROW[choices.below(GROW.len())];
        let before = b.values.len();
        if grow(&mut b, choices).is_none() {
            b.values.truncate(before);
        }
    }
    b.finish()
}

impl Builder {
    /// An input of a random kind and shape; its first extent may be unknown to the graph
    /// where it is not 1: extents that are not known are taken not to broadcast.
    fn input(&mut self, c: &mut Choices<'_>) {
        let dtype = KINDS[c.below(KINDS.len())];
        let shape: Vec<usize> = (0..c.below(5)).map(|_| 1 + c.below(4)).collect();
        let values: Vec<f64> = (0..shape.iter().product())
            .map(|_| c.below(25) as f64 / 4.0 - 3.0)
            .collect();
        let Ok(tensor) = filled(dtype, &shape, &values) else {
            return;
        };
        let mut ty = tensor.ty();
        let name = format!("x{}", self.inputs.len());
        if let Some(first) = ty
            .shape
            .first_mut()
            .filter(|_| shape[0] > 1 && c.below(3) == 0)
        {
            *first = Dim::Unknown;
        }
        let id = self.graph.add_input(&name, ty.clone());
        let named = russet_graph::infer::name_unknowns(&name, &Type::Tensor(ty));
        self.facts.insert(
            id,
            Fact {
                ty: named,
                known: None,
            },
        );
        self.inputs.push((name, tensor.clone()));
        self.values.push(Val {
            id,
            tensor,
            rough: false,
        });
    }

    /// Some value that fits.
    fn any(&self, c: &mut Choices<'_>, fits: impl Fn(&Val) -> bool) -> Option<Val> {
        let found: Vec<&Val> = self.values.iter().filter(|v| fits(v)).collect();
        (!found.is_empty()).then(|| found[c.below(found.len())].clone())
    }

    /// A value that is exact, of some class.
    fn exact(&self, c: &mut Choices<'_>, class: impl Fn(DType) -> bool) -> Option<Val> {
        self.any(c, |v| !v.rough && class(v.tensor.dtype))
    }

    /// Whether the graph knows every extent of a value.
    fn is_fixed(&self, v: &Val) -> bool {
        let ty = self.facts[&v.id].ty.as_tensor();
        ty.is_some_and(|t| t.fixed_shape().is_some())
    }

    fn constant(&mut self, tensor: Tensor) -> Option<Val> {
        let data = Arc::new(ConstantData {
            ty: tensor.ty(),
            storage: Storage::Dense(tensor.bytes().clone()),
        });
        let fact = Constant(data.clone()).infer(Operands(&[])).ok()?.remove(0);
        let id = self.graph.add_value(fact.ty.clone());
        self.graph
            .body
            .nodes
            .push(Node::new(Constant(data.clone()), &[], &[id]));
        self.facts.insert(id, fact);
        self.constants.insert(id, data);
        Some(Val {
            id,
            tensor,
            rough: false,
        })
    }

    fn ints(&mut self, dtype: DType, values: &[i64]) -> Option<Val> {
        let tensor = Tensor::from_ints(dtype, &[values.len()], values).ok()?;
        self.constant(tensor)
    }

    fn int(&mut self, value: i64) -> Option<Val> {
        let tensor = Tensor::from_ints(DType::I32, &[], &[value]).ok()?;
        self.constant(tensor)
    }

    /// Appends an operation whose results are what the reference says, `rough` or as rough as its operands.
    fn push(&mut self, op: impl Into<Op>, operands: &[&Val], rough: bool) -> Option<()> {
        let op = op.into();
        let inputs: Vec<Tensor> = operands.iter().map(|v| v.tensor.clone()).collect();
        let results = expected(&op, &inputs)?;
        if results
            .iter()
            .any(|t| t.len() > MAX_ELEMENTS || t.shape.len() > 6)
        {
            return None;
        }
        let known: Vec<Operand<'_>> = operands
            .iter()
            .map(|v| Operand {
                ty: &self.facts[&v.id].ty,
                known: self.facts[&v.id].known.clone(),
                constant: self.constants.get(&v.id).map(|c| &**c),
            })
            .collect();
        let facts = op.infer(Operands(&known)).ok()?;
        if facts.iter().zip(&results).any(|(f, t)| is_hidden_one(f, t)) {
            return None;
        }
        let rough = rough || operands.iter().any(|v| v.rough);
        let ids: Vec<ValueId> = operands.iter().map(|v| v.id).collect();
        let mut outputs = Vec::with_capacity(facts.len());
        for (fact, tensor) in facts.into_iter().zip(results) {
            let id = self.graph.add_value(fact.ty.clone());
            self.facts.insert(id, fact);
            self.values.push(Val { id, tensor, rough });
            outputs.push(id);
        }
        self.graph.body.nodes.push(Node::new(op, &ids, &outputs));
        Some(())
    }

    /// Runs the graph by a plan and compares every value.
    fn finish(mut self) -> Result<usize, String> {
        for (i, v) in self.values.iter().enumerate() {
            self.graph.add_output(&format!("y{i}"), v.id);
        }
        let nodes = self.graph.body.nodes.len();
        let module = Module {
            graphs: vec![self.graph],
            attributes: Vec::new(),
        };
        let printed = text::print(&module);
        let told = |what: &str| format!("{what}\n{}", printed.text);
        verify(&module).map_err(|e| told(&e.to_string()))?;
        match text::parse(&printed) {
            Ok(back) if back == module => {}
            Ok(_) => return Err(told("the text means another graph")),
            Err(e) => return Err(told(&e.to_string())),
        }
        let plan = match Plan::build(&module, "main", &PlanOptions::default()) {
            Ok(plan) => plan,
            Err(PlanError::Node(e))
                if matches!(e.error, russet_graph::error::OpError::Unknown(_)) =>
            {
                return Ok(nodes);
            }
            Err(e) => return Err(told(&e.to_string())),
        };
        let mut executor = Executor::new(Arc::new(plan), Arc::new(Pool::new(1)));
        let inputs: Vec<Input<'_>> = self
            .inputs
            .iter()
            .map(|(n, t)| Input::tensor(n, t))
            .collect();
        executor
            .run(&inputs, &mut States::default())
            .map_err(|e| told(&e.to_string()))?;
        for (i, v) in self.values.iter().enumerate() {
            let view = executor
                .output(&format!("y{i}"))
                .ok_or_else(|| told("an output is missing"))?;
            let bytes = view
                .contiguous()
                .ok_or_else(|| told("an output has no bytes"))?
                .to_vec();
            let data = russet_kernels::mem::SharedBytes::from_vec(bytes);
            let got = Tensor::new(view.dtype(), view.shape().to_vec(), data)
                .map_err(|e| told(&e.to_string()))?;
            differ(&got, v).map_or(Ok(()), |d| {
                Err(told(&format!("y{i}: {d}\ninputs {:?}", self.inputs)))
            })?;
        }
        Ok(nodes)
    }
}

/// Whether an extent that the graph does not know is below 2: such extents are taken not to broadcast.
fn is_hidden_one(fact: &Fact, tensor: &Tensor) -> bool {
    let Some(ty) = fact.ty.as_tensor() else {
        return false;
    };
    let dims = ty.shape.iter().zip(&tensor.shape);
    dims.into_iter()
        .any(|(d, &n)| d.as_const().is_none() && n < 2)
}

/// What an operation gives: by its decomposition where it has one, else by its reference.
fn expected(op: &Op, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let types: Vec<TensorType> = inputs.iter().map(Tensor::ty).collect();
    let Some(mut graph) = decompose(op, &types).ok()? else {
        return op.reference(inputs).ok();
    };
    let mut named = HashMap::new();
    for (i, (port, tensor)) in graph.inputs.iter_mut().zip(inputs).enumerate() {
        port.name = format!("x{i}").into();
        named.insert(format!("x{i}"), tensor.clone());
    }
    let module = Module {
        graphs: vec![graph],
        attributes: Vec::new(),
    };
    let results = interpret::run(
        &module,
        &module.graphs[0],
        &named,
        &mut interpret::States::new(),
    );
    Some(results.ok()?.into_iter().map(|(_, t)| t).collect())
}

/// How a computed tensor differs from the reference's.
fn differ(got: &Tensor, want: &Val) -> Option<String> {
    let w = &want.tensor;
    if (got.dtype, &got.shape) != (w.dtype, &w.shape) {
        return Some(format!("{}, not {}", got.ty(), w.ty()));
    }
    let part = match w.dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 1e-5,
    };
    let largest = w
        .floats()
        .into_iter()
        .filter(|v| v.is_finite())
        .fold(1e-2, |a: f64, v| a.max(v.abs()));
    let near = |a: Scalar, b: Scalar| {
        let (x, y) = (a.float(), b.float());
        a == b
            || (x.is_nan() && y.is_nan())
            || (w.dtype.is_float() && (x - y).abs() <= part * largest)
    };
    let mut places = got.scalars().zip(w.scalars()).enumerate();
    let wrong = places.find(|(_, (a, b))| !near(*a, *b));
    wrong.map(|(i, (a, b))| format!("element {i} is {a:?}, by reference {b:?}"))
}

fn filled(
    dtype: DType,
    shape: &[usize],
    values: &[f64],
) -> Result<Tensor, russet_graph::error::OpError> {
    let scalar = |v: &f64| match dtype.class() {
        Class::Float => Scalar::Float(*v),
        Class::Bool => Scalar::Bool(*v > 0.0),
        Class::Unsigned => Scalar::Int(v.abs() as i128),
        _ => Scalar::Int(*v as i128),
    };
    Tensor::from_scalars(dtype, shape, &values.iter().map(scalar).collect::<Vec<_>>())
}

fn float(d: DType) -> bool {
    d.is_float()
}

fn number(d: DType) -> bool {
    d.is_float() || d.is_int()
}

/// One of the operations of a list, on an exact value.
fn unary(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    if c.below(3) == 0 {
        let x = b.exact(c, number)?;
        let ops: [Op; 3] = [abs::Abs.into(), relu::Relu.into(), round::Round.into()];
        return b.push(ops[c.below(3)].clone(), &[&x], false);
    }
    let x = b.exact(c, float)?;
    let ops: [Op; 13] = [
        exp::Exp.into(),
        sin::Sin.into(),
        cos::Cos.into(),
        tanh::Tanh.into(),
        sigmoid::Sigmoid.into(),
        silu::Silu.into(),
        sqrt::Sqrt.into(),
        rsqrt::Rsqrt.into(),
        gelu::Gelu::default().into(),
        erf::Erf.into(),
        log::Log.into(),
        atan::Atan.into(),
        tan::Tan.into(),
    ];
    let op = ops[c.below(ops.len())].clone();
    b.push(op, &[&x], true)
}

fn binary(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.exact(c, number)?;
    let y = b.exact(c, |d| d == x.tensor.dtype)?;
    let ops: [Op; 8] = [
        broadcasting_add::BroadcastingAdd.into(),
        broadcasting_sub::BroadcastingSub.into(),
        broadcasting_mul::BroadcastingMul.into(),
        broadcasting_maximum::BroadcastingMaximum.into(),
        broadcasting_minimum::BroadcastingMinimum.into(),
        broadcasting_modulo::BroadcastingModulo.into(),
        broadcasting_floor_divide::BroadcastingFloorDivide.into(),
        broadcasting_divide::BroadcastingDivide.into(),
    ];
    let at = c.below(ops.len());
    b.push(ops[at].clone(), &[&x, &y], at >= 5 && float(x.tensor.dtype))
}

fn compare(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.exact(c, number)?;
    let y = b.exact(c, |d| d == x.tensor.dtype)?;
    let ops: [Op; 3] = [
        broadcasting_greater::BroadcastingGreater.into(),
        broadcasting_equal::BroadcastingEqual.into(),
        broadcasting_not_equal::BroadcastingNotEqual.into(),
    ];
    b.push(ops[c.below(3)].clone(), &[&x, &y], false)
}

fn convert(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.exact(c, |_| true)?;
    let to = KINDS[c.below(KINDS.len())];
    let whole = |v: f64| v.is_finite() && v.abs() < 100.0 && v >= 0.0;
    if !to.is_float() && !x.tensor.floats().into_iter().all(whole) {
        return None;
    }
    b.push(cast::Cast { to }, &[&x], false)
}

fn reshape(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.any(c, |_| true)?;
    if c.below(2) == 0 {
        let axes = b.ints(DType::I32, &[0, -1])?;
        return b.push(expand_dims::ExpandDims, &[&x, &axes], false);
    }
    let shape = b.ints(
        DType::I32,
        &[-1, x.tensor.shape.last().copied().unwrap_or(1) as i64],
    )?;
    b.push(reshape::Reshape, &[&x, &shape], false)
}

fn transpose(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.any(c, |v| v.tensor.shape.len() > 1)?;
    let mut left: Vec<i64> = (0..x.tensor.shape.len() as i64).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.remove(c.below(left.len())));
    }
    let order = b.ints(DType::U32, &order)?;
    b.push(transpose::Transpose, &[&x, &order], false)
}

/// A slice of a tensor whose extents are all known, and an update of it.
fn slice(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.any(c, |v| !v.tensor.shape.is_empty() && b.is_fixed(v))?;
    let rank = x.tensor.shape.len();
    let mut numbers = |low: i64, n: usize| {
        (0..rank)
            .map(|_| low + c.below(n) as i64)
            .collect::<Vec<_>>()
    };
    let (begin, end) = (numbers(-3, 6), numbers(-2, 8));
    let back = numbers(0, 5).contains(&0);
    let stride: Vec<i64> = numbers(1, 2)
        .into_iter()
        .map(|s| if back { -s } else { s })
        .collect();
    let bounds = [
        b.ints(DType::I32, &begin)?,
        b.ints(DType::I32, &end)?,
        b.ints(DType::I32, &stride)?,
    ];
    let [begin, end, stride] = &bounds;
    b.push(slice::Slice, &[&x, begin, end, stride], false)?;
    let part = b.values.last()?.clone();
    if c.below(2) == 0 {
        let update = b.any(c, |v| {
            v.tensor.dtype == x.tensor.dtype && v.tensor.shape == part.tensor.shape
        })?;
        b.push(
            slice_update::SliceUpdate,
            &[&x, begin, end, stride, &update],
            false,
        )?;
    }
    Some(())
}

fn concat(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.any(c, |v| !v.tensor.shape.is_empty())?;
    let y = b.any(c, |v| {
        v.tensor.dtype == x.tensor.dtype && v.tensor.shape.len() == x.tensor.shape.len()
    })?;
    let at = b.int(c.below(x.tensor.shape.len()) as i64)?;
    b.push(concat::Concat, &[&at, &x, &y], false)
}

fn broadcast(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.any(c, |_| true)?;
    let widen = |d: &usize| {
        if *d == 1 {
            1 + c.below(3) as i64
        } else {
            *d as i64
        }
    };
    let shape: Vec<i64> = x.tensor.shape.iter().map(widen).collect();
    let shape = b.ints(DType::U32, &[&[2][..], &shape].concat())?;
    b.push(broadcast_to::BroadcastTo, &[&x, &shape], false)
}

fn reduce(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.exact(c, number)?;
    let rank = x.tensor.shape.len();
    let axes: Vec<i64> = (0..rank as i64).filter(|_| c.below(2) == 0).collect();
    let axes = b.ints(DType::I32, &axes)?;
    let ops: [Op; 5] = [
        reduce_sum::ReduceSum.into(),
        reduce_max::ReduceMax.into(),
        reduce_min::ReduceMin.into(),
        reduce_product::ReduceProduct.into(),
        reduce_mean::ReduceMean.into(),
    ];
    let at = c.below(if float(x.tensor.dtype) { 5 } else { 4 });
    b.push(ops[at].clone(), &[&x, &axes], at >= 3)
}

/// Operations along an axis that put elements in order or run over them.
fn order(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.exact(c, |d| number(d) && d != DType::BF16)?;
    let rank = x.tensor.shape.len();
    let at = b.int(c.below(rank.max(1)) as i64)?;
    let flag = |b: &mut Builder, v: usize| {
        b.constant(Tensor::from_ints(DType::Bool, &[], &[v as i64]).ok()?)
    };
    match c.below(4) {
        0 => {
            let (down, stable) = (flag(b, c.below(2))?, flag(b, 1)?);
            b.push(sort::Sort, &[&x, &at, &down, &stable], false)
        }
        1 => {
            let (down, stable) = (flag(b, c.below(2))?, flag(b, 1)?);
            b.push(argsort::Argsort, &[&x, &at, &down, &stable], false)
        }
        2 if float(x.tensor.dtype) => b.push(softmax::Softmax, &[&x, &at], true),
        _ => {
            let back = flag(b, c.below(2))?;
            b.push(scan::Scan::default(), &[&x, &at, &back], false)
        }
    }
}

fn gather(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.any(c, |v| !v.tensor.is_empty() && !v.tensor.shape.is_empty())?;
    let first = x.tensor.shape[0];
    let rows: Vec<i64> = (0..1 + c.below(4))
        .map(|_| c.below(2 * first) as i64 - first as i64)
        .collect();
    let rows = Tensor::from_ints(DType::I32, &[rows.len(), 1], &rows).ok()?;
    let rows = b.constant(rows)?;
    b.push(gather_nd::GatherNd, &[&x, &rows], false)?;
    let part = b.values.last()?.clone();
    if c.below(2) == 0 {
        b.push(scatter_nd::ScatterNd, &[&x, &rows, &part], false)?;
    }
    Some(())
}

fn matmul(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let x = b.exact(c, |d| number(d) && d.size() == Some(4))?;
    let y = b.exact(c, |d| d == x.tensor.dtype)?;
    b.push(
        broadcasting_batch_matmul::BroadcastingBatchMatmul,
        &[&x, &y],
        float(x.tensor.dtype),
    )
}

fn choose(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let condition = b.exact(c, |d| d == DType::Bool)?;
    let x = b.any(c, |_| true)?;
    let y = b.any(c, |v| v.tensor.dtype == x.tensor.dtype)?;
    b.push(
        broadcasting_where::BroadcastingWhere,
        &[&condition, &x, &y],
        false,
    )
}

/// Small multiples of an eighth.
fn fresh(b: &mut Builder, c: &mut Choices<'_>, dtype: DType, shape: &[usize]) -> Option<Val> {
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|_| c.below(13) as f64 / 8.0 - 0.75)
        .collect();
    b.constant(filled(dtype, shape, &values).ok()?)
}

/// Integers below `n`.
fn picks(b: &mut Builder, c: &mut Choices<'_>, shape: &[usize], n: usize) -> Option<Val> {
    let values: Vec<i64> = (0..shape.iter().product::<usize>())
        .map(|_| c.below(n) as i64)
        .collect();
    b.constant(Tensor::from_ints(DType::I32, shape, &values).ok()?)
}

/// Appends a composite over fresh constants of some kind.
type GrowComposite = fn(&mut Builder, &mut Choices<'_>, DType) -> Option<()>;

const COMPOSITES: [GrowComposite; 6] =
    [norm, rotation, attention, picked_product, tables, embedding];

fn composite(b: &mut Builder, c: &mut Choices<'_>) -> Option<()> {
    let dtype = [DType::F32, DType::F16][c.below(2)];
    COMPOSITES[c.below(COMPOSITES.len())](b, c, dtype)
}

fn norm(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<()> {
    let shape = [1 + c.below(2), 1 + c.below(4), 8];
    let x = fresh(b, c, dtype, &shape)?;
    let kind = [dtype, DType::F32][c.below(2)];
    let scale = fresh(b, c, kind, &[8])?;
    b.push(rms_norm::RmsNorm { eps: 1e-6 }, &[&x, &scale], true)
}

fn rotation(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<()> {
    use rope::Part;
    let (batch, q) = (1 + c.below(2), 1 + c.below(4));
    let shape = [batch, 1 + c.below(3), q, 8];
    let x = fresh(b, c, dtype, &shape)?;
    let sets: [&[Part]; 5] = [
        &[],
        &[Part::Positions],
        &[Part::Offset],
        &[Part::Positions, Part::Frequencies],
        &[Part::Cos, Part::Sin],
    ];
    let parts = sets[c.below(sets.len())];
    let op = rope::Rope {
        base: 1e4,
        scale: [1.0, 0.5][c.below(2)],
        dims: None,
        interleaved: c.below(2) == 0,
        parts: rope::Parts::of(parts),
    };
    let mut operands = vec![x];
    for part in parts {
        operands.push(match part {
            Part::Cos | Part::Sin => fresh(b, c, dtype, &[q, 4])?,
            Part::Positions => picks(b, c, &[batch, q], 12)?,
            Part::Frequencies => fresh(b, c, DType::F32, &[4])?,
            Part::Offset => picks(b, c, &[], 12)?,
        });
    }
    b.push(op, &operands.iter().collect::<Vec<_>>(), true)
}

fn attention(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<()> {
    let [batch, heads, groups] = [(); 3].map(|()| 1 + c.below(2));
    let (q, k, width) = (1 + c.below(4), 1 + c.below(6), 8);
    let query = fresh(b, c, dtype, &[batch, heads * groups, q, width])?;
    let (key, value) = (
        fresh(b, c, dtype, &[batch, heads, q + k, width])?,
        fresh(b, c, dtype, &[batch, heads, q + k, width])?,
    );
    let mask = c.below(3) == 0;
    let op = scaled_dot_product_attention::ScaledDotProductAttention {
        causal: !mask && c.below(2) == 0,
        window: if mask { 0 } else { c.below(3) },
        mask,
        sinks: c.below(3) == 0,
        ..Default::default()
    };
    let mut operands = vec![query, key, value];
    if op.mask {
        let shape = [1, [1, heads * groups][c.below(2)], q, q + k];
        let seen: Vec<Scalar> = (0..shape.iter().product::<usize>())
            .map(|_| Scalar::Bool(c.below(3) > 0))
            .collect();
        operands.push(b.constant(Tensor::from_scalars(DType::Bool, &shape, &seen).ok()?)?);
    }
    if op.sinks {
        operands.push(fresh(b, c, dtype, &[heads * groups])?);
    }
    b.push(op, &operands.iter().collect::<Vec<_>>(), true)
}

fn picked_product(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<()> {
    let (tokens, chosen, experts) = (1 + c.below(3), 1 + c.below(2), 1 + c.below(4));
    let shape = [tokens, 1, 1 + c.below(2), 6];
    let lhs = fresh(b, c, dtype, &shape)?;
    let rhs = fresh(b, c, dtype, &[experts, 6, 5])?;
    let ids = picks(b, c, &[tokens, chosen], experts)?;
    let op = gather_mm::GatherMm {
        right: true,
        ..Default::default()
    };
    b.push(op, &[&lhs, &rhs, &ids], true)
}

fn tables(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<()> {
    let (n, q) = (1 + c.below(6), 1 + c.below(4));
    let ids = picks(b, c, &[1, q], n)?;
    let (cos, sin) = (fresh(b, c, dtype, &[n, 4])?, fresh(b, c, dtype, &[n, 4])?);
    let op = rope_cached_cos_sin_gather::RopeCachedCosSinGather;
    b.push(op, &[&ids, &cos, &sin], false)
}

fn embedding(b: &mut Builder, c: &mut Choices<'_>, dtype: DType) -> Option<()> {
    let (n, q) = (1 + c.below(6), 1 + c.below(4));
    let codes: Vec<f64> = (0..n * 4).map(|_| c.below(256) as f64 - 128.0).collect();
    let table = b.constant(filled(DType::I8, &[n, 1, 4], &codes).ok()?)?;
    let ids = picks(b, c, &[1, q], n)?;
    let scale = fresh(b, c, dtype, &[q, 1, 4])?;
    let shape = b.ints(DType::U32, &[1, q as i64, 1, 4])?;
    let op = fused_interleaved_embedding_gather_dequant_reshape::FusedInterleavedEmbeddingGatherDequantReshape;
    b.push(op, &[&table, &ids, &scale, &shape], true)
}
