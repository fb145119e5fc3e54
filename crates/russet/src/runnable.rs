//! A program ready to run: its functions planned for the engine that its structure chooses, shared by all engines over it.

use std::sync::Arc;

use russet_graph::exec::{CacheKind, Plan, PlanOptions, Precision};
use russet_graph::graph::{Block, Graph, Module};
use russet_graph::ops::Op;
use russet_graph::types::{DType, Type};
use russet_graph::verify::verify;
use russet_kernels::threads::Pool;

use crate::bundle::{AnemllBundle, LanguageConfig};
use crate::coreml;
use crate::engine::{
    AnemllEngine, Chain, Engine, EngineError, EngineOptions, EngineVariant, KvCacheStrategy,
    Ladder, ModelStructure, SequentialEngine, StaticShapeEngine, Windowed,
};
use crate::open::{Error, OpenOptions};

/// The function that only fills states, where a dynamic model has it (F 10).
const PREFILL: &str = "prefill";

/// How the functions are planned.
#[derive(Clone, Debug)]
enum Functions {
    /// One takes any number of tokens; another may fill the states only.
    Dynamic {
        main: Arc<Plan>,
        prefill: Option<Arc<Plan>>,
    },
    /// Many take fixed numbers of tokens.
    Static(Arc<Ladder>),
    /// Several models, one after another.
    Chain(Arc<Chain>),
}

/// See the module page.
#[derive(Debug)]
pub(crate) struct Runnable {
    pub(crate) module: Arc<Module>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) variant: EngineVariant,
    functions: Functions,
    options: EngineOptions,
}

impl Runnable {
    /// Plans a module whose main function is called `main`, which takes at most `context` tokens.
    pub(crate) fn new(
        module: Module,
        main: &str,
        context: usize,
        options: &OpenOptions,
    ) -> Result<Self, Error> {
        verify(&module)?;
        let names: Vec<&str> = module.functions().map(|g| &*g.name).collect();
        let structure = ModelStructure::of(&names, main);
        if structure == ModelStructure::Unknown {
            return Err(Error::Missing(format!(
                "the program has no function {main:?}; it has {}",
                names.join(", ")
            )));
        }
        let variant = EngineVariant::select(structure, options.variant)?;
        let pool = Arc::new(Pool::new(options.threads));
        let functions = match variant {
            EngineVariant::StaticShape => {
                let ladder = Ladder::new(&module, options, pool.clone())?;
                Functions::Static(Arc::new(ladder))
            }
            EngineVariant::Sequential | EngineVariant::Pipelined => {
                let plan = |name: &str| {
                    let options = plan_options(&module, name, options, &pool);
                    Plan::build(&module, name, &options).map(Arc::new)
                };
                let prefill = names.contains(&PREFILL);
                Functions::Dynamic {
                    main: plan(main)?,
                    prefill: prefill.then(|| plan(PREFILL)).transpose()?,
                }
            }
        };
        check_caches(&functions, options)?;
        let mut this = Self {
            module: Arc::new(module),
            pool,
            variant,
            functions,
            options: EngineOptions::new(context),
        };
        this.set(context, options);
        Ok(this)
    }

    /// Plans the parts of a model in ANEMLL's layout, joined to one module.
    pub(crate) fn of_parts(
        module: Module,
        bundle: &AnemllBundle,
        options: &OpenOptions,
    ) -> Result<Self, Error> {
        verify(&module)?;
        if !matches!(options.variant, None | Some(EngineVariant::StaticShape)) {
            let reason = "the functions of Core ML packages have fixed shapes";
            return Err(EngineError::VariantMismatch(reason).into());
        }
        let pool = Arc::new(Pool::new(options.threads));
        let chain = coreml::chain(&module, bundle, options, &pool)?;
        let context = chain.context;
        let functions = Functions::Chain(Arc::new(chain));
        check_caches(&functions, options)?;
        let mut this = Self {
            module: Arc::new(module),
            pool,
            variant: EngineVariant::StaticShape,
            functions,
            options: EngineOptions::new(context),
        };
        this.set(context, options);
        Ok(this)
    }

    /// What the caller says of caches and chunks. The context is what the model says, what the caller wants, and what static caches
    /// hold, whichever is least.
    fn set(&mut self, context: usize, options: &OpenOptions) {
        let held = match &self.functions {
            Functions::Dynamic { main, .. } => held(main).unwrap_or(usize::MAX),
            Functions::Static(ladder) => ladder.context(),
            Functions::Chain(chain) => chain.context,
        };
        let wanted = options.max_context.unwrap_or(context);
        let of = &mut self.options;
        of.max_context = wanted.min(context).min(held);
        of.kv_cache = options.kv_cache;
        of.kv_capacity = options.kv_capacity;
        of.attention_sinks = options.attention_sinks.unwrap_or(of.attention_sinks);
        self.chunks(options.chunk, options.chunk_threshold);
    }

    /// Chunks of a prompt, where something is said of them.
    fn chunks(&mut self, size: Option<usize>, threshold: Option<usize>) {
        let of = &mut self.options;
        if let Some(size) = size {
            (of.chunk, of.chunk_threshold) = (size.max(1), 2 * size.max(1));
        }
        if let Some(threshold) = threshold {
            of.chunk_threshold = threshold;
        }
    }

    /// What the bundle says of states and chunks; of the latter the caller's word goes first.
    pub(crate) fn configure(&mut self, language: &LanguageConfig, options: &OpenOptions) {
        self.options.states.clone_from(&language.states);
        if options.chunk.is_none() && options.chunk_threshold.is_none() {
            self.chunks(
                language.prefill_chunk_size,
                language.prefill_chunk_threshold,
            );
        }
    }

    /// The most tokens that an engine over it holds; `None` where the oldest are forgotten instead.
    pub(crate) fn context(&self) -> usize {
        self.options.max_context
    }

    /// The plan of a dynamic model's main function.
    pub(crate) fn plan(&self) -> Option<&Arc<Plan>> {
        match &self.functions {
            Functions::Dynamic { main, .. } => Some(main),
            Functions::Static(_) | Functions::Chain(_) => None,
        }
    }

    /// Entries of the vocabulary, as the logits have them.
    pub(crate) fn vocabulary(&self, main: &str) -> usize {
        if let Functions::Chain(chain) = &self.functions {
            return chain.vocabulary().unwrap_or(usize::MAX);
        }
        let extends = |g: &&Graph| g.name.starts_with("extend");
        let graph = self.module.graph(main);
        let graph = graph.or_else(|| self.module.functions().find(extends));
        let ty = graph.and_then(|g| {
            let name = crate::engine::logits_of(g)?;
            g.outputs.iter().find(|o| *o.name == *name)?.ty.as_tensor()
        });
        let extent = ty.and_then(|t| t.shape.last()?.as_const());
        extent
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(usize::MAX)
    }

    /// A new engine with empty caches.
    pub(crate) fn engine(&self) -> Result<Box<dyn Engine>, EngineError> {
        let engine: Box<dyn Engine> = match &self.functions {
            Functions::Dynamic { .. } => Box::new(self.sequential()?),
            _ if self.options.kv_cache == KvCacheStrategy::Growing => {
                return Err(EngineError::Strategy {
                    strategy: "growing",
                    reason:
                        "the model's functions fix the length of its caches; use auto or fixed_size"
                            .into(),
                });
            }
            Functions::Chain(_) => Box::new(self.anemll()?),
            Functions::Static(ladder) => Box::new(StaticShapeEngine::new(
                ladder.clone(),
                self.options.max_context,
            )?),
        };
        Ok(match self.options.kv_cache {
            KvCacheStrategy::Chunked => {
                Box::new(Windowed::new(engine, self.options.attention_sinks)?)
            }
            _ => engine,
        })
    }

    /// The engine of a model in parts itself, without a window.
    pub(crate) fn anemll(&self) -> Result<AnemllEngine, EngineError> {
        match &self.functions {
            Functions::Chain(chain) => AnemllEngine::new(chain.clone(), self.options.max_context),
            _ => Err(EngineError::VariantMismatch("the model is not in parts")),
        }
    }

    /// The engine of a dynamic model itself, without a window.
    pub(crate) fn sequential(&self) -> Result<SequentialEngine, EngineError> {
        let Functions::Dynamic { main, prefill } = &self.functions else {
            return Err(EngineError::VariantMismatch(
                "Sequential variant requires dynamic model",
            ));
        };
        SequentialEngine::new(
            main.clone(),
            prefill.clone(),
            self.pool.clone(),
            self.options.clone(),
        )
    }
}

/// Fails where caches of eight bits were asked for and there are none.
fn check_caches(functions: &Functions, options: &OpenOptions) -> Result<(), EngineError> {
    let refused = |reason: &str| {
        Err(EngineError::Strategy {
            strategy: "int8",
            reason: reason.into(),
        })
    };
    if options.kv_cache_kind == CacheKind::Given {
        return Ok(());
    }
    if options.precision == Precision::Exact {
        return refused("exact precision keeps what the file says; use fast precision");
    }
    let main = match functions {
        Functions::Dynamic { main, .. } => main.clone(),
        Functions::Static(ladder) => ladder.first()?,
        Functions::Chain(_) => {
            return refused("the graphs of Core ML packages read their caches themselves");
        }
    };
    if main.states().iter().any(|s| s.ty.dtype == DType::I8) {
        return Ok(());
    }
    refused("the model has no caches that nothing but attention reads")
}

/// How many tokens the caches of a plan hold, where it fixes that.
pub(crate) fn held(plan: &Plan) -> Option<usize> {
    let caches = plan.states().iter().filter(|s| {
        let name = s.name.to_ascii_lowercase();
        s.ty.rank() == 5 && name.contains("cache") && !name.contains("sliding")
    });
    let extents = caches.filter_map(|s| s.ty.shape[3].as_const());
    extents.filter_map(|n| usize::try_from(n).ok()).min()
}

pub(crate) fn plan_options(
    module: &Module,
    function: &str,
    options: &OpenOptions,
    pool: &Arc<Pool>,
) -> PlanOptions {
    let graph = module.graph(function);
    // The last row is not the last token's where tokens are padded.
    let padded = graph.is_some_and(crate::engine::pads);
    let logits = graph.and_then(crate::engine::logits_of);
    let mut plan = PlanOptions::default();
    plan.precision = options.precision;
    plan.repack = !options.no_repack;
    plan.pool = Some(pool.clone());
    plan.caches = options.kv_cache_kind;
    plan.sums = coreml::sums(module);
    plan.last_row_of = logits.filter(|_| !options.all_logits && !padded);
    plan
}

/// A number that tells programs apart: of their ports, their operations, and some bytes of every constant (FNV-1a).
pub(crate) fn digest(module: &Module) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for graph in &module.graphs {
        hash.add(graph.name.as_bytes());
        for port in graph.inputs.iter().chain(&graph.outputs) {
            hash.add(port.name.as_bytes());
            hash.ty(&port.ty);
        }
        hash.block(&graph.body);
    }
    hash.0
}

struct Fnv(u64);

impl Fnv {
    /// Bytes of a constant that are looked at.
    const SAMPLE: usize = 64;

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn ty(&mut self, ty: &Type) {
        self.add(ty.to_string().as_bytes());
    }

    fn block(&mut self, block: &Block) {
        for node in &block.nodes {
            self.add(node.op.name().as_bytes());
            if let Op::Constant(constant) = &node.op {
                let bytes = constant.0.storage.bytes();
                let from = bytes.len() / 2 - (bytes.len() / 2).min(Self::SAMPLE / 2);
                self.add(constant.0.ty.to_string().as_bytes());
                self.add(&bytes[from..bytes.len().min(from + Self::SAMPLE)]);
            }
            node.blocks.iter().for_each(|b| self.block(b));
        }
    }
}

#[cfg(test)]
mod tests;
