//! The residual stream of a program, by its structure alone: what starts at the embedding, or at the hidden states that a part is
//! given, and goes from one addition to the next.

use std::collections::{HashMap, HashSet};

use russet_graph::graph::{Graph, Node, ValueId};
use russet_graph::ops::Op;
use russet_graph::types::{DType, Type};

/// Operations that add something to the stream.
const ADDITIONS: [&str; 2] = ["add", "broadcasting_add"];
/// Operations that hand the stream on as it is, or in another form.
const FORMS: [&str; 8] = [
    "broadcast_to",
    "cast",
    "expand_dims",
    "identity",
    "reshape",
    "shrink_dims",
    "transpose",
    "copy_discarding_constraints",
];
/// Products, which hand it on where the other factor is one number.
const PRODUCTS: [&str; 2] = ["broadcasting_mul", "mul"];
/// Operations that pick rows of a table.
const PICKS: [&str; 3] = ["gather_along_axis", "gather_nd", "gather"];

/// The values of a function that a part of a layer was added to, in order. `hidden` is the width of the stream.
pub(super) fn additions(graph: &Graph, hidden: usize) -> Vec<ValueId> {
    let mut stream = Stream::new(graph, hidden);
    let mut found = Vec::new();
    for node in &graph.body.nodes {
        stream.follow(node, &mut found);
    }
    found
}

struct Stream<'a> {
    graph: &'a Graph,
    hidden: usize,
    on: HashSet<ValueId>,
    /// Constants of one element.
    numbers: HashSet<ValueId>,
}

impl<'a> Stream<'a> {
    fn new(graph: &'a Graph, hidden: usize) -> Self {
        let mut this = Self {
            graph,
            hidden,
            on: HashSet::new(),
            numbers: HashSet::new(),
        };
        let ports = graph.body.args.iter();
        this.on = ports.copied().filter(|id| this.fits(*id)).collect();
        this
    }

    /// Whether a value may hold the stream: floats with an axis of its width.
    fn fits(&self, id: ValueId) -> bool {
        let Some(Type::Tensor(ty)) = self.graph.ty(id) else {
            return false;
        };
        let wide = |d: &russet_graph::types::Dim| d.as_const() == i64::try_from(self.hidden).ok();
        let float = matches!(ty.dtype, DType::F16 | DType::BF16 | DType::F32);
        float && ty.shape.iter().any(wide)
    }

    fn follow(&mut self, node: &Node, found: &mut Vec<ValueId>) {
        let [output] = node.outputs[..] else {
            return;
        };
        if let Op::Constant(constant) = &node.op {
            if constant.0.len() == 1 {
                self.numbers.insert(output);
            }
            return;
        }
        let name = node.op.name();
        let from = node.inputs.iter().filter(|i| self.on.contains(i)).count();
        let starts = self.on.is_empty() && PICKS.contains(&name);
        let scaled = || node.inputs.iter().any(|i| self.numbers.contains(i));
        let adds = ADDITIONS.contains(&name) && from > 0 && node.inputs.len() == 2 && !scaled();
        let passes = from > 0
            && (FORMS.contains(&name) || (PRODUCTS.contains(&name) && from == 1 && scaled()));
        if (starts || adds || passes) && self.fits(output) {
            self.on.insert(output);
            if adds {
                found.push(output);
            }
        }
    }
}

/// The ends of `layers` layers among additions, where all layers add equally often.
pub(super) fn layer_ends(additions: &[usize], layers: usize) -> Option<Vec<usize>> {
    let each = additions.len().checked_div(layers)?;
    let whole = each > 0 && additions.len() == each * layers;
    whole.then(|| {
        additions
            .chunks(each)
            .filter_map(|c| c.last().copied())
            .collect()
    })
}

/// Values by the name of what they become as outputs.
pub(super) fn add_outputs(graph: &mut Graph, values: &[ValueId], first: usize) -> Vec<String> {
    let mut names = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let name = format!("residual.{}", first + i);
        graph.add_output(&name, *value);
        names.push(name);
    }
    names
}

/// How many functions have how many additions: what is said where nothing can be compared.
pub(super) fn described(counts: &HashMap<String, usize>) -> String {
    let mut parts: Vec<String> = counts.iter().map(|(n, c)| format!("{n} {c}")).collect();
    parts.sort();
    parts.join(", ")
}
