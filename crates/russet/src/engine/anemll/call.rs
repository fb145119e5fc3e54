//! The tensors of a call, and what one part hands to the next.
//!
//! Inputs are told by their names: positions, masks and tokens are made here, everything else is what an earlier part gave under the
//! same name. The first output of a part is the hidden state of the next.

use half::f16;
use russet_graph::exec::{Executor, Input, States, View};
use russet_graph::types::{DType, TensorType};

use super::chain::Chain;
use crate::engine::{EngineError, Token};

/// The name that hidden states have as an input.
const HIDDEN: &str = "hidden_states";

/// The part that an input plays, by its name (contract A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The tokens.
    Tokens,
    /// The position of every token.
    Positions,
    /// The position of the first.
    Start,
    /// For every token what it may see.
    Mask,
    /// For every position of the cache the token that is written there.
    Update,
}

impl Role {
    const NAMES: [(&'static str, Self); 5] = [
        ("input_ids", Self::Tokens),
        ("position_ids", Self::Positions),
        ("current_pos", Self::Start),
        ("causal_mask", Self::Mask),
        ("update_mask", Self::Update),
    ];

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, role)| *role)
    }
}

/// A tensor on its way.
#[derive(Debug, Default)]
struct Held {
    name: String,
    dtype: Option<DType>,
    shape: Vec<usize>,
    data: Vec<u8>,
}

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct Carried {
    tokens: Vec<i32>,
    /// The position of the first token.
    at: usize,
    /// Inputs of the next part, in its order.
    inputs: Vec<Held>,
    /// Outputs of the part before, in its order.
    outputs: Vec<Held>,
    /// What parts before gave under names of their own.
    kept: Vec<Held>,
}

impl Carried {
    /// Begins a call with tokens at a position.
    pub(super) fn begin(&mut self, tokens: &[Token], at: usize) -> Result<(), EngineError> {
        self.tokens.clear();
        for &token in tokens {
            let vocab = 1 << 31;
            self.tokens
                .push(i32::try_from(token).map_err(|_| EngineError::Token { token, vocab })?);
        }
        self.at = at;
        self.outputs.clear();
        self.kept.clear();
        Ok(())
    }

    /// Runs a part.
    pub(super) fn run(
        &mut self,
        executor: &mut Executor,
        states: &mut States,
    ) -> Result<(), EngineError> {
        let plan = executor.plan().clone();
        let mut used = 0;
        for (name, ty) in plan.inputs() {
            self.fill(used, name, ty)
                .map_err(|reason| EngineError::Contract {
                    function: plan.function().into(),
                    reason,
                })?;
            used += 1;
        }
        let inputs: Vec<Input<'_>> = self
            .inputs
            .iter()
            .take(used)
            .map(|held| Input {
                name: &held.name,
                dtype: held.dtype.unwrap_or(DType::F16),
                shape: &held.shape,
                data: &held.data,
            })
            .collect();
        Ok(executor.run(&inputs, states)?)
    }

    /// Makes input number `index`.
    fn fill(&mut self, index: usize, name: &str, ty: &TensorType) -> Result<(), String> {
        if self.inputs.len() <= index {
            self.inputs.resize_with(index + 1, Held::default);
        }
        let mut held = std::mem::take(&mut self.inputs[index]);
        held.data.clear();
        held.shape.clear();
        if held.name != name {
            held.name = name.into();
        }
        held.dtype = Some(ty.dtype);
        let filled = match Role::of(name) {
            Some(role) => self.made(role, ty, &mut held),
            None => self.given(name, ty.dtype, &mut held),
        };
        self.inputs[index] = held;
        filled
    }

    /// An input that the engine makes.
    fn made(&self, role: Role, ty: &TensorType, held: &mut Held) -> Result<(), String> {
        let extents = || {
            ty.shape
                .iter()
                .map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()))
        };
        // An extent that is open is that of the tokens.
        held.shape
            .extend(extents().map(|d| d.unwrap_or(self.tokens.len())));
        let count: usize = held.shape.iter().product();
        let (first, tokens) = (self.at, self.tokens.len());
        let misfit = || {
            Err(format!(
                "its input {:?} is {ty} in a call of {tokens} tokens",
                held.name
            ))
        };
        match role {
            Role::Tokens if count == tokens => {
                self.tokens
                    .iter()
                    .for_each(|t| put(ty.dtype, f64::from(*t), &mut held.data));
            }
            Role::Positions if count == tokens => {
                (first..first + tokens).for_each(|p| put(ty.dtype, p as f64, &mut held.data));
            }
            Role::Start if count == 1 => put(ty.dtype, first as f64, &mut held.data),
            Role::Mask if count.is_multiple_of(tokens) => {
                mask(
                    ty.dtype,
                    first..first + tokens,
                    count / tokens,
                    &mut held.data,
                );
            }
            Role::Update if count.is_multiple_of(tokens) => {
                for position in 0..count / tokens {
                    let written = (0..tokens).map(|t| f64::from(u8::from(position == first + t)));
                    written.for_each(|w| put(ty.dtype, w, &mut held.data));
                }
            }
            _ => return misfit(),
        }
        Ok(())
    }

    /// An input that a part before gave.
    fn given(&self, name: &str, dtype: DType, to: &mut Held) -> Result<(), String> {
        let named = |list: &'_ [Held]| list.iter().position(|h| h.name == name);
        let from = match (named(&self.outputs), named(&self.kept)) {
            (Some(i), _) => self.outputs.get(i),
            (None, _) if name == HIDDEN => self.outputs.first(),
            (None, Some(i)) => self.kept.get(i),
            (None, None) => None,
        };
        let from = from.ok_or_else(|| format!("nothing gives its input {name:?}"))?;
        to.shape.extend_from_slice(&from.shape);
        if from.dtype == Some(dtype) {
            to.data.extend_from_slice(&from.data);
            return Ok(());
        }
        for value in from.numbers() {
            put(dtype, value, &mut to.data);
        }
        Ok(())
    }

    /// Takes what a part gave.
    pub(super) fn take(&mut self, executor: &Executor) -> Result<(), EngineError> {
        let before = std::mem::take(&mut self.outputs);
        for held in before.into_iter().filter(|h| h.name != HIDDEN) {
            self.kept.retain(|k| k.name != held.name);
            self.kept.push(held);
        }
        for name in executor.plan().outputs() {
            let missing = || EngineError::Contract {
                function: executor.plan().function().into(),
                reason: format!("its output {name:?} cannot be read"),
            };
            let view = executor.output(name).ok_or_else(missing)?;
            self.outputs
                .push(Held::of(name, &view).ok_or_else(missing)?);
        }
        Ok(())
    }

    /// What a part gave under a name.
    pub(super) fn output(&self, name: &str) -> Option<Vec<f32>> {
        let mut all = self.outputs.iter().chain(&self.kept);
        let held = all.find(|h| h.name == name)?;
        Some(held.numbers().map(|v| v as f32).collect())
    }
}

/// The logits of the last token that a run left: parts one behind the other, or of every part the largest.
pub(super) fn logits(
    executor: &Executor,
    chain: &Chain,
    to: &mut Vec<f32>,
) -> Result<(), EngineError> {
    let held = |name: &str| Held::of(name, &executor.output(name)?);
    if let (Some(at), Some(value)) = (held("argmax_idx"), held("argmax_val")) {
        return largest(chain, &at, &value, to);
    }
    let part = |name| Some((part_number(name)?, executor.output(name)?));
    let mut parts: Vec<(usize, View<'_>)> = executor.plan().outputs().filter_map(part).collect();
    parts.sort_by_key(|(number, _)| *number);
    for (_, view) in parts.iter().filter(|(_, view)| !view.is_empty()) {
        let (from, width) = (to.len(), view.shape().last().copied().unwrap_or(1));
        to.resize(from + width, 0.0);
        view.read_row(view.len() / width - 1, &mut to[from..]);
    }
    if to.is_empty() {
        return Err(EngineError::Contract {
            function: "lm_head".into(),
            reason: "it gives no logits".into(),
        });
    }
    Ok(())
}

/// `logits7` is part 7, `logits` and `output_logits` are the only part.
fn part_number(name: &str) -> Option<usize> {
    let name = name.strip_prefix("output_").unwrap_or(name);
    match name.strip_prefix("logits")? {
        "" => Some(0),
        digits => digits.parse().ok(),
    }
}

/// What heads that choose themselves leave: of every part the place and the value of its largest entry; all others count as minus
/// infinity, so that the most likely token is right and nothing else can be said.
fn largest(chain: &Chain, at: &Held, value: &Held, to: &mut Vec<f32>) -> Result<(), EngineError> {
    let parts = at.numbers().count().max(1);
    let wrong = || EngineError::Contract {
        function: "lm_head".into(),
        reason: "places of its largest logits lie outside the vocabulary".into(),
    };
    let vocab = chain.vocab.ok_or_else(wrong)?;
    to.resize(vocab, f32::NEG_INFINITY);
    let mut start = 0;
    for (part, (place, value)) in at.numbers().zip(value.numbers()).enumerate() {
        // The first parts of an uneven split are one wider.
        let even = vocab / parts + usize::from(part < vocab % parts);
        let width = chain.head_sizes.get(part).copied().unwrap_or(even);
        let entry = to.get_mut(start + place as usize).ok_or_else(wrong)?;
        *entry = value as f32;
        start += width;
    }
    Ok(())
}

impl Held {
    fn of(name: &str, view: &View<'_>) -> Option<Self> {
        Some(Self {
            name: name.into(),
            dtype: Some(view.dtype()),
            shape: view.shape().to_vec(),
            data: view.contiguous()?.to_vec(),
        })
    }

    /// Its elements, where they are floats or integers of 32 bits.
    fn numbers(&self) -> Box<dyn Iterator<Item = f64> + '_> {
        let (pairs, fours) = (self.data.as_chunks::<2>().0, self.data.as_chunks::<4>().0);
        match self.dtype {
            Some(DType::F16) => Box::new(pairs.iter().map(|b| f16::from_le_bytes(*b).to_f64())),
            Some(DType::F32) => Box::new(fours.iter().map(|b| f32::from_le_bytes(*b).into())),
            Some(DType::I32) => Box::new(fours.iter().map(|b| i32::from_le_bytes(*b).into())),
            _ => Box::new(std::iter::empty()),
        }
    }
}

/// Appends a number in a kind.
fn put(dtype: DType, value: f64, to: &mut Vec<u8>) {
    match dtype {
        DType::F16 => to.extend(f16::from_f64(value).to_le_bytes()),
        DType::F32 => to.extend((value as f32).to_le_bytes()),
        _ => to.extend((value as i32).to_le_bytes()),
    }
}

/// For every query a row: 0 where a position may be seen, minus infinity elsewhere.
fn mask(dtype: DType, queries: std::ops::Range<usize>, width: usize, to: &mut Vec<u8>) {
    let (mut seen, mut hidden) = (Vec::new(), Vec::new());
    // Zero is zero bytes in every kind.
    put(dtype, 0.0, &mut seen);
    put(dtype, f64::NEG_INFINITY, &mut hidden);
    to.reserve(queries.len() * width * seen.len());
    for query in queries {
        let open = (query + 1).min(width);
        to.resize(to.len() + open * seen.len(), 0);
        (open..width).for_each(|_| to.extend_from_slice(&hidden));
    }
}
