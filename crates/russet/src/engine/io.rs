//! Which input and output of a function plays which part: by name with the known synonyms, by position only as a last resort.

use russet_graph::exec::Plan;
use russet_graph::graph::Graph;
use russet_graph::types::{DType, TensorType};

use super::EngineError;

/// Names of the token input, newest first.
pub(crate) const TOKENS: [&str; 2] = ["input_ids", "in_new_token_ids"];
/// Names of the position input.
pub(crate) const POSITIONS: [&str; 2] = ["position_ids", "pos_ids"];
/// Names of the logits output.
pub(crate) const LOGITS: [&str; 2] = ["logits", "out_logits"];

/// What a state is for, which decides whether an engine can go back (contract B §5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Keys or values of every position: going back is forgetting.
    KvCache,
    /// A running value: it can only be reset.
    Fixed,
}

/// The parts of a language-model function.
#[derive(Clone, Debug, PartialEq)]
pub struct Io {
    /// The input that takes the new tokens, `i32 [1, q]`.
    pub tokens: String,
    /// The input that takes the positions `0..total`, `i32 [1, total]`.
    pub positions: String,
    /// The output with one row of logits for each new token, `[1, q, vocab]`.
    pub logits: String,
    /// Names that were not recognised, so that position decided.
    pub by_position: Vec<String>,
    /// What every state is for, in the plan's order.
    pub states: Vec<StateKind>,
    /// The query length that the graph fixes, if it does.
    pub fixed_query: Option<usize>,
}

impl Io {
    /// Finds the parts of a plan.
    pub fn of(plan: &Plan) -> Result<Self, EngineError> {
        let broken = |reason: String| EngineError::Contract {
            function: plan.function().into(),
            reason,
        };
        let inputs: Vec<(&str, &TensorType)> = plan.inputs().collect();
        let names: Vec<&str> = inputs.iter().map(|(n, _)| *n).collect();
        if names.len() != 2 {
            return Err(broken(format!(
                "it takes {} inputs ({}), not tokens and positions",
                names.len(),
                names.join(", ")
            )));
        }
        let mut by_position = Vec::new();
        let mut pick = |known: &[&str], names: &[&str], position: usize| {
            let found = names.iter().find(|n| known.contains(*n)).or_else(|| {
                by_position.extend(names.get(position).map(ToString::to_string));
                names.get(position)
            });
            found.map(ToString::to_string)
        };
        let tokens = pick(&TOKENS, &names, 0).ok_or_else(|| broken("it takes no tokens".into()))?;
        let positions =
            pick(&POSITIONS, &names, 1).ok_or_else(|| broken("it takes no positions".into()))?;
        let outputs: Vec<&str> = plan.outputs().collect();
        let logits =
            pick(&LOGITS, &outputs, 0).ok_or_else(|| broken("it returns no logits".into()))?;
        for (name, ty) in &inputs {
            if ty.dtype != DType::I32 || ty.rank() != 2 {
                return Err(broken(format!(
                    "input {name:?} is {ty}, not i32 of two axes"
                )));
            }
        }
        let query = inputs
            .iter()
            .find(|(n, _)| *n == tokens)
            .and_then(|(_, t)| t.shape[1].as_const());
        let fixed_query = query.and_then(|q| usize::try_from(q).ok());
        Ok(Self {
            tokens,
            positions,
            logits,
            by_position,
            states: kinds(plan),
            fixed_query,
        })
    }
}

/// The name of a function's logits output.
pub(crate) fn logits_of(graph: &Graph) -> Option<String> {
    let names = graph.outputs.iter().map(|o| &*o.name);
    let known = names.clone().find(|n| LOGITS.contains(n));
    known.or_else(|| names.clone().next()).map(Into::into)
}

/// Two states are keys and values. Of more, those that are named after a cache hold positions and the others do not.
fn kinds(plan: &Plan) -> Vec<StateKind> {
    let states = plan.states();
    let kind = |name: &str| {
        let name = name.to_ascii_lowercase();
        if states.len() <= 2 || name.contains("cache") || name.contains("kv") {
            StateKind::KvCache
        } else {
            StateKind::Fixed
        }
    };
    states.iter().map(|s| kind(&s.name)).collect()
}
