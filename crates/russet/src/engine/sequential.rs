//! The engine over one dynamic function (contract B §5.3), called with the new tokens and all positions.
//!
//! A call takes `tokens i32 [1, q]` and `positions i32 [1, processed + q] = 0..processed + q`, updates the caches in place and
//! returns a row of logits for each new token. A long prompt is fed in chunks, which bounds the memory of a step; where the model
//! has a second function that only fills the caches, all of a prompt but its last token goes through that.

use std::sync::Arc;
use std::time::Duration;

use half::{bf16, f16};
use russet_graph::exec::{Executor, Input, Plan, RunError, States, View};
use russet_graph::types::DType;
use russet_kernels::mem::bytes_of;
use russet_kernels::threads::Pool;

use super::snapshot::{held_state, put_state, typed};
use super::{
    Capabilities, Engine, EngineError, Io, KvCacheStrategy, Logits, MaskInput, Rewinding, Snapshot,
    StateKind, Token, check_held, check_room,
};

/// Tokens that growing caches have room for at first.
const FIRST_ROOM: usize = 256;

/// How to run an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The most tokens to hold.
    pub max_context: usize,
    /// Tokens of a prompt that are processed at once.
    pub chunk: usize,
    /// Prompts up to this length are processed in one piece.
    pub chunk_threshold: usize,
    /// How caches get their memory.
    pub kv_cache: KvCacheStrategy,
    /// Room of growing caches at first, of caches of fixed size for good; 256 and `max_context` where nothing is said.
    pub kv_capacity: Option<usize>,
    /// Of a sliding window, the tokens at the start that are never forgotten.
    pub attention_sinks: usize,
    /// Names and kinds of states, where the bundle says (`language.states`).
    pub states: Vec<(String, String)>,
}

impl EngineOptions {
    /// Tokens of a prompt that are processed at once where nothing is said.
    pub const CHUNK: usize = 512;

    /// Chunks of 512 tokens for prompts longer than 1024 (contract F 1.5).
    pub fn new(max_context: usize) -> Self {
        Self {
            max_context,
            chunk: Self::CHUNK,
            chunk_threshold: 2 * Self::CHUNK,
            kv_cache: KvCacheStrategy::Auto,
            kv_capacity: None,
            attention_sinks: 4,
            states: Vec::new(),
        }
    }
}

/// The function that fills states without returning anything, and where its states are among those of the other.
#[derive(Debug)]
struct Prefill {
    executor: Executor,
    io: Io,
    order: Vec<usize>,
    back: Vec<usize>,
}

/// See the module page.
#[derive(Debug)]
pub struct SequentialEngine {
    executor: Executor,
    prefill: Option<Prefill>,
    states: States,
    io: Io,
    options: EngineOptions,
    /// Tokens that the caches have room for.
    room: usize,
    growing: bool,
    history: Vec<Token>,
    inputs: Inputs,
    /// The row of the last call's logits that is the last token's; `None` before the first.
    row: Option<usize>,
}

impl SequentialEngine {
    /// An engine over a planned function, and the plan of the one that only fills its states where there is one.
    ///
    /// # Errors
    /// [`EngineError::Contract`] where a function is none of a language model, [`EngineError::Strategy`] where the caches cannot be as
    /// the options say, [`EngineError::Run`] where their memory cannot be had.
    pub fn new(
        plan: Arc<Plan>,
        prefill: Option<Arc<Plan>>,
        pool: Arc<Pool>,
        mut options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let io = Io::of(&plan, &options.states)?;
        let growing = growing(&io, &options)?;
        let room = first_room(growing, &mut options);
        let states = States::new(&plan, |_, _| room)?;
        let prefill = prefill
            .map(|p| Prefill::new(p, (&plan, &io), &pool, &options.states))
            .transpose()?;
        Ok(Self {
            executor: Executor::new(plan, pool),
            prefill,
            states,
            io,
            room,
            growing,
            history: Vec::with_capacity(options.max_context.min(1 << 16)),
            inputs: Inputs::default(),
            options,
            row: None,
        })
    }

    /// The parts of the function.
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// The caches.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// From now on sums up the time of every step of the plan.
    pub fn start_profile(&mut self) {
        self.executor.start_profile();
    }

    /// The time each step of the plan took since [`SequentialEngine::start_profile`]; empty without it.
    pub fn profile(&self) -> &[Duration] {
        self.executor.profile()
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.executor.plan()
    }

    /// One call of the function. Returns the logits of every token, `[1, q, vocab]` (`[1, 1, vocab]` of
    /// the last one, where the plan was made so).
    ///
    /// # Errors
    /// Those of [`Engine::feed`].
    pub fn call(&mut self, tokens: &[Token]) -> Result<View<'_>, EngineError> {
        check_room(self.history.len(), tokens.len(), self.options.max_context)?;
        self.make_room(self.history.len() + tokens.len())?;
        let result = self
            .inputs
            .fill(tokens, self.history.len(), &self.io)
            .and_then(|()| {
                let run = self
                    .inputs
                    .run(&self.io, &mut self.executor, &mut self.states);
                run.map_err(EngineError::from)
            });
        self.after(result, tokens)?;
        let view = self.executor.output(&self.io.logits);
        let view = view.ok_or_else(|| EngineError::Contract {
            function: self.executor.plan().function().into(),
            reason: "it returned no logits".into(),
        })?;
        // Padding comes behind the tokens, and some functions return the last row only.
        let rows = view.shape().iter().rev().skip(1).product::<usize>();
        self.row = Some((tokens.len() - 1).min(rows.saturating_sub(1)));
        Ok(view)
    }

    /// An output of the last call beside the logits, as f32; `None` where there is none of this name.
    pub(crate) fn output(&self, name: &str) -> Option<Vec<f32>> {
        let view = self.executor.output(name)?;
        let width = *view.shape().last()?;
        let rows = view.len().checked_div(width)?;
        let mut all = vec![0.0; rows * width];
        for (i, row) in all.chunks_exact_mut(width).enumerate() {
            view.read_row(i, row);
        }
        Some(all)
    }

    /// One call of the function that only fills states.
    fn fill(&mut self, tokens: &[Token]) -> Result<(), EngineError> {
        self.make_room(self.history.len() + tokens.len())?;
        let Some(prefill) = &mut self.prefill else {
            return self.call(tokens).map(drop);
        };
        let result = self
            .inputs
            .fill(tokens, self.history.len(), &prefill.io)
            .and_then(|()| {
                self.states.arrange(&prefill.order);
                let run = self
                    .inputs
                    .run(&prefill.io, &mut prefill.executor, &mut self.states);
                self.states.arrange(&prefill.back);
                run.map_err(EngineError::from)
            });
        self.after(result, tokens)
    }

    /// Takes note of what the states hold now. A failed call leaves running values in no known state: they start again.
    fn after(
        &mut self,
        result: Result<(), EngineError>,
        tokens: &[Token],
    ) -> Result<(), EngineError> {
        match &result {
            Ok(()) => self.history.extend_from_slice(tokens),
            Err(EngineError::Run(RunError::Step { .. })) if !self.io.only_caches() => self.clear(),
            Err(_) => {}
        }
        result
    }

    /// Room for `total` tokens in caches that grow, doubled until it is enough.
    fn make_room(&mut self, total: usize) -> Result<(), EngineError> {
        if !self.growing || total <= self.room {
            return Ok(());
        }
        let mut room = self.room.max(1);
        while room < total {
            room = room
                .saturating_mul(2)
                .min(self.options.max_context.max(total));
        }
        for (index, role) in self.io.states.iter().enumerate() {
            if role.open {
                self.states
                    .resize(index, role.axis, room, self.history.len())?;
            }
        }
        self.room = room;
        Ok(())
    }

    /// Forgets everything. Rows of caches stay as they are: what they hold lies behind the positions that are read.
    fn clear(&mut self) {
        for (index, role) in self.io.states.iter().enumerate() {
            if role.kind != StateKind::KvCache {
                self.states.bytes_mut(index).fill(0);
            }
        }
        self.history.clear();
    }

    /// The extent of the smallest ring.
    fn ring(&self) -> Option<usize> {
        let rings = self
            .io
            .states
            .iter()
            .filter(|s| s.kind == StateKind::SlidingCache);
        rings.filter_map(|s| s.fixed).min().filter(|n| *n > 0)
    }

    /// How many of `left` tokens the next call takes, of a prompt of `len`: a chunk, and no more than a ring has room for
    /// before it wraps.
    fn next_chunk(&self, len: usize, left: usize) -> usize {
        let chunk = match self.io.fixed_query {
            Some(q) => q,
            None if len > self.options.chunk_threshold => self.options.chunk,
            None => len,
        };
        let ring = self
            .ring()
            .map_or(usize::MAX, |n| n - self.history.len() % n);
        chunk.max(1).min(ring).min(left)
    }
}

/// Whether the caches grow.
fn growing(io: &Io, options: &EngineOptions) -> Result<bool, EngineError> {
    let open = io.states.iter().any(|s| s.open);
    match options.kv_cache {
        KvCacheStrategy::Growing if !open => Err(EngineError::Strategy {
            strategy: "growing",
            reason: "the model fixes the length of its caches; use auto or fixed_size".into(),
        }),
        KvCacheStrategy::FixedSize => Ok(false),
        // A window is as long as it ever gets once it is full.
        KvCacheStrategy::Auto | KvCacheStrategy::Growing | KvCacheStrategy::Chunked => Ok(open),
    }
}

/// Tokens that the caches have room for at first. Caches of fixed size that are asked to be shorter shorten the context.
fn first_room(growing: bool, options: &mut EngineOptions) -> usize {
    let most = options.max_context;
    if growing {
        return options
            .kv_capacity
            .unwrap_or(FIRST_ROOM)
            .clamp(1, most.max(1));
    }
    options.max_context = most.min(options.kv_capacity.unwrap_or(most)).max(1);
    options.max_context
}

impl Prefill {
    fn new(
        plan: Arc<Plan>,
        (main, io): (&Plan, &Io),
        pool: &Arc<Pool>,
        kinds: &[(String, String)],
    ) -> Result<Self, EngineError> {
        let states = main.states();
        let own = Io::of_prefill(&plan, io, states, kinds)?;
        let at = |name: &str| states.iter().position(|s| *s.name == *name).unwrap_or(0);
        let order: Vec<usize> = plan.states().iter().map(|s| at(&s.name)).collect();
        let mut back = vec![0; order.len()];
        order
            .iter()
            .enumerate()
            .for_each(|(i, &from)| back[from] = i);
        Ok(Self {
            executor: Executor::new(plan, pool.clone()),
            io: own,
            order,
            back,
        })
    }
}

impl Engine for SequentialEngine {
    fn feed(
        &mut self,
        tokens: &[Token],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, EngineError> {
        check_room(self.history.len(), tokens.len(), self.options.max_context)?;
        let mut done = 0;
        while done < tokens.len() && !cancelled() {
            let left = tokens.len() - done;
            let n = self.next_chunk(tokens.len(), left);
            // The last token's logits come from the main function.
            let held_back = self.prefill.is_some() && left > 1;
            let n = if held_back { n.min(left - 1) } else { n };
            let part = &tokens[done..done + n];
            if held_back {
                self.fill(part)?;
            } else {
                self.call(part)?;
            }
            done += n;
        }
        Ok(done)
    }

    fn logits(&self) -> Logits<'_> {
        let view = self
            .row
            .and_then(|row| Some((self.executor.output(&self.io.logits)?, row)));
        view.and_then(|(view, row)| Logits::of(&view, row))
            .unwrap_or_default()
    }

    fn history(&self) -> &[Token] {
        &self.history
    }

    fn rewind(&mut self, to: usize) -> Result<(), EngineError> {
        let held = self.history.len();
        check_held(to, held)?;
        let refused = |reason: String| Err(EngineError::Rewind { to, reason });
        if to == 0 {
            self.clear();
            return Ok(());
        }
        match self.capabilities().rewinding {
            _ if to == held => {}
            Rewinding::Anywhere => {}
            Rewinding::Within(n) if held <= n => {}
            Rewinding::Within(n) => {
                return refused(format!("a cache holds the last {n} of {held} tokens only"));
            }
            Rewinding::ToTheStart => {
                return refused("a state of this model cannot be taken back".into());
            }
        }
        self.history.truncate(to);
        Ok(())
    }

    fn limit(&self) -> usize {
        self.options.max_context
    }

    fn capabilities(&self) -> Capabilities {
        let fixed = self.io.states.iter().any(|s| s.kind == StateKind::Fixed);
        Capabilities {
            logits: true,
            forced_continuation: true,
            rewinding: match self.ring() {
                _ if fixed => Rewinding::ToTheStart,
                Some(n) => Rewinding::Within(n),
                None => Rewinding::Anywhere,
            },
            unbounded: false,
        }
    }

    fn threads(&self) -> usize {
        self.executor.pool().threads()
    }

    fn state_bytes(&self) -> usize {
        self.states.size()
    }

    fn snapshot(&self) -> Snapshot {
        let plan = self.executor.plan();
        let states = plan.states().iter().zip(&self.io.states).enumerate();
        let states = states.map(|(index, (state, role))| {
            let held = held_state(&self.states, index, role, self.history.len());
            (state.name.to_string(), held)
        });
        Snapshot::new(&self.history, states.collect())
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        let held = snapshot.tokens().len();
        if held > self.options.max_context {
            let limit = self.options.max_context;
            let reason = format!("it holds {held} tokens, this engine at most {limit}");
            return Err(EngineError::Snapshot(reason));
        }
        let plan = self.executor.plan().clone();
        let found = snapshot.check(&typed(plan.states()), &self.io.states)?;
        self.clear();
        self.make_room(held)?;
        for (index, (role, state)) in self.io.states.iter().zip(found).enumerate() {
            put_state(&mut self.states, index, role, state);
        }
        self.history.extend_from_slice(snapshot.tokens());
        self.row = None;
        Ok(())
    }
}

/// The tensors of a call, in memory that is kept.
#[derive(Debug, Default)]
struct Inputs {
    ids: Vec<i32>,
    positions: Vec<i32>,
    mask: Vec<u8>,
    /// Tokens before the call, and where its positions end.
    from: usize,
    to: usize,
}

impl Inputs {
    /// Writes the tensors for tokens behind `held` others. A function that takes a fixed number of tokens gets padding behind them.
    fn fill(&mut self, tokens: &[Token], held: usize, io: &Io) -> Result<(), EngineError> {
        let taken = io.fixed_query.unwrap_or(tokens.len()).max(tokens.len());
        if taken > tokens.len() && !io.only_caches() {
            let reason = format!(
                "it takes {taken} tokens at a time and has a state that padding would spoil; {} were given",
                tokens.len()
            );
            return Err(EngineError::Contract {
                function: "main".into(),
                reason,
            });
        }
        self.ids.clear();
        for &token in tokens {
            let id = i32::try_from(token);
            self.ids.push(id.map_err(|_| EngineError::Token {
                token,
                vocab: 1 << 31,
            })?);
        }
        self.ids.resize(taken, 0);
        (self.from, self.to) = (held, held + taken);
        while self.positions.len() < self.to {
            self.positions.push(self.positions.len() as i32);
        }
        if let Some(mask) = &io.mask {
            self.fill_mask(mask);
        }
        Ok(())
    }

    /// Nothing is added where a position may be seen, minus infinity elsewhere.
    fn fill_mask(&mut self, mask: &MaskInput) {
        self.mask.clear();
        let hidden: &[u8] = match mask.dtype {
            DType::F16 => &f16::NEG_INFINITY.to_le_bytes(),
            DType::BF16 => &bf16::NEG_INFINITY.to_le_bytes(),
            _ => &f32::NEG_INFINITY.to_le_bytes(),
        };
        for query in self.from..self.to {
            for position in 0..self.to {
                let seen = position <= query;
                self.mask
                    .extend(hidden.iter().map(|b| if seen { 0 } else { *b }));
            }
        }
    }

    fn run(&self, io: &Io, executor: &mut Executor, states: &mut States) -> Result<(), RunError> {
        let first = if io.new_positions { self.from } else { 0 };
        let (q, positions) = ([1, self.ids.len()], [1, self.to - first]);
        let tokens = Input {
            name: &io.tokens,
            dtype: DType::I32,
            shape: &q,
            data: bytes_of(&self.ids),
        };
        let positions = Input {
            name: &io.positions,
            dtype: DType::I32,
            shape: &positions,
            data: bytes_of(&self.positions[first..self.to]),
        };
        let Some(mask) = &io.mask else {
            return executor.run(&[tokens, positions], states);
        };
        let shape = [1, 1, q[1], self.to];
        let mask = Input {
            name: &mask.name,
            dtype: mask.dtype,
            shape: &shape[4 - mask.rank..],
            data: &self.mask,
        };
        executor.run(&[tokens, positions, mask], states)
    }
}
