//! Core ML packages: one `.mlpackage` or `.mlmodelc`, and folders of several in ANEMLL's layout.

use std::path::PathBuf;
use std::sync::Arc;

use russet_formats::coreml::{
    CoremlError, CoremlModel, DESCRIPTION, VERSION, Weights, manifest, text,
};
use russet_graph::exec::{Plan, PlanOptions, Sums};
use russet_graph::graph::{Graph, Module};
use russet_kernels::threads::Pool;

use crate::bundle::{AnemllBundle, AnemllParts, Source, inside};
use crate::engine::{Chain, Part};
use crate::open::{Error, OpenOptions};

/// Whether a folder of a source is a Core ML package, compiled or not.
pub fn is_package(source: &dyn Source, folder: &str) -> bool {
    is_compiled(source, folder) || source.exists(&inside(folder, manifest::MANIFEST))
}

fn is_compiled(source: &dyn Source, folder: &str) -> bool {
    source.exists(&inside(folder, text::FILE))
}

/// How an exact plan of a module rounds sums: Core ML promises no order, so those of its programs are rounded once.
pub(crate) fn sums(module: &Module) -> Sums {
    match module.attributes.iter().any(|(name, _)| &**name == VERSION) {
        true => Sums::Once,
        false => Sums::EveryStep,
    }
}

/// Reads the Core ML package in a folder of a source, compiled or not; `""` is the source itself. Weight files are mapped.
///
/// # Errors
/// [`Error::Io`] where a file cannot be read, [`Error::Coreml`] where the package is broken.
pub fn read_coreml_in(source: &dyn Source, folder: &str) -> Result<(CoremlModel, Weights), Error> {
    let (model, beside) = if is_compiled(source, folder) {
        (compiled(source, folder)?, folder.to_owned())
    } else {
        specification(source, folder)?
    };
    let mut weights = Weights::default();
    for file in model.weight_files() {
        let Some(path) = manifest::beside(&file) else {
            return Err(Error::Missing(format!(
                "{}: weights in {file:?}, outside the package",
                place(source, folder).display()
            )));
        };
        let path = inside(&beside, path);
        weights.add(
            &file,
            source.map(&path).map_err(|e| unread(source, &path, e))?,
        );
    }
    Ok((model, weights))
}

/// The model of a `.mlpackage`, and the folder it lies in.
fn specification(source: &dyn Source, folder: &str) -> Result<(CoremlModel, String), Error> {
    let broken = |error| broken(source, folder, error);
    let name = inside(folder, manifest::MANIFEST);
    let bytes = source.read(&name).map_err(|e| unread(source, &name, e))?;
    let name = inside(folder, &manifest::specification(&bytes).map_err(broken)?);
    let bytes = source.map(&name).map_err(|e| unread(source, &name, e))?;
    let model = CoremlModel::read(bytes).map_err(broken)?;
    let beside = name.rsplit_once('/').map_or("", |(parent, _)| parent);
    Ok((model, beside.to_owned()))
}

/// The model of a `.mlmodelc`.
fn compiled(source: &dyn Source, folder: &str) -> Result<CoremlModel, Error> {
    let name = inside(folder, text::FILE);
    let program = source.map(&name).map_err(|e| unread(source, &name, e))?;
    let name = inside(folder, DESCRIPTION);
    let description = match source.exists(&name) {
        true => Some(source.map(&name).map_err(|e| unread(source, &name, e))?),
        false => None,
    };
    CoremlModel::read_compiled(&program, description).map_err(|e| broken(source, folder, e))
}

fn broken(source: &dyn Source, folder: &str, error: CoremlError) -> Error {
    Error::Coreml {
        path: place(source, folder),
        source: error,
    }
}

fn unread(source: &dyn Source, name: &str, error: std::io::Error) -> Error {
    Error::Io {
        path: place(source, name),
        source: error,
    }
}

/// The program of the package in a folder of a source.
pub(crate) fn module_in(source: &dyn Source, folder: &str) -> Result<Module, Error> {
    let (model, weights) = read_coreml_in(source, folder)?;
    model
        .module(&weights)
        .map_err(|e| broken(source, folder, e))
}

/// The programs of all parts as one module: functions are named after part and function, such as `chunk1.infer`. What `meta.yaml`
/// does not say of the vocabulary, the models may.
pub(crate) fn joined(source: &dyn Source, bundle: &mut AnemllBundle) -> Result<Module, Error> {
    let mut module = Module::default();
    let mut facts = Vec::new();
    for (name, files) in named(&bundle.parts) {
        for file in files {
            let (model, weights) = read_coreml_in(source, file)?;
            let part = model.module(&weights);
            let part = part.map_err(|e| broken(source, file, e))?;
            facts.extend(model.description.metadata.user_defined);
            module.attributes = part.attributes;
            module
                .graphs
                .extend(part.graphs.into_iter().map(|graph| Graph {
                    name: format!("{name}.{}", graph.name).into(),
                    ..graph
                }));
        }
    }
    let fact = |key: &str| facts.iter().find(|(k, _)| k == key).map(|(_, v)| &**v);
    bundle.complete(
        fact("com.anemll.vocab_size").or_else(|| fact("vocab_size")),
        fact("com.anemll.lm_head_chunk_sizes"),
    );
    if bundle.vocab_size.is_none() {
        bundle.vocab_size = width_of_logits(&module);
    }
    Ok(module)
}

/// The entries of the logits that a function gives, in parts or whole.
fn width_of_logits(module: &Module) -> Option<usize> {
    let width = |graph: &Graph| {
        let parts = graph.outputs.iter().filter(|p| p.name.contains("logits"));
        let each = parts.map(|p| p.ty.as_tensor()?.fixed_shape()?.last().copied());
        each.sum::<Option<usize>>().filter(|n| *n > 0)
    };
    module.functions().filter_map(width).max()
}

/// Parts in the order they run, with their files.
fn named(parts: &AnemllParts) -> Vec<(String, Vec<&str>)> {
    match parts {
        AnemllParts::Monolithic(file) => vec![("model".into(), vec![&**file])],
        AnemllParts::Chunked {
            embeddings,
            chunks,
            head,
        } => {
            let mut all = vec![("embeddings".to_owned(), vec![&**embeddings])];
            for (i, files) in chunks.iter().enumerate() {
                let files = files.iter().map(|f| &**f).collect();
                all.push((format!("chunk{}", i + 1), files));
            }
            all.push((HEAD.to_owned(), vec![&**head]));
            all
        }
    }
}

/// The name of the part that makes logits.
const HEAD: &str = "lm_head";

/// Plans the functions of a joined module.
pub(crate) fn chain(
    module: &Module,
    bundle: &AnemllBundle,
    options: &OpenOptions,
    pool: &Arc<Pool>,
) -> Result<Chain, Error> {
    let mut plans = PlanOptions::default();
    plans.precision = options.precision;
    plans.repack = !options.no_repack;
    plans.pool = Some(pool.clone());
    plans.sums = sums(module);
    let (mut parts, mut head) = (Vec::new(), None);
    for (name, _) in named(&bundle.parts) {
        let mut functions = Vec::new();
        for graph in module.functions() {
            if let Some((part, function)) = graph.name.split_once('.')
                && part == name
            {
                let plan = Arc::new(Plan::build(module, &graph.name, &plans)?);
                functions.push((function.to_owned(), plan));
            }
        }
        match name == HEAD {
            true => head = functions.pop().map(|(_, plan)| plan),
            false => parts.push(Part::new(&name, functions)),
        }
    }
    Ok(Chain::new(bundle, parts, head, pool.clone())?)
}

fn place(source: &dyn Source, name: &str) -> PathBuf {
    match name {
        "" => source.location().into(),
        name => source.location().join(name),
    }
}
