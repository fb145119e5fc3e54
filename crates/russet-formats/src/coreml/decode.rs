//! From messages to a program: types by their numbers, elements as packed bytes.

use std::sync::Arc;

use russet_graph::types::DType;
use russet_kernels::mem::SharedBytes;

use super::error::{Outcome, Place, Problem, Result};
use super::program::{
    Argument, Block, Data, Element, Function, Named, Operation, Program, TensorType, Value,
    ValueType,
};
use super::proto::{self, Bound, Elements};

/// The number of text among element kinds.
const TEXT: i32 = 2;

/// Element kinds by their number in `MIL.proto`.
const KINDS: &[(i32, DType)] = &[
    (1, DType::Bool),
    (10, DType::F16),
    (11, DType::F32),
    (12, DType::F64),
    (13, DType::BF16),
    (21, DType::I8),
    (22, DType::I16),
    (23, DType::I32),
    (24, DType::I64),
    (25, DType::I4),
    (31, DType::U8),
    (32, DType::U16),
    (33, DType::U32),
    (34, DType::U64),
    (35, DType::U4),
    (36, DType::U2),
    (37, DType::U1),
    (38, DType::U6),
    (39, DType::U3),
    (40, DType::F8E4M3),
    (41, DType::F8E5M2),
];

/// The functions of a program.
pub(super) fn program(raw: proto::Program) -> Result<Program> {
    let functions = raw.functions.into_iter();
    let functions = functions.map(|(name, f)| function(name.into(), f));
    Ok(Program {
        functions: functions.collect::<Result<_>>()?,
    })
}

/// A function runs its block for the opset it names.
fn function(name: Arc<str>, mut raw: proto::Function) -> Result<Function> {
    let at = |problem: Problem| problem.at(Place::Function(name.clone()));
    let block = raw.blocks.remove(&raw.opset).ok_or_else(|| {
        at(Problem::Missing(format!(
            "the block of opset {:?}",
            raw.opset
        )))
    })?;
    Ok(Function {
        inputs: raw
            .inputs
            .into_iter()
            .map(named)
            .collect::<Outcome<_>>()
            .map_err(at)?,
        opset: raw.opset.into(),
        body: self::block(&name, block)?,
        name,
    })
}

fn block(function: &Arc<str>, raw: proto::Block) -> Result<Block> {
    let at = |problem: Problem| problem.at(Place::Function(function.clone()));
    let operations = raw.operations.into_iter().enumerate();
    let operations = operations.map(|(index, op)| operation(function, index, op));
    Ok(Block {
        operations: operations.collect::<Result<_>>()?,
        inputs: raw
            .inputs
            .into_iter()
            .map(named)
            .collect::<Outcome<_>>()
            .map_err(at)?,
        outputs: raw.outputs.into_iter().map(Into::into).collect(),
    })
}

fn operation(function: &Arc<str>, index: usize, raw: proto::Operation) -> Result<Operation> {
    let kind: Arc<str> = raw.kind.into();
    let place = Place::Operation {
        function: function.clone(),
        index,
        kind: kind.clone(),
        name: raw
            .outputs
            .first()
            .map_or_else(String::new, |o| o.name.clone())
            .into(),
    };
    let at = |problem: Problem| problem.at(place.clone());
    let inputs = raw.inputs.into_iter().map(|(name, argument)| {
        let bound = argument.bindings.into_iter().map(|b| bound(&name, b.bound));
        Ok((Arc::from(&*name), bound.collect::<Outcome<_>>()?))
    });
    let attributes = raw
        .attributes
        .into_iter()
        .filter(|(name, _)| name != "name");
    let attributes = attributes.map(|(name, v)| Ok((Arc::from(&*name), value(&name, v)?)));
    Ok(Operation {
        inputs: inputs.collect::<Outcome<_>>().map_err(at)?,
        outputs: raw
            .outputs
            .into_iter()
            .map(named)
            .collect::<Outcome<_>>()
            .map_err(at)?,
        attributes: attributes.collect::<Outcome<_>>().map_err(at)?,
        blocks: raw
            .blocks
            .into_iter()
            .map(|b| block(function, b))
            .collect::<Result<_>>()?,
        kind,
    })
}

fn bound(name: &str, raw: Option<Bound>) -> Outcome<Argument> {
    match raw {
        Some(Bound::Name(name)) => Ok(Argument::Name(name.into())),
        Some(Bound::Value(v)) => value(name, *v).map(Argument::Value),
        None => Err(Problem::Missing(format!(
            "what argument {name:?} is bound to"
        ))),
    }
}

fn named(raw: proto::NamedType) -> Outcome<Named> {
    let ty = raw
        .ty
        .map_or(Ok(ValueType::Other), |t| value_type(&raw.name, &t))?;
    Ok(Named {
        name: raw.name.into(),
        ty,
    })
}

fn value_type(name: &str, raw: &proto::ValueType) -> Outcome<ValueType> {
    if let Some(t) = &raw.tensor {
        return tensor_type(name, t).map(ValueType::Tensor);
    }
    let wrapped = raw.state.as_ref().and_then(|s| s.wrapped.as_ref());
    match wrapped.and_then(|w| w.tensor.as_ref()) {
        Some(t) => tensor_type(name, t).map(ValueType::State),
        None => Ok(ValueType::Other),
    }
}

fn tensor_type(name: &str, raw: &proto::TensorType) -> Outcome<TensorType> {
    let kind = KINDS.iter().find(|(k, _)| *k == raw.data_type);
    let element = match kind {
        Some((_, dtype)) => Element::Number(*dtype),
        None if raw.data_type == TEXT => Element::Text,
        None => {
            let reason = format!(
                "{name:?} has elements of kind {}, which is not known",
                raw.data_type
            );
            return Err(Problem::Value(reason));
        }
    };
    // A rank of 0 is left out, and so may that of a vector be.
    let shape: Vec<_> = raw
        .dimensions
        .iter()
        .map(|d| d.constant.map(|c| c.size))
        .collect();
    if raw.rank < 0 || (raw.rank > 0 && usize::try_from(raw.rank) != Ok(shape.len())) {
        let reason = format!("{name:?} has rank {} and {} extents", raw.rank, shape.len());
        return Err(Problem::Value(reason));
    }
    Ok(TensorType { element, shape })
}

fn value(name: &str, raw: proto::Value) -> Outcome<Value> {
    let expected = |expected| Problem::Argument {
        name: name.into(),
        expected,
    };
    let ty = raw.ty.as_ref().map(|t| value_type(name, t)).transpose()?;
    let Some(ValueType::Tensor(ty)) = ty else {
        return Err(expected("a tensor"));
    };
    if let Some(blob) = raw.blob {
        let (file, offset) = (blob.file.into(), blob.offset);
        let data = Data::Blob { file, offset };
        return Ok(Value { ty, data });
    }
    let tensor = raw.immediate.and_then(|i| i.tensor);
    let tensor = tensor.ok_or_else(|| expected("an immediate tensor or one of a weight file"))?;
    let Some(count) = ty.elements() else {
        return Err(expected("a tensor of known extents"));
    };
    let data = match ty.element {
        Element::Text => texts(tensor.elements),
        Element::Number(dtype) => packed(dtype, tensor.elements).map(Data::Bytes),
    };
    let data = data.ok_or_else(|| expected("made of elements of its type"))?;
    let held = match &data {
        Data::Bytes(bytes) => match ty.element {
            Element::Number(d) => d.packed_len(count) == Some(bytes.len()),
            Element::Text => false,
        },
        Data::Texts(list) => list.len() == count,
        Data::Blob { .. } => true,
    };
    if !held {
        return Err(Problem::Value(format!(
            "{name:?} is {ty} and has another number of elements"
        )));
    }
    Ok(Value { ty, data })
}

fn texts(elements: Option<Elements>) -> Option<Data> {
    match elements {
        Some(Elements::Strings(s)) => {
            Some(Data::Texts(s.values.into_iter().map(Into::into).collect()))
        }
        None => Some(Data::Texts(Vec::new())),
        _ => None,
    }
}

/// Elements as packed bytes; which field holds those of which kind, coremltools decides.
fn packed(dtype: DType, elements: Option<Elements>) -> Option<SharedBytes> {
    fn each<T, const N: usize>(values: &[T], bytes: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(bytes).collect()
    }
    let bytes = match (elements, dtype) {
        (None, _) => Vec::new(),
        (Some(Elements::Bytes(b)), d) if d != DType::Bool => {
            return Some(SharedBytes::new(Arc::new(b.values)));
        }
        (Some(Elements::Floats(v)), DType::F32) => each(&v.values, |x| x.to_le_bytes()),
        (Some(Elements::Doubles(v)), DType::F64) => each(&v.values, |x| x.to_le_bytes()),
        (Some(Elements::LongInts(v)), DType::I64 | DType::U64) => {
            each(&v.values, |x| x.to_le_bytes())
        }
        (Some(Elements::Bools(v)), DType::Bool) => each(&v.values, |x| [u8::from(*x)]),
        (Some(Elements::Ints(v)), d) if d.is_int() => ints(d, &v.values)?,
        _ => return None,
    };
    Some(SharedBytes::from_vec(bytes))
}

/// Integers of whole bytes, in as many bytes as their kind has.
fn ints(dtype: DType, values: &[i32]) -> Option<Vec<u8>> {
    let size = dtype.size().filter(|s| *s <= 4)?;
    let bytes = values
        .iter()
        .flat_map(|v| v.to_le_bytes().into_iter().take(size));
    Some(bytes.collect())
}
