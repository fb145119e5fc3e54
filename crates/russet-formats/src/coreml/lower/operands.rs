//! Arguments of operations: values of the graph, numbers, texts.

use std::sync::Arc;

use russet_graph::attr::{Attr, Attributes};
use russet_graph::graph::{ConstantData, Storage, ValueId};
use russet_graph::ops::cast::Cast;
use russet_graph::tensor::Tensor;
use russet_graph::types::{DType, Dim, TensorType};
use russet_kernels::mem::SharedBytes;

use super::held::Held;
use super::{Item, Lowering};
use crate::coreml::error::{Outcome, Problem};
use crate::coreml::program::{Argument, Operation};

impl Lowering<'_> {
    /// What an argument is bound to; `None` where it is left out.
    fn bound(&self, op: &Operation, name: &str) -> Outcome<Option<Item>> {
        let inputs = op.inputs.iter().find(|(n, _)| &**n == name);
        match inputs.map(|(_, list)| &list[..]) {
            Some([one]) => return self.item(one).map(Some),
            Some(_) => return Err(wrong(name, "one value")),
            None => {}
        }
        // Operations of iOS 16 hold constants as attributes.
        let attribute = op.attributes.iter().find(|(n, _)| &**n == name);
        let held = attribute.map(|(_, v)| Held::of_value(self.weights, v));
        Ok(held.transpose()?.map(|h| Item::Held(Arc::new(h))))
    }

    fn item(&self, argument: &Argument) -> Outcome<Item> {
        match argument {
            Argument::Name(name) => self.find(name).cloned(),
            Argument::Value(value) => {
                let held = Held::of_value(self.weights, value)?;
                Ok(Item::Held(Arc::new(held)))
            }
        }
    }

    fn find(&self, name: &Arc<str>) -> Outcome<&Item> {
        let item = self.items.get(name);
        item.ok_or_else(|| Problem::Undefined(name.clone()))
    }

    /// A name as a value of the graph.
    pub(super) fn named(&mut self, name: &Arc<str>) -> Outcome<ValueId> {
        self.named_without(name, &[])
    }

    /// The same without some axes of extent 1; only what the file holds can be had without.
    fn named_without(&mut self, name: &Arc<str>, axes: &[usize]) -> Outcome<ValueId> {
        let held = match self.find(name)? {
            Item::Value(id) => return Ok(*id),
            Item::State(_) => return Err(wrong(name, "a tensor, not a state")),
            Item::Held(held) => held.clone(),
        };
        let key = (name.clone(), axes.to_vec());
        if let Some(id) = self.emitted.get(&key) {
            return Ok(*id);
        }
        let id = held.emit(&mut self.b, axes)?;
        self.emitted.insert(key, id);
        Ok(id)
    }

    fn argument_value(&mut self, argument: &Argument, axes: &[usize]) -> Outcome<ValueId> {
        match argument {
            Argument::Name(name) => self.named_without(name, axes),
            Argument::Value(value) => Held::of_value(self.weights, value)?.emit(&mut self.b, axes),
        }
    }

    /// An argument as a value of the graph.
    pub(super) fn value(&mut self, op: &Operation, name: &str) -> Outcome<ValueId> {
        self.optional(op, name)?.ok_or_else(|| missing(name))
    }

    /// An argument that may be left out.
    pub(super) fn optional(&mut self, op: &Operation, name: &str) -> Outcome<Option<ValueId>> {
        self.optional_without(op, name, &[])
    }

    /// An argument that the file holds, without some axes of extent 1.
    pub(super) fn optional_without(
        &mut self,
        op: &Operation,
        name: &str,
        axes: &[usize],
    ) -> Outcome<Option<ValueId>> {
        let inputs = op.inputs.iter().find(|(n, _)| &**n == name);
        match inputs.map(|(_, list)| &list[..]) {
            Some([one]) => self.argument_value(one, axes).map(Some),
            Some(_) => Err(wrong(name, "one value")),
            None => match self.bound(op, name)? {
                Some(Item::Held(held)) => held.emit(&mut self.b, axes).map(Some),
                _ => Ok(None),
            },
        }
    }

    /// An argument that is a list.
    pub(super) fn list(&mut self, op: &Operation, name: &str) -> Outcome<Vec<ValueId>> {
        let inputs = op.inputs.iter().find(|(n, _)| &**n == name);
        let (_, list) = inputs.ok_or_else(|| missing(name))?;
        list.iter().map(|a| self.argument_value(a, &[])).collect()
    }

    /// What the file holds of an argument; `None` where it is computed or left out.
    pub(super) fn held(&self, op: &Operation, name: &str) -> Outcome<Option<Arc<Held>>> {
        Ok(match self.bound(op, name)? {
            Some(Item::Held(held)) => Some(held),
            _ => None,
        })
    }

    /// What the file must hold of an argument.
    pub(super) fn must_hold(&self, op: &Operation, name: &str) -> Outcome<Arc<Held>> {
        self.held(op, name)?
            .ok_or_else(|| wrong(name, "a constant"))
    }

    /// A state's handle.
    pub(super) fn state(&self, op: &Operation, name: &str) -> Outcome<ValueId> {
        match self.bound(op, name)? {
            Some(Item::State(id)) => Ok(id),
            _ => Err(wrong(name, "a state")),
        }
    }

    /// The elements of an argument, where it is a constant.
    pub(super) fn tensor(&self, op: &Operation, name: &str) -> Outcome<Option<Tensor>> {
        let Some(held) = self.held(op, name)? else {
            return Ok(None);
        };
        match &*held {
            Held::Plain(data) => {
                let read = Tensor::from_constant(data);
                read.map(Some).map_err(|e| Problem::Value(e.to_string()))
            }
            _ => Ok(None),
        }
    }

    /// The integers of an argument that is a constant, or follows from constants.
    pub(super) fn ints(&self, op: &Operation, name: &str) -> Outcome<Option<Vec<i64>>> {
        if let Some(tensor) = self.tensor(op, name)? {
            return Ok(Some(tensor.ints()));
        }
        Ok(match self.bound(op, name)? {
            Some(Item::Value(id)) => self.known(id),
            _ => None,
        })
    }

    /// Integers that must be known.
    pub(super) fn must_ints(&self, op: &Operation, name: &str) -> Outcome<Vec<i64>> {
        match self.ints(op, name)? {
            Some(ints) => Ok(ints),
            None if self.bound(op, name)?.is_none() => Err(missing(name)),
            None => Err(wrong(name, "constant integers")),
        }
    }

    /// One integer, or what counts where it is left out.
    pub(super) fn int_or(&self, op: &Operation, name: &str, default: i64) -> Outcome<i64> {
        if self.bound(op, name)?.is_none() {
            return Ok(default);
        }
        match self.must_ints(op, name)?[..] {
            [one] => Ok(one),
            _ => Err(wrong(name, "one integer")),
        }
    }

    /// One integer.
    pub(super) fn int(&self, op: &Operation, name: &str) -> Outcome<i64> {
        match self.must_ints(op, name)?[..] {
            [one] => Ok(one),
            _ => Err(wrong(name, "one integer")),
        }
    }

    /// Truth values, `count` of them; all false where the argument is left out.
    pub(super) fn flags(&self, op: &Operation, name: &str, count: usize) -> Outcome<Vec<bool>> {
        let Some(tensor) = self.tensor(op, name)? else {
            return Ok(vec![false; count]);
        };
        let flags: Vec<bool> = tensor.scalars().map(|s| s.bool()).collect();
        match flags.len() == count {
            true => Ok(flags),
            false => Err(wrong(name, "one truth value for every axis")),
        }
    }

    /// One truth value.
    pub(super) fn flag_or(&self, op: &Operation, name: &str, default: bool) -> Outcome<bool> {
        Ok(self.int_or(op, name, default.into())? != 0)
    }

    /// One number.
    pub(super) fn number_or(&self, op: &Operation, name: &str, default: f64) -> Outcome<f64> {
        let Some(tensor) = self.tensor(op, name)? else {
            return Ok(default);
        };
        match tensor.floats()[..] {
            [one] => Ok(one),
            _ => Err(wrong(name, "one number")),
        }
    }

    /// One text, or `""` where it is left out.
    pub(super) fn text(&self, op: &Operation, name: &str) -> Outcome<Arc<str>> {
        match self.held(op, name)?.as_deref() {
            Some(Held::Texts(list)) => match &list[..] {
                [one] => Ok(one.clone()),
                _ => Err(wrong(name, "one text")),
            },
            None => Ok("".into()),
            Some(_) => Err(wrong(name, "a text")),
        }
    }

    /// The tensor type of a value, as far as it is known.
    pub(super) fn tensor_of(&self, id: ValueId) -> Outcome<TensorType> {
        let ty = self.b.fact(id).and_then(|f| f.ty.as_tensor());
        ty.cloned()
            .ok_or_else(|| Problem::Value("an operand is no tensor".into()))
    }

    pub(super) fn dtype_of(&self, id: ValueId) -> Outcome<DType> {
        Ok(self.tensor_of(id)?.dtype)
    }

    pub(super) fn rank_of(&self, id: ValueId) -> Outcome<usize> {
        Ok(self.tensor_of(id)?.rank())
    }

    /// The extents of a value, which must be constants.
    pub(super) fn extents_of(&self, id: ValueId) -> Outcome<Vec<usize>> {
        let ty = self.tensor_of(id)?;
        let unknown = || Problem::Unsupported(format!("an operand of open shape, {ty}"));
        ty.fixed_shape().ok_or_else(unknown)
    }

    /// The contents of a value, where they are constants.
    pub(super) fn known(&self, id: ValueId) -> Option<Vec<i64>> {
        let known = self.b.fact(id)?.known.as_ref()?;
        known.iter().map(Dim::as_const).collect()
    }

    /// An operation of the graph by its name, with one result.
    pub(super) fn op(&mut self, name: &'static str, inputs: &[ValueId]) -> Outcome<ValueId> {
        self.b.named(name, &Attributes::new(), inputs)
    }

    /// The same with attributes.
    pub(super) fn op_with(
        &mut self,
        name: &'static str,
        attributes: &[(&str, Attr)],
        inputs: &[ValueId],
    ) -> Outcome<ValueId> {
        let attributes = attributes.iter().map(|(n, v)| (Arc::from(*n), v.clone()));
        self.b.named(name, &attributes.collect(), inputs)
    }

    /// A vector of integers.
    pub(super) fn vector(&mut self, values: &[i64]) -> Outcome<ValueId> {
        self.b.ints(&narrow(values))
    }

    /// One integer.
    pub(super) fn scalar(&mut self, value: i64) -> Outcome<ValueId> {
        self.b
            .int(narrow(&[value]).first().copied().unwrap_or_default())
    }

    /// A number of this kind, without axes.
    pub(super) fn filled(&mut self, dtype: DType, value: f64) -> Outcome<ValueId> {
        let one = Tensor::from_floats(dtype, &[], &[value]);
        let one = one.map_err(|e| Problem::Value(e.to_string()))?;
        self.constant(&one)
    }

    /// A tensor that the reader makes.
    pub(super) fn constant(&mut self, tensor: &Tensor) -> Outcome<ValueId> {
        let bytes: SharedBytes = tensor.bytes().clone();
        self.b.constant(ConstantData {
            ty: tensor.ty(),
            storage: Storage::Dense(bytes),
        })
    }

    /// A value in another kind.
    pub(super) fn cast(&mut self, x: ValueId, to: DType) -> Outcome<ValueId> {
        if self.dtype_of(x)? == to {
            return Ok(x);
        }
        self.b.op(Cast { to }, &[x])
    }

    /// Computes on floats of 32 bits and rounds once to the kind of `x`: what in 16 bits would overflow or lose its digits on the
    /// way.
    pub(super) fn wide(
        &mut self,
        x: ValueId,
        compute: impl FnOnce(&mut Self, ValueId) -> Outcome<ValueId>,
    ) -> Outcome<ValueId> {
        let kind = self.dtype_of(x)?;
        if !matches!(kind, DType::F16 | DType::BF16) {
            return compute(self, x);
        }
        let x = self.cast(x, DType::F32)?;
        let y = compute(self, x)?;
        self.cast(y, kind)
    }
}

/// Integers as 32 bits; larger ones stand for "to the end" and stay as large as they can.
fn narrow(values: &[i64]) -> Vec<i32> {
    let clamp = |v: &i64| (*v).clamp(i32::MIN.into(), i32::MAX.into());
    values.iter().map(|v| clamp(v) as i32).collect()
}

/// An argument that is not what it should be.
pub(super) fn wrong(name: &str, expected: &'static str) -> Problem {
    Problem::Argument {
        name: name.into(),
        expected,
    }
}

pub(super) fn missing(name: &str) -> Problem {
    Problem::Missing(format!("argument {name:?}"))
}
