//! The functions of a chunked static model (contract B §5.5): for every pair of a context and a number of queries one that extends the caches
//! and returns logits, one that only fills them, and one that gathers the embeddings. Which runs when is decided here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use russet_graph::exec::{Plan, PlanOptions};
use russet_graph::graph::{ConstantData, Graph, Module, Storage};
use russet_graph::ops::Op;
use russet_graph::passes::bind_input;
use russet_graph::types::Type;
use russet_kernels::threads::Pool;

use super::EngineError;
use crate::call::Function;
use crate::open::OpenOptions;

/// The function that gives the embedding table, its result, and the input that takes it.
const LOAD: &str = "load_embeddings";
const TABLE: &str = "embedding_table";
/// What names of the other functions begin with.
const EXTEND: &str = "extend";
const PROMPT: &str = "prompt";
const GATHER: &str = "gather_embeddings";

/// What a function of the ladder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Fills the caches and returns logits.
    Extend,
    /// Fills the caches.
    Prompt,
}

/// A function of the ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rung {
    pub(crate) purpose: Purpose,
    pub(crate) name: String,
    pub(crate) context: usize,
    pub(crate) queries: usize,
}

impl Rung {
    /// `extend_<context>_<queries>`, `prompt_opt_<context>_<queries>`; `None` for other names.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let purpose = match name {
            _ if name.starts_with(EXTEND) => Purpose::Extend,
            _ if name.starts_with(PROMPT) => Purpose::Prompt,
            _ => return None,
        };
        let mut parts = name.rsplit('_').map(str::parse);
        let (Some(Ok(queries)), Some(Ok(context))) = (parts.next(), parts.next()) else {
            return None;
        };
        (queries > 0 && context >= queries).then(|| Self {
            purpose,
            name: name.into(),
            context,
            queries,
        })
    }

    /// The first position that a call behind `held` tokens computes: calls begin at multiples of the queries, and the tokens
    /// between are computed again.
    pub(crate) fn start(&self, held: usize) -> usize {
        held / self.queries * self.queries
    }
}

/// The function for the next call, with `held` tokens behind it and `left` to go: of the fewest queries that are enough, else of
/// the most; of the smallest context that has room. Prompts longer than any number of queries are filled in first.
pub(crate) fn select(rungs: &[Rung], held: usize, left: usize) -> Option<&Rung> {
    let most = rungs.iter().map(|r| r.queries).max()?;
    let fill = left > most
        && rungs
            .iter()
            .any(|r| r.purpose == Purpose::Prompt && r.context > held);
    let purpose = if fill {
        Purpose::Prompt
    } else {
        Purpose::Extend
    };
    let fits = rungs
        .iter()
        .filter(|r| r.purpose == purpose && r.context > held);
    let enough = fits.clone().filter(|r| r.queries >= left);
    let queries = enough.map(|r| r.queries).min();
    let queries = queries.or_else(|| fits.clone().map(|r| r.queries).max())?;
    fits.filter(|r| r.queries == queries)
        .min_by_key(|r| r.context)
}

/// See the module page. Functions are planned when they are first needed, once for all engines.
#[derive(Debug)]
pub struct Ladder {
    module: Module,
    pub(crate) rungs: Vec<Rung>,
    /// Queries of a `gather_embeddings` function, and its name.
    gathers: Vec<(usize, String)>,
    options: PlanOptions,
    pool: Arc<Pool>,
    plans: Mutex<HashMap<String, Arc<Plan>>>,
}

impl Ladder {
    /// The ladder of a module that verifies. The embeddings are loaded here, once.
    ///
    /// # Errors
    /// [`EngineError::Contract`] where the functions do not make one.
    pub fn new(
        module: &Module,
        options: &OpenOptions,
        pool: Arc<Pool>,
    ) -> Result<Self, EngineError> {
        let broken = |function: &str, reason: &str| EngineError::Contract {
            function: function.into(),
            reason: reason.into(),
        };
        let names = || module.functions().map(|g| &*g.name);
        let gather = |name: &str| {
            let queries = name.strip_prefix(GATHER)?.strip_prefix('_')?.parse();
            Some((queries.ok()?, name.to_owned()))
        };
        let gathers: Vec<(usize, String)> = names().filter_map(gather).collect();
        let mut rungs: Vec<Rung> = names().filter_map(Rung::parse).collect();
        rungs.retain(|r| gathers.iter().any(|(q, _)| *q == r.queries));
        if !rungs.iter().any(|r| r.purpose == Purpose::Extend) {
            return Err(broken(
                EXTEND,
                "there is no extend_<context>_<queries> with a gather_embeddings_<queries>",
            ));
        }
        let mut module = module.clone();
        let table = load(&module).map_err(|e| broken(LOAD, &e))?;
        for graph in &mut module.graphs {
            bind_input(graph, TABLE, &table);
        }
        let mut plan = PlanOptions::default();
        plan.precision = options.precision;
        plan.caches = options.kv_cache_kind;
        plan.pool = Some(pool.clone());
        Ok(Self {
            module,
            rungs,
            gathers,
            options: plan,
            pool,
            plans: Mutex::default(),
        })
    }

    /// The most tokens that any function has room for.
    pub fn context(&self) -> usize {
        let extend = self.rungs.iter().filter(|r| r.purpose == Purpose::Extend);
        extend.map(|r| r.context).max().unwrap_or(0)
    }

    /// The threads.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The plan of the function that a conversation begins with.
    pub(crate) fn first(&self) -> Result<Arc<Plan>, EngineError> {
        let rung = select(&self.rungs, 0, 1).ok_or(EngineError::Empty)?;
        self.plan(&rung.name)
    }

    /// The function that gathers the embeddings of this many tokens.
    pub(crate) fn gather(&self, queries: usize) -> Option<&str> {
        let found = self.gathers.iter().find(|(q, _)| *q == queries);
        found.map(|(_, name)| name.as_str())
    }

    pub(crate) fn graph(&self, name: &str) -> Option<&Graph> {
        self.module.graph(name)
    }

    /// The plan of a function.
    pub(crate) fn plan(&self, name: &str) -> Result<Arc<Plan>, EngineError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(name) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::build(&self.module, name, &self.options)?);
        plans.insert(name.into(), plan.clone());
        Ok(plan)
    }

    /// The axis of a state that positions are counted along: where functions of two contexts differ, else the last one that is as
    /// long as the context. `None` for states that are no caches.
    pub(crate) fn axis(&self, state: &str) -> Option<usize> {
        let shapes = self
            .rungs
            .iter()
            .filter_map(|r| Some((r.context, shape(self.graph(&r.name)?, state)?)));
        let shapes: Vec<(usize, Vec<usize>)> = shapes.collect();
        let (context, first) = shapes.first()?;
        let counts = |axis: &usize| shapes.iter().all(|(c, s)| s.get(*axis) == Some(c));
        (0..first.len())
            .rev()
            .filter(|axis| first[*axis] == *context)
            .find(counts)
    }
}

/// The extents of a state of a function.
fn shape(graph: &Graph, state: &str) -> Option<Vec<usize>> {
    let port = graph.inputs.iter().find(|p| *p.name == *state)?;
    match &port.ty {
        Type::Handle(ty) => ty.fixed_shape(),
        _ => None,
    }
}

/// The result of `load_embeddings`: the constant that it returns, or what a call of it gives.
fn load(module: &Module) -> Result<Arc<ConstantData>, String> {
    let graph = module.graph(LOAD).ok_or("there is no such function")?;
    if let Some(constant) = returned(graph) {
        return Ok(constant);
    }
    let function = Function::new(Arc::new(module.clone()), LOAD, 1);
    let mut function = function.map_err(|e| e.to_string())?;
    let results = function.call(&[], &[]).map_err(|e| e.to_string())?;
    let (_, table) = results
        .outputs
        .into_iter()
        .next()
        .ok_or("it returns nothing")?;
    Ok(Arc::new(ConstantData {
        ty: table.ty(),
        storage: Storage::Dense(table.bytes().clone()),
    }))
}

/// The constant that a graph hands back, as it is or copied to another place.
fn returned(graph: &Graph) -> Option<Arc<ConstantData>> {
    let mut value = *graph.body.results.first()?;
    loop {
        let node = graph
            .body
            .nodes
            .iter()
            .find(|n| n.outputs.contains(&value))?;
        match &node.op {
            Op::Constant(constant) => return Some(constant.0.clone()),
            op if op.name().starts_with("copy_") => value = *node.inputs.first()?,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ladder of an exporter: contexts doubling from 256, queries of 8, 16 and 64.
    fn rungs(contexts: &[usize]) -> Vec<Rung> {
        let mut all = Vec::new();
        for context in contexts {
            for queries in [8, 16, 64] {
                for purpose in ["extend", "prompt_opt"] {
                    all.extend(Rung::parse(&format!("{purpose}_{context}_{queries}")));
                }
            }
        }
        all
    }

    fn chosen(contexts: &[usize], held: usize, left: usize) -> Option<String> {
        select(&rungs(contexts), held, left).map(|r| r.name.clone())
    }

    #[test]
    fn the_table_of_selections() {
        let (one, two) = (&[256][..], &[256, 512][..]);
        for (contexts, held, left, want) in [
            (two, 0, 1, Some("extend_256_8")),
            (two, 0, 8, Some("extend_256_8")),
            (two, 0, 9, Some("extend_256_16")),
            (two, 0, 17, Some("extend_256_64")),
            (two, 0, 64, Some("extend_256_64")),
            (two, 0, 65, Some("prompt_opt_256_64")),
            (two, 0, 10_000, Some("prompt_opt_256_64")),
            (two, 255, 1, Some("extend_256_8")),
            (two, 256, 1, Some("extend_512_8")),
            (two, 300, 100, Some("prompt_opt_512_64")),
            (two, 511, 1, Some("extend_512_8")),
            (two, 512, 1, None),
            (one, 256, 1, None),
            (&[], 0, 1, None),
        ] {
            let got = chosen(contexts, held, left);
            assert_eq!(got.as_deref(), want, "{held} held, {left} left");
        }
    }

    #[test]
    fn other_names_are_no_rungs() {
        for name in [
            "main",
            "extend",
            "extend_256",
            "extend_8_256",
            "extend_256_0",
            "gather_embeddings_8",
            "extend_a_b",
        ] {
            assert_eq!(Rung::parse(name), None, "{name}");
        }
        let without: Vec<Rung> = Rung::parse("extend_256_16").into_iter().collect();
        let rung = select(&without, 0, 1000).unwrap();
        assert_eq!((rung.purpose, rung.queries), (Purpose::Extend, 16));
    }

    #[test]
    fn every_prompt_fits_whatever_is_held() {
        let rungs = rungs(&[256, 512]);
        for held in 0..512 {
            for left in [1, 7, 8, 9, 63, 64, 65, 400] {
                let rung = select(&rungs, held, left).unwrap();
                let start = rung.start(held);
                assert!(start <= held && held < start + rung.queries);
                assert!(
                    start + rung.queries <= rung.context,
                    "{held} {left} {rung:?}"
                );
            }
        }
    }
}
