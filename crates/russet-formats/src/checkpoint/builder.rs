//! Builds a graph operation by operation; the type of each result is inferred from what is there.

use std::collections::HashMap;
use std::sync::Arc;

use russet_graph::attr::{Attr, Attributes};
use russet_graph::error::OpError;
use russet_graph::graph::{ConstantData, Graph, Storage, ValueId};
use russet_graph::infer::name_unknowns;
use russet_graph::ops::constant::Constant;
use russet_graph::ops::{Fact, Op, OpInfo, Operand, Operands};
use russet_graph::types::{DType, Dim, TensorType, Type};
use russet_kernels::mem::SharedBytes;

use super::{CheckpointError, Result};

/// A graph under construction.
pub(super) struct Builder {
    graph: Graph,
    /// What is known of each value.
    facts: Vec<Fact>,
    constants: HashMap<ValueId, Arc<ConstantData>>,
    /// Integer constants that are there already, by rank and contents.
    integers: HashMap<(usize, Vec<i32>), ValueId>,
}

impl Builder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            graph: Graph::new(name),
            facts: Vec::new(),
            constants: HashMap::new(),
            integers: HashMap::new(),
        }
    }

    /// An input. Unknown extents stay unknown in the graph and are symbols to inference.
    pub(super) fn input(&mut self, name: &str, ty: Type, attributes: Attributes) -> ValueId {
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

    pub(super) fn finish(mut self, outputs: &[(&str, ValueId)]) -> Graph {
        outputs
            .iter()
            .for_each(|(name, id)| self.graph.add_output(name, *id));
        self.graph
    }

    /// An operation with one result.
    pub(super) fn op(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId> {
        let [one] = self.ops(op, inputs)?;
        Ok(one)
    }

    /// An operation with `N` results.
    pub(super) fn ops<const N: usize>(
        &mut self,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<[ValueId; N]> {
        let op = op.into();
        let failed = |error| CheckpointError::Op {
            op: op.name().into(),
            error,
        };
        let operands: Option<Vec<Operand<'_>>> =
            inputs.iter().map(|&id| self.operand(id)).collect();
        let operands = operands.ok_or_else(|| failed(OpError::Unknown("an operand")))?;
        let facts = op.infer(Operands(&operands)).map_err(failed)?;
        let declared: Vec<Type> = facts.iter().map(|f| declared(&f.ty)).collect();
        let name = op.name();
        self.facts.extend(facts);
        let results = self.graph.push(op, inputs, declared);
        let wrong = |_| CheckpointError::Op {
            op: name.into(),
            error: OpError::Unknown("the number of results"),
        };
        results.try_into().map_err(wrong)
    }

    /// An operation of the table by its name, with attributes as files write them.
    pub(super) fn named(
        &mut self,
        name: &'static str,
        attributes: &Attributes,
        inputs: &[ValueId],
    ) -> Result<ValueId> {
        let failed = |error| CheckpointError::Op {
            op: name.into(),
            error,
        };
        let row = OpInfo::find(name).ok_or_else(|| failed(OpError::Unknown("the operation")))?;
        let op = (row.parse)(attributes).map_err(failed)?;
        self.op(op, inputs)
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

    pub(super) fn constant(&mut self, data: ConstantData) -> Result<ValueId> {
        let data = Arc::new(data);
        let id = self.op(Constant(data.clone()), &[])?;
        self.constants.insert(id, data);
        Ok(id)
    }

    /// A vector of i32.
    pub(super) fn ints(&mut self, values: &[i32]) -> Result<ValueId> {
        self.integer_constant(&[values.len()], values)
    }

    /// One i32 without extents.
    pub(super) fn int(&mut self, value: i32) -> Result<ValueId> {
        self.integer_constant(&[], &[value])
    }

    fn integer_constant(&mut self, shape: &[usize], values: &[i32]) -> Result<ValueId> {
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

/// The type as a file would declare it: extents that are not constants are unknown.
fn declared(ty: &Type) -> Type {
    let plain = |d: &Dim| d.as_const().map_or(Dim::Unknown, Dim::Const);
    match ty {
        Type::Tensor(t) => Type::Tensor(TensorType::new(t.dtype, t.shape.iter().map(plain))),
        other => other.clone(),
    }
}

/// Attributes with the roles of the operands, as composite declarations have them.
pub(super) fn attributes(roles: &[&str], values: &[(&str, Attr)]) -> Attributes {
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
