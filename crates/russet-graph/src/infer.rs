//! Inference over graphs: symbolic types of every value, and the contents of small integer tensors.
//!
//! The inputs' unknown extents become symbols named after input and axis (`input_ids.1`); everything else follows. Calls are
//! inferred through the called graph; loops keep the types their file declares.

use std::collections::HashMap;

use crate::error::OpError;
use crate::graph::{Block, ConstantData, Graph, Module, Node, ValueId};
use crate::ops::{Fact, Known, Op, Operand, Operands};
use crate::types::{Dim, TensorType, Type};

/// Where in which graph an operation is wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("graph {graph:?}, operation {node} ({op}): {error}")]
pub struct NodeError {
    /// The graph.
    pub graph: String,
    /// Position of the node in its block.
    pub node: usize,
    /// The operation.
    pub op: &'static str,
    /// What is wrong.
    #[source]
    pub error: OpError,
}

/// Calls may be nested this deep.
pub const MAX_CALLS: usize = 64;

/// What inference knows of the values of one graph.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    facts: Vec<Option<Fact>>,
    constants: HashMap<ValueId, std::sync::Arc<ConstantData>>,
}

impl Facts {
    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> Option<&Type> {
        self.facts.get(id.index())?.as_ref().map(|f| &f.ty)
    }

    /// The tensor type of a value.
    pub fn tensor(&self, id: ValueId) -> Option<&TensorType> {
        self.ty(id)?.as_tensor()
    }

    /// The contents of a value, where they are followed.
    pub fn known(&self, id: ValueId) -> Option<&Known> {
        self.facts.get(id.index())?.as_ref()?.known.as_ref()
    }

    /// The constant a value is.
    pub fn constant(&self, id: ValueId) -> Option<&std::sync::Arc<ConstantData>> {
        self.constants.get(&id)
    }

    fn set(&mut self, id: ValueId, fact: Fact) {
        if self.facts.len() <= id.index() {
            self.facts.resize(id.index() + 1, None);
        }
        self.facts[id.index()] = Some(fact);
    }

    fn operand(&self, id: ValueId) -> Result<Operand<'_>, OpError> {
        let fact = self
            .facts
            .get(id.index())
            .and_then(Option::as_ref)
            .ok_or(OpError::Unknown("an operand"))?;
        Ok(Operand {
            ty: &fact.ty,
            known: fact.known.clone(),
            constant: self.constants.get(&id).map(|c| &**c),
        })
    }

    fn fact(&self, id: ValueId) -> Result<Fact, OpError> {
        self.facts
            .get(id.index())
            .cloned()
            .flatten()
            .ok_or(OpError::Unknown("a result"))
    }
}

/// A symbol for every unknown extent of an input's type.
pub fn name_unknowns(input: &str, ty: &Type) -> Type {
    let name = |t: &TensorType| {
        let dims = t.shape.iter().enumerate();
        let shape = dims.map(|(i, d)| {
            if d.is_unknown() {
                Dim::symbol(&symbol_name(input, i))
            } else {
                d.clone()
            }
        });
        TensorType {
            dtype: t.dtype,
            shape: shape.collect(),
            encoding: t.encoding.clone(),
        }
    };
    match ty {
        Type::Tensor(t) => Type::Tensor(name(t)),
        Type::Handle(t) => Type::Handle(name(t)),
        other => other.clone(),
    }
}

/// The symbol of axis `axis` of an input: words only, so that the text form can hold it.
fn symbol_name(input: &str, axis: usize) -> String {
    let clean: String = input
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect();
    let prefix = if clean.starts_with(|c: char| c.is_ascii_digit()) || clean.is_empty() {
        "_"
    } else {
        ""
    };
    format!("{prefix}{clean}.{axis}")
}

/// A type with every extent open that is no constant.
pub(crate) fn without_symbols(ty: &Type) -> Type {
    let open = |t: &TensorType| {
        let mut t = t.clone();
        let dims = t.shape.iter_mut().filter(|d| d.as_const().is_none());
        dims.for_each(|d| *d = Dim::Unknown);
        t
    };
    match ty {
        Type::Tensor(t) => Type::Tensor(open(t)),
        Type::Handle(t) => Type::Handle(open(t)),
        other => other.clone(),
    }
}

/// Infers a graph from the types of its own inputs.
pub fn infer(module: &Module, graph: &Graph) -> Result<Facts, NodeError> {
    let inputs = graph.inputs.iter().map(|p| Fact {
        ty: name_unknowns(&p.name, &p.ty),
        known: None,
    });
    infer_with(module, graph, inputs.collect())
}

/// Infers a graph from given facts of its inputs.
pub fn infer_with(module: &Module, graph: &Graph, inputs: Vec<Fact>) -> Result<Facts, NodeError> {
    Inference { module, depth: 0 }.graph(graph, inputs)
}

struct Inference<'a> {
    module: &'a Module,
    depth: usize,
}

impl Inference<'_> {
    fn graph(&self, graph: &Graph, inputs: Vec<Fact>) -> Result<Facts, NodeError> {
        let mut facts = Facts::default();
        for (&id, fact) in graph.body.args.iter().zip(inputs) {
            facts.set(id, fact);
        }
        self.block(graph, &graph.body, &mut facts)?;
        Ok(facts)
    }

    fn block(&self, graph: &Graph, block: &Block, facts: &mut Facts) -> Result<(), NodeError> {
        for (index, node) in block.nodes.iter().enumerate() {
            let at = |error| NodeError {
                graph: graph.name.to_string(),
                node: index,
                op: node.op.name(),
                error,
            };
            let results = match &node.op {
                Op::Invoke(call) => self.call(&call.graph, node, facts).map_err(at)?,
                Op::While(_) | Op::If(_) | Op::Reduce(_) | Op::ReduceIndex(_) => {
                    self.control(graph, node, facts)?
                }
                op => {
                    let operands: Result<Vec<_>, _> =
                        node.inputs.iter().map(|&id| facts.operand(id)).collect();
                    op.infer(Operands(&operands.map_err(at)?)).map_err(at)?
                }
            };
            if results.len() != node.outputs.len() {
                return Err(at(OpError::Arity {
                    expected: format!("{} results", results.len()),
                    got: node.outputs.len(),
                }));
            }
            if let (Op::Constant(c), [id]) = (&node.op, &node.outputs[..]) {
                facts.constants.insert(*id, c.0.clone());
            }
            for (&id, fact) in node.outputs.iter().zip(results) {
                let declared = self.declared(graph, id);
                facts.set(id, refine(fact, &declared).map_err(at)?);
            }
        }
        Ok(())
    }

    /// The declared type of a value; of a graph that is called without its symbols, which its caller does not know.
    fn declared(&self, graph: &Graph, id: ValueId) -> Type {
        match graph.ty(id) {
            Some(ty) if self.depth > 0 => without_symbols(ty),
            Some(ty) => ty.clone(),
            None => Type::Token,
        }
    }

    fn call(&self, name: &str, node: &Node, facts: &Facts) -> Result<Vec<Fact>, OpError> {
        let callee = self
            .module
            .graph(name)
            .ok_or_else(|| OpError::NotExecutable(format!("there is no graph {name:?}")))?;
        if self.depth >= MAX_CALLS {
            return Err(OpError::NotExecutable(format!(
                "calls are nested deeper than {MAX_CALLS}"
            )));
        }
        if callee.body.args.len() != node.inputs.len() {
            return Err(OpError::Arity {
                expected: callee.body.args.len().to_string(),
                got: node.inputs.len(),
            });
        }
        let inputs: Result<Vec<Fact>, _> = node.inputs.iter().map(|&id| facts.fact(id)).collect();
        let inner = Inference {
            module: self.module,
            depth: self.depth + 1,
        };
        let inner = inner
            .graph(callee, inputs?)
            .map_err(|e| OpError::NotExecutable(e.to_string()))?;
        callee
            .body
            .results
            .iter()
            .map(|&id| inner.fact(id))
            .collect()
    }

    /// Blocks are inferred with the types the file declares. A loop whose body hands on the extents it was given keeps those of
    /// its initial values, a branch gives what both of its blocks give; of others only what is declared is known.
    fn control(
        &self,
        graph: &Graph,
        node: &Node,
        facts: &mut Facts,
    ) -> Result<Vec<Fact>, NodeError> {
        let declared = |ids: &[ValueId]| -> Vec<Fact> {
            let fact = |&id: &ValueId| Fact {
                ty: self.declared(graph, id),
                known: None,
            };
            ids.iter().map(fact).collect()
        };
        if let (Op::While(_), [condition, body]) = (&node.op, &node.blocks[..]) {
            let initial = node
                .inputs
                .iter()
                .map(|&id| facts.ty(id).cloned().map(|ty| Fact { ty, known: None }));
            let initial: Option<Vec<Fact>> = initial.collect();
            if let Some(carried) = initial.filter(|c| c.len() == node.outputs.len()) {
                self.entered(graph, condition, &carried, facts)?;
                self.entered(graph, body, &carried, facts)?;
                let next = body.results.iter().map(|&id| facts.ty(id));
                if next.eq(carried.iter().map(|f| Some(&f.ty))) {
                    return Ok(carried);
                }
            }
        }
        for block in &node.blocks {
            self.entered(graph, block, &declared(&block.args), facts)?;
        }
        let mut results = declared(&node.outputs);
        if let (Op::If(_), [then, other]) = (&node.op, &node.blocks[..]) {
            let pairs = then.results.iter().zip(&other.results);
            for (result, (&a, &b)) in results.iter_mut().zip(pairs) {
                if let Some(ty) = facts.ty(a).filter(|ty| facts.ty(b) == Some(ty)) {
                    result.ty = ty.clone();
                }
            }
        }
        Ok(results)
    }

    /// Infers a block whose arguments are these.
    fn entered(
        &self,
        graph: &Graph,
        block: &Block,
        args: &[Fact],
        facts: &mut Facts,
    ) -> Result<(), NodeError> {
        for (&id, fact) in block.args.iter().zip(args) {
            facts.set(id, fact.clone());
        }
        self.block(graph, block, facts)
    }
}

/// The inferred fact, with extents the file knows and inference does not; an error where the two contradict each other.
fn refine(fact: Fact, declared: &Type) -> Result<Fact, OpError> {
    let contradiction = |a: &Type| OpError::Shape {
        rule: "the declared type is the inferred one",
        shapes: format!("declared {declared}, inferred {a}"),
    };
    match (&fact.ty, declared) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            if a.dtype != b.dtype || a.rank() != b.rank() {
                return Err(contradiction(&fact.ty));
            }
            let shape: Option<Vec<Dim>> = a
                .shape
                .iter()
                .zip(&b.shape)
                .map(|(x, y)| meet(x, y))
                .collect();
            let shape = shape.ok_or_else(|| contradiction(&fact.ty))?;
            let ty = TensorType {
                dtype: a.dtype,
                shape,
                encoding: b.encoding.clone(),
            };
            Ok(Fact {
                ty: Type::Tensor(ty),
                known: fact.known,
            })
        }
        (a, b) if std::mem::discriminant(a) == std::mem::discriminant(b) => Ok(fact),
        (a, _) => Err(contradiction(a)),
    }
}

/// What two statements of one extent say together.
fn meet(inferred: &Dim, declared: &Dim) -> Option<Dim> {
    match (inferred.as_const(), declared.as_const()) {
        (Some(a), Some(b)) => (a == b).then(|| inferred.clone()),
        (None, Some(_)) => Some(declared.clone()),
        (_, None) => Some(if inferred.is_unknown() {
            declared.clone()
        } else {
            inferred.clone()
        }),
    }
}
