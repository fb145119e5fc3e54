//! Building a plan: flatten, infer, lower to steps, give every buffer a slot.

use std::sync::Arc;

use russet_kernels::threads::Pool;

use super::cache;
use super::dims::{DimRef, DimTable};
use super::fuse;
use super::kernels::Kernel;
use super::layout::Layout;
use super::lower::{Lowered, Lowering};
use crate::error::OpError;
use crate::graph::{ConstantData, Graph, Module};
use crate::infer::{self, NodeError};
use crate::passes;
use crate::types::{DType, Dim, Symbol, TensorType, Type};

/// How to build a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanOptions {
    /// Run known composites as one operation (`true`, the default) or by their bodies.
    pub whole_composites: bool,
    /// How closely to follow the file's arithmetic.
    pub precision: Precision,
    /// Whether a fast plan packs weights for its integer products (`true`, the default) or reads them where they are.
    pub repack: bool,
    /// The output of which only the last row is wanted (the last index of its last axis but one).
    pub last_row_of: Option<String>,
    /// The threads that pack weights; one a CPU where there is none.
    pub pool: Option<Arc<Pool>>,
    /// What keys and values are kept as, by a fast plan.
    pub caches: CacheKind,
    /// How sums of products are rounded, by an exact plan.
    pub sums: Sums,
}

/// How an exact plan rounds sums of products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sums {
    /// At every step, as the Core AI runtime does.
    #[default]
    EveryStep,
    /// Once, as the operations mean it: they are taken in f32, in order.
    Once,
}

/// What a plan keeps keys and values as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheKind {
    /// As the file says.
    #[default]
    Given,
    /// As codes of eight bits with a scale for every row, where nothing but attention reads them.
    Int8,
}

/// How closely a plan follows the file's arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Every operation rounds where the reference runtime rounds.
    Exact,
    /// Products with quantised weights take their activations as integers of 16 bits, other sums are f32, and steps are joined.
    #[default]
    Fast,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            whole_composites: true,
            precision: Precision::Exact,
            repack: true,
            last_row_of: None,
            pool: None,
            caches: CacheKind::Given,
            sums: Sums::EveryStep,
        }
    }
}

/// Why a plan cannot be built.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An operation of the graph.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The function is not in the module.
    #[error("there is no function {0:?}")]
    NoFunction(String),
    /// An input or output.
    #[error("{port:?}: {rule}")]
    Port {
        /// Its name.
        port: String,
        /// What is wrong.
        rule: String,
    },
}

/// Where the elements of a view are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Home {
    /// A buffer of the plan, by slot after building (by buffer before).
    Buffer(usize),
    /// A state.
    State(usize),
    /// An input of the call.
    Input(usize),
    /// A constant of the file.
    Constant(Arc<ConstantData>),
}

/// A view in a step, with its numbers in the dim table.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) dtype: DType,
    pub(crate) home: Home,
    pub(crate) shape: Vec<DimRef>,
    pub(crate) strides: Vec<DimRef>,
    pub(crate) offset: DimRef,
}

/// One thing to do.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) inputs: Vec<Place>,
    pub(crate) outputs: Vec<Place>,
    pub(crate) numbers: Vec<DimRef>,
}

/// A tensor input of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanInput {
    pub(crate) name: Arc<str>,
    pub(crate) ty: TensorType,
    /// For every axis the symbol that its extent binds.
    pub(crate) binds: Vec<Option<Symbol>>,
}

/// A state of a plan: lives with its owner, between calls.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanState {
    /// The name of the input it is bound to.
    pub name: Arc<str>,
    /// Its type; extents may be symbols that its owner chooses.
    pub ty: TensorType,
    pub(crate) binds: Vec<Option<Symbol>>,
}

/// An output of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanOutput {
    pub(crate) name: Arc<str>,
    pub(crate) place: Place,
}

/// What a step is, for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepInfo {
    /// The operation or kernel.
    pub name: &'static str,
    /// Types of what it reads.
    pub inputs: Vec<DType>,
    /// Types of what it writes.
    pub outputs: Vec<DType>,
}

/// A function ready to run. See the module page.
#[derive(Debug)]
pub struct Plan {
    pub(crate) function: String,
    pub(crate) dims: DimTable,
    pub(crate) steps: Vec<Step>,
    /// Elements and kind of every slot's largest use, per use: `(slot, dtype, elements)`.
    pub(crate) uses: Vec<SlotUse>,
    pub(crate) slots: usize,
    pub(crate) inputs: Vec<PlanInput>,
    pub(crate) states: Vec<PlanState>,
    pub(crate) outputs: Vec<PlanOutput>,
    /// Dims that are 0 or more, or the plan does not hold.
    pub(crate) assumed: Vec<DimRef>,
}

/// A buffer's demand on its slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotUse {
    pub(crate) slot: usize,
    pub(crate) dtype: DType,
    pub(crate) elements: DimRef,
}

impl Plan {
    /// Plans a function of a verified module.
    pub fn build(
        module: &Module,
        function: &str,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        let graph = module
            .graph(function)
            .ok_or_else(|| PlanError::NoFunction(function.into()))?;
        let mut flat = passes::flatten(module, graph, options.whole_composites)?;
        passes::eliminate_common(&mut flat);
        if options.precision == Precision::Fast {
            passes::recognise(module, &mut flat)?;
        }
        let facts = infer::infer(module, &flat)?;
        let mut lowered = Lowering::new(module, &flat, &facts).run()?;
        lowered.drop_unused();
        if let Some(name) = &options.last_row_of {
            fuse::narrow_to_last_row(&mut lowered, name);
        }
        if options.precision == Precision::Fast {
            let pool = options
                .pool
                .clone()
                .unwrap_or_else(|| Arc::new(Pool::new(0)));
            fuse::fuse(&mut lowered, options.repack.then_some(&*pool))
                .map_err(|e| unplannable(&flat, flat.body.nodes.len(), "pack", e))?;
        }
        if (options.precision, options.sums) == (Precision::Exact, Sums::Once) {
            fuse::round_once(&mut lowered);
        }
        let assembly = Assembly::new(&flat);
        let (inputs, mut states) = assembly.ports()?;
        if (options.precision, options.caches) == (Precision::Fast, CacheKind::Int8) {
            cache::narrow(&mut lowered, &mut states);
        }
        assembly.finish(function, lowered, inputs, states)
    }

    /// The function this plan runs.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// Names and types of the tensor inputs.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &TensorType)> {
        self.inputs.iter().map(|i| (&*i.name, &i.ty))
    }

    /// The states.
    pub fn states(&self) -> &[PlanState] {
        &self.states
    }

    /// Names of the tensor outputs.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(|o| &*o.name)
    }

    /// What runs, in order.
    pub fn steps(&self) -> impl Iterator<Item = StepInfo> {
        let kinds = |places: &[Place]| places.iter().map(|p| p.dtype).collect();
        self.steps.iter().map(move |s| StepInfo {
            name: s.name,
            inputs: kinds(&s.inputs),
            outputs: kinds(&s.outputs),
        })
    }
}

/// For every axis the symbol that its extent binds: where the extent is nothing but a symbol.
fn bound_symbols(ty: &TensorType) -> Vec<Option<Symbol>> {
    let one = |dim: &Dim| {
        let mut found = None;
        dim.symbols(&mut |s| found = Some(s.clone()));
        found.filter(|s| *dim == Dim::symbol(&s.0))
    };
    ty.shape.iter().map(one).collect()
}

/// Turns what lowering left into a plan.
struct Assembly<'a> {
    graph: &'a Graph,
    dims: DimTable,
}

impl<'a> Assembly<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self {
            graph,
            dims: DimTable::default(),
        }
    }

    fn place(&mut self, dtype: DType, home: &Home, layout: &Layout, slots: &[usize]) -> Place {
        let home = if let Home::Buffer(b) = home {
            Home::Buffer(slots[*b])
        } else {
            home.clone()
        };
        Place {
            dtype,
            home,
            shape: self.dims.add_all(&layout.shape),
            strides: self.dims.add_all(&layout.strides),
            offset: self.dims.add(&layout.offset),
        }
    }

    /// The tensor inputs and the states, in order.
    fn ports(&self) -> Result<(Vec<PlanInput>, Vec<PlanState>), PlanError> {
        let (mut inputs, mut states) = (Vec::new(), Vec::new());
        for port in &self.graph.inputs {
            match infer::name_unknowns(&port.name, &port.ty) {
                Type::Tensor(ty) => inputs.push(PlanInput {
                    name: port.name.clone(),
                    binds: bound_symbols(&ty),
                    ty,
                }),
                Type::Handle(ty) => states.push(PlanState {
                    name: port.name.clone(),
                    binds: bound_symbols(&ty),
                    ty,
                }),
                Type::Token => {}
                other => {
                    return Err(PlanError::Port {
                        port: port.name.to_string(),
                        rule: format!("cannot pass a {other}"),
                    });
                }
            }
        }
        Ok((inputs, states))
    }

    fn finish(
        mut self,
        function: &str,
        lowered: Lowered,
        inputs: Vec<PlanInput>,
        states: Vec<PlanState>,
    ) -> Result<Plan, PlanError> {
        let (slots, count) = assign_slots(&lowered);
        let uses = lowered.buffers.iter().zip(&slots);
        let uses = uses
            .filter(|(_, slot)| **slot != usize::MAX)
            .map(|(b, &slot)| SlotUse {
                slot,
                dtype: b.dtype,
                elements: self.dims.add(&b.elements),
            })
            .collect();
        let mut steps = Vec::with_capacity(lowered.steps.len());
        for draft in lowered.steps {
            let mut places = |views: &[super::lower::ViewDraft]| {
                views
                    .iter()
                    .map(|v| self.place(v.dtype, &v.home, &v.layout, &slots))
                    .collect::<Vec<_>>()
            };
            let (inputs, outputs) = (places(&draft.inputs), places(&draft.outputs));
            let numbers = self.dims.add_all(&draft.numbers);
            steps.push(Step {
                name: draft.name,
                kernel: draft.kernel,
                inputs,
                outputs,
                numbers,
            });
        }
        let outputs = lowered.outputs.iter().map(|(name, v)| {
            let place = self.place(v.dtype, &v.home, &v.layout, &slots);
            PlanOutput {
                name: name.clone(),
                place,
            }
        });
        let outputs = outputs.collect();
        let assumed = self.dims.add_all(&lowered.assumed);
        Ok(Plan {
            function: function.into(),
            assumed,
            dims: self.dims,
            steps,
            uses,
            slots: count,
            inputs,
            states,
            outputs,
        })
    }
}

/// A slot for every buffer: buffers whose lifetimes do not meet share one, first those of one size.
fn assign_slots(lowered: &Lowered) -> (Vec<usize>, usize) {
    let mut slot_of = vec![usize::MAX; lowered.buffers.len()];
    let mut free: Vec<(usize, DType, Dim)> = Vec::new();
    let mut count = 0;
    let mut live: Vec<usize> = Vec::new();
    for (index, step) in lowered.steps.iter().enumerate() {
        live.retain(|&b| {
            let done = lowered.buffers[b].last_use < index;
            if done {
                free.push((
                    slot_of[b],
                    lowered.buffers[b].dtype,
                    lowered.buffers[b].elements.clone(),
                ));
            }
            !done
        });
        for view in &step.outputs {
            let Home::Buffer(b) = view.home else { continue };
            if slot_of[b] != usize::MAX {
                continue;
            }
            let buffer = &lowered.buffers[b];
            let fit = free.iter().position(|(_, dtype, n)| {
                dtype.bits() == buffer.dtype.bits() && *n == buffer.elements
            });
            slot_of[b] = match fit {
                Some(i) => free.swap_remove(i).0,
                None => {
                    count += 1;
                    count - 1
                }
            };
            live.push(b);
        }
    }
    // What no step writes is only there because a step that was joined to another had it.
    for (slot, buffer) in slot_of.iter_mut().zip(&lowered.buffers) {
        if *slot == usize::MAX && buffer.last_use > 0 {
            *slot = count;
            count += 1;
        }
    }
    (slot_of, count)
}

/// An operation that cannot be planned, as a [`PlanError`].
pub(crate) fn unplannable(
    graph: &Graph,
    node: usize,
    op: &'static str,
    error: OpError,
) -> PlanError {
    NodeError {
        graph: graph.name.to_string(),
        node,
        op,
        error,
    }
    .into()
}
