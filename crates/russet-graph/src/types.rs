//! Types: scalar kinds, symbolic dimensions, shapes, tensors, handles and tokens.
//!
//! A dimension is a constant, an expression over named symbols, or unknown (`?`): a file writes `?`, inference turns it
//! into an expression. Expressions are kept in one normal form, a sum of products, so that `total - query + query` is
//! `total` without anybody looking at it.

use std::fmt;
use std::sync::Arc;

use crate::attr::Attr;
pub use crate::dim::{Dim, Symbol};

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident $text:literal $bits:literal $kind:ident;)*) => {
        /// The kind of one element of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DType { $($(#[$doc])* $name,)* }

        impl DType {
            /// Every kind, in declaration order.
            pub const ALL: &'static [DType] = &[$(DType::$name,)*];

            /// The name in the text form, such as `f16` or `u4`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$name => $text,)* }
            }

            /// Bits of one element as stored (a bool takes a byte).
            pub const fn bits(self) -> usize {
                match self { $(DType::$name => $bits,)* }
            }

            /// Which arithmetic the kind has.
            pub const fn class(self) -> Class {
                match self { $(DType::$name => Class::$kind,)* }
            }
        }
    };
}

/// Which arithmetic a scalar kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Binary floating point.
    Float,
    /// Two's complement.
    Signed,
    /// Non-negative integers.
    Unsigned,
    /// True or false.
    Bool,
    /// A pair of floats.
    Complex,
}

dtypes! {
    /// IEEE 754 binary64.
    F64 "f64" 64 Float;
    /// IEEE 754 binary32.
    F32 "f32" 32 Float;
    /// IEEE 754 binary16.
    F16 "f16" 16 Float;
    /// The upper half of a binary32.
    BF16 "bf16" 16 Float;
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities (OCP E4M3FN).
    F8E4M3 "f8e4m3" 8 Float;
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2 "f8e5m2" 8 Float;
    /// A power of two in eight bits: the scale of a microscaling block (OCP E8M0).
    F8E8M0 "f8e8m0" 8 Float;
    /// 4-bit float, 2 exponent and 1 mantissa bits (OCP E2M1).
    F4E2M1 "f4e2m1" 4 Float;
    /// 64-bit signed.
    I64 "i64" 64 Signed;
    /// 32-bit signed.
    I32 "i32" 32 Signed;
    /// 16-bit signed.
    I16 "i16" 16 Signed;
    /// 8-bit signed.
    I8 "i8" 8 Signed;
    /// 6-bit signed.
    I6 "i6" 6 Signed;
    /// 4-bit signed, two to a byte, low half first.
    I4 "i4" 4 Signed;
    /// 3-bit signed.
    I3 "i3" 3 Signed;
    /// 2-bit signed.
    I2 "i2" 2 Signed;
    /// 64-bit unsigned.
    U64 "u64" 64 Unsigned;
    /// 32-bit unsigned.
    U32 "u32" 32 Unsigned;
    /// 16-bit unsigned.
    U16 "u16" 16 Unsigned;
    /// 8-bit unsigned.
    U8 "u8" 8 Unsigned;
    /// 6-bit unsigned.
    U6 "u6" 6 Unsigned;
    /// 4-bit unsigned, two to a byte, low half first.
    U4 "u4" 4 Unsigned;
    /// 3-bit unsigned.
    U3 "u3" 3 Unsigned;
    /// 2-bit unsigned.
    U2 "u2" 2 Unsigned;
    /// 1-bit unsigned.
    U1 "u1" 1 Unsigned;
    /// A truth value, one byte in memory.
    Bool "bool" 8 Bool;
    /// A pair of binary16.
    C16 "c16" 32 Complex;
    /// A pair of binary32.
    C32 "c32" 64 Complex;
}

impl DType {
    /// The kind with this text name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|d| d.name() == text)
    }

    /// Whether this is a float.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), Class::Float)
    }

    /// Whether this is a signed or unsigned integer (not a bool).
    pub const fn is_int(self) -> bool {
        matches!(self.class(), Class::Signed | Class::Unsigned)
    }

    /// Whether an integer (or bool) of this kind can be `value`.
    pub const fn holds(self, value: i64) -> bool {
        match (self.class(), self.bits()) {
            (Class::Signed, 64) => true,
            (Class::Signed, bits) => value >= -(1 << (bits - 1)) && value < 1 << (bits - 1),
            (Class::Unsigned, 64) => value >= 0,
            (Class::Unsigned, bits) => value >= 0 && value < 1 << bits,
            (Class::Bool, _) => value == 0 || value == 1,
            (Class::Float | Class::Complex, _) => false,
        }
    }

    /// Bytes of one element where elements are whole bytes.
    pub const fn size(self) -> Option<usize> {
        if self.bits().is_multiple_of(8) {
            Some(self.bits() / 8)
        } else {
            None
        }
    }

    /// Bytes that `elements` packed elements take, `None` when that does not fit.
    pub fn packed_len(self, elements: usize) -> Option<usize> {
        Some(elements.checked_mul(self.bits())?.div_ceil(8))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The extents of a tensor, outermost first.
pub type Shape = Vec<Dim>;

/// A tensor's element kind, shape and layout hint.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    /// Element kind.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
    /// A storage hint of the file (interleave, alignment, buffer kind); values do not depend on it.
    pub encoding: Option<Arc<Attr>>,
}

impl TensorType {
    /// A plain tensor type.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = Dim>) -> Self {
        Self {
            dtype,
            shape: shape.into_iter().collect(),
            encoding: None,
        }
    }

    /// A tensor type whose extents are all known.
    pub fn fixed(dtype: DType, shape: &[usize]) -> Self {
        Self::new(dtype, shape.iter().map(|&d| Dim::from(d)))
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The shape where every extent is a constant.
    pub fn fixed_shape(&self) -> Option<Vec<usize>> {
        self.shape
            .iter()
            .map(|d| d.as_const().and_then(|c| usize::try_from(c).ok()))
            .collect()
    }

    /// Number of elements where it is a constant that fits.
    pub fn fixed_len(&self) -> Option<usize> {
        self.fixed_shape()?
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor<")?;
        for d in &self.shape {
            if d.is_atom() {
                write!(f, "{d}x")?;
            } else {
                write!(f, "[{d}]x")?;
            }
        }
        write!(f, "{}", self.dtype)?;
        if let Some(e) = &self.encoding {
            write!(f, ", {e}")?;
        }
        f.write_str(">")
    }
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Type {
    /// A tensor.
    Tensor(TensorType),
    /// A reference to a state tensor that lives between calls.
    Handle(TensorType),
    /// Orders reads and writes of handles; carries no data.
    Token,
    /// A type of the file that has no meaning here (an image, an opaque handle), by its printed form.
    Opaque(Arc<str>),
}

impl Type {
    /// The tensor type, for tensors only.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        if let Self::Tensor(t) = self {
            Some(t)
        } else {
            None
        }
    }
}

impl From<TensorType> for Type {
    fn from(t: TensorType) -> Self {
        Self::Tensor(t)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(t) => write!(f, "{t}"),
            Self::Handle(t) => write!(f, "handle<{t}>"),
            Self::Token => f.write_str("token"),
            Self::Opaque(name) => write!(f, "opaque<{}>", crate::text::quoted(name)),
        }
    }
}
