//! States: read, replaced, and updated in part, in the order of their tokens.

use russet_graph::graph::{Node, ValueId};
use russet_graph::infer::name_unknowns;
use russet_graph::ops::*;
use russet_graph::tensor::Tensor;
use russet_graph::types::{DType, TensorType, Type};

use super::{Builder, Choices, Val, number, random};

/// A state of the graph.
pub(super) struct State {
    pub(super) name: String,
    handle: ValueId,
    ty: TensorType,
    /// Before the call.
    pub(super) before: Tensor,
    /// After what has grown.
    pub(super) now: Tensor,
    pub(super) rough: bool,
}

impl Builder {
    /// A state of a random kind and shape.
    pub(super) fn state(&mut self, c: &mut Choices<'_>) {
        let name = format!("s{}", self.states.len());
        let Some((tensor, ty)) = random(c) else {
            return;
        };
        let Type::Handle(named) = name_unknowns(&name, &Type::Handle(ty.clone())) else {
            return;
        };
        let handle = self.graph.add_input(&name, Type::Handle(ty));
        self.facts.insert(handle, fact(Type::Handle(named.clone())));
        if self.token.is_none() {
            let token = self.new_token();
            self.nodes
                .push(Node::new(create_token::CreateToken, &[], &[token]));
        }
        self.states.push(State {
            name,
            handle,
            ty: named,
            before: tensor.clone(),
            now: tensor,
            rough: false,
        });
    }

    fn new_token(&mut self) -> ValueId {
        let token = self.graph.add_value(Type::Token);
        self.facts.insert(token, fact(Type::Token));
        self.token = Some(token);
        token
    }

    /// Reads a state.
    fn read_state(&mut self, at: usize) -> Option<Val> {
        let state = self.states.get(at)?;
        let (handle, ty, now, rough) = (
            state.handle,
            state.ty.clone(),
            state.now.clone(),
            state.rough,
        );
        let before = self.token?;
        let id = self.graph.add_value(ty.clone());
        let token = self.new_token();
        let node = Node::new(read_handle::ReadHandle, &[handle, before], &[id, token]);
        self.nodes.push(node);
        let val = self.define(id, fact(Type::Tensor(ty)), now, rough);
        self.values.push(val.clone());
        Some(val)
    }

    /// Replaces a state.
    fn write_state(&mut self, at: usize, v: &Val) -> Option<Val> {
        let (handle, before) = (self.states.get(at)?.handle, self.token?);
        let token = self.new_token();
        let node = Node::new(write_handle::WriteHandle, &[handle, v.id, before], &[token]);
        self.nodes.push(node);
        let state = self.states.get_mut(at)?;
        (state.now, state.rough) = (v.tensor.clone(), v.rough);
        Some(v.clone())
    }
}

fn fact(ty: Type) -> Fact {
    Fact { ty, known: None }
}

/// The value of a state.
pub(super) fn read(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    b.read_state(c.below(b.states.len()))
}

/// Some value of its type becomes the state.
pub(super) fn write(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let at = c.below(b.states.len());
    let ty = b.states.get(at)?.ty.clone();
    let v = b.any(c, |v| b.ty(v.id) == Some(&ty))?;
    b.write_state(at, &v)
}

/// A part of the state is replaced: in place, in a plan, unless somebody still needs what was there.
pub(super) fn update(b: &mut Builder, c: &mut Choices<'_>) -> Option<Val> {
    let at = c.below(b.states.len());
    let old = b.read_state(at)?;
    let shape = b.ty(old.id)?.fixed_shape().filter(|s| !s.is_empty())?;
    let begin: Vec<i64> = shape.iter().map(|&n| c.below(n) as i64).collect();
    let end: Vec<i64> = begin
        .iter()
        .zip(&shape)
        .map(|(&from, &n)| from + 1 + c.below(n - from as usize) as i64)
        .collect();
    let bounds = [begin, end, vec![1; shape.len()]];
    let [begin, end, step] = bounds.map(|v| b.ints(DType::I32, &v));
    let (begin, end, step) = (begin?, end?, step?);
    let part = b.push(slice::Slice, &[&old, &begin, &end, &step], false)?;
    let fits = |v: &Val| v.tensor.ty() == part.tensor.ty() && b.is_fixed(v);
    let mut new = b.any(c, fits)?;
    if !new.rough && number(new.tensor.dtype) {
        new = b.push(add::Add, &[&new, &new], false)?;
    }
    let updated = b.push(
        slice_update::SliceUpdate,
        &[&old, &begin, &end, &step, &new],
        false,
    )?;
    b.write_state(at, &updated)
}
