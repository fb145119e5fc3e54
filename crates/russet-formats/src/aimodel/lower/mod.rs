//! From the file's operations to a graph.
//!
//! Names are translated by a table ([`names`]); types, attributes, constants and locations by [`values`]. The bodies that
//! spell out a composite operation by simpler ones are left out: the graph's operation of the same name means the same.

#[cfg(test)]
mod coverage;
mod names;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use russet_graph::attr::{Attr, Attributes, find};
use russet_graph::graph::{self, Composite, ConstantData, Graph, Module, Port, Storage, ValueId};
use russet_graph::ops::constant::Constant;
use russet_graph::ops::{Op, OpInfo};
use russet_graph::types::{TensorType, Type};
use russet_kernels::mem::SharedBytes;

use self::names::{Rule, Take};
use self::values::Values;
use super::attrs::AttrRecord;
use super::error::{Problem, ReadError, Result, Section};
use super::ir::{RawBlock, RawOp};
use super::raw::{RawModule, at};
use super::records::{AttrId, TypeId};
use super::types::TypeRecord;

/// Translates a decoded file. Constants share `file`; where it packs elements below a byte one to a byte, they are packed.
pub fn lower(file: &SharedBytes, raw: &RawModule) -> Result<Module> {
    let mut lowering = Lowering {
        file,
        raw,
        values: Values::new(file, raw),
        module: Module::default(),
    };
    for asset in &raw.ops {
        if &*asset.name != "serialization.asset" {
            return Err(at(
                asset,
                Problem::Structure("only an asset may stand at the top"),
            ));
        }
        lowering.asset(asset)?;
    }
    Ok(lowering.module)
}

struct Lowering<'a> {
    file: &'a SharedBytes,
    raw: &'a RawModule,
    values: Values<'a>,
    module: Module,
}

/// What is known inside one graph: the graph under construction, and which of its values stands for a value of the file.
struct Body {
    graph: Graph,
    names: HashMap<u32, ValueId>,
    /// The masks of sparse values: those hold the dense tensor they stand for.
    masks: HashMap<ValueId, ValueId>,
}

impl Lowering<'_> {
    fn asset(&mut self, asset: &RawOp) -> Result<()> {
        if let Some(date) = self.raw.dialect_date(self.file) {
            self.module
                .attributes
                .push(("dialect_version".into(), Attr::Int(date.into())));
        }
        self.graphs(asset, "")
    }

    /// The graphs of an asset or a namespace; names inside a namespace get its name before them.
    fn graphs(&mut self, holder: &RawOp, prefix: &str) -> Result<()> {
        for op in only_block(holder)?.iter().flat_map(|b| &b.ops) {
            match &*op.name {
                "dataflow.graph_v1" | "udml.func_v1" => {
                    let graph = self.graph(op, prefix)?;
                    self.module.graphs.push(graph);
                }
                "dataflow.namespace_v1" => {
                    let name = self.raw.property(self.file, op, "name")?;
                    let name = self
                        .values
                        .text(name)
                        .ok_or_else(|| wrong(op, "name", "text"))?;
                    let prefix = self.qualified(op, prefix, &format!("{name}."))?;
                    self.graphs(op, &prefix)?;
                }
                "execution.target_spec_v1" => {
                    let spec = self.raw.property(self.file, op, "spec")?;
                    let spec = self.values.attr(spec).map_err(|p| at(op, p))?;
                    self.module.attributes.push(("target_spec".into(), spec));
                }
                "serialization.terminator" => {}
                _ => {
                    return Err(at(
                        op,
                        Problem::Unsupported("an operation outside of any graph".into()),
                    ));
                }
            }
        }
        Ok(())
    }

    /// A name with those of the namespaces around it.
    fn qualified(&mut self, op: &RawOp, prefix: &str, name: &str) -> Result<String> {
        let full = format!("{prefix}{name}");
        self.values.spend_text(&full).map_err(|p| at(op, p))?;
        Ok(full)
    }

    fn graph(&mut self, op: &RawOp, prefix: &str) -> Result<Graph> {
        let properties = self.raw.properties(self.file, op)?;
        let find = |name: &'static str| {
            properties
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, id)| *id)
        };
        let need = |name: &'static str| {
            find(name).ok_or_else(|| super::properties::missing(&op.name, op.offset, name))
        };
        let name = self
            .values
            .text(need("name")?)
            .ok_or_else(|| wrong(op, "name", "text"))?;
        let (inputs, results) = self.signature(op, need("functionType")?)?;
        let mut body = Body {
            graph: Graph::new(&self.qualified(op, prefix, &name)?),
            names: HashMap::new(),
            masks: HashMap::new(),
        };
        body.graph.inputs = self.ports(op, &inputs, need("argAttrs")?)?;
        body.graph.outputs = self.ports(op, &results, need("resAttrs")?)?;
        body.graph.private = find("isPrivate").is_none_or(|id| self.values.flag(id));
        for flag in ["externalize", "noInline"] {
            if find(flag).is_some_and(|id| self.values.flag(id)) {
                body.graph.attributes.push((flag.into(), Attr::Unit));
            }
        }
        if let Some(id) = find("composite") {
            body.graph.composite = Some(self.composite(op, id)?);
        }
        if let Some(block) = only_block(op)? {
            body.graph.body = self.block(&mut body, block, op)?;
            arguments_fit(op, &body.graph)?;
        }
        Ok(body.graph)
    }

    /// Types of the arguments and results from a function type.
    fn signature(&self, op: &RawOp, id: AttrId) -> Result<(Vec<TypeId>, Vec<TypeId>)> {
        let ty = match self.raw.records.attr(id) {
            Some(AttrRecord::Type(ty)) => self.raw.records.ty(*ty),
            _ => None,
        };
        match ty {
            Some(TypeRecord::Function { inputs, results }) => Ok((inputs.clone(), results.clone())),
            _ => Err(wrong(op, "functionType", "a function type")),
        }
    }

    fn ports(&mut self, op: &RawOp, types: &[TypeId], attributes: AttrId) -> Result<Vec<Port>> {
        let Some(AttrRecord::Array(lists)) = self.raw.records.attr(attributes) else {
            return Err(wrong(op, "argAttrs", "a list of lists"));
        };
        let mut ports = Vec::with_capacity(types.len());
        for (i, ty) in types.iter().enumerate() {
            let mut port = Port {
                name: "".into(),
                ty: self.ty(op, *ty)?,
                attributes: Vec::new(),
            };
            let list = lists.get(i).and_then(|id| self.raw.records.attr(*id));
            if let Some(AttrRecord::Array(entries)) = list {
                for entry in self.values.entries(entries).map_err(|p| at(op, p))? {
                    match (&*entry.0, &entry.1) {
                        ("name", Attr::Str(name)) => port.name = name.clone(),
                        _ => port.attributes.push(entry),
                    }
                }
            }
            ports.push(port);
        }
        Ok(ports)
    }

    /// A declaration: the composite's name with `input_names`, `output_names` and `op_attrs`.
    fn composite(&mut self, op: &RawOp, id: AttrId) -> Result<Composite> {
        let Some(AttrRecord::Opaque { name, parameters }) = self.raw.records.attr(id) else {
            return Err(wrong(op, "composite", "a named attribute"));
        };
        let mut composite = Composite {
            name: name.clone(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: Vec::new(),
        };
        for (key, value) in self.values.entries(parameters).map_err(|p| at(op, p))? {
            match (&*key, value) {
                ("input_names", Attr::List(names)) => composite.inputs = texts(&names),
                ("output_names", Attr::List(names)) => composite.outputs = texts(&names),
                ("op_attrs", Attr::Dict(attributes)) => composite.attributes = attributes,
                (_, value) => composite.attributes.push((key, value)),
            }
        }
        Ok(composite)
    }

    fn ty(&mut self, op: &RawOp, id: TypeId) -> Result<Type> {
        self.values.ty(id).map_err(|p| at(op, p))
    }

    fn block(&mut self, body: &mut Body, block: &RawBlock, holder: &RawOp) -> Result<graph::Block> {
        let mut out = graph::Block::default();
        for (value, ty, _) in &block.args {
            let id = body.graph.add_value(self.ty(holder, *ty)?);
            body.names.insert(value.0, id);
            out.args.push(id);
        }
        self.ops(body, block, &mut out)?;
        Ok(out)
    }

    /// Appends the operations of a block of the file to a block of the graph, and takes over its results.
    fn ops(&mut self, body: &mut Body, block: &RawBlock, out: &mut graph::Block) -> Result<()> {
        for (i, op) in block.ops.iter().enumerate() {
            let last = i + 1 == block.ops.len();
            match names::find(&op.name) {
                Some(Rule {
                    take: Take::Results,
                    ..
                }) if last => out.results = operands(body, op)?,
                Some(Rule {
                    take: Take::Results,
                    ..
                }) => return Err(at(op, Problem::Structure("it does not end its block"))),
                Some(Rule {
                    take: Take::Nothing,
                    ..
                }) => {}
                Some(Rule {
                    take: Take::Inline, ..
                }) => self.group(body, op, out)?,
                Some(rule) => self.node(body, op, rule, out)?,
                None => {
                    return Err(at(
                        op,
                        Problem::Unsupported("this operation is not known".into()),
                    ));
                }
            }
        }
        Ok(())
    }

    /// A group of operations for one device: its block in place, arguments bound to operands.
    fn group(&mut self, body: &mut Body, op: &RawOp, out: &mut graph::Block) -> Result<()> {
        let Some(block) = only_block(op)? else {
            return Err(at(op, Problem::Structure("a group has a block")));
        };
        let inputs = operands(body, op)?;
        let isolated = op.regions.iter().any(|region| region.isolated);
        let outer = isolated.then(|| std::mem::take(&mut body.names));
        for ((value, ..), id) in block.args.iter().zip(inputs) {
            body.names.insert(value.0, id);
        }
        let mut inner = graph::Block::default();
        self.ops(body, block, &mut inner)?;
        if let Some(outer) = outer {
            body.names = outer;
        }
        out.nodes.append(&mut inner.nodes);
        for ((value, _), id) in op.results.iter().zip(inner.results) {
            body.names.insert(value.0, id);
        }
        Ok(())
    }

    /// Appends the node of an operation.
    fn node(
        &mut self,
        body: &mut Body,
        op: &RawOp,
        rule: &Rule,
        out: &mut graph::Block,
    ) -> Result<()> {
        let mut inputs = operands(body, op)?;
        if rule.take == Take::Mask {
            let mask = inputs.first().and_then(|id| body.masks.get(id)).copied();
            inputs.push(mask.ok_or_else(|| {
                let problem = "a sparse operand is built, or looked up with one entry an index";
                at(op, Problem::Unsupported(problem.into()))
            })?);
        }
        let mut types = Vec::with_capacity(op.results.len());
        for (_, ty) in &op.results {
            types.push(self.ty(op, *ty)?);
        }
        if rule.take == Take::Unshifted {
            let (id, zeros) = no_shift(body, op, &inputs, types.first())?;
            inputs.insert(3.min(inputs.len()), id);
            out.nodes.push(zeros);
        }
        let what = self.operation(op, rule, &types)?;
        let blocks = match rule.take {
            Take::Blocks => self.regions(body, op)?,
            _ => Vec::new(),
        };
        let mut outputs = Vec::with_capacity(types.len());
        for ((value, _), ty) in op.results.iter().zip(types) {
            let id = body.graph.add_value(ty);
            body.names.insert(value.0, id);
            outputs.push(id);
        }
        if let (Take::Sparse, [_, mask], [id]) = (rule.take, &inputs[..], &outputs[..]) {
            body.masks.insert(*id, *mask);
        }
        let location = self.values.location(op.location).map_err(|p| at(op, p))?;
        out.nodes.push(graph::Node {
            op: what,
            inputs,
            outputs,
            blocks,
            location,
        });
        Ok(())
    }

    /// The blocks of control flow.
    fn regions(&mut self, body: &mut Body, op: &RawOp) -> Result<Vec<graph::Block>> {
        let mut blocks = Vec::with_capacity(op.regions.len());
        for region in &op.regions {
            let [block] = region.blocks.as_slice() else {
                return Err(at(
                    op,
                    Problem::Structure("control flow has one block a region"),
                ));
            };
            // An isolated region numbers its values from zero.
            let outer = region.isolated.then(|| std::mem::take(&mut body.names));
            blocks.push(self.block(body, block, op)?);
            if let Some(outer) = outer {
                body.names = outer;
            }
        }
        Ok(blocks)
    }

    fn operation(&mut self, op: &RawOp, rule: &Rule, results: &[Type]) -> Result<Op> {
        if rule.take == Take::Constant {
            let Some(Type::Tensor(ty)) = results.first() else {
                return Err(at(op, Problem::Structure("a constant is a tensor")));
            };
            let value = self.raw.property(self.file, op, "value")?;
            let data = self.values.constant(ty, value).map_err(|p| at(op, p))?;
            return Ok(Constant(Arc::new(data)).into());
        }
        let unknown = || {
            at(
                op,
                Problem::Unsupported(format!("the operation {} has no meaning yet", rule.op)),
            )
        };
        let info = OpInfo::find(rule.op).ok_or_else(unknown)?;
        let attributes = self.attributes(op, rule, results)?;
        let parsed =
            (info.parse)(&attributes).map_err(|e| at(op, Problem::Unsupported(e.to_string())))?;
        self.nothing_lost(op, rule, &attributes, &parsed)?;
        Ok(parsed)
    }

    /// An operation that does not know an attribute means its default: any other case would be read as something else.
    fn nothing_lost(&self, op: &RawOp, rule: &Rule, given: &Attributes, parsed: &Op) -> Result<()> {
        let kept = parsed.attributes();
        for (property, name) in rule.attributes {
            let id = self.raw.property(self.file, op, property)?;
            let default = match self.raw.records.attr(id) {
                Some(AttrRecord::Enum(kind, case)) => {
                    kind.cases().first().is_some_and(|(_, first)| first == case)
                }
                _ => false,
            };
            if !default && find(&kept, name).is_none() {
                let value = find(given, name)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                return Err(at(
                    op,
                    Problem::Unsupported(format!("{name} = {value} has no meaning yet")),
                ));
            }
        }
        Ok(())
    }

    fn attributes(&mut self, op: &RawOp, rule: &Rule, results: &[Type]) -> Result<Attributes> {
        let mut out = Vec::new();
        if rule.take == Take::Kernel {
            let types = results.iter().cloned().map(Attr::Type).collect();
            out.push(("to".into(), Attr::List(types)));
            out.push(("kind".into(), Attr::str(rule.file)));
        }
        if matches!(rule.take, Take::ResultType | Take::Unshifted)
            && let Some(ty) = results.first()
        {
            out.push(("to".into(), Attr::Type(ty.clone())));
        }
        for (property, name) in rule.attributes {
            let id = self.raw.property(self.file, op, property)?;
            out.push(((*name).into(), self.values.attr(id).map_err(|p| at(op, p))?));
        }
        Ok(out)
    }
}

/// The arguments of a body have the very types of its signature: the text form writes only one of them.
fn arguments_fit(op: &RawOp, graph: &Graph) -> Result<()> {
    let types = graph.inputs.iter().map(|port| Some(&port.ty));
    match types.eq(graph.body.args.iter().map(|id| graph.ty(*id))) {
        true => Ok(()),
        false => Err(wrong(op, "functionType", "the types of its arguments")),
    }
}

/// Zeros of the shape of the scale in operand 1: of the kind of the result where that is a float, else of the kind of the scale.
fn no_shift(
    body: &mut Body,
    op: &RawOp,
    inputs: &[ValueId],
    result: Option<&Type>,
) -> Result<(ValueId, graph::Node)> {
    let scale = inputs.get(1).and_then(|id| body.graph.ty(*id));
    let kind = result.and_then(Type::as_tensor).map(|t| t.dtype);
    let Some((scale, size)) = scale.and_then(Type::as_tensor).and_then(|scale| {
        let dtype = kind.filter(|k| k.is_float()).unwrap_or(scale.dtype);
        scale.fixed_shape()?;
        let ty = TensorType::new(dtype, scale.shape.iter().cloned());
        Some((ty, dtype.packed_len(1)?))
    }) else {
        return Err(at(
            op,
            Problem::Structure("a scale has extents that are known"),
        ));
    };
    let id = body.graph.add_value(scale.clone());
    let zeros = ConstantData {
        ty: scale,
        storage: Storage::Splat(SharedBytes::from_vec(vec![0; size])),
    };
    Ok((id, graph::Node::new(Constant(Arc::new(zeros)), &[], &[id])))
}

/// The single block of an operation that holds others; none where it has no body.
fn only_block(op: &RawOp) -> Result<Option<&RawBlock>> {
    match op.regions.as_slice() {
        [region] if region.blocks.len() <= 1 => Ok(region.blocks.first()),
        _ => Err(at(op, Problem::Structure("it has one region of one block"))),
    }
}

fn operands(body: &Body, op: &RawOp) -> Result<Vec<ValueId>> {
    let find = |v: &super::ir::ValueId| body.names.get(&v.0).copied();
    let all: Option<Vec<ValueId>> = op.operands.iter().map(find).collect();
    all.ok_or_else(|| {
        at(
            op,
            Problem::Structure("an operand is used before it is defined"),
        )
    })
}

fn texts(items: &[Attr]) -> Vec<Arc<str>> {
    items
        .iter()
        .filter_map(|a| a.as_str().map(Into::into))
        .collect()
}

fn wrong(op: &RawOp, what: &'static str, expected: &'static str) -> ReadError {
    ReadError::new(
        Section::Program,
        op.offset,
        Problem::Kind { what, expected },
    )
    .in_op(&op.name)
}
