//! One graph without calls: known composites become whole operations, everything else is replaced by its body.

use std::collections::HashMap;
use std::sync::Arc;

use crate::attr::{Attr, Attributes};
use crate::error::OpError;
use crate::graph::{Block, Composite, Graph, Module, Node, Port, ValueId};
use crate::infer::{MAX_CALLS, NodeError, without_symbols};
use crate::ops::{Fact, Op, OpInfo, Operand, Operands};
use crate::types::Type;

/// A flattened graph may have this many nodes.
const MAX_NODES: usize = 2_000_000;

/// `graph` with every call replaced: by one operation where the callee is the body of a composite that the op table knows
/// and `whole` is set, by the callee's nodes otherwise.
pub fn flatten(module: &Module, graph: &Graph, whole: bool) -> Result<Graph, NodeError> {
    let mut out = Graph {
        values: Vec::new(),
        body: Block::default(),
        ..graph.clone()
    };
    let mut pass = Inline {
        module,
        out: &mut out,
        whole,
        nodes: 0,
    };
    let body = pass.block(graph, &graph.body, &mut HashMap::new(), 0)?;
    out.body = body;
    Ok(out)
}

/// The operation a composite declares, where the table has it and takes its attributes. The operands' roles are the
/// attribute `inputs`.
pub(super) fn composite_op(composite: &Composite) -> Option<Op> {
    let info = OpInfo::find(&composite.name)?;
    let roles = Attr::List(
        composite
            .inputs
            .iter()
            .map(|n| Attr::Str(n.clone()))
            .collect(),
    );
    let mut attributes: Attributes = composite.attributes.clone();
    attributes.push((Arc::from("inputs"), roles));
    (info.parse)(&attributes)
        .ok()
        .filter(|op| !matches!(op, Op::Invoke(_) | Op::Constant(_)))
}

/// Whether the operation takes the operands that the body takes and gives what the body gives.
fn takes(op: &Op, callee: &Graph) -> bool {
    let operands: Vec<Operand<'_>> = callee
        .inputs
        .iter()
        .map(|p| Operand {
            ty: &p.ty,
            known: None,
            constant: None,
        })
        .collect();
    let same = |fact: &Fact, port: &Port| match (fact.ty.as_tensor(), port.ty.as_tensor()) {
        (Some(a), Some(b)) => a.dtype == b.dtype && a.rank() == b.rank(),
        _ => false,
    };
    op.infer(Operands(&operands)).is_ok_and(|facts| {
        facts.len() == callee.outputs.len()
            && facts.iter().zip(&callee.outputs).all(|(f, p)| same(f, p))
    })
}

struct Inline<'a> {
    module: &'a Module,
    out: &'a mut Graph,
    whole: bool,
    nodes: usize,
}

type Map = HashMap<ValueId, ValueId>;

impl Inline<'_> {
    /// New values of the types that the file declares. Symbols name lengths of their own graph: elsewhere they mean nothing.
    fn fresh(
        &mut self,
        from: &Graph,
        ids: &[ValueId],
        map: &mut Map,
        depth: usize,
    ) -> Vec<ValueId> {
        ids.iter()
            .map(|&id| {
                let ty = match from.ty(id) {
                    Some(ty) if depth > 0 => without_symbols(ty),
                    Some(ty) => ty.clone(),
                    None => Type::Token,
                };
                let new = self.out.add_value(ty);
                map.insert(id, new);
                new
            })
            .collect()
    }

    fn block(
        &mut self,
        from: &Graph,
        block: &Block,
        map: &mut Map,
        depth: usize,
    ) -> Result<Block, NodeError> {
        let args = self.fresh(from, &block.args, map, depth);
        let mut nodes = Vec::new();
        self.nodes(from, block, map, depth, &mut nodes)?;
        Ok(Block {
            args,
            nodes,
            results: block.results.iter().map(|id| map[id]).collect(),
        })
    }

    fn nodes(
        &mut self,
        from: &Graph,
        block: &Block,
        map: &mut Map,
        depth: usize,
        to: &mut Vec<Node>,
    ) -> Result<(), NodeError> {
        for (index, node) in block.nodes.iter().enumerate() {
            let at = |error| NodeError {
                graph: from.name.to_string(),
                node: index,
                op: node.op.name(),
                error,
            };
            self.nodes += 1;
            if self.nodes > MAX_NODES || depth > MAX_CALLS {
                return Err(at(OpError::NotExecutable(format!(
                    "flattened, it has more than {MAX_NODES} operations"
                ))));
            }
            let inputs: Option<Vec<ValueId>> =
                node.inputs.iter().map(|id| map.get(id).copied()).collect();
            let inputs = inputs.ok_or_else(|| at(OpError::Unknown("an operand")))?;
            match &node.op {
                Op::Invoke(call) => {
                    let callee = self.module.graph(&call.graph);
                    let callee = callee.ok_or_else(|| {
                        at(OpError::NotExecutable(format!(
                            "there is no graph {:?}",
                            call.graph
                        )))
                    })?;
                    self.call(from, node, callee, inputs, map, depth, to)?;
                }
                op => {
                    let mut blocks = Vec::new();
                    for inner in &node.blocks {
                        blocks.push(self.block(from, inner, map, depth)?);
                    }
                    let outputs = self.fresh(from, &node.outputs, map, depth);
                    to.push(Node {
                        op: op.clone(),
                        inputs,
                        outputs,
                        blocks,
                        location: node.location.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one recursive walk")]
    fn call(
        &mut self,
        from: &Graph,
        node: &Node,
        callee: &Graph,
        inputs: Vec<ValueId>,
        map: &mut Map,
        depth: usize,
        to: &mut Vec<Node>,
    ) -> Result<(), NodeError> {
        let op = callee
            .composite
            .as_ref()
            .filter(|_| self.whole)
            .and_then(composite_op);
        if let Some(op) = op.filter(|op| takes(op, callee)) {
            let outputs = self.fresh(from, &node.outputs, map, depth);
            to.push(Node {
                op,
                inputs,
                outputs,
                blocks: Vec::new(),
                location: node.location.clone(),
            });
            return Ok(());
        }
        let mut inner: Map = callee.body.args.iter().copied().zip(inputs).collect();
        self.nodes(callee, &callee.body, &mut inner, depth + 1, to)?;
        for (&outer, result) in node.outputs.iter().zip(&callee.body.results) {
            if let Some(&id) = inner.get(result) {
                map.insert(outer, id);
            }
        }
        Ok(())
    }
}
