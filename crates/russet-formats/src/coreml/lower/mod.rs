//! From a program to a graph: a graph for every function.
//!
//! What each operation becomes is a row of a table ([`rules`]); the rows' functions lie in the other modules by what they do.
//! Values that the file holds stay there, compressed or not, until an operation asks for them ([`held`]); the type of every
//! result follows from its operands and must agree with the one that the program declares.

mod activations;
mod attention;
mod elementwise;
mod gather;
mod held;
mod indices;
mod matrix;
mod moves;
mod operands;
mod reduce;
mod rules;
mod slices;
mod state;

use std::collections::HashMap;
use std::sync::Arc;

use russet_graph::attr::Attr;
use russet_graph::graph::{Graph, Module, ValueId};
use russet_graph::ops::create_token::CreateToken;
use russet_graph::types::{self, Dim, Type};

use self::held::Held;
use self::rules::Rule;
use super::error::{Outcome, Place, Problem, Result};
use super::model::CoremlModel;
use super::program::{Block, Element, Function, Named, Operation, TensorType, ValueType};
use super::weights::Weights;

type Builder = crate::builder::Builder<Problem>;

/// The attribute of a module that says the version of the specification.
pub const VERSION: &str = "specification_version";

/// Translates the program of a model.
pub(super) fn lower(model: &CoremlModel, weights: &Weights) -> Result<Module> {
    let version = (
        "specification_version".into(),
        Attr::Int(model.version.into()),
    );
    let mut module = Module {
        graphs: Vec::new(),
        attributes: vec![version],
    };
    for function in &model.program.functions {
        let mut lowering = Lowering {
            b: Builder::new(&function.name),
            weights,
            items: HashMap::new(),
            emitted: HashMap::new(),
            tokens: HashMap::new(),
            start: None,
        };
        lowering.inputs(model, function)?;
        lowering.block(&function.name, &function.body)?;
        module.graphs.push(lowering.finish(function)?);
    }
    Ok(module)
}

/// What a name of the program stands for.
#[derive(Clone, Debug)]
enum Item {
    /// A value of the graph.
    Value(ValueId),
    /// A state, by its handle.
    State(ValueId),
    /// Something that the file holds.
    Held(Arc<Held>),
}

/// A function under translation.
struct Lowering<'a> {
    b: Builder,
    weights: &'a Weights,
    items: HashMap<Arc<str>, Item>,
    /// Held values that the graph has, by their name and the axes they were asked for without.
    emitted: HashMap<(Arc<str>, Vec<usize>), ValueId>,
    /// For every state that was touched, the token after which it is as it is now.
    tokens: HashMap<ValueId, ValueId>,
    start: Option<ValueId>,
}

impl Lowering<'_> {
    fn inputs(&mut self, model: &CoremlModel, function: &Function) -> Result<()> {
        let described = model.description.function(&function.name);
        for input in &function.inputs {
            let at = |problem: Problem| problem.at(Place::Function(function.name.clone()));
            let (ty, is_state) = match &input.ty {
                ValueType::Tensor(t) => (tensor(input, t).map(Type::Tensor), false),
                ValueType::State(t) => (tensor(input, t).map(Type::Handle), true),
                ValueType::Other => (Err(not_a_tensor(input)), false),
            };
            let features = described.map_or(&[][..], |d| &d.inputs);
            let feature = features.iter().find(|f| *f.name == *input.name);
            let attributes = feature
                .map(|f| f.flexibility.attributes())
                .unwrap_or_default();
            let id = self.b.input(&input.name, ty.map_err(at)?, attributes);
            let item = if is_state {
                Item::State(id)
            } else {
                Item::Value(id)
            };
            self.items.insert(input.name.clone(), item);
        }
        Ok(())
    }

    fn block(&mut self, function: &Arc<str>, block: &Block) -> Result<()> {
        for (index, op) in block.operations.iter().enumerate() {
            self.operation(op).map_err(|problem| {
                problem.at(Place::Operation {
                    function: function.clone(),
                    index,
                    kind: op.kind.clone(),
                    name: op
                        .outputs
                        .first()
                        .map_or_else(|| "".into(), |o| o.name.clone()),
                })
            })?;
        }
        Ok(())
    }

    fn operation(&mut self, op: &Operation) -> Outcome<()> {
        let rule = rules::find(&op.kind);
        let rule = rule.ok_or_else(|| Problem::UnknownOperation(op.kind.clone()))?;
        let results = match rule {
            Rule::Held(hold) => {
                let [output] = &op.outputs[..] else {
                    return Err(Problem::Value("it has not one result".into()));
                };
                let held = Arc::new(hold(self, op)?);
                self.items.insert(output.name.clone(), Item::Held(held));
                return Ok(());
            }
            Rule::Unary(name) => vec![self.unary(op, name)?],
            Rule::Binary(name) => vec![self.binary(op, name)?],
            Rule::One(make) => vec![make(self, op)?],
            Rule::Many(make) => make(self, op)?,
        };
        if results.len() != op.outputs.len() {
            let (found, said) = (results.len(), op.outputs.len());
            return Err(Problem::Value(format!(
                "it has {found} results, {said} are declared"
            )));
        }
        op.outputs
            .iter()
            .zip(results)
            .try_for_each(|(output, id)| self.define(output, id))
    }

    /// Binds a result to its name, as the declared type allows.
    fn define(&mut self, output: &Named, id: ValueId) -> Outcome<()> {
        let ValueType::Tensor(declared) = &output.ty else {
            return Err(not_a_tensor(output));
        };
        let ty = tensor(output, declared)?;
        let found = self.tensor_of(id)?;
        if found.dtype != ty.dtype || self.b.declare(id, &ty.shape).is_none() {
            return Err(Problem::Declared {
                name: output.name.clone(),
                declared: declared.to_string(),
                found: found.to_string(),
            });
        }
        self.items.insert(output.name.clone(), Item::Value(id));
        Ok(())
    }

    fn finish(mut self, function: &Function) -> Result<Graph> {
        let mut outputs = Vec::with_capacity(function.body.outputs.len());
        for name in &function.body.outputs {
            let id = self.named(name);
            let id = id.map_err(|p| p.at(Place::Function(function.name.clone())))?;
            outputs.push((&**name, id));
        }
        Ok(self.b.finish(&outputs))
    }

    /// A token from before anything was read or written.
    fn first_token(&mut self) -> Outcome<ValueId> {
        if let Some(token) = self.start {
            return Ok(token);
        }
        let token = self.b.op(CreateToken, &[])?;
        self.start = Some(token);
        Ok(token)
    }
}

/// A declared type in the graph's terms.
fn tensor(named: &Named, ty: &TensorType) -> Outcome<types::TensorType> {
    let Element::Number(dtype) = ty.element else {
        return Err(not_a_tensor(named));
    };
    let extent = |d: &Option<u64>| match d {
        None => Ok(Dim::Unknown),
        Some(n) => i64::try_from(*n).map(Dim::Const),
    };
    let shape = ty
        .shape
        .iter()
        .map(extent)
        .collect::<std::result::Result<Vec<_>, _>>();
    let shape = shape.map_err(|_| Problem::Value(format!("{:?} is too large", named.name)))?;
    Ok(types::TensorType::new(dtype, shape))
}

fn not_a_tensor(named: &Named) -> Problem {
    Problem::Unsupported(format!("{:?} is no tensor of numbers", named.name))
}
