//! The op table. One file per operation holds its doc comment, its attributes, `infer`, `reference` and `cases`; one line in
//! [`op_table!`](self) makes the enum, the dispatch and the tests that loop over all of them.
//!
//! * `infer` gives the types of the results from the types of the operands, with symbolic shapes, and folds shape
//!   arithmetic: the *contents* of small integer tensors are followed as symbolic values ([`Known`]).
//! * `reference` is the meaning: slow, obvious, in the widest arithmetic, rounded once.
//! * `cases` are small inputs on which both are checked.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::attr::{Attr, Attributes};
use crate::error::OpError;
use crate::graph::ConstantData;
use crate::tensor::Tensor;
use crate::types::{Dim, TensorType, Type};

pub mod complex;
pub mod decompose;
pub mod family;
pub mod identity;
pub mod interpolation;
mod page;
pub mod quantization;
pub mod reduction;
pub mod selection;
pub mod shape;
pub mod sorting;
pub mod structural;
pub mod window;

pub use page::markdown;

/// Symbolic contents of an integer tensor, row-major. Only small tensors are followed.
pub type Known = Arc<[Dim]>;

/// Contents are followed up to this many elements.
pub const KNOWN_LIMIT: usize = 64;

/// What is known of an operand.
#[derive(Clone, Debug)]
pub struct Operand<'a> {
    /// Its type.
    pub ty: &'a Type,
    /// Its contents, for small integer tensors.
    pub known: Option<Known>,
    /// Its value, for constants.
    pub constant: Option<&'a ConstantData>,
}

/// What is known of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Its type.
    pub ty: Type,
    /// Its contents, for small integer tensors.
    pub known: Option<Known>,
}

impl From<TensorType> for Fact {
    fn from(ty: TensorType) -> Self {
        Self {
            ty: Type::Tensor(ty),
            known: None,
        }
    }
}

impl Fact {
    /// A tensor with these contents; they are dropped where one is unknown or overflows the element kind, or where there are
    /// not as many as the type has elements.
    pub fn with_known(ty: TensorType, known: Option<Vec<Dim>>) -> Self {
        let len = ty.fixed_len();
        let fits = |d: &Dim| !d.is_unknown() && d.as_const().is_none_or(|c| ty.dtype.holds(c));
        let known =
            known.filter(|k| Some(k.len()) == len && k.len() <= KNOWN_LIMIT && k.iter().all(fits));
        Self {
            ty: Type::Tensor(ty),
            known: known.map(Into::into),
        }
    }
}

/// The operands of an operation under inference.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a>(pub &'a [Operand<'a>]);

impl<'a> Operands<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Operand `index`.
    pub fn get(&self, index: usize) -> Result<&'a Operand<'a>, OpError> {
        self.0.get(index).ok_or(OpError::Arity {
            expected: format!("more than {index}"),
            got: self.0.len(),
        })
    }

    /// The tensor type of operand `index`.
    pub fn tensor(&self, index: usize) -> Result<&'a TensorType, OpError> {
        self.get(index)?
            .ty
            .as_tensor()
            .ok_or(OpError::NotTensor { index })
    }

    /// The contents of operand `index` where they are followed.
    pub fn known(&self, index: usize) -> Option<Known> {
        self.0.get(index)?.known.clone()
    }

    /// The contents of operand `index` where all of them are constants.
    pub fn ints(&self, index: usize) -> Option<Vec<i64>> {
        self.known(index)?.iter().map(Dim::as_const).collect()
    }

    /// The single constant integer in operand `index`.
    pub fn int(&self, index: usize) -> Option<i64> {
        self.ints(index)
            .and_then(|v| if let [x] = v[..] { Some(x) } else { None })
    }
}

/// An example input of an operation, for the tests over the table.
#[derive(Clone, Debug)]
pub struct Case<O> {
    /// The operation with its attributes.
    pub op: O,
    /// Its operands.
    pub inputs: Vec<Tensor>,
}

/// What every operation says of itself.
pub trait OpDef: Clone + PartialEq + fmt::Debug + Sized {
    /// The name in the text form.
    const NAME: &'static str;
    /// One line for the table in `docs/ops.md`.
    const SUMMARY: &'static str;
    /// How many operands it takes.
    const ARITY: RangeInclusive<usize>;

    /// Its attributes.
    fn attributes(&self) -> Attributes {
        Vec::new()
    }

    /// Reads it back from its attributes.
    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError>;

    /// The types (and followed contents) of its results.
    fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError>;

    /// Its meaning, on values.
    fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError>;

    /// Examples. Every operation that can be executed has some.
    fn cases() -> Vec<Case<Self>>;
}

/// Declares an operation without attributes: `simple_op!(Name, "name", arity, "summary")`.
macro_rules! simple_op {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;
    };
}
pub(crate) use simple_op;

macro_rules! op_table {
    ($($module:ident::$name:ident;)*) => {
        $(pub mod $module;)*

        /// Any operation.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($module), "`](mod@", stringify!($module), ").")] $name($module::$name),)*
        }

        $(impl From<$module::$name> for Op {
            fn from(op: $module::$name) -> Self {
                Self::$name(op)
            }
        })*

        impl Op {
            /// The table: name, summary and arity of every operation, in order.
            pub const TABLE: &'static [OpInfo] = &[$(OpInfo {
                name: <$module::$name as OpDef>::NAME,
                summary: <$module::$name as OpDef>::SUMMARY,
                arity: (*<$module::$name as OpDef>::ARITY.start(), *<$module::$name as OpDef>::ARITY.end()),
                parse: |attributes| Ok(Op::$name(<$module::$name as OpDef>::from_attributes(attributes)?)),
                cases: || <$module::$name as OpDef>::cases().into_iter()
                    .map(|c| Case { op: Op::$name(c.op), inputs: c.inputs }).collect(),
            },)*];

            /// The name in the text form.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => <$module::$name as OpDef>::NAME,)* }
            }

            /// How many operands it takes.
            pub fn arity(&self) -> RangeInclusive<usize> {
                match self { $(Self::$name(_) => <$module::$name as OpDef>::ARITY,)* }
            }

            /// Its attributes.
            pub fn attributes(&self) -> Attributes {
                match self { $(Self::$name(op) => op.attributes(),)* }
            }

            /// The types (and followed contents) of its results.
            pub fn infer(&self, operands: Operands<'_>) -> Result<Vec<Fact>, OpError> {
                check_arity(&self.arity(), operands.len())?;
                match self { $(Self::$name(op) => op.infer(operands),)* }
            }

            /// Its meaning, on values.
            pub fn reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
                check_arity(&self.arity(), inputs.len())?;
                match self { $(Self::$name(op) => op.reference(inputs),)* }
            }
        }
    };
}

fn check_arity(arity: &RangeInclusive<usize>, got: usize) -> Result<(), OpError> {
    if arity.contains(&got) {
        return Ok(());
    }
    let expected = match (*arity.start(), *arity.end()) {
        (a, b) if a == b => a.to_string(),
        (a, usize::MAX) => format!("{a} or more"),
        (a, b) => format!("{a} to {b}"),
    };
    Err(OpError::Arity { expected, got })
}

/// Reads an operation from its attributes.
pub type Parse = fn(&[(Arc<str>, Attr)]) -> Result<Op, OpError>;

/// One row of [`Op::TABLE`].
#[derive(Debug)]
pub struct OpInfo {
    /// The name in the text form.
    pub name: &'static str,
    /// One line of documentation.
    pub summary: &'static str,
    /// Fewest and most operands.
    pub arity: (usize, usize),
    /// Reads the operation back from its attributes.
    pub parse: Parse,
    /// Its examples.
    pub cases: fn() -> Vec<Case<Op>>,
}

impl OpInfo {
    /// The row of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        Op::TABLE.iter().find(|row| row.name == name)
    }
}

op_table! {
    constant::Constant;
    invoke::Invoke;
    opaque_kernel::OpaqueKernel;
    image_to_tensor::ImageToTensor;
    tensor_to_image::TensorToImage;
    scaled_dot_product_attention::ScaledDotProductAttention;
    rope::Rope;
    rms_norm::RmsNorm;
    gated_delta_update::GatedDeltaUpdate;
    unit_lower_inverse::UnitLowerInverse;
    gather_mm::GatherMm;
    rope_cached_cos_sin_gather::RopeCachedCosSinGather;
    fused_interleaved_embedding_gather_dequant_reshape::FusedInterleavedEmbeddingGatherDequantReshape;
    while_loop::While;
    if_else::If;
    reduce::Reduce;
    reduce_index::ReduceIndex;
    create_token::CreateToken;
    join_token::JoinToken;
    read_handle::ReadHandle;
    write_handle::WriteHandle;
    add::Add;
    broadcasting_add::BroadcastingAdd;
    slice::Slice;
    silu::Silu;
    copy_discarding_constraints::CopyDiscardingConstraints;
    copy_with_constraints::CopyWithConstraints;
    erf::Erf;
    gelu::Gelu;
    cast::Cast;
    argsort::Argsort;
    sort::Sort;
    softmax::Softmax;
    reduce_min::ReduceMin;
    reduce_max::ReduceMax;
    reduce_mean::ReduceMean;
    reduce_product::ReduceProduct;
    reduce_sum::ReduceSum;
    broadcasting_where::BroadcastingWhere;
    where_op::Where;
    broadcasting_xor::BroadcastingXor;
    xor::Xor;
    broadcasting_or::BroadcastingOr;
    or::Or;
    broadcasting_and::BroadcastingAnd;
    and::And;
    broadcasting_not_equal::BroadcastingNotEqual;
    not_equal::NotEqual;
    broadcasting_equal::BroadcastingEqual;
    equal::Equal;
    broadcasting_greater::BroadcastingGreater;
    greater::Greater;
    broadcasting_divide::BroadcastingDivide;
    divide::Divide;
    broadcasting_mul::BroadcastingMul;
    mul::Mul;
    broadcasting_sub::BroadcastingSub;
    sub::Sub;
    not::Not;
    abs::Abs;
    relu::Relu;
    tanh::Tanh;
    sigmoid::Sigmoid;
    log::Log;
    exp::Exp;
    cos::Cos;
    sin::Sin;
    sqrt::Sqrt;
    rsqrt::Rsqrt;
    get_shape::GetShape;
    blockwise_shift_scale::BlockwiseShiftScale;
    broadcasting_batch_matmul::BroadcastingBatchMatmul;
    batch_matmul::BatchMatmul;
    scatter_along_axis::ScatterAlongAxis;
    gather_along_axis::GatherAlongAxis;
    gather_nd::GatherNd;
    range::Range;
    slice_update::SliceUpdate;
    split::Split;
    broadcast_in_dims::BroadcastInDims;
    broadcast_to::BroadcastTo;
    shrink_dims::ShrinkDims;
    expand_dims::ExpandDims;
    concat::Concat;
    tile::Tile;
    reverse::Reverse;
    pad::Pad;
    scatter_nd::ScatterNd;
    broadcast_shapes::BroadcastShapes;
    non_zero::NonZero;
    lut_to_dense::LutToDense;
    build_sparse_with_bitmask::BuildSparseWithBitmask;
    lut_to_sparse_with_bitmask::LutToSparseWithBitmask;
    sparse_with_bitmask_to_dense::SparseWithBitmaskToDense;
    interpolate::Interpolate;
    interpolate_coordinates::InterpolateCoordinates;
    conv2d::Conv2d;
    conv3d::Conv3d;
    conv_transpose2d::ConvTranspose2d;
    conv_transpose3d::ConvTranspose3d;
    sum_pool_2d::SumPool2d;
    sum_pool_3d::SumPool3d;
    max_pool_2d::MaxPool2d;
    max_pool_3d::MaxPool3d;
    transpose::Transpose;
    reshape::Reshape;
    acos::Acos;
    acosh::Acosh;
    asin::Asin;
    asinh::Asinh;
    atan::Atan;
    atanh::Atanh;
    cosh::Cosh;
    sinh::Sinh;
    tan::Tan;
    round::Round;
    floor_divide::FloorDivide;
    broadcasting_floor_divide::BroadcastingFloorDivide;
    modulo::Modulo;
    broadcasting_modulo::BroadcastingModulo;
    maximum::Maximum;
    broadcasting_maximum::BroadcastingMaximum;
    minimum::Minimum;
    broadcasting_minimum::BroadcastingMinimum;
    pow::Pow;
    broadcasting_pow::BroadcastingPow;
    bitwise_and::BitwiseAnd;
    broadcasting_bitwise_and::BroadcastingBitwiseAnd;
    bitwise_or::BitwiseOr;
    broadcasting_bitwise_or::BroadcastingBitwiseOr;
    bitwise_xor::BitwiseXor;
    broadcasting_bitwise_xor::BroadcastingBitwiseXor;
    all::All;
    any::Any;
    argmax::Argmax;
    scan::Scan;
    quantize::Quantize;
    dequantize::Dequantize;
    symmetric_quantization_statistics::SymmetricQuantizationStatistics;
    asymmetric_quantization_statistics::AsymmetricQuantizationStatistics;
    create_complex::CreateComplex;
    real_part::RealPart;
    imaginary_part::ImaginaryPart;
}

#[cfg(test)]
mod tests;
