//! The rules of a well-formed module. [`verify`] says which value of which graph breaks which rule.

use std::collections::HashSet;

use crate::error::OpError;
use crate::graph::{Block, Graph, Module, Node, ValueId};
use crate::infer::{self, NodeError};
use crate::ops::Op;
use crate::types::Type;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Two graphs have one name.
    #[error("two graphs are called {0:?}")]
    DuplicateGraph(String),
    /// A graph, apart from any node.
    #[error("graph {graph:?}: {rule}")]
    Graph {
        /// The graph.
        graph: String,
        /// The rule.
        rule: String,
    },
    /// A value.
    #[error("graph {graph:?}, %{value}: {rule}")]
    Value {
        /// The graph.
        graph: String,
        /// The value's number.
        value: u32,
        /// The rule.
        rule: &'static str,
    },
    /// An operation and its operands.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// Checks every rule on every graph; the first violation in program order is returned.
pub fn verify(module: &Module) -> Result<(), Violation> {
    let mut names = HashSet::new();
    if let Some(g) = module.graphs.iter().find(|g| !names.insert(&g.name)) {
        return Err(Violation::DuplicateGraph(g.name.to_string()));
    }
    calls_end(module)?;
    for graph in &module.graphs {
        ports(graph)?;
        let mut scope = Scope {
            graph,
            defined: vec![false; graph.values.len()],
            ever: vec![false; graph.values.len()],
        };
        scope.block(&graph.body)?;
        if let Some(i) = scope.ever.iter().position(|d| !d) {
            let value = u32::try_from(i).unwrap_or(u32::MAX);
            return Err(Violation::Value {
                graph: graph.name.to_string(),
                value,
                rule: "is never defined",
            });
        }
        infer::infer(module, graph)?;
    }
    Ok(())
}

/// No graph calls itself, directly or through others.
fn calls_end(module: &Module) -> Result<(), Violation> {
    fn visit(
        module: &Module,
        g: &Graph,
        done: &mut HashSet<String>,
        path: &mut Vec<String>,
    ) -> Result<(), Violation> {
        if done.contains(&*g.name) {
            return Ok(());
        }
        if path.iter().any(|n| **n == *g.name) || path.len() > infer::MAX_CALLS {
            return Err(Violation::Graph {
                graph: g.name.to_string(),
                rule: "calls itself, or nests too deep".into(),
            });
        }
        path.push(g.name.to_string());
        for name in callees(&g.body) {
            if let Some(callee) = module.graph(name) {
                visit(module, callee, done, path)?;
            }
        }
        path.pop();
        done.insert(g.name.to_string());
        Ok(())
    }
    let mut done = HashSet::new();
    module
        .graphs
        .iter()
        .try_for_each(|g| visit(module, g, &mut done, &mut Vec::new()))
}

fn callees(block: &Block) -> Vec<&str> {
    let mut out = Vec::new();
    for node in &block.nodes {
        if let Op::Invoke(call) = &node.op {
            out.push(&*call.graph);
        }
        out.extend(node.blocks.iter().flat_map(callees));
    }
    out
}

fn ports(graph: &Graph) -> Result<(), Violation> {
    let broken = |rule: &str| {
        Err(Violation::Graph {
            graph: graph.name.to_string(),
            rule: rule.into(),
        })
    };
    let sides = [
        (&graph.inputs, &graph.body.args),
        (&graph.outputs, &graph.body.results),
    ];
    for (ports, values) in sides {
        if ports.len() != values.len() {
            return broken("has one port for each argument and result of its body");
        }
        for (port, &id) in ports.iter().zip(values) {
            if graph.ty(id).is_none_or(|ty| !agrees(ty, &port.ty)) {
                return broken(&format!("port {:?} has the type of its value", port.name));
            }
        }
    }
    Ok(())
}

/// Whether two types are the same apart from extents that one of them leaves open, and apart from storage hints.
fn agrees(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) | (Type::Handle(a), Type::Handle(b)) => {
            let open = |x: &crate::types::Dim| x.as_const().is_none();
            a.dtype == b.dtype
                && a.rank() == b.rank()
                && a.shape
                    .iter()
                    .zip(&b.shape)
                    .all(|(x, y)| x == y || open(x) || open(y))
        }
        _ => a == b,
    }
}

struct Scope<'a> {
    graph: &'a Graph,
    defined: Vec<bool>,
    ever: Vec<bool>,
}

impl Scope<'_> {
    fn value(&self, id: ValueId, rule: &'static str) -> Violation {
        Violation::Value {
            graph: self.graph.name.to_string(),
            value: id.0,
            rule,
        }
    }

    fn define(&mut self, id: ValueId) -> Result<(), Violation> {
        match self.ever.get(id.index()) {
            None => Err(self.value(id, "has a type")),
            Some(true) => Err(self.value(id, "is defined once")),
            Some(false) => {
                (self.ever[id.index()], self.defined[id.index()]) = (true, true);
                Ok(())
            }
        }
    }

    fn used(&self, ids: &[ValueId]) -> Result<(), Violation> {
        match ids
            .iter()
            .find(|id| !self.defined.get(id.index()).copied().unwrap_or(false))
        {
            Some(&id) => Err(self.value(id, "is defined before it is used")),
            None => Ok(()),
        }
    }

    fn block(&mut self, block: &Block) -> Result<(), Violation> {
        block.args.iter().try_for_each(|&id| self.define(id))?;
        for (index, node) in block.nodes.iter().enumerate() {
            self.used(&node.inputs)?;
            self.node(node).map_err(|error| NodeError {
                graph: self.graph.name.to_string(),
                node: index,
                op: node.op.name(),
                error,
            })?;
            for inner in &node.blocks {
                let outer = self.defined.clone();
                self.block(inner)?;
                self.defined = outer;
            }
            node.outputs.iter().try_for_each(|&id| self.define(id))?;
        }
        self.used(&block.results)
    }

    /// Rules of single operations that inference does not see.
    fn node(&self, node: &Node) -> Result<(), OpError> {
        let blocks = match node.op {
            Op::While(_) | Op::If(_) => 2,
            Op::Reduce(_) | Op::ReduceIndex(_) => 1,
            _ => 0,
        };
        if node.blocks.len() != blocks {
            return Err(OpError::Arity {
                expected: format!("{blocks} blocks"),
                got: node.blocks.len(),
            });
        }
        match &node.op {
            Op::Constant(c) => c.0.problem().map_or(Ok(()), |p| {
                Err(OpError::Shape {
                    rule: "the bytes of a constant fit its type",
                    shapes: p,
                })
            }),
            Op::While(_) => while_counts(node),
            Op::Reduce(_) | Op::ReduceIndex(_) => fold_counts(node),
            Op::If(_) => {
                let got = node
                    .blocks
                    .iter()
                    .map(|b| b.results.len())
                    .find(|&n| n != node.outputs.len());
                got.map_or(Ok(()), |got| {
                    Err(OpError::Arity {
                        expected: format!("{} results a block", node.outputs.len()),
                        got,
                    })
                })
            }
            _ => Ok(()),
        }
    }
}

fn fold_counts(node: &Node) -> Result<(), OpError> {
    let counts = node.blocks.iter().map(|b| (b.args.len(), b.results.len()));
    counts
        .into_iter()
        .find(|c| *c != (2, 1))
        .map_or(Ok(()), |(args, results)| {
            Err(OpError::Arity {
                expected: "a block of 2 arguments and 1 result".into(),
                got: args + results,
            })
        })
}

fn while_counts(node: &Node) -> Result<(), OpError> {
    let n = node.inputs.len();
    let [condition, body] = &node.blocks[..] else {
        return Ok(());
    };
    let carried = condition.results.len().saturating_sub(1);
    let counts = [
        condition.args.len(),
        node.outputs.len(),
        body.results.len(),
        body.args.len(),
        carried,
    ];
    let expected = [n, carried, n, carried, carried];
    match counts.iter().zip(expected).find(|(a, b)| **a != *b) {
        Some((&got, expected)) => Err(OpError::Arity {
            expected: format!("{expected} loop values"),
            got,
        }),
        None => Ok(()),
    }
}
