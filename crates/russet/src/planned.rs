//! How a function is planned, what each step has to do, and how long it takes: what `russet inspect --plan` shows.
//!
//! A call has lengths: of a language model the tokens it takes and those held before. Nothing is computed to say what the
//! steps are; with [`PlanQuery::runs`] the function is called on made-up inputs behind made-up contexts, which takes as long as real ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use russet_graph::exec::{Executor, Input, Plan, Precision, RunError, States, StepWork};
use russet_graph::graph::Module;
use russet_graph::types::{DType, Dim, TensorType};
use russet_graph::verify::verify;
use russet_kernels::isa::Isa;
use russet_kernels::mem::bytes_of;
use russet_kernels::threads::Pool;

use crate::engine::{EngineError, Io};
use crate::open::{Error, OpenOptions};
use crate::runnable::{held, plan_options};

/// What to plan, for which call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanQuery {
    /// Tokens of the call; any extent that other functions leave open.
    pub tokens: usize,
    /// Tokens before them; 512, or what the context has room for, where nothing is said.
    pub depth: Option<usize>,
    /// Calls to be timed; 0 to plan only.
    pub runs: usize,
    /// How the function is planned and run.
    pub open: OpenOptions,
}

impl Default for PlanQuery {
    /// One token behind some, planned only.
    fn default() -> Self {
        Self {
            tokens: 1,
            depth: None,
            runs: 0,
            open: OpenOptions::default(),
        }
    }
}

/// A function that has been planned.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Planned {
    /// Its name.
    pub function: String,
    /// Whether it takes tokens and positions and gives logits.
    pub is_language_model: bool,
    /// Whether an input has extents that the graph leaves open.
    pub is_open: bool,
    /// Tokens of the call, or any extent that another function leaves open.
    pub tokens: usize,
    /// Tokens before them.
    pub depth: usize,
    /// Threads.
    pub threads: usize,
    /// The instruction set.
    pub isa: &'static str,
    /// How closely the file's arithmetic is followed.
    pub precision: Precision,
    /// What every step has to do, in order.
    pub steps: Vec<StepWork>,
    /// The mean time of every step; empty without runs.
    pub times: Vec<Duration>,
    /// The mean time of a call, with what is done between steps; zero without runs.
    pub call: Duration,
}

/// Plans a function of a verified module, and times it where asked to.
///
/// # Errors
/// [`Error::Plan`] where it cannot be planned, [`Error::Engine`] where it cannot be called so.
pub fn planned(module: &Module, function: &str, query: &PlanQuery) -> Result<Planned, Error> {
    verify(module)?;
    let pool = Arc::new(Pool::new(query.open.threads));
    let options = plan_options(module, function, &query.open, &pool);
    let plan = Arc::new(Plan::build(module, function, &options)?);
    let lengths = Lengths::of(&plan, query)?;
    let steps = plan.work(|port, _| lengths.open(port)).map_err(run)?;
    let mut planned = Planned {
        function: function.into(),
        is_language_model: !lengths.whole.is_empty(),
        is_open: plan.inputs().any(|(_, ty)| is_open(ty)),
        tokens: lengths.tokens,
        depth: lengths.total - lengths.tokens,
        threads: pool.threads(),
        isa: Isa::best().name(),
        precision: query.open.precision,
        steps,
        times: Vec::new(),
        call: Duration::ZERO,
    };
    if query.runs > 0 {
        let vocabulary = vocabulary(module, function);
        let mut call = Call::new(&plan, pool, &lengths, vocabulary)?;
        (planned.times, planned.call) = call.timed(query.runs)?;
    }
    Ok(planned)
}

fn run(error: RunError) -> Error {
    Error::Engine(error.into())
}

/// Entries of a row of logits; 1 where that is not known.
fn vocabulary(module: &Module, function: &str) -> usize {
    let outputs = module.graph(function).map(|g| &g.outputs[..]);
    let ty = outputs.and_then(|o| o.first()?.ty.as_tensor());
    let extent = ty.and_then(|t| t.shape.last()?.as_const());
    extent.and_then(|n| usize::try_from(n).ok()).unwrap_or(1)
}

/// Tokens before those of a call, where nothing else is said.
const DEPTH: usize = 512;

fn is_open(ty: &TensorType) -> bool {
    ty.shape.iter().any(|d| d.as_const().is_none())
}

/// The extents of one call.
struct Lengths {
    tokens: usize,
    total: usize,
    /// The ports of a language model whose extents count all tokens: positions and states.
    whole: Vec<String>,
}

impl Lengths {
    fn of(plan: &Plan, query: &PlanQuery) -> Result<Self, Error> {
        let io = Io::of(plan, &[]).ok();
        let fixed = io.as_ref().and_then(|io| io.fixed_query);
        let tokens = fixed.unwrap_or(query.tokens).max(1);
        let limit = held(plan.states().iter().map(|s| (&*s.name, &s.ty))).unwrap_or(usize::MAX);
        let room = limit.checked_sub(tokens);
        let depth = match (query.depth, room) {
            (Some(depth), Some(room)) if depth <= room => depth,
            (None, Some(room)) => DEPTH.min(room),
            (depth, _) => {
                return Err(Error::Engine(EngineError::ContextFull {
                    position: depth.unwrap_or(0),
                    new: tokens,
                    limit,
                }));
            }
        };
        let states = plan.states().iter().map(|s| s.name.to_string());
        let whole = io.map(|io| states.chain([io.positions]).collect());
        Ok(Self {
            tokens,
            total: depth + tokens,
            whole: whole.unwrap_or_default(),
        })
    }

    /// The extent of an axis that the graph leaves open.
    fn open(&self, port: &str) -> usize {
        match self.whole.iter().any(|w| w == port) {
            true => self.total,
            false => self.tokens,
        }
    }

    fn shape(&self, port: &str, ty: &TensorType) -> Vec<usize> {
        let extent = |d: &Dim| match d.as_const() {
            Some(n) => usize::try_from(n).unwrap_or(0),
            None => self.open(port),
        };
        ty.shape.iter().map(extent).collect()
    }
}

/// A made-up call: tokens all over the vocabulary at the positions they would have, zeros for anything else.
struct Call {
    executor: Executor,
    states: States,
    inputs: Vec<Given>,
}

/// One input of the call.
struct Given {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Given {
    fn input(&self) -> Input<'_> {
        Input {
            name: &self.name,
            dtype: self.dtype,
            shape: &self.shape,
            data: &self.data,
        }
    }
}

impl Call {
    fn new(
        plan: &Arc<Plan>,
        pool: Arc<Pool>,
        lengths: &Lengths,
        vocab: usize,
    ) -> Result<Self, Error> {
        let io = Io::of(plan, &[]).ok();
        let mut inputs = Vec::new();
        for (name, ty) in plan.inputs() {
            let shape = lengths.shape(name, ty);
            let n: usize = shape.iter().product();
            let numbers = |f: &dyn Fn(usize) -> usize| {
                let values: Vec<i32> = (0..n).map(|i| f(i) as i32).collect();
                bytes_of(&values).to_vec()
            };
            let data = match &io {
                Some(io) if io.tokens == name => numbers(&|i| i * 7919 % vocab.max(1)),
                Some(io) if io.positions == name => numbers(&|i| i),
                _ => vec![0; ty.dtype.packed_len(n).unwrap_or(0)],
            };
            inputs.push(Given {
                name: name.to_owned(),
                dtype: ty.dtype,
                shape,
                data,
            });
        }
        let states = States::new(plan, |name, _| lengths.open(name)).map_err(run)?;
        Ok(Self {
            executor: Executor::new(plan.clone(), pool),
            states,
            inputs,
        })
    }

    fn once(&mut self) -> Result<(), Error> {
        let inputs: Vec<Input<'_>> = self.inputs.iter().map(Given::input).collect();
        self.executor.run(&inputs, &mut self.states).map_err(run)
    }

    /// The mean time of every step and of a call, after one that warms up.
    fn timed(&mut self, runs: usize) -> Result<(Vec<Duration>, Duration), Error> {
        self.once()?;
        self.executor.start_profile();
        let start = Instant::now();
        for _ in 0..runs {
            self.once()?;
        }
        let runs = u32::try_from(runs).unwrap_or(u32::MAX);
        let call = start.elapsed() / runs;
        let steps = self.executor.profile().iter();
        Ok((steps.map(|t| *t / runs).collect(), call))
    }
}
