//! Which input and output of a function plays which part: by name with the known synonyms, by position only as a last resort.

use russet_graph::exec::{Plan, PlanState};
use russet_graph::graph::Graph;
use russet_graph::types::{DType, TensorType};

use super::EngineError;

/// Names of the token input, newest first.
pub(crate) const TOKENS: [&str; 2] = ["input_ids", "in_new_token_ids"];
/// Names of the position input.
pub(crate) const POSITIONS: [&str; 2] = ["position_ids", "pos_ids"];
/// Name of the mask input that some functions have besides (F 10).
pub(crate) const MASK: &str = "attn_mask";
/// Names of the logits output.
pub(crate) const LOGITS: [&str; 2] = ["logits", "out_logits"];

/// What a state is for, which decides whether an engine can go back (contract B §5.7, F 1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Keys or values of every position: going back is forgetting.
    KvCache,
    /// Keys or values of the last positions, in a ring: going back works until it is full.
    SlidingCache,
    /// A running value: it can only be reset.
    Fixed,
}

impl StateKind {
    /// Every kind and its name in `language.states`.
    pub(crate) const NAMES: [(Self, &'static str); 3] = [
        (Self::KvCache, "kv_cache"),
        (Self::SlidingCache, "sliding_cache"),
        (Self::Fixed, "fixed"),
    ];

    /// The kind of a name in `language.states`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(_, n)| *n == name);
        found.map(|(kind, _)| *kind)
    }
}

/// A state of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct StateRole {
    /// What it is for.
    pub kind: StateKind,
    /// The axis that positions are counted along, of caches.
    pub axis: usize,
    /// Whether the graph leaves that axis open.
    pub open: bool,
    /// The extent of that axis where the graph fixes it.
    pub fixed: Option<usize>,
}

/// The mask input of a function: `[1, q, total]` or `[1, 1, q, total]`, 0 where a position may be seen.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskInput {
    /// Its name.
    pub name: String,
    /// Its element kind.
    pub dtype: DType,
    /// Its number of axes.
    pub rank: usize,
}

/// The parts of a language-model function.
#[derive(Clone, Debug, PartialEq)]
pub struct Io {
    /// The input that takes the new tokens, `i32 [1, q]`.
    pub tokens: String,
    /// The input that takes the positions: all of them, `i32 [1, total]`, or those of the new tokens.
    pub positions: String,
    /// Whether only the positions of the new tokens are given.
    pub new_positions: bool,
    /// The mask, where there is one.
    pub mask: Option<MaskInput>,
    /// The output with one row of logits for each new token, `[1, q, vocab]`; empty for a function that only fills states.
    pub logits: String,
    /// Names that were not recognised, so that position decided.
    pub by_position: Vec<String>,
    /// What every state is for, in the plan's order.
    pub states: Vec<StateRole>,
    /// The query length that the graph fixes, if it does.
    pub fixed_query: Option<usize>,
}

impl Io {
    /// Finds the parts of a plan. `kinds` are the names and kinds of `language.states`.
    ///
    /// # Errors
    /// [`EngineError::Contract`] where the function is none that takes tokens and gives logits.
    pub fn of(plan: &Plan, kinds: &[(String, String)]) -> Result<Self, EngineError> {
        let mut this = Self::of_inputs(plan, kinds)?;
        let outputs: Vec<&str> = plan.outputs().collect();
        this.logits = pick(&LOGITS, &outputs, 0, &mut this.by_position)
            .ok_or_else(|| broken(plan, "it returns no logits".into()))?;
        Ok(this)
    }

    /// Finds the parts of the plan of a second function that only fills states (F 10: `prefill`).
    ///
    /// # Errors
    /// [`EngineError::Contract`] where it takes other inputs or states than the first, or returns something.
    pub fn of_prefill(
        plan: &Plan,
        main: &Self,
        states: &[PlanState],
        kinds: &[(String, String)],
    ) -> Result<Self, EngineError> {
        if let Some(output) = plan.outputs().next() {
            let reason = format!(
                "it returns {output:?}, and should fill states only: export the model again"
            );
            return Err(broken(plan, reason));
        }
        let this = Self::of_inputs(plan, kinds)?;
        let names = |io: &Self| (io.tokens.clone(), io.positions.clone(), io.mask.clone());
        if names(&this) != names(main) {
            return Err(broken(
                plan,
                "it takes other inputs than the main function".into(),
            ));
        }
        let same = |a: &PlanState, b: &PlanState| a.name == b.name && a.ty == b.ty;
        let found = |s: &PlanState| states.iter().any(|m| same(m, s));
        if plan.states().len() != states.len() || !plan.states().iter().all(found) {
            return Err(broken(
                plan,
                "it has other states than the main function".into(),
            ));
        }
        Ok(this)
    }

    fn of_inputs(plan: &Plan, kinds: &[(String, String)]) -> Result<Self, EngineError> {
        let inputs: Vec<(&str, &TensorType)> = plan.inputs().collect();
        let mask = inputs.iter().find(|(n, _)| *n == MASK);
        let rest = inputs.iter().filter(|(n, _)| *n != MASK);
        let names: Vec<&str> = rest.map(|(n, _)| *n).collect();
        if names.len() != 2 {
            let all = names.join(", ");
            let reason = format!(
                "it takes {} inputs ({all}), not tokens and positions",
                names.len()
            );
            return Err(broken(plan, reason));
        }
        let mut by_position = Vec::new();
        let tokens = pick(&TOKENS, &names, 0, &mut by_position).unwrap_or_default();
        let positions = pick(&POSITIONS, &names, 1, &mut by_position).unwrap_or_default();
        if tokens == positions {
            return Err(broken(
                plan,
                format!("{tokens:?} would be tokens and positions"),
            ));
        }
        let ty = |name: &str| inputs.iter().find(|(n, _)| *n == name).map(|(_, t)| *t);
        for (name, ty) in inputs.iter().filter(|(n, _)| *n != MASK) {
            if ty.dtype != DType::I32 || ty.rank() != 2 {
                return Err(broken(
                    plan,
                    format!("input {name:?} is {ty}, not i32 of two axes"),
                ));
            }
        }
        let mask = mask.map(|(n, ty)| mask_input(plan, n, ty)).transpose()?;
        let states: Vec<StateRole> = plan.states().iter().map(|s| role(plan, s, kinds)).collect();
        let ring = |s: &StateRole| s.kind == StateKind::SlidingCache;
        let query = ty(&tokens).map(|t| &t.shape[1]);
        Ok(Self {
            new_positions: ty(&positions).map(|t| &t.shape[1]) == query
                || (!states.is_empty() && states.iter().all(ring)),
            fixed_query: query.and_then(|q| usize::try_from(q.as_const()?).ok()),
            tokens,
            positions,
            mask,
            logits: String::new(),
            by_position,
            states,
        })
    }

    /// Whether an engine over these states can go back to any earlier position.
    pub fn only_caches(&self) -> bool {
        self.states.iter().all(|s| s.kind == StateKind::KvCache)
    }
}

fn broken(plan: &Plan, reason: String) -> EngineError {
    EngineError::Contract {
        function: plan.function().into(),
        reason,
    }
}

/// The first of `names` that is known, else the one at `position`, which is noted.
fn pick(
    known: &[&str],
    names: &[&str],
    position: usize,
    noted: &mut Vec<String>,
) -> Option<String> {
    let found = names.iter().find(|n| known.contains(*n));
    let found = found.or_else(|| {
        noted.extend(names.get(position).map(ToString::to_string));
        names.get(position)
    });
    found.map(ToString::to_string)
}

fn mask_input(plan: &Plan, name: &str, ty: &TensorType) -> Result<MaskInput, EngineError> {
    let float = matches!(ty.dtype, DType::F16 | DType::BF16 | DType::F32);
    if !float || !matches!(ty.rank(), 3 | 4) {
        let reason = format!("input {name:?} is {ty}, not a mask of floats of three or four axes");
        return Err(broken(plan, reason));
    }
    Ok(MaskInput {
        name: name.into(),
        dtype: ty.dtype,
        rank: ty.rank(),
    })
}

/// The name of a function's logits output.
pub(crate) fn logits_of(graph: &Graph) -> Option<String> {
    let names = graph.outputs.iter().map(|o| &*o.name);
    let known = names.clone().find(|n| LOGITS.contains(n));
    known.or_else(|| names.clone().next()).map(Into::into)
}

/// Whether a function takes a fixed number of tokens, more than one, so that some of them may be padding.
pub(crate) fn pads(graph: &Graph) -> bool {
    let known = graph.inputs.iter().find(|p| TOKENS.contains(&&*p.name));
    let tokens = known
        .or(graph.inputs.first())
        .and_then(|p| p.ty.as_tensor());
    let queries = tokens.and_then(|t| t.shape.get(1)?.as_const());
    queries.is_some_and(|n| n > 1)
}

/// What the bundle says a state is for; else (F 1.4) of two states both are keys and values, of more those with an open axis
/// hold every position, those of fixed shape that are named after a cache the last positions, and the others running values.
fn role(plan: &Plan, state: &PlanState, kinds: &[(String, String)]) -> StateRole {
    let extents = || state.ty.shape.iter().map(|d| d.as_const());
    let open = extents().position(|d| d.is_none());
    let axis = open.unwrap_or(if state.ty.rank() == 5 { 3 } else { 2 });
    let fixed = extents().nth(axis).flatten();
    let said = kinds.iter().find(|(n, _)| **n == *state.name);
    let kind = said.and_then(|(_, kind)| StateKind::parse(kind));
    let name = state.name.to_ascii_lowercase();
    let kind = kind.unwrap_or(match open {
        _ if plan.states().len() <= 2 => StateKind::KvCache,
        Some(_) => StateKind::KvCache,
        None if name.contains("sliding") => StateKind::SlidingCache,
        None if name.contains("cache") || name.contains("kv") => fixed_cache(plan),
        None => StateKind::Fixed,
    });
    StateRole {
        kind,
        axis: axis.min(state.ty.rank().saturating_sub(1)),
        open: open.is_some(),
        fixed: fixed.and_then(|n| usize::try_from(n).ok()),
    }
}

/// A cache of fixed shape is a ring beside caches that grow; where none does, the context is that short (F 3.1).
fn fixed_cache(plan: &Plan) -> StateKind {
    let open = |s: &PlanState| s.ty.shape.iter().any(|d| d.as_const().is_none());
    if plan.states().iter().any(open) {
        StateKind::SlidingCache
    } else {
        StateKind::KvCache
    }
}
