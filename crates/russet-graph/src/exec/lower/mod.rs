//! Lowering: from operations on values to steps on views.
//!
//! Nodes are walked once, in order; nodes whose results nobody needs are passed over. A value becomes a view; a small integer
//! tensor whose contents inference followed is written where somebody reads it; quantised weights stay compressed until an
//! operation that cannot read them asks for their elements.

mod bounds;
mod composite;
mod compute;
mod shift;
mod state;
mod views;

use std::collections::HashMap;
use std::sync::Arc;

use super::build::{Home, PlanError, unplannable};
use super::kernels::{self, Factor, Instruction, Kernel, Weights};
use super::layout::Layout;
use crate::error::OpError;
use crate::graph::{ConstantData, Graph, Module, Node, Storage, ValueId};
use crate::infer::Facts;
use crate::ops::constant::Constant;
use crate::ops::gated_delta_update::GatedDeltaUpdate;
use crate::ops::gather_mm::GatherMm;
use crate::ops::{Known, Op};
use crate::types::{DType, Dim, Type};

/// A view that is being planned.
#[derive(Clone, Debug)]
pub(crate) struct ViewDraft {
    pub(crate) dtype: DType,
    pub(crate) home: Home,
    pub(crate) layout: Layout,
}

/// A step that is being planned.
#[derive(Debug)]
pub(crate) struct StepDraft {
    pub(crate) name: &'static str,
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) inputs: Vec<ViewDraft>,
    pub(crate) outputs: Vec<ViewDraft>,
    /// Numbers that the kernel reads, known once the lengths of a call are.
    pub(crate) numbers: Vec<Dim>,
    /// What it is, for fusion.
    pub(crate) what: What,
}

impl StepDraft {
    /// The products of the step; none where it is something else, or exact.
    pub(crate) fn products(&self) -> &[Factor] {
        match &self.what {
            What::Products(products) => products,
            _ => &[],
        }
    }
}

/// What fusion knows of a step. [`What::by_rows`] tells which work row by row.
#[derive(Debug)]
pub(crate) enum What {
    Other,
    /// Attention.
    Attention(kernels::Sdpa),
    /// A product of two views.
    Matmul,
    /// A product of matrices picked from stacks.
    Gathered(GatherMm),
    /// The same with a compressed stack.
    Experts(kernels::GatherLinear),
    /// A product that leaves out experts without weight.
    Skipping(kernels::Skipping),
    Sort(kernels::Sort),
    Reduce(kernels::Reduce),
    /// A weighted sum of rows.
    Weighted,
    GatedDelta(GatedDeltaUpdate),
    /// Something without further meaning.
    Rows,
    /// The norm with this epsilon.
    RmsNorm(f32),
    /// A rotation.
    Rope {
        interleaved: bool,
    },
    /// The product with these weights.
    Linear(Arc<Weights>),
    /// Products that are not exact.
    Products(Vec<Factor>),
    /// A function of floats, element by element.
    Elementwise(Vec<Instruction>),
}

impl What {
    /// Whether a row of the result depends on nothing but that row of the operands.
    pub(crate) fn by_rows(&self) -> bool {
        let rows = matches!(
            self,
            Self::Rows | Self::RmsNorm(_) | Self::Linear(_) | Self::Products(_)
        );
        rows || matches!(self, Self::Elementwise(_))
    }
}

/// Memory for the results of steps.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) dtype: DType,
    pub(crate) elements: Dim,
    /// The last step that reads or writes it.
    pub(crate) last_use: usize,
}

/// What a value has become.
#[derive(Clone, Debug)]
enum Value {
    View(ViewDraft),
    /// Compressed weights `[n, k]`, read as `[k, n]` where `transposed`.
    Weights {
        weights: Arc<Weights>,
        transposed: bool,
    },
    /// A stack of compressed matrices, one under the other, and where in them the elements lie.
    Stack {
        weights: Arc<Weights>,
        layout: Layout,
    },
    /// Followed contents.
    Contents(DType, Vec<Dim>, Known),
    /// A state by number.
    Handle(usize),
    Token,
}

/// The finished lowering.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) steps: Vec<StepDraft>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) outputs: Vec<(Arc<str>, ViewDraft)>,
    /// What the plan takes to be 0 or more.
    pub(crate) assumed: Vec<Dim>,
}

impl Lowered {
    /// Takes away steps whose results nobody reads.
    pub(crate) fn drop_unused(&mut self) {
        let mut read = vec![false; self.buffers.len()];
        let note = |views: &[ViewDraft], read: &mut [bool]| {
            for view in views {
                if let Home::Buffer(b) = view.home {
                    read[b] = true;
                }
            }
        };
        for (_, view) in &self.outputs {
            note(std::slice::from_ref(view), &mut read);
        }
        let mut kept = Vec::with_capacity(self.steps.len());
        for step in self.steps.drain(..).rev() {
            let unused = |v: &ViewDraft| matches!(v.home, Home::Buffer(b) if !read[b]);
            if !step.outputs.iter().all(unused) {
                note(&step.inputs, &mut read);
                kept.push(step);
            }
        }
        kept.reverse();
        self.steps = kept;
        self.measure();
    }

    /// Finds the last use of every buffer anew, after steps have moved.
    pub(crate) fn measure(&mut self) {
        self.buffers.iter_mut().for_each(|b| b.last_use = 0);
        for (at, step) in self.steps.iter().enumerate() {
            for view in step.inputs.iter().chain(&step.outputs) {
                if let Home::Buffer(b) = view.home {
                    self.buffers[b].last_use = at;
                }
            }
        }
        for (_, view) in &self.outputs {
            if let Home::Buffer(b) = view.home {
                self.buffers[b].last_use = usize::MAX;
            }
        }
    }
}

pub(crate) struct Lowering<'a> {
    module: &'a Module,
    graph: &'a Graph,
    facts: &'a Facts,
    values: HashMap<ValueId, Value>,
    needed: Vec<bool>,
    last_use: HashMap<ValueId, usize>,
    /// The node that makes a value.
    makers: HashMap<ValueId, usize>,
    steps: Vec<StepDraft>,
    buffers: Vec<Buffer>,
    rope_tables: Vec<composite::Tables>,
    /// Masks that are added to scores, with what is known of their edges.
    edges: Vec<(ViewDraft, ViewDraft)>,
    assumed: Vec<Dim>,
}

type Lower<T> = Result<T, OpError>;

impl<'a> Lowering<'a> {
    pub(crate) fn new(module: &'a Module, graph: &'a Graph, facts: &'a Facts) -> Self {
        let mut this = Self {
            module,
            graph,
            facts,
            values: HashMap::new(),
            needed: Vec::new(),
            last_use: HashMap::new(),
            makers: HashMap::new(),
            steps: Vec::new(),
            buffers: Vec::new(),
            rope_tables: Vec::new(),
            edges: Vec::new(),
            assumed: Vec::new(),
        };
        this.demand();
        this
    }

    /// Marks nodes whose results are needed, and the last needed use of every value.
    fn demand(&mut self) {
        let nodes = &self.graph.body.nodes;
        self.needed = vec![false; nodes.len()];
        for &id in &self.graph.body.results {
            self.last_use.insert(id, nodes.len());
        }
        for (index, node) in nodes.iter().enumerate().rev() {
            self.makers
                .extend(node.outputs.iter().map(|&id| (id, index)));
            let effect = matches!(node.op, Op::WriteHandle(_));
            if !effect && !node.outputs.iter().any(|id| self.last_use.contains_key(id)) {
                continue;
            }
            self.needed[index] = true;
            for id in node.inputs.iter().copied().chain(captured(node)) {
                if self.facts.known(id).is_none() {
                    self.last_use.entry(id).or_insert(index);
                }
            }
        }
    }

    pub(crate) fn run(mut self) -> Result<Lowered, PlanError> {
        let (mut tensors, mut states) = (0, 0);
        for (&id, port) in self.graph.body.args.iter().zip(&self.graph.inputs) {
            let value = match &port.ty {
                Type::Tensor(t) => {
                    let shape = self
                        .facts
                        .tensor(id)
                        .map_or(t.shape.clone(), |t| t.shape.clone());
                    tensors += 1;
                    let layout = Layout::contiguous(&shape);
                    Value::View(ViewDraft {
                        dtype: t.dtype,
                        home: Home::Input(tensors - 1),
                        layout,
                    })
                }
                Type::Handle(_) => {
                    states += 1;
                    Value::Handle(states - 1)
                }
                _ => Value::Token,
            };
            self.values.insert(id, value);
        }
        let graph = self.graph;
        for (index, node) in graph.body.nodes.iter().enumerate() {
            if self.needed[index] {
                self.node(index, node)
                    .map_err(|e| unplannable(graph, index, node.op.name(), e))?;
            }
        }
        let mut outputs = Vec::new();
        for (i, (port, &id)) in graph.outputs.iter().zip(&graph.body.results).enumerate() {
            if matches!(port.ty, Type::Tensor(_)) {
                let at = |e| unplannable(graph, graph.body.nodes.len(), "return", e);
                let view = self.view(id).and_then(|v| self.owned(v)).map_err(at)?;
                let name = if port.name.is_empty() {
                    format!("output{i}").into()
                } else {
                    port.name.clone()
                };
                self.touch(&view, usize::MAX);
                outputs.push((name, view));
            }
        }
        Ok(Lowered {
            steps: self.steps,
            buffers: self.buffers,
            outputs,
            assumed: self.assumed,
        })
    }

    /// Notes that the plan takes these to be 0 or more: bounds below count from the end, and spans below are empty.
    fn assume<'d>(&mut self, dims: impl IntoIterator<Item = &'d Dim>) {
        let open = dims.into_iter().filter(|d| d.as_const().is_none());
        self.assumed.extend(open.cloned());
    }

    fn node(&mut self, index: usize, node: &Node) -> Lower<()> {
        if self.state_node(index, node)? || self.view_node(node)? {
            return Ok(());
        }
        if let Op::Constant(c) = &node.op {
            let value = match &c.0.storage {
                Storage::Blocks(..) => Value::Weights {
                    weights: Arc::new(Weights::blocks(&c.0)?),
                    transposed: false,
                },
                _ => Value::View(self.constant(node.outputs[0], c)?),
            };
            self.values.insert(node.outputs[0], value);
            return Ok(());
        }
        if self.composite_node(node)? || self.palette_node(node)? {
            return Ok(());
        }
        self.compute_node(node)
    }

    /// A constant as a view. Kernels read elements in place: bytes that lie askew in the file are copied first.
    fn constant(&self, id: ValueId, c: &Constant) -> Lower<ViewDraft> {
        let shape = self
            .facts
            .tensor(id)
            .map_or_else(Vec::new, |t| t.shape.clone());
        let mut layout = Layout::contiguous(&shape);
        if matches!(c.0.storage, Storage::Splat(_)) {
            layout.strides = vec![Dim::Const(0); shape.len()];
        }
        let storage = match &c.0.storage {
            Storage::Dense(bytes) => Storage::Dense(kernels::aligned(bytes)?),
            Storage::Splat(bytes) => Storage::Splat(kernels::aligned(bytes)?),
            blocks => blocks.clone(),
        };
        let data = ConstantData {
            ty: c.0.ty.clone(),
            storage,
        };
        Ok(ViewDraft {
            dtype: c.0.ty.dtype,
            home: Home::Constant(Arc::new(data)),
            layout,
        })
    }

    /// The inferred tensor type of a value.
    fn ty(&self, id: ValueId) -> Lower<(DType, Vec<Dim>)> {
        let t = self
            .facts
            .tensor(id)
            .ok_or(OpError::Unknown("the type of a value"))?;
        if t.shape.iter().any(Dim::is_unknown) {
            return Err(OpError::Unknown("an extent before the run"));
        }
        Ok((t.dtype, t.shape.clone()))
    }

    fn set(&mut self, id: ValueId, view: ViewDraft) {
        self.values.insert(id, Value::View(view));
    }

    /// A new buffer for a tensor of this type.
    fn buffer(&mut self, dtype: DType, shape: &[Dim]) -> ViewDraft {
        let elements = shape.iter().fold(Dim::Const(1), |n, d| n.mul(d));
        self.buffers.push(Buffer {
            dtype,
            elements,
            last_use: self.steps.len(),
        });
        ViewDraft {
            dtype,
            home: Home::Buffer(self.buffers.len() - 1),
            layout: Layout::contiguous(shape),
        }
    }

    /// Notes that a step uses a view's buffer.
    fn touch(&mut self, view: &ViewDraft, step: usize) {
        if let Home::Buffer(b) = view.home {
            self.buffers[b].last_use = self.buffers[b].last_use.max(step);
        }
    }

    /// Appends a step.
    fn emit(
        &mut self,
        name: &'static str,
        kernel: impl Kernel + 'static,
        inputs: Vec<ViewDraft>,
        outputs: Vec<ViewDraft>,
    ) {
        let at = self.steps.len();
        inputs
            .iter()
            .chain(&outputs)
            .for_each(|v| self.touch(v, at));
        self.steps.push(StepDraft {
            name,
            kernel: Box::new(kernel),
            inputs,
            outputs,
            numbers: Vec::new(),
            what: What::Other,
        });
    }

    /// Says what the last step is.
    fn mark(&mut self, what: What) {
        if let Some(step) = self.steps.last_mut() {
            step.what = what;
        }
    }

    /// Appends a step whose single result is a new buffer that becomes value `id`.
    fn emit_for(
        &mut self,
        id: ValueId,
        name: &'static str,
        kernel: impl Kernel + 'static,
        inputs: Vec<ViewDraft>,
    ) -> Lower<()> {
        let (dtype, shape) = self.ty(id)?;
        let out = self.buffer(dtype, &shape);
        self.emit(name, kernel, inputs, vec![out.clone()]);
        self.set(id, out);
        Ok(())
    }

    /// A value as a view, written first where it is contents or compressed.
    fn view(&mut self, id: ValueId) -> Lower<ViewDraft> {
        if let Some(Value::View(v)) = self.values.get(&id) {
            return Ok(v.clone());
        }
        let view = match self.values.get(&id).cloned() {
            Some(Value::Weights { weights, .. } | Value::Stack { weights, .. })
                if !weights.has_plain_elements() =>
            {
                return Err(OpError::Unknown("elements of weights of this kind"));
            }
            Some(Value::Weights {
                weights,
                transposed,
            }) => self.dequantised(&weights, transposed),
            Some(Value::Stack { weights, layout }) => {
                let flat = self.dequantised(&weights, false);
                ViewDraft { layout, ..flat }
            }
            Some(Value::Contents(dtype, shape, known)) => self.written(dtype, &shape, &known),
            Some(_) => return Err(OpError::Unknown("a tensor operand")),
            None => {
                let known = self
                    .facts
                    .known(id)
                    .cloned()
                    .ok_or(OpError::Unknown("an operand"))?;
                let (dtype, shape) = self.ty(id)?;
                match self.facts.constant(id) {
                    Some(c) => self.constant(id, &Constant(c.clone()))?,
                    None => self.written(dtype, &shape, &known),
                }
            }
        };
        self.set(id, view.clone());
        Ok(view)
    }

    fn views(&mut self, ids: &[ValueId]) -> Lower<Vec<ViewDraft>> {
        ids.iter().map(|&id| self.view(id)).collect()
    }

    fn written(&mut self, dtype: DType, shape: &[Dim], known: &Known) -> ViewDraft {
        let out = self.buffer(dtype, shape);
        self.emit("contents", kernels::Contents, Vec::new(), vec![out.clone()]);
        if let Some(step) = self.steps.last_mut() {
            step.numbers = known.to_vec();
        }
        out
    }

    fn dequantised(&mut self, weights: &Arc<Weights>, transposed: bool) -> ViewDraft {
        let shape: Vec<Dim> = weights.shape().iter().map(|&d| Dim::from(d)).collect();
        let mut out = self.buffer(weights.dtype(), &shape);
        self.emit(
            "dequantize",
            kernels::Dequantize(weights.clone()),
            Vec::new(),
            vec![out.clone()],
        );
        if transposed {
            out.layout = out.layout.permute(&[1, 0]);
        }
        out
    }

    /// The same elements, row-major without gaps.
    fn contiguous(&mut self, view: ViewDraft) -> ViewDraft {
        if view.layout.is_contiguous() {
            view
        } else {
            self.copied(&view)
        }
    }

    fn copied(&mut self, view: &ViewDraft) -> ViewDraft {
        let out = self.buffer(view.dtype, &view.layout.shape);
        self.emit("copy", kernels::Copy, vec![view.clone()], vec![out.clone()]);
        out
    }

    /// A row-major view in a buffer of the plan, for results that outlive inputs and states.
    fn owned(&mut self, view: ViewDraft) -> Lower<ViewDraft> {
        let own = matches!(view.home, Home::Buffer(_)) && view.layout.is_contiguous();
        Ok(if own { view } else { self.copied(&view) })
    }

    /// The followed contents of a value.
    fn contents(&self, id: ValueId) -> Option<&Known> {
        self.facts.known(id)
    }

    /// The followed contents of a value where all are constants.
    fn ints(&self, id: ValueId) -> Option<Vec<i64>> {
        self.contents(id)?.iter().map(Dim::as_const).collect()
    }

    /// Compressed weights, and whether they are transposed.
    fn weights(&self, id: ValueId) -> Option<(Arc<Weights>, bool)> {
        match self.values.get(&id) {
            Some(Value::Weights {
                weights,
                transposed,
            }) => Some((weights.clone(), *transposed)),
            _ => None,
        }
    }
}

/// Values of enclosing blocks that a node's own blocks use.
pub(crate) fn captured(node: &Node) -> Vec<ValueId> {
    fn walk(nodes: &[Node], own: &mut Vec<ValueId>, out: &mut Vec<ValueId>, results: &[ValueId]) {
        for node in nodes {
            out.extend(node.inputs.iter().filter(|id| !own.contains(id)));
            own.extend(&node.outputs);
            for block in &node.blocks {
                own.extend(&block.args);
                walk(&block.nodes, own, out, &block.results);
            }
        }
        out.extend(results.iter().filter(|id| !own.contains(id)));
    }
    let (mut own, mut out) = (Vec::new(), Vec::new());
    for block in &node.blocks {
        own.extend(&block.args);
        walk(&block.nodes, &mut own, &mut out, &block.results);
    }
    out.sort_unstable();
    out.dedup();
    out
}
