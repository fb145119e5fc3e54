//! Writing the text form.

use std::fmt::Write;

use russet_kernels::mem::SharedBytes;

use super::{Text, quoted};
use crate::attr::write_dict;
use crate::graph::{Block, ConstantData, Graph, Module, Node, Port, Storage, ValueId};
use crate::ops::Op;

/// Constants up to this many bytes are written in place.
const INLINE: usize = 64;

/// The text form of a module.
pub fn print(module: &Module) -> Text {
    let mut p = Printer {
        out: String::new(),
        blobs: Vec::new(),
    };
    p.out.push_str("module ");
    if !module.attributes.is_empty() {
        p.dict(&module.attributes);
        p.out.push(' ');
    }
    p.out.push_str("{\n");
    module.graphs.iter().for_each(|g| p.graph(g));
    p.out.push_str("}\n");
    Text {
        text: p.out,
        blobs: p.blobs,
    }
}

struct Printer {
    out: String,
    blobs: Vec<SharedBytes>,
}

/// Writing to a `String` cannot fail.
macro_rules! put {
    ($p:expr, $($arg:tt)*) => { { let _ = write!($p.out, $($arg)*); } };
}

impl Printer {
    fn dict(&mut self, attributes: &crate::attr::Attributes) {
        let _ = write_dict(&mut self.out, attributes);
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            each(self, item);
        }
    }

    fn values(&mut self, ids: &[ValueId]) {
        self.list(ids, |p, id| put!(p, "%{}", id.0));
    }

    fn port(&mut self, port: &Port) {
        put!(self, "{}: {}", quoted(&port.name), port.ty);
        if !port.attributes.is_empty() {
            self.out.push(' ');
            self.dict(&port.attributes);
        }
    }

    fn graph(&mut self, g: &Graph) {
        put!(
            self,
            "  graph {}@{}(",
            if g.private { "private " } else { "" },
            quoted(&g.name)
        );
        let args: Vec<(ValueId, &Port)> = g.body.args.iter().copied().zip(&g.inputs).collect();
        self.list(&args, |p, (id, port)| {
            put!(p, "%{} ", id.0);
            p.port(port);
        });
        self.out.push_str(") -> (");
        self.list(&g.outputs, Self::port);
        self.out.push(')');
        self.composite(g);
        if !g.attributes.is_empty() {
            self.out.push_str(" attributes ");
            self.dict(&g.attributes);
        }
        self.out.push_str(" {\n");
        self.nodes(g, &g.body, 2);
        self.out.push_str("  }\n");
    }

    fn composite(&mut self, g: &Graph) {
        let Some(c) = &g.composite else { return };
        put!(self, " composite {}(", quoted(&c.name));
        self.list(&c.inputs, |p, n| p.out.push_str(&quoted(n)));
        self.out.push_str(") -> (");
        self.list(&c.outputs, |p, n| p.out.push_str(&quoted(n)));
        self.out.push_str(") ");
        self.dict(&c.attributes);
    }

    fn indent(&mut self, depth: usize) {
        (0..depth).for_each(|_| self.out.push_str("  "));
    }

    fn nodes(&mut self, g: &Graph, block: &Block, depth: usize) {
        for node in &block.nodes {
            self.node(g, node, depth);
        }
        self.indent(depth);
        self.out.push_str("return");
        if !block.results.is_empty() {
            self.out.push(' ');
            self.values(&block.results);
        }
        self.out.push('\n');
    }

    fn node(&mut self, g: &Graph, node: &Node, depth: usize) {
        self.indent(depth);
        if !node.outputs.is_empty() {
            self.values(&node.outputs);
            self.out.push_str(" = ");
        }
        self.out.push_str(node.op.name());
        if let Op::Constant(c) = &node.op {
            self.out.push(' ');
            self.constant(&c.0);
        } else {
            self.out.push('(');
            self.values(&node.inputs);
            self.out.push(')');
            let attributes = node.op.attributes();
            if !attributes.is_empty() {
                self.out.push(' ');
                self.dict(&attributes);
            }
        }
        if !node.outputs.is_empty() {
            self.out.push_str(" : ");
            self.list(&node.outputs, |p, &id| match g.ty(id) {
                Some(ty) => put!(p, "{ty}"),
                None => p.out.push_str("invalid"),
            });
        }
        for block in &node.blocks {
            self.block(g, block, depth);
        }
        if let Some(location) = &node.location {
            put!(self, " loc {location}");
        }
        self.out.push('\n');
    }

    fn block(&mut self, g: &Graph, block: &Block, depth: usize) {
        self.out.push_str(" block(");
        self.list(&block.args, |p, &id| match g.ty(id) {
            Some(ty) => put!(p, "%{}: {ty}", id.0),
            None => put!(p, "%{}: invalid", id.0),
        });
        self.out.push_str(") {\n");
        self.nodes(g, block, depth + 1);
        self.indent(depth);
        self.out.push('}');
    }

    fn constant(&mut self, c: &ConstantData) {
        match &c.storage {
            Storage::Dense(_) => {}
            Storage::Splat(_) => self.out.push_str("splat "),
            Storage::Blocks(format, _) => put!(self, "blocks({}) ", format.name()),
        }
        let bytes = c.storage.bytes();
        if bytes.len() <= INLINE {
            self.out.push_str("hex(");
            bytes.iter().for_each(|b| put!(self, "{b:02x}"));
            self.out.push(')');
        } else {
            put!(self, "blob({})", self.blobs.len());
            self.blobs.push(bytes.clone());
        }
    }
}
