//! What is known of an asset, a package, a GGUF file or a checkpoint: the JSON form of `russet inspect`.

use std::fs;
use std::path::Path;

use russet_formats::aimodel::AimodelAsset;
use russet_formats::checkpoint::{Checkpoint, Folder};
use russet_formats::coreml::{CoremlModel, Weights};
use russet_formats::gguf::Gguf;
use russet_graph::graph::{Block, Graph, Module, Port};
use russet_graph::ops::Op;
use russet_graph::types::{Class, DType, TensorType, Type};
use serde::Serialize;

use super::statistics::{Counts, Statistics};

/// One model file.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    /// Where it is.
    pub(super) path: String,
    /// `aimodel`, `coreml`, `gguf` or `checkpoint`.
    pub(super) format: &'static str,
    /// The row of the table of architectures, where the program was built by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) architecture: Option<&'static str>,
    /// Bytes of the file; of a Core ML package, of its weight files; of a checkpoint, of its weights.
    pub(super) bytes: u64,
    /// Bytes of its constants.
    pub(super) constant_bytes: u64,
    /// The language version of an asset, a date; the version of a GGUF file or of Core ML's
    /// specification.
    pub(super) version: Option<u32>,
    /// Whether the digest was checked (and found right: else there would be an error).
    pub(super) hash_verified: bool,
    /// What a caller may run, in the file's order.
    pub(super) functions: Vec<Function>,
    /// Bodies of known operations: how many graphs declare each.
    pub(super) composites: Counts,
    /// Operations.
    pub(super) operations: Counts,
    /// Elements of constants by type.
    pub(super) storage: Counts,
    /// Types computed with.
    pub(super) compute: Vec<String>,
}

/// A function.
#[derive(Debug, Serialize)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) inputs: Vec<Value>,
    pub(super) outputs: Vec<Value>,
    pub(super) states: Vec<Value>,
}

/// An input, output or state.
#[derive(Debug, Serialize)]
pub(super) struct Value {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) ty: String,
    /// Extents, `null` where not known before a call.
    pub(super) shape: Vec<Option<i64>>,
}

impl Facts {
    /// Those of an asset.
    pub(super) fn of_asset(
        path: &Path,
        asset: &AimodelAsset,
        module: &Module,
        hash_verified: bool,
    ) -> Self {
        let statistics = Statistics::of(asset.bytes(), &asset.raw);
        Self {
            format: "aimodel",
            bytes: asset.bytes().len() as u64,
            version: asset.raw.dialect_date(asset.bytes()),
            hash_verified,
            ..Self::of_module(path, module, statistics)
        }
    }

    /// Those of a Core ML package.
    pub(super) fn of_coreml(
        path: &Path,
        (model, weights): (&CoremlModel, &Weights),
        module: &Module,
    ) -> Self {
        let statistics = Statistics::of_program(&model.program);
        Self {
            format: "coreml",
            bytes: weights.size() as u64,
            version: u32::try_from(model.version).ok(),
            ..Self::of_module(path, module, statistics)
        }
    }

    /// Those of a GGUF file and the graph that was made from it.
    pub(super) fn of_gguf(path: &Path, file: &Gguf, model: &Checkpoint) -> Self {
        let kinds = file.tensors().iter();
        let stored = kinds.map(|t| (t.kind().to_string(), t.elements().unwrap_or(0)));
        Self {
            format: "gguf",
            bytes: fs::metadata(path).map_or(0, |m| m.len()),
            version: Some(file.version()),
            ..Self::of_built(path, model, stored)
        }
    }

    /// Those of a Hugging Face folder and the graph that was made from it.
    pub(super) fn of_checkpoint(path: &Path, folder: &Folder, model: &Checkpoint) -> Self {
        let stored = folder.tensors();
        let elements = |shape: &[usize]| shape.iter().product::<usize>() as u64;
        let stored = stored.map(|(_, t)| (type_name(t.dtype), elements(&t.shape)));
        Self {
            format: "checkpoint",
            bytes: folder.bytes(),
            ..Self::of_built(path, model, stored)
        }
    }

    fn of_built(
        path: &Path,
        model: &Checkpoint,
        stored: impl Iterator<Item = (String, u64)>,
    ) -> Self {
        let mut statistics = Statistics::default();
        for graph in &model.module.graphs {
            count(graph, &graph.body, &mut statistics);
        }
        statistics.storage.clear();
        for (kind, elements) in stored {
            *statistics.storage.entry(kind).or_default() += elements;
        }
        Self {
            architecture: Some(model.architecture.name),
            ..Self::of_module(path, &model.module, statistics)
        }
    }

    fn of_module(path: &Path, module: &Module, statistics: Statistics) -> Self {
        let mut composites = Counts::new();
        for composite in module.graphs.iter().filter_map(|g| g.composite.as_ref()) {
            *composites.entry(composite.name.to_string()).or_default() += 1;
        }
        Self {
            path: path.display().to_string(),
            format: "",
            architecture: None,
            bytes: 0,
            constant_bytes: module.graphs.iter().map(|g| constant_bytes(&g.body)).sum(),
            version: None,
            hash_verified: false,
            functions: module.functions().map(function).collect(),
            composites,
            operations: statistics.operations,
            storage: statistics.storage,
            compute: statistics.compute.into_iter().collect(),
        }
    }
}

fn function(graph: &Graph) -> Function {
    let is_state = |p: &&Port| matches!(p.ty, Type::Handle(_));
    Function {
        name: graph.name.to_string(),
        inputs: graph
            .inputs
            .iter()
            .filter(|p| !is_state(p))
            .filter_map(value)
            .collect(),
        outputs: graph.outputs.iter().filter_map(value).collect(),
        states: graph
            .inputs
            .iter()
            .filter(is_state)
            .filter_map(value)
            .collect(),
    }
}

fn value(port: &Port) -> Option<Value> {
    let (Type::Tensor(ty) | Type::Handle(ty)) = &port.ty else {
        return None;
    };
    let shape = ty
        .shape
        .iter()
        .map(russet_graph::types::Dim::as_const)
        .collect();
    Some(Value {
        name: port.name.to_string(),
        ty: type_name(ty.dtype),
        shape,
    })
}

/// An element type by the runtime's name for it.
pub(super) fn type_name(dtype: DType) -> String {
    match (dtype, dtype.class()) {
        (DType::BF16, _) => "BFloat16".into(),
        (_, Class::Bool) => "Bool".into(),
        (_, Class::Signed) => format!("Int{}", dtype.bits()),
        (_, Class::Unsigned) => format!("UInt{}", dtype.bits()),
        (DType::F64 | DType::F32 | DType::F16, _) => format!("Float{}", dtype.bits()),
        _ => dtype.name().into(),
    }
}

/// Counts the operations of a graph that is not an asset's.
fn count(graph: &Graph, block: &Block, seen: &mut Statistics) {
    for node in &block.nodes {
        *seen.operations.entry(node.op.name().into()).or_default() += 1;
        let values = node
            .outputs
            .iter()
            .chain(&node.inputs)
            .filter_map(|v| graph.ty(*v)?.as_tensor());
        seen.compute
            .extend(values.map(|t: &TensorType| type_name(t.dtype)));
        node.blocks.iter().for_each(|b| count(graph, b, seen));
    }
}

/// Bytes of the constants of a block as they are stored.
fn constant_bytes(block: &Block) -> u64 {
    let own = |op: &Op| match op {
        Op::Constant(c) => c.0.storage.bytes().len() as u64,
        _ => 0,
    };
    block
        .nodes
        .iter()
        .map(|n| own(&n.op) + n.blocks.iter().map(constant_bytes).sum::<u64>())
        .sum()
}
