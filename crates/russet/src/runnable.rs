//! A program ready to run: its functions planned for the engine that its structure chooses, shared by all engines over it.

use std::sync::{Arc, Mutex, PoisonError};

use russet_graph::exec::{CacheKind, Plan, PlanOptions, Precision};
use russet_graph::graph::{Block, Graph, Module};
use russet_graph::ops::Op;
use russet_graph::types::{DType, TensorType, Type};
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

/// The end of names of functions for single tokens, of models in parts.
const INFER: &str = ".infer";

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
    main: String,
    wanted: OpenOptions,
    options: EngineOptions,
    /// Of a model in ANEMLL's layout, its files, and the entries of its vocabulary.
    parts: Option<(AnemllBundle, usize)>,
    /// Plans with their packed weights, while they are loaded. Engines keep those that they were made with.
    functions: Mutex<Option<Functions>>,
}

impl Runnable {
    /// A module whose main function is called `main`, which takes at most `context` tokens. Its functions are planned now, or when
    /// they are first needed.
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
        let held = match variant {
            EngineVariant::StaticShape => Ladder::new(&module, options, pool.clone())?.context(),
            _ => module
                .graph(main)
                .and_then(|g| held(states(g)))
                .unwrap_or(usize::MAX),
        };
        let mut this = Self {
            module: Arc::new(module),
            pool,
            variant,
            main: main.into(),
            wanted: options.clone(),
            options: EngineOptions::new(context),
            parts: None,
            functions: Mutex::new(None),
        };
        this.set(context.min(held), options);
        if !options.lazy {
            this.functions()?;
        }
        Ok(this)
    }

    /// The parts of a model in ANEMLL's layout, joined to one module.
    pub(crate) fn of_parts(
        module: Module,
        bundle: AnemllBundle,
        options: &OpenOptions,
    ) -> Result<Self, Error> {
        verify(&module)?;
        if !matches!(options.variant, None | Some(EngineVariant::StaticShape)) {
            let reason = "the functions of Core ML packages have fixed shapes";
            return Err(EngineError::VariantMismatch(reason).into());
        }
        let pool = Arc::new(Pool::new(options.threads));
        let chain = coreml::chain(&module, &bundle, options, &pool)?;
        let context = chain.context;
        let mut this = Self {
            module: Arc::new(module),
            pool,
            variant: EngineVariant::StaticShape,
            main: String::new(),
            wanted: options.clone(),
            options: EngineOptions::new(context),
            parts: Some((bundle, chain.vocabulary().unwrap_or(usize::MAX))),
            functions: Mutex::new(None),
        };
        this.set(context, options);
        let functions = Functions::Chain(Arc::new(chain));
        check_caches(&functions, options)?;
        // What they are called and how long their caches are is only known of planned functions.
        this.functions = Mutex::new((!options.lazy).then_some(functions));
        Ok(this)
    }

    /// The planned functions: those there are, or new ones. Others who ask meanwhile wait for them; an attempt that failed is
    /// made again.
    fn functions(&self) -> Result<Functions, Error> {
        let mut slot = self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(functions) = &*slot {
            return Ok(functions.clone());
        }
        let functions = self.plan_functions()?;
        check_caches(&functions, &self.wanted)?;
        Ok(slot.insert(functions).clone())
    }

    fn plan_functions(&self) -> Result<Functions, Error> {
        if let Some((bundle, _)) = &self.parts {
            let chain = coreml::chain(&self.module, bundle, &self.wanted, &self.pool)?;
            return Ok(Functions::Chain(Arc::new(chain)));
        }
        if self.variant == EngineVariant::StaticShape {
            let ladder = Ladder::new(&self.module, &self.wanted, self.pool.clone())?;
            return Ok(Functions::Static(Arc::new(ladder)));
        }
        let plan = |name: &str| {
            let options = plan_options(&self.module, name, &self.wanted, &self.pool);
            Plan::build(&self.module, name, &options).map(Arc::new)
        };
        let prefill = self.module.functions().any(|g| &*g.name == PREFILL);
        Ok(Functions::Dynamic {
            main: plan(&self.main)?,
            prefill: prefill.then(|| plan(PREFILL)).transpose()?,
        })
    }

    /// The same with another program.
    pub(crate) fn with_module(&self, module: Module) -> Self {
        Self {
            module: Arc::new(module),
            pool: self.pool.clone(),
            variant: self.variant,
            main: self.main.clone(),
            wanted: self.wanted.clone(),
            options: self.options.clone(),
            parts: self.parts.clone(),
            functions: Mutex::new(None),
        }
    }

    /// Whether several programs run one after another.
    pub(crate) fn in_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// The functions that take single tokens, in the order they run; none where all take several.
    pub(crate) fn main_functions(&self) -> Vec<String> {
        let names = || self.module.functions().map(|g| &*g.name);
        if !self.in_parts() {
            let dynamic = self.variant != EngineVariant::StaticShape;
            return Vec::from_iter(dynamic.then(|| self.main.clone()));
        }
        // Of a part with several functions, the one for single tokens.
        let part = |name: &str| name.split('.').next().map(str::to_owned);
        let alone = |name: &str| names().filter(|n| part(n) == part(name)).count() == 1;
        let single = names().filter(|n| n.ends_with(INFER) || alone(n));
        single.map(str::to_owned).collect()
    }

    /// Plans the functions, unless they are.
    pub(crate) fn load(&self) -> Result<(), Error> {
        self.functions().map(drop)
    }

    /// Whether the functions are planned.
    pub(crate) fn is_loaded(&self) -> bool {
        self.functions.lock().is_ok_and(|f| f.is_some())
    }

    /// Lets go of plans and packed weights; they are freed with the last engine over them.
    pub(crate) fn unload(&self) {
        *self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What the caller says of caches and chunks, within the `context` that the model has.
    fn set(&mut self, context: usize, options: &OpenOptions) {
        let of = &mut self.options;
        of.max_context = options.max_context.unwrap_or(context).min(context);
        of.kv_cache = options.kv_cache;
        of.kv_capacity = options.kv_capacity;
        of.attention_sinks = options.attention_sinks.unwrap_or(of.attention_sinks);
        if let Some(threshold) = options.default_chunk_threshold {
            let size = EngineOptions::CHUNK.min(threshold).max(1);
            (self.options.chunk, self.options.chunk_threshold) = (size, threshold);
        }
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
    pub(crate) fn plan(&self) -> Result<Option<Arc<Plan>>, Error> {
        Ok(match self.functions()? {
            Functions::Dynamic { main, .. } => Some(main),
            Functions::Static(_) | Functions::Chain(_) => None,
        })
    }

    /// Whether a call gives the logits of every token it processes.
    pub(crate) fn makes_all_logits(&self) -> bool {
        let main = self.module.graph(&self.main);
        let open = main.and_then(|g| {
            let name = crate::engine::logits_of(g)?;
            let ty = g
                .outputs
                .iter()
                .find(|o| *o.name == *name)?
                .ty
                .as_tensor()?;
            Some(ty.rank() == 3 && ty.shape[1].as_const().is_none())
        });
        self.wanted.all_logits && open == Some(true)
    }

    /// Entries of the vocabulary, as the logits have them.
    pub(crate) fn vocabulary(&self) -> usize {
        if let Some((_, vocabulary)) = &self.parts {
            return *vocabulary;
        }
        let extends = |g: &&Graph| g.name.starts_with("extend");
        let graph = self.module.graph(&self.main);
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
    pub(crate) fn engine(&self) -> Result<Box<dyn Engine>, Error> {
        let engine: Box<dyn Engine> = match self.functions()? {
            Functions::Dynamic { main, prefill } => Box::new(self.over(main, prefill)?),
            _ if self.options.kv_cache == KvCacheStrategy::Growing => {
                return Err(Error::Engine(EngineError::Strategy {
                    strategy: "growing",
                    reason:
                        "the model's functions fix the length of its caches; use auto or fixed_size"
                            .into(),
                }));
            }
            Functions::Chain(chain) => {
                Box::new(AnemllEngine::new(chain, self.options.max_context)?)
            }
            Functions::Static(ladder) => {
                Box::new(StaticShapeEngine::new(ladder, self.options.max_context)?)
            }
        };
        Ok(match self.options.kv_cache {
            KvCacheStrategy::Chunked => {
                Box::new(Windowed::new(engine, self.options.attention_sinks)?)
            }
            _ => engine,
        })
    }

    /// The engine of a model in parts itself, without a window.
    pub(crate) fn anemll(&self) -> Result<AnemllEngine, Error> {
        match self.functions()? {
            Functions::Chain(chain) => Ok(AnemllEngine::new(chain, self.options.max_context)?),
            _ => Err(EngineError::VariantMismatch("the model is not in parts").into()),
        }
    }

    /// The engine of a dynamic model itself, without a window.
    pub(crate) fn sequential(&self) -> Result<SequentialEngine, Error> {
        match self.functions()? {
            Functions::Dynamic { main, prefill } => Ok(self.over(main, prefill)?),
            _ => Err(Error::Engine(EngineError::VariantMismatch(
                "Sequential variant requires dynamic model",
            ))),
        }
    }

    fn over(
        &self,
        main: Arc<Plan>,
        prefill: Option<Arc<Plan>>,
    ) -> Result<SequentialEngine, EngineError> {
        SequentialEngine::new(main, prefill, self.pool.clone(), self.options.clone())
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

/// How many tokens the caches among some states hold, where their types fix that.
pub(crate) fn held<'a>(states: impl Iterator<Item = (&'a str, &'a TensorType)>) -> Option<usize> {
    let caches = states.filter(|(name, ty)| {
        let name = name.to_ascii_lowercase();
        ty.rank() == 5 && name.contains("cache") && !name.contains("sliding")
    });
    let extents = caches.filter_map(|(_, ty)| ty.shape[3].as_const());
    extents.filter_map(|n| usize::try_from(n).ok()).min()
}

/// The states that a function takes.
fn states(graph: &Graph) -> impl Iterator<Item = (&str, &TensorType)> {
    graph.inputs.iter().filter_map(|port| match &port.ty {
        Type::Handle(ty) => Some((&*port.name, ty)),
        _ => None,
    })
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
