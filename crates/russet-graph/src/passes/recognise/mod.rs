//! What exporters spell out, said as the one operation that it is, so that plans have a kernel for it.
//!
//! A rule looks at a node and at what made its operands. Where they are what it knows, it says which nodes stand in the node's
//! place: they give the same value, but for where roundings fall. What is not needed any more is passed over by lowering. Nodes are
//! looked at in order, so a rule sees what other rules have made of the operands.

mod activations;
mod attention;
mod axes;
mod inverses;
mod norms;
mod rotations;
mod sight;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use self::sight::{Patch, Sight};
use crate::graph::{Graph, Module, Node};
use crate::infer::{NodeError, infer};
use crate::passes::{eliminate_common, prune};

/// What stands in a node's place, where a rule has something better.
type Rule = fn(&Sight<'_>, &Node) -> Option<Patch>;

/// Every rule, by what it finds.
const RULES: &[(&str, Rule)] = &[
    ("softmax of its parts", attention::softmax),
    ("attention", attention::attention),
    ("norm by the mean square", norms::of_mean_square),
    ("norm of x beside -x", norms::of_both_signs),
    ("norm in one kind", norms::in_one_kind),
    ("norm with its scale", norms::scaled),
    ("rotation by tables", rotations::whole),
    ("rotation half by half", rotations::by_halves),
    ("rotation of the first elements", rotations::first),
    ("activation", activations::named),
    ("inverse by block doubling", inverses::by_doubling),
];

/// Rewrites a graph without calls in place.
///
/// # Errors
/// Where the graph cannot be inferred.
pub fn recognise(module: &Module, graph: &mut Graph) -> Result<(), NodeError> {
    let facts = infer(module, graph)?;
    let mut done: Vec<Node> = Vec::with_capacity(graph.body.nodes.len());
    let mut makers = HashMap::new();
    for node in std::mem::take(&mut graph.body.nodes) {
        let sight = Sight {
            facts: &facts,
            types: &graph.values,
            nodes: &done,
            makers: &makers,
        };
        let found = RULES.iter().find_map(|(_, rule)| rule(&sight, &node));
        let nodes = match found {
            Some(patch) => patch.apply(&mut graph.values),
            None => vec![node],
        };
        for node in nodes {
            makers.extend(node.outputs.iter().map(|&id| (id, done.len())));
            done.push(node);
        }
    }
    graph.body.nodes = done;
    axes::settle(graph, &infer(module, graph)?);
    eliminate_common(graph);
    prune(graph);
    Ok(())
}
