//! The engine over functions of fixed shapes (contract B §5.5): a ladder of contexts and numbers of queries.
//!
//! A call begins at a multiple of its queries; tokens between there and what is held are computed again, places behind the last token are
//! padded and overwritten later. The caches are as long as the context of the function that runs; where the next one's is another, what
//! is in use moves over.

use std::collections::HashMap;
use std::sync::Arc;

use half::f16;
use russet_graph::exec::{Executor, Input, States, View};
use russet_graph::types::{DType, TensorType};

use super::ladder::{Ladder, Rung, select};
use super::snapshot::{held_state, put_state, typed};
use super::{
    Capabilities, Engine, EngineError, Logits, Rewinding, Snapshot, StateKind, StateRole, Token,
    check_held, check_room,
};

/// What is added to the score of a position that may not be seen (F 1.4).
const HIDDEN: f16 = f16::from_f32_const(-40000.0);

/// See the module page.
#[derive(Debug)]
pub struct StaticShapeEngine {
    ladder: Arc<Ladder>,
    executors: HashMap<String, Executor>,
    states: Option<Held>,
    limit: usize,
    history: Vec<Token>,
    inputs: Vec<u8>,
    /// The function whose logits are the last ones, its output, and the row.
    last: Option<(String, String, usize)>,
}

/// The states, for functions of one context.
#[derive(Debug)]
struct Held {
    states: States,
    names: Vec<String>,
    roles: Vec<StateRole>,
    context: usize,
}

/// A call of one function.
struct Call<'a> {
    rung: &'a Rung,
    start: usize,
    tokens: &'a [Token],
}

/// The part that an input of an `extend` function plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Embeddings,
    Positions,
    Step,
    Mask,
    /// 1 for tokens that are new, 0 for those computed again.
    New,
}

impl Part {
    /// By name, as F 1.4 lists them.
    fn of(name: &str) -> Option<Self> {
        match name {
            "causal_mask" => Some(Self::Mask),
            "ssm_update_flag" => Some(Self::New),
            _ if name.contains("transformer_input") => Some(Self::Embeddings),
            _ if name.contains("pos") => Some(Self::Positions),
            _ if name.contains("step") => Some(Self::Step),
            _ => None,
        }
    }
}

impl StaticShapeEngine {
    /// An engine with empty caches that holds up to `limit` tokens.
    ///
    /// # Errors
    /// [`EngineError::Contract`] where the functions are not those of a language model.
    pub fn new(ladder: Arc<Ladder>, limit: usize) -> Result<Self, EngineError> {
        let rung = select(&ladder.rungs, 0, 1)
            .ok_or(EngineError::Empty)?
            .clone();
        let mut this = Self {
            limit: limit.min(ladder.context()),
            ladder,
            executors: HashMap::new(),
            states: None,
            history: Vec::new(),
            inputs: Vec::new(),
            last: None,
        };
        this.prepare(&rung)?;
        Ok(this)
    }

    fn contract(rung: &Rung, reason: String) -> EngineError {
        EngineError::Contract {
            function: rung.name.clone(),
            reason,
        }
    }

    /// Plans a function, checks what it takes, and makes the states as long as it wants them.
    fn prepare(&mut self, rung: &Rung) -> Result<(), EngineError> {
        if !self.executors.contains_key(&rung.name) {
            let plan = self.ladder.plan(&rung.name)?;
            if let Some((name, _)) = plan.inputs().find(|(n, _)| Part::of(n).is_none()) {
                return Err(Self::contract(
                    rung,
                    format!("nothing is known of its input {name:?}"),
                ));
            }
            let executor = Executor::new(plan, self.ladder.pool().clone());
            self.executors.insert(rung.name.clone(), executor);
        }
        match &mut self.states {
            Some(held) if held.context == rung.context => {}
            Some(held) => held.change(rung.context, self.history.len())?,
            None => self.states = Some(self.first_states(rung)?),
        }
        Ok(())
    }

    fn first_states(&self, rung: &Rung) -> Result<Held, EngineError> {
        let plan = self.ladder.plan(&rung.name)?;
        let open = |_: &str, _: usize| 0;
        let names: Vec<String> = plan.states().iter().map(|s| s.name.to_string()).collect();
        let role = |name: &String| match self.ladder.axis(name) {
            Some(axis) => StateRole {
                kind: StateKind::KvCache,
                axis,
                open: true,
                fixed: None,
            },
            None => StateRole {
                kind: StateKind::Fixed,
                axis: 0,
                open: false,
                fixed: None,
            },
        };
        Ok(Held {
            states: States::new(&plan, open)?,
            roles: names.iter().map(role).collect(),
            names,
            context: rung.context,
        })
    }

    /// Runs one function.
    fn run(&mut self, call: &Call<'_>) -> Result<(), EngineError> {
        self.prepare(call.rung)?;
        let queries = call.rung.queries;
        let gather = self.ladder.gather(queries).unwrap_or_default().to_owned();
        self.gather(&gather, call)?;
        // Both are taken out, so that one can read what the other made.
        let mut executor = self
            .executors
            .remove(&call.rung.name)
            .ok_or(EngineError::Empty)?;
        let result = self.extend(&gather, &mut executor, call);
        self.executors.insert(call.rung.name.clone(), executor);
        result
    }

    /// The embeddings of the call's tokens, padded with the first token of the vocabulary.
    fn gather(&mut self, name: &str, call: &Call<'_>) -> Result<(), EngineError> {
        if !self.executors.contains_key(name) {
            let plan = self.ladder.plan(name)?;
            let executor = Executor::new(plan, self.ladder.pool().clone());
            self.executors.insert(name.into(), executor);
        }
        let executor = self.executors.get_mut(name).ok_or(EngineError::Empty)?;
        self.inputs.clear();
        for token in call.tokens {
            let id = i32::try_from(*token).map_err(|_| EngineError::Token {
                token: *token,
                vocab: 1 << 31,
            })?;
            self.inputs.extend(id.to_le_bytes());
        }
        self.inputs.resize(4 * call.rung.queries, 0);
        let plan = executor.plan().clone();
        let shape = [1, call.rung.queries];
        let inputs: Vec<Input<'_>> = plan
            .inputs()
            .map(|(name, _)| Input {
                name,
                dtype: DType::I32,
                shape: &shape,
                data: &self.inputs,
            })
            .collect();
        Ok(executor.run(&inputs, &mut States::default())?)
    }

    fn extend(
        &mut self,
        gather: &str,
        executor: &mut Executor,
        call: &Call<'_>,
    ) -> Result<(), EngineError> {
        let plan = executor.plan().clone();
        let gathered = self.executors.get(gather).and_then(first_output);
        let rows = gathered.as_ref().and_then(View::contiguous);
        let rows = rows
            .ok_or_else(|| Self::contract(call.rung, format!("{gather} returns no embeddings")))?;
        let mut given = Vec::new();
        for (name, ty) in plan.inputs() {
            let part = Part::of(name).ok_or(EngineError::Empty)?;
            let data = match part {
                Part::Embeddings => rows.to_vec(),
                other => call.tensor(other, ty, self.history.len()).ok_or_else(|| {
                    Self::contract(call.rung, format!("its input {name:?} is {ty}"))
                })?,
            };
            given.push((name, ty.dtype, ty.fixed_shape().unwrap_or_default(), data));
        }
        let inputs: Vec<Input<'_>> = given
            .iter()
            .map(|(name, dtype, shape, data)| Input {
                name,
                dtype: *dtype,
                shape,
                data,
            })
            .collect();
        let held = self.states.as_mut().ok_or(EngineError::Empty)?;
        let order = held.order(&plan).ok_or_else(|| {
            Self::contract(
                call.rung,
                "it has other states than the other functions".into(),
            )
        })?;
        held.states.arrange(&order);
        let result = executor.run(&inputs, &mut held.states);
        held.states.arrange(&inverse(&order));
        result?;
        let output = plan.outputs().next().unwrap_or_default().to_owned();
        self.last = Some((call.rung.name.clone(), output, call.tokens.len() - 1));
        Ok(())
    }
}

impl Call<'_> {
    /// The elements of an input that plays `part`; `None` where it cannot be of that type.
    fn tensor(&self, part: Part, ty: &TensorType, held: usize) -> Option<Vec<u8>> {
        let (queries, context) = (self.rung.queries, self.rung.context);
        let numbers: Vec<f64> = match part {
            Part::Positions => (self.start..self.start + queries)
                .map(|p| p as f64)
                .collect(),
            Part::Step => vec![self.start as f64],
            Part::New => (self.start..self.start + queries)
                .map(|p| f64::from(u8::from(p >= held)))
                .collect(),
            Part::Mask => {
                return (ty.dtype == DType::F16 && ty.fixed_len() == Some(context * queries))
                    .then(|| mask(self.start, context, queries));
            }
            Part::Embeddings => return None,
        };
        if ty.fixed_len() != Some(numbers.len()) {
            return None;
        }
        let bytes = |n: f64| -> Option<Vec<u8>> {
            Some(match ty.dtype {
                DType::U16 => (n as u16).to_le_bytes().to_vec(),
                DType::I16 => (n as i16).to_le_bytes().to_vec(),
                DType::I32 | DType::U32 => (n as u32).to_le_bytes().to_vec(),
                DType::F16 => f16::from_f64(n).to_le_bytes().to_vec(),
                DType::F32 => (n as f32).to_le_bytes().to_vec(),
                _ => return None,
            })
        };
        Some(
            numbers
                .into_iter()
                .map(bytes)
                .collect::<Option<Vec<_>>>()?
                .concat(),
        )
    }
}

/// `[1, context, 1, queries]`: for every position of the caches and every query behind `start`, whether it may be seen.
fn mask(start: usize, context: usize, queries: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * context * queries);
    for position in 0..context {
        for query in start..start + queries {
            let added = if position <= query { f16::ZERO } else { HIDDEN };
            bytes.extend(added.to_le_bytes());
        }
    }
    bytes
}

fn first_output(executor: &Executor) -> Option<View<'_>> {
    let plan = executor.plan();
    let known = plan.outputs().find(|n| *n == "out_transformer_input");
    executor.output(known.or_else(|| plan.outputs().next())?)
}

fn inverse(order: &[usize]) -> Vec<usize> {
    let mut back = vec![0; order.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(i, &from)| back[from] = i);
    back
}

impl Held {
    /// Makes the caches as long as another context; the first `keep` positions stay.
    fn change(&mut self, context: usize, keep: usize) -> Result<(), EngineError> {
        for (index, role) in self.roles.iter().enumerate() {
            if role.kind == StateKind::KvCache {
                self.states.resize(index, role.axis, context, keep)?;
            }
        }
        self.context = context;
        Ok(())
    }

    /// Where the states of a plan are among these; `None` where it has others.
    fn order(&self, plan: &russet_graph::exec::Plan) -> Option<Vec<usize>> {
        let at = |name: &str| self.names.iter().position(|n| n == name);
        let order: Option<Vec<usize>> = plan.states().iter().map(|s| at(&s.name)).collect();
        order.filter(|o| o.len() == self.names.len())
    }
}

impl Engine for StaticShapeEngine {
    fn feed(
        &mut self,
        tokens: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, EngineError> {
        check_room(self.history.len(), tokens.len(), self.limit)?;
        let mut done = 0;
        let ladder = self.ladder.clone();
        while done < tokens.len() && !cancelled() {
            let held = self.history.len();
            let rung = select(&ladder.rungs, held, tokens.len() - done);
            let rung = rung.ok_or(EngineError::ContextFull {
                position: held,
                new: tokens.len() - done,
                limit: self.limit,
            })?;
            let start = rung.start(held);
            let new = (start + rung.queries - held).min(tokens.len() - done);
            let again = &self.history[start..];
            let call = [again, &tokens[done..done + new]].concat();
            if let Err(error) = self.run(&Call {
                rung,
                start,
                tokens: &call,
            }) {
                // A failed call leaves running values in no known state: they start again.
                if self.capabilities().rewinding == Rewinding::ToTheStart {
                    self.rewind(0)?;
                }
                return Err(error);
            }
            self.history.extend_from_slice(&tokens[done..done + new]);
            done += new;
        }
        Ok(done)
    }

    fn logits(&self) -> Logits<'_> {
        let row = || {
            let (function, output, row) = self.last.as_ref()?;
            Logits::of(&self.executors.get(function)?.output(output)?, *row)
        };
        row().unwrap_or_default()
    }

    fn history(&self) -> &[Token] {
        &self.history
    }

    fn rewind(&mut self, to: usize) -> Result<(), EngineError> {
        let held = self.history.len();
        check_held(to, held)?;
        if to != held && to != 0 && self.capabilities().rewinding != Rewinding::Anywhere {
            let reason = "a state of this model cannot be taken back".into();
            return Err(EngineError::Rewind { to, reason });
        }
        if let (0, Some(held)) = (to, &mut self.states) {
            let fixed = held
                .roles
                .iter()
                .enumerate()
                .filter(|(_, r)| r.kind == StateKind::Fixed);
            for (index, _) in fixed {
                held.states.bytes_mut(index).fill(0);
            }
        }
        self.history.truncate(to);
        Ok(())
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn capabilities(&self) -> Capabilities {
        let fixed = |r: &StateRole| r.kind == StateKind::Fixed;
        let fixed = self.states.iter().any(|h| h.roles.iter().any(fixed));
        Capabilities {
            logits: true,
            forced_continuation: true,
            rewinding: if fixed {
                Rewinding::ToTheStart
            } else {
                Rewinding::Anywhere
            },
            unbounded: false,
        }
    }

    fn threads(&self) -> usize {
        self.ladder.pool().threads()
    }

    fn state_bytes(&self) -> usize {
        self.states.as_ref().map_or(0, |h| h.states.size())
    }

    fn snapshot(&self) -> Snapshot {
        let state = |held: &Held| {
            let each = held.names.iter().zip(&held.roles).enumerate();
            let each = each.map(|(i, (name, role))| {
                (
                    name.clone(),
                    held_state(&held.states, i, role, self.history.len()),
                )
            });
            each.collect()
        };
        Snapshot::new(
            &self.history,
            self.states.as_ref().map(state).unwrap_or_default(),
        )
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        let held = snapshot.tokens().len();
        let rung =
            select(&self.ladder.rungs, held.saturating_sub(1), 1).filter(|_| held <= self.limit);
        let Some(rung) = rung.cloned() else {
            let reason = format!("it holds {held} tokens, this engine at most {}", self.limit);
            return Err(EngineError::Snapshot(reason));
        };
        let mut fresh = self.first_states(&rung)?;
        let plan = self.ladder.plan(&rung.name)?;
        let found = snapshot.check(&typed(plan.states()), &fresh.roles)?;
        for (index, state) in found.into_iter().enumerate() {
            put_state(&mut fresh.states, index, &fresh.roles[index], state);
        }
        self.states = Some(fresh);
        self.history = snapshot.tokens().to_vec();
        self.last = None;
        Ok(())
    }
}
