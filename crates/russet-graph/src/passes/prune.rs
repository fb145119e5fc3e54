//! What nobody needs goes, and values are numbered anew.

use std::collections::HashMap;

use crate::graph::{Block, Graph, Node, ValueId};
use crate::ops::Op;

/// Takes away nodes of the body whose results are not needed, and values that nothing makes. Writes to states stay, and so does
/// control flow.
pub fn prune(graph: &mut Graph) {
    let mut needed = vec![false; graph.values.len()];
    let need = |ids: &[ValueId], needed: &mut Vec<bool>| {
        for id in ids {
            if let Some(place) = needed.get_mut(id.index()) {
                *place = true;
            }
        }
    };
    need(&graph.body.results, &mut needed);
    let nodes = std::mem::take(&mut graph.body.nodes);
    let mut kept: Vec<Node> = Vec::with_capacity(nodes.len());
    for node in nodes.into_iter().rev() {
        let effect = matches!(node.op, Op::WriteHandle(_)) || !node.blocks.is_empty();
        let wanted = |id: &ValueId| needed.get(id.index()).is_some_and(|n| *n);
        if effect || node.outputs.iter().any(wanted) {
            need(&node.inputs, &mut needed);
            node.blocks
                .iter()
                .for_each(|b| each(b, &mut |ids| need(ids, &mut needed)));
            kept.push(node);
        }
    }
    kept.reverse();
    graph.body.nodes = kept;
    number(graph);
}

/// Calls `visit` with the operands and results of every node, and the results of every block.
fn each(block: &Block, visit: &mut impl FnMut(&[ValueId])) {
    for node in &block.nodes {
        visit(&node.inputs);
        node.blocks.iter().for_each(|b| each(b, visit));
    }
    visit(&block.results);
}

fn number(graph: &mut Graph) {
    let mut body = std::mem::take(&mut graph.body);
    let mut numbers = Numbers {
        new: HashMap::new(),
        order: Vec::new(),
    };
    numbers.define(&body);
    numbers.rename(&mut body);
    graph.body = body;
    let ty = |id: &ValueId| graph.values[id.index()].clone();
    graph.values = numbers.order.iter().map(ty).collect();
}

struct Numbers {
    new: HashMap<ValueId, ValueId>,
    /// Old values in their new order.
    order: Vec<ValueId>,
}

impl Numbers {
    fn add(&mut self, ids: &[ValueId]) {
        for &id in ids {
            let next = ValueId(u32::try_from(self.order.len()).unwrap_or(u32::MAX));
            self.new.insert(id, next);
            self.order.push(id);
        }
    }

    fn define(&mut self, block: &Block) {
        self.add(&block.args);
        for node in &block.nodes {
            node.blocks.iter().for_each(|b| self.define(b));
            self.add(&node.outputs);
        }
    }

    fn rename(&self, block: &mut Block) {
        let rename = |ids: &mut Vec<ValueId>| {
            let number = |id: &mut ValueId| *id = self.new.get(id).copied().unwrap_or(*id);
            ids.iter_mut().for_each(number);
        };
        for node in &mut block.nodes {
            rename(&mut node.inputs);
            rename(&mut node.outputs);
            node.blocks.iter_mut().for_each(|b| self.rename(b));
        }
        rename(&mut block.args);
        rename(&mut block.results);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Text, parse, print};
    use crate::verify::verify;

    const TEXT: &str = r#"module {
  graph @"main"(%0 "x": tensor<2xf32>) -> ("y": tensor<2xf32>) {
    %1 = exp(%0) : tensor<2xf32>
    %2 = add(%0, %0) : tensor<2xf32>
    %3 = add(%1, %1) : tensor<2xf32>
    return %2
  }
}
"#;

    #[test]
    fn what_nobody_needs_goes() {
        let blobs = Vec::new();
        let mut module = parse(&Text {
            text: TEXT.into(),
            blobs,
        })
        .unwrap();
        prune(&mut module.graphs[0]);
        verify(&module).unwrap();
        let lines = TEXT
            .lines()
            .filter(|l| !l.contains("%1"))
            .collect::<Vec<_>>();
        let want = lines.join("\n").replace("%2", "%1") + "\n";
        assert_eq!(print(&module).text, want);
    }
}
