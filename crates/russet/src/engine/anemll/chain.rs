//! The parts of a model, planned, and what the engine must know of them: lengths, states, and what may be taken back.

use std::sync::Arc;

use russet_graph::exec::{Plan, States};
use russet_graph::types::{DType, TensorType};
use russet_kernels::threads::Pool;

use super::call::Role;
use crate::bundle::AnemllBundle;
use crate::engine::{EngineError, Rewinding, StateKind, StateRole};

/// Which of a part's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One token.
    Infer,
    /// A full batch.
    Prefill,
    /// One token, behind the end of a cache that rotates.
    InferRotate,
    /// A full batch there.
    PrefillRotate,
}

impl Kind {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::Infer, "infer"),
        (Self::Prefill, "prefill"),
        (Self::InferRotate, "infer_rotate"),
        (Self::PrefillRotate, "prefill_rotate"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(k, _)| *k == self)
            .map_or("", |(_, n)| n)
    }

    pub(super) fn is_batch(self) -> bool {
        matches!(self, Self::Prefill | Self::PrefillRotate)
    }
}

/// A function, planned.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) plan: Arc<Plan>,
    /// Which of the model's states its own are.
    pub(super) slots: Vec<usize>,
    /// Among all stages.
    pub(super) number: usize,
}

/// A model file: one function, or one for each kind of call.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) name: String,
    stages: Vec<(Option<Kind>, Stage)>,
}

impl Part {
    /// The functions of a part, by name and plan, in the file's order.
    pub(crate) fn new(name: &str, functions: Vec<(String, Arc<Plan>)>) -> Self {
        let kind = |name: &str| {
            Kind::NAMES
                .iter()
                .find(|(_, n)| *n == name)
                .map(|(k, _)| *k)
        };
        let stages = functions.into_iter().map(|(name, plan)| {
            let stage = Stage {
                plan,
                slots: Vec::new(),
                number: 0,
            };
            (kind(&name), stage)
        });
        Self {
            name: name.into(),
            stages: stages.collect(),
        }
    }

    /// The function for a kind of call; one without a kind serves all.
    pub(super) fn stage(&self, kind: Kind) -> Option<&Stage> {
        let of = |wanted| {
            self.stages
                .iter()
                .find(|(k, _)| *k == wanted)
                .map(|(_, s)| s)
        };
        of(Some(kind)).or_else(|| of(None))
    }

    fn each(&self) -> impl Iterator<Item = &Plan> {
        self.stages.iter().map(|(_, s)| &*s.plan)
    }
}

/// A state of the model.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) ty: TensorType,
    pub(super) role: StateRole,
    /// The part whose own it is, where parts share none.
    part: Option<usize>,
}

impl Slot {
    /// The name that tells it from all others.
    pub(super) fn key(&self) -> String {
        match self.part {
            Some(part) => format!("{}.{part}", self.name),
            None => self.name.clone(),
        }
    }
}

/// See the module page.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Embeddings and chunks, in order.
    pub(super) parts: Vec<Part>,
    /// Hidden state to logits, where that is a file of its own.
    pub(super) head: Option<Stage>,
    pub(super) slots: Vec<Slot>,
    pub(super) pool: Arc<Pool>,
    /// The most tokens it holds.
    pub(crate) context: usize,
    /// Tokens of a `prefill` call.
    pub(super) batch: usize,
    pub(super) vocab: Option<usize>,
    pub(super) head_sizes: Vec<usize>,
    pub(super) prefill: bool,
    pub(super) last_token_output: bool,
    /// Positions from which on caches rotate.
    pub(super) window: Option<usize>,
    recurrent: bool,
}

impl Chain {
    /// Joins planned parts.
    ///
    /// # Errors
    /// [`EngineError::Contract`] where a state has no fixed shape.
    pub(crate) fn new(
        bundle: &AnemllBundle,
        parts: Vec<Part>,
        head: Option<Arc<Plan>>,
        pool: Arc<Pool>,
    ) -> Result<Self, EngineError> {
        let head = head.map(|plan| Stage {
            plan,
            slots: Vec::new(),
            number: 0,
        });
        let mut this = Self {
            batch: batch(&parts).unwrap_or(bundle.batch_size),
            context: context(bundle, &parts),
            head,
            slots: Vec::new(),
            pool,
            vocab: bundle.vocab_size,
            head_sizes: bundle.head_sizes.clone(),
            prefill: bundle.prefill && batch(&parts).is_some(),
            last_token_output: bundle.last_token_output,
            window: None,
            recurrent: bundle.recurrent_state || bundle.local_cache_length.is_some(),
            parts,
        };
        if this.has(Kind::InferRotate) {
            this.window = bundle.sliding_window.or_else(|| this.rotating());
        }
        this.bind(bundle.per_chunk_state)?;
        Ok(this)
    }

    /// Numbers the stages, and finds the states of each.
    fn bind(&mut self, own: bool) -> Result<(), EngineError> {
        let mut number = 0;
        for (index, part) in self.parts.iter_mut().enumerate() {
            for (_, stage) in &mut part.stages {
                stage.number = number;
                number += 1;
                for state in stage.plan.states() {
                    let slot = Slot {
                        name: state.name.to_string(),
                        ty: state.ty.clone(),
                        role: role(&state.name, &state.ty, self.context),
                        part: own.then_some(index),
                    };
                    stage.slots.push(slot_of(&mut self.slots, slot));
                }
            }
        }
        if let Some(head) = &mut self.head {
            head.number = number;
        }
        let open = self.slots.iter().find(|s| s.ty.fixed_shape().is_none());
        match open {
            None => Ok(()),
            Some(slot) => Err(EngineError::Contract {
                function: slot.name.clone(),
                reason: format!("its state is {}", slot.ty),
            }),
        }
    }

    /// How many stages there are, the head included.
    pub(super) fn stages(&self) -> usize {
        self.parts.iter().map(|p| p.stages.len()).sum::<usize>() + 1
    }

    /// Whether every part has a function for a kind of call.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.parts.iter().all(|p| p.stage(kind).is_some())
    }

    /// Whether a token may be processed again at its own position.
    pub(super) fn is_plain(&self) -> bool {
        !self.recurrent && self.window.is_none()
    }

    /// How far it goes back.
    pub(super) fn rewinding(&self) -> Rewinding {
        match self.window {
            _ if self.recurrent => Rewinding::ToTheStart,
            Some(window) => Rewinding::Within(window),
            None => Rewinding::Anywhere,
        }
    }

    /// Fresh states: zeros.
    pub(super) fn states(&self) -> Result<States, EngineError> {
        let types = self
            .slots
            .iter()
            .map(|s| (s.ty.dtype, s.ty.fixed_shape().unwrap_or_default()));
        Ok(States::zeroed(types.collect::<Vec<(DType, Vec<usize>)>>())?)
    }

    /// Entries of the vocabulary, where they are known.
    pub(crate) fn vocabulary(&self) -> Option<usize> {
        self.vocab
    }

    /// The extent of the shortest cache: the one that rotates.
    fn rotating(&self) -> Option<usize> {
        let states = self
            .parts
            .iter()
            .flat_map(Part::each)
            .flat_map(Plan::states);
        states
            .filter(|s| s.name.contains("local"))
            .filter_map(|s| cache_length(&s.ty))
            .min()
    }
}

/// The slot of a state: one of the same name and part, or a new one. A state of another type under the same name is another state.
fn slot_of(slots: &mut Vec<Slot>, slot: Slot) -> usize {
    let same = |s: &Slot| s.name == slot.name && s.part == slot.part && s.ty == slot.ty;
    if let Some(at) = slots.iter().position(same) {
        return at;
    }
    slots.push(slot);
    slots.len() - 1
}

/// Positions lie along the third of four axes.
fn cache_length(ty: &TensorType) -> Option<usize> {
    let extent = ty.shape.get(2).filter(|_| ty.rank() == 4)?;
    usize::try_from(extent.as_const()?).ok()
}

fn role(name: &str, ty: &TensorType, context: usize) -> StateRole {
    let is_cache = name.contains("kv_cache") && cache_length(ty).is_some_and(|n| n >= context);
    StateRole {
        kind: if is_cache {
            StateKind::KvCache
        } else {
            StateKind::Fixed
        },
        axis: if is_cache { 2 } else { 0 },
        open: false,
        fixed: None,
    }
}

/// Tokens that `prefill` takes, as its positions say.
fn batch(parts: &[Part]) -> Option<usize> {
    parts.iter().find_map(|part| {
        let (_, stage) = part
            .stages
            .iter()
            .find(|(k, _)| *k == Some(Kind::Prefill))?;
        let positions = stage
            .plan
            .inputs()
            .find(|(n, _)| Role::of(n) == Some(Role::Positions))?;
        positions.1.fixed_len().filter(|n| *n > 0)
    })
}

/// What the package says, what the masks are wide, and what full-length caches hold, whichever is least.
fn context(bundle: &AnemllBundle, parts: &[Part]) -> usize {
    let said = bundle.context_length.unwrap_or(usize::MAX);
    let plans = || parts.iter().flat_map(Part::each);
    let masks = plans()
        .flat_map(|p| p.inputs())
        .filter(|(n, _)| Role::of(n) == Some(Role::Mask));
    let widths = masks.filter_map(|(_, ty)| usize::try_from(ty.shape.last()?.as_const()?).ok());
    let states = plans().flat_map(Plan::states);
    let full = states.filter(|s| s.name.contains("kv_cache") && !s.name.contains("local"));
    let lengths = full.filter_map(|s| cache_length(&s.ty));
    widths.chain(lengths).fold(said, usize::min)
}
