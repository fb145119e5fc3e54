//! Values that the file holds: plain, or compressed by `constexpr` operations, which stay compressed in the graph.
//!
//! A weight of a convolution is wanted as the matrix it is: every part of a compressed value can be had without axes of extent 1.

use std::sync::Arc;

use russet_graph::graph::{ConstantData, Storage, ValueId};
use russet_graph::ops::{Op, OpInfo};
use russet_graph::tensor::Tensor;
use russet_graph::types::{DType, TensorType};
use russet_kernels::mem::SharedBytes;

use super::operands::wrong;
use super::{Builder, Lowering};
use crate::coreml::error::{Outcome, Problem};
use crate::coreml::program::{Data, Element, Operation, Value};
use crate::coreml::weights::Weights;

/// Something that the file holds.
#[derive(Clone, Debug)]
pub(super) enum Held {
    /// Numbers.
    Plain(ConstantData),
    /// Texts.
    Texts(Vec<Arc<str>>),
    /// Indices into tables; vectors lie along `axis`.
    Palette {
        indices: Arc<Held>,
        tables: Arc<Held>,
        axis: i64,
    },
    /// `scale · (data - offset)`, block by block.
    Blocks {
        data: Arc<Held>,
        scale: Arc<Held>,
        offset: Option<Arc<Held>>,
    },
    /// Values where a mask of bits is 1, 0 elsewhere.
    Sparse { values: Arc<Held>, mask: Arc<Held> },
}

impl Held {
    /// A value that stands in the program or in a weight file.
    pub(super) fn of_value(weights: &Weights, value: &Value) -> Outcome<Self> {
        let shape = value.ty.shape.iter().map(|d| usize::try_from((*d)?).ok());
        let shape: Option<Vec<usize>> = shape.collect();
        let shape = shape.ok_or_else(|| Problem::Value("a value of open shape".into()))?;
        let bytes = match (&value.data, value.ty.element) {
            (Data::Texts(list), _) => return Ok(Self::Texts(list.clone())),
            (Data::Bytes(bytes), Element::Number(_)) => bytes.clone(),
            (Data::Blob { file, offset }, Element::Number(dtype)) => {
                let len = value.ty.elements().unwrap_or(usize::MAX);
                let found = weights.value(file, *offset, dtype, len);
                found.map_err(|e| Problem::Value(e.to_string()))?
            }
            (_, Element::Text) => return Err(Problem::Value("texts in a weight file".into())),
        };
        let Element::Number(dtype) = value.ty.element else {
            return Err(Problem::Value("a value of texts".into()));
        };
        let data = plain(dtype, &shape, bytes);
        match data.problem() {
            Some(problem) => Err(Problem::Value(problem)),
            None => Ok(Self::Plain(data)),
        }
    }

    /// The shape of the value that it stands for.
    pub(super) fn shape(&self) -> Option<Vec<usize>> {
        match self {
            Self::Plain(data) => data.ty.fixed_shape(),
            Self::Texts(_) => None,
            Self::Palette {
                indices,
                tables,
                axis,
            } => {
                let (mut shape, width) = (indices.shape()?, *tables.shape()?.last()?);
                if width != 1 {
                    let at = russet_graph::ops::shape::axis(*axis, shape.len()).ok()?;
                    let extent = shape.get_mut(at)?;
                    *extent = extent.checked_mul(width)?;
                }
                Some(shape)
            }
            Self::Blocks { data, .. } => data.shape(),
            Self::Sparse { mask, .. } => mask.shape(),
        }
    }

    /// Adds it to a graph, without these axes, which have extent 1 in every part.
    pub(super) fn emit(&self, b: &mut Builder, without: &[usize]) -> Outcome<ValueId> {
        match self {
            Self::Plain(data) => b.constant(dropped(data, without)?),
            Self::Texts(_) => Err(Problem::Unsupported("texts where numbers belong".into())),
            Self::Palette {
                indices,
                tables,
                axis,
            } => {
                let indices = indices.emit(b, without)?;
                let tables = tables.folded()?.emit(b, without)?;
                let axis = without
                    .iter()
                    .fold(*axis, |at, d| at - i64::from((*d as i64) < *axis));
                let axis = b.int(i32::try_from(axis).unwrap_or(i32::MAX))?;
                op(b, "lut_to_dense", &[indices, tables, axis])
            }
            Self::Blocks {
                data,
                scale,
                offset,
            } => blocks(b, data, scale, offset.as_deref(), without),
            Self::Sparse { values, mask } => {
                let (values, mask) = (values.emit(b, &[])?, mask.emit(b, without)?);
                let sparse = op(b, "build_sparse_with_bitmask", &[values, mask])?;
                op(b, "sparse_with_bitmask_to_dense", &[sparse])
            }
        }
    }

    /// The elements of something small and compressed, such as the tables of a palette that are scaled.
    fn folded(&self) -> Outcome<Self> {
        let Self::Blocks {
            data,
            scale,
            offset,
        } = self
        else {
            return Ok(self.clone());
        };
        let tensor = |held: &Self| match held.folded()? {
            Self::Plain(data) => Tensor::from_constant(&data).map_err(unread),
            _ => Err(Problem::Unsupported(
                "tables that are compressed twice".into(),
            )),
        };
        let (data, scale) = (tensor(data)?, tensor(scale)?);
        let zero = match offset {
            Some(offset) => tensor(offset)?,
            None => number(data.dtype)?,
        };
        let shift = number(scale.dtype)?;
        let row = OpInfo::find("blockwise_shift_scale");
        let row = row.ok_or_else(|| Problem::Value("the operation is not there".into()))?;
        let op: Op = (row.parse)(&[]).map_err(unread)?;
        let results = op.reference(&[data, scale, zero, shift]).map_err(unread)?;
        let first = results
            .first()
            .ok_or_else(|| Problem::Value("no result".into()))?;
        Ok(Self::Plain(ConstantData {
            ty: first.ty(),
            storage: Storage::Dense(first.bytes().clone()),
        }))
    }

    fn dtype(&self) -> Option<DType> {
        match self {
            Self::Plain(data) => Some(data.ty.dtype),
            _ => None,
        }
    }

    /// Whether all its bytes are zero.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Self::Plain(data) if data.storage.bytes().iter().all(|b| *b == 0))
    }
}

/// `scale · (data - offset)`. The graph's operation rounds `offset · scale` where data has whole bytes: there it works in 32 bits.
fn blocks(
    b: &mut Builder,
    data: &Held,
    scale: &Held,
    offset: Option<&Held>,
    without: &[usize],
) -> Outcome<ValueId> {
    let (Some(kind), Some(made)) = (data.dtype(), scale.dtype()) else {
        return Err(Problem::Unsupported(
            "blocks that are compressed twice".into(),
        ));
    };
    let offset = offset.filter(|o| !o.is_zero());
    let shifted = offset.is_some() && kind.size().is_some() && made != DType::F32;
    let zero = match offset {
        Some(offset) => offset.emit(b, without)?,
        None => emit_number(b, kind)?,
    };
    let (data, mut scale) = (data.emit(b, without)?, scale.emit(b, without)?);
    let shift = emit_number(b, if shifted { DType::F32 } else { made })?;
    if shifted {
        scale = b.op(russet_graph::ops::cast::Cast { to: DType::F32 }, &[scale])?;
    }
    let out = op(b, "blockwise_shift_scale", &[data, scale, zero, shift])?;
    match shifted {
        true => b.op(russet_graph::ops::cast::Cast { to: made }, &[out]),
        false => Ok(out),
    }
}

fn op(b: &mut Builder, name: &'static str, inputs: &[ValueId]) -> Outcome<ValueId> {
    b.named(name, &Vec::new(), inputs)
}

/// Zero of a kind, without axes.
fn number(dtype: DType) -> Outcome<Tensor> {
    Tensor::from_ints(dtype, &[], &[0]).map_err(unread)
}

fn emit_number(b: &mut Builder, dtype: DType) -> Outcome<ValueId> {
    let zero = number(dtype)?;
    b.constant(plain(dtype, &[], zero.bytes().clone()))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn unread(error: russet_graph::error::OpError) -> Problem {
    Problem::Value(error.to_string())
}

fn plain(dtype: DType, shape: &[usize], bytes: SharedBytes) -> ConstantData {
    ConstantData {
        ty: TensorType::fixed(dtype, shape),
        storage: Storage::Dense(bytes),
    }
}

/// The same elements without some axes of extent 1.
fn dropped(data: &ConstantData, without: &[usize]) -> Outcome<ConstantData> {
    let mut data = data.clone();
    for (axis, extent) in data.ty.shape.iter().enumerate() {
        if without.contains(&axis) && extent.as_const() != Some(1) {
            let reason = format!("axis {axis} of {} is not 1", data.ty);
            return Err(Problem::Value(reason));
        }
    }
    let mut axis = 0;
    data.ty.shape.retain(|_| {
        axis += 1;
        !without.contains(&(axis - 1))
    });
    Ok(data)
}

/// `const`: its value.
pub(super) fn constant(l: &mut Lowering<'_>, op: &Operation) -> Outcome<Held> {
    let value = op.attributes.iter().find(|(name, _)| &**name == "val");
    let (_, value) = value.ok_or_else(|| Problem::Missing("the value of a constant".into()))?;
    Held::of_value(l.weights, value)
}

/// `constexpr_lut_to_dense` of iOS 18: `indices`, `lut` and `vector_axis`; of iOS 16, where one table serves all.
pub(super) fn palette(l: &mut Lowering<'_>, op: &Operation) -> Outcome<Held> {
    let (indices, tables) = (l.must_hold(op, "indices")?, l.must_hold(op, "lut")?);
    if let Some(shape) = l.ints(op, "shape")? {
        return old_palette(&indices, &tables, &shape);
    }
    Ok(Held::Palette {
        indices,
        tables,
        axis: l.int_or(op, "vector_axis", 0)?,
    })
}

/// The bytes of something plain as a stream of elements below a byte, as iOS 16 keeps indices and masks.
fn stream(held: &Held, kind: DType, shape: &[i64]) -> Outcome<ConstantData> {
    let Held::Plain(bytes) = held else {
        return Err(Problem::Unsupported(
            "a stream of bits that is compressed".into(),
        ));
    };
    let shape: Option<Vec<usize>> = shape.iter().map(|d| usize::try_from(*d).ok()).collect();
    let shape = shape.ok_or_else(|| wrong("shape", "extents"))?;
    let data = plain(kind, &shape, bytes.storage.bytes().clone());
    match data.problem() {
        Some(problem) => Err(Problem::Value(problem)),
        None => Ok(data),
    }
}

/// A palette of iOS 16: one table for all.
fn old_palette(indices: &Held, tables: &Held, shape: &[i64]) -> Outcome<Held> {
    let Held::Plain(tables) = tables else {
        return Err(wrong("lut", "plain"));
    };
    let kinds = [
        DType::U1,
        DType::U2,
        DType::U3,
        DType::U4,
        DType::U6,
        DType::U8,
    ];
    let entries = tables.len();
    let kind = kinds.into_iter().find(|k| entries == 1 << k.bits());
    let kind = kind.ok_or_else(|| wrong("lut", "a table of 2, 4, 8, 16, 64 or 256 entries"))?;
    let data = stream(indices, kind, shape)?;
    let mut wide = vec![1; shape.len()];
    wide.extend([entries, 1]);
    let tables = plain(tables.ty.dtype, &wide, tables.storage.bytes().clone());
    Ok(Held::Palette {
        indices: Arc::new(Held::Plain(data)),
        tables: Arc::new(Held::Plain(tables)),
        axis: 0,
    })
}

/// `constexpr_blockwise_shift_scale`: `data`, `scale`, `offset`.
pub(super) fn blockwise(l: &mut Lowering<'_>, op: &Operation) -> Outcome<Held> {
    Ok(Held::Blocks {
        data: l.must_hold(op, "data")?,
        scale: l.must_hold(op, "scale")?,
        offset: l.held(op, "offset")?,
    })
}

/// `constexpr_affine_dequantize` (iOS 16): one scale for all, or for each index of an axis.
pub(super) fn affine(l: &mut Lowering<'_>, op: &Operation) -> Outcome<Held> {
    let data = l.must_hold(op, "quantized_data")?;
    let rank = data.shape().map_or(0, |s| s.len());
    let at = russet_graph::ops::shape::axis(l.int_or(op, "axis", 0)?, rank);
    let at = at.map_err(unread)?;
    let spread = |held: &Held| match held {
        Held::Plain(c) if c.ty.rank() == 1 => {
            let mut shape = vec![1; rank];
            if let Some(extent) = shape.get_mut(at) {
                *extent = c.len();
            }
            Held::Plain(plain(c.ty.dtype, &shape, c.storage.bytes().clone()))
        }
        other => other.clone(),
    };
    let scale = Arc::new(spread(&*l.must_hold(op, "scale")?));
    let offset = l.held(op, "zero_point")?.map(|z| Arc::new(spread(&z)));
    Ok(Held::Blocks {
        data,
        scale,
        offset,
    })
}

/// `constexpr_sparse_to_dense`: the mask has an element a bit, in iOS 16 as bytes of bits.
pub(super) fn sparse(l: &mut Lowering<'_>, op: &Operation) -> Outcome<Held> {
    let (values, mut mask) = (l.must_hold(op, "nonzero_data")?, l.must_hold(op, "mask")?);
    if let Some(shape) = l.ints(op, "shape")? {
        mask = Arc::new(Held::Plain(stream(&mask, DType::U1, &shape)?));
    }
    Ok(Held::Sparse { values, mask })
}
