//! Equal operations on equal operands are done once, and constants with equal bytes are one constant.

use std::collections::HashMap;

use crate::graph::{Graph, Node, ValueId};
use crate::ops::Op;

/// Merges equal nodes of the body. Operations on states and control flow are left alone.
pub fn eliminate_common(graph: &mut Graph) {
    let mut seen: HashMap<String, Vec<(Op, Vec<ValueId>, Vec<ValueId>)>> = HashMap::new();
    let mut replace: HashMap<ValueId, ValueId> = HashMap::new();
    let nodes = std::mem::take(&mut graph.body.nodes);
    let types = &graph.values;
    graph.body.nodes = nodes
        .into_iter()
        .filter_map(|mut node| {
            rename(&mut node, &replace);
            if !is_pure(&node) {
                return Some(node);
            }
            let bucket = seen.entry(key(&node)).or_default();
            let same_types = |a: &[ValueId], b: &[ValueId]| {
                a.iter()
                    .zip(b)
                    .all(|(x, y)| types.get(x.index()) == types.get(y.index()))
            };
            let twin = bucket.iter().find(|(op, inputs, outputs)| {
                *inputs == node.inputs && *op == node.op && same_types(outputs, &node.outputs)
            });
            if let Some((_, _, outputs)) = twin {
                replace.extend(node.outputs.iter().copied().zip(outputs.iter().copied()));
                return None;
            }
            bucket.push((node.op.clone(), node.inputs.clone(), node.outputs.clone()));
            Some(node)
        })
        .collect();
    for id in &mut graph.body.results {
        *id = replace.get(id).copied().unwrap_or(*id);
    }
}

pub(super) fn rename(node: &mut Node, replace: &HashMap<ValueId, ValueId>) {
    let swap = |id: &mut ValueId| *id = replace.get(id).copied().unwrap_or(*id);
    node.inputs.iter_mut().for_each(swap);
    for block in &mut node.blocks {
        block.nodes.iter_mut().for_each(|n| rename(n, replace));
        block.results.iter_mut().for_each(swap);
    }
}

fn is_pure(node: &Node) -> bool {
    let stateful = matches!(
        node.op,
        Op::ReadHandle(_) | Op::WriteHandle(_) | Op::CreateToken(_) | Op::JoinToken(_)
    );
    node.blocks.is_empty() && !stateful
}

/// A cheap key: equal nodes have equal keys. Large constants are told apart by type and length before their bytes are read.
fn key(node: &Node) -> String {
    match &node.op {
        Op::Constant(c) => {
            let bytes = c.0.storage.bytes();
            let head = &bytes[..bytes.len().min(16)];
            format!("constant {} {} {head:?}", c.0.ty, bytes.len())
        }
        op => format!("{} {:?}", op.name(), node.inputs),
    }
}
