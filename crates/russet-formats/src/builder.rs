//! Builds a graph operation by operation; the type of each result is inferred from what is there.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use russet_graph::attr::{Attr, Attributes};
use russet_graph::error::OpError;
use russet_graph::graph::{ConstantData, Graph, Storage, ValueId};
use russet_graph::infer::name_unknowns;
use russet_graph::ops::constant::Constant;
use russet_graph::ops::{Fact, Op, OpInfo, Operand, Operands};
use russet_graph::types::{DType, Dim, TensorType, Type};
use russet_kernels::mem::SharedBytes;

/// An operation that cannot take what it is given.
#[derive(Clone, Debug)]
pub(crate) struct BuildError {
    /// The operation of the graph.
    pub(crate) op: &'static str,
    /// Why not.
    pub(crate) error: OpError,
}

/// A graph under construction. What goes wrong becomes an error `E` of the reader that builds.
pub(crate) struct Builder<E> {
    graph: Graph,
    /// What is known of each value.
    facts: Vec<Fact>,
    constants: HashMap<ValueId, Arc<ConstantData>>,
    /// Integer constants that are there already, by rank and contents.
    integers: HashMap<(usize, Vec<i32>), ValueId>,
    error: PhantomData<fn() -> E>,
}

impl<E: From<BuildError>> Builder<E> {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            graph: Graph::new(name),
            facts: Vec::new(),
            constants: HashMap::new(),
            integers: HashMap::new(),
            error: PhantomData,
        }
    }

    /// An input. Unknown extents stay unknown in the graph and are symbols to inference.
    pub(crate) fn input(&mut self, name: &str, ty: Type, attributes: Attributes) -> ValueId {
        self.facts.push(Fact {
            ty: name_unknowns(name, &ty),
            known: None,
        });
        let id = self.graph.add_input(name, ty);
        if let Some(port) = self.graph.inputs.last_mut() {
            port.attributes = attributes;
        }
        id
    }

    pub(crate) fn finish(mut self, outputs: &[(&str, ValueId)]) -> Graph {
        outputs
            .iter()
            .for_each(|(name, id)| self.graph.add_output(name, *id));
        self.graph
    }

    /// An operation with one result.
    pub(crate) fn op(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, E> {
        let [one] = self.ops(op, inputs)?;
        Ok(one)
    }

    /// An operation with `N` results.
    pub(crate) fn ops<const N: usize>(
        &mut self,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<[ValueId; N], E> {
        let op = op.into();
        let name = op.name();
        let wrong = |_| failed(name, OpError::Unknown("the number of results"));
        self.all(op, inputs)?.try_into().map_err(wrong)
    }

    /// An operation with any number of results.
    pub(crate) fn all(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, E> {
        let op = op.into();
        let operands: Option<Vec<Operand<'_>>> =
            inputs.iter().map(|&id| self.operand(id)).collect();
        let operands = operands.ok_or_else(|| failed(op.name(), OpError::Unknown("an operand")))?;
        let facts = op.infer(Operands(&operands));
        let facts = facts.map_err(|e| failed(op.name(), e))?;
        let declared: Vec<Type> = facts.iter().map(|f| declared(&f.ty)).collect();
        self.facts.extend(facts);
        Ok(self.graph.push(op, inputs, declared))
    }

    /// An operation of the table by its name, with attributes as files write them.
    pub(crate) fn named(
        &mut self,
        name: &'static str,
        attributes: &Attributes,
        inputs: &[ValueId],
    ) -> Result<ValueId, E> {
        let row =
            OpInfo::find(name).ok_or_else(|| failed(name, OpError::Unknown("the operation")))?;
        let op = (row.parse)(attributes).map_err(|e| failed(name, e))?;
        self.op(op, inputs)
    }

    /// What is known of a value.
    pub(crate) fn fact(&self, id: ValueId) -> Option<&Fact> {
        self.facts.get(id.index())
    }

    /// Extents that a file declares of a value, where inference does not know them. `None` where the two contradict each other.
    pub(crate) fn declare(&mut self, id: ValueId, shape: &[Dim]) -> Option<()> {
        let Type::Tensor(ty) = &mut self.facts.get_mut(id.index())?.ty else {
            return None;
        };
        if ty.rank() != shape.len() {
            return None;
        }
        for (dim, said) in ty.shape.iter_mut().zip(shape) {
            match (dim.as_const(), said.as_const()) {
                (Some(a), Some(b)) if a != b => return None,
                (None, Some(_)) => *dim = said.clone(),
                _ => {}
            }
        }
        *self.graph.values.get_mut(id.index())? = declared(&Type::Tensor(ty.clone()));
        Some(())
    }

    fn operand(&self, id: ValueId) -> Option<Operand<'_>> {
        let fact = self.facts.get(id.index())?;
        let constant = self.constants.get(&id).map(|c| &**c);
        Some(Operand {
            ty: &fact.ty,
            known: fact.known.clone(),
            constant,
        })
    }

    pub(crate) fn constant(&mut self, data: ConstantData) -> Result<ValueId, E> {
        let data = Arc::new(data);
        let id = self.op(Constant(data.clone()), &[])?;
        self.constants.insert(id, data);
        Ok(id)
    }

    /// A vector of i32.
    pub(crate) fn ints(&mut self, values: &[i32]) -> Result<ValueId, E> {
        self.integer_constant(&[values.len()], values)
    }

    /// One i32 without extents.
    pub(crate) fn int(&mut self, value: i32) -> Result<ValueId, E> {
        self.integer_constant(&[], &[value])
    }

    fn integer_constant(&mut self, shape: &[usize], values: &[i32]) -> Result<ValueId, E> {
        let key = (shape.len(), values.to_vec());
        if let Some(&id) = self.integers.get(&key) {
            return Ok(id);
        }
        let bytes = SharedBytes::from_vec(values.iter().flat_map(|v| v.to_le_bytes()).collect());
        let ty = TensorType::fixed(DType::I32, shape);
        let id = self.constant(ConstantData {
            ty,
            storage: Storage::Dense(bytes),
        })?;
        self.integers.insert(key, id);
        Ok(id)
    }
}

fn failed<E: From<BuildError>>(op: &'static str, error: OpError) -> E {
    BuildError { op, error }.into()
}

/// The type as a file would declare it: extents that are not constants are unknown.
fn declared(ty: &Type) -> Type {
    let plain = |d: &Dim| d.as_const().map_or(Dim::Unknown, Dim::Const);
    match ty {
        Type::Tensor(t) => Type::Tensor(TensorType::new(t.dtype, t.shape.iter().map(plain))),
        other => other.clone(),
    }
}

/// Attributes with the roles of the operands, as composite declarations have them.
pub(crate) fn attributes(roles: &[&str], values: &[(&str, Attr)]) -> Attributes {
    let mut all: Attributes = values
        .iter()
        .map(|(name, value)| (Arc::from(*name), value.clone()))
        .collect();
    all.push((
        Arc::from("inputs"),
        Attr::List(roles.iter().map(|r| Attr::str(r)).collect()),
    ));
    all
}
