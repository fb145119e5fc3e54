//! Attributes: the constants that stand beside operands.

use std::fmt;
use std::sync::Arc;

use crate::error::OpError;
use crate::text::{is_word, quoted};
use crate::types::Type;

/// A float that compares by its bits, so that a NaN equals itself.
#[derive(Clone, Copy, Debug)]
pub struct Float(pub f64);

impl PartialEq for Float {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

/// Named attributes, in the order of the file.
pub type Attributes = Vec<(Arc<str>, Attr)>;

/// One attribute.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Attr {
    /// Present, without a value.
    Unit,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(Float),
    /// Text.
    Str(Arc<str>),
    /// The name of a graph.
    Graph(Arc<str>),
    /// A type.
    Type(Type),
    /// A sequence.
    List(Vec<Attr>),
    /// Named values.
    Dict(Attributes),
    /// Raw bytes.
    Bytes(Arc<[u8]>),
}

impl Attr {
    /// A float attribute.
    pub fn float(value: f64) -> Self {
        Self::Float(Float(value))
    }

    /// A text attribute.
    pub fn str(text: &str) -> Self {
        Self::Str(text.into())
    }

    /// A list of integers.
    pub fn ints(values: impl IntoIterator<Item = i64>) -> Self {
        Self::List(values.into_iter().map(Self::Int).collect())
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(v) = self {
            Some(*v)
        } else {
            None
        }
    }

    /// The number as a float, if it is a number.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(v) => Some(v.0),
            Self::Int(v) => Some(*v as f64),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(v) = self {
            Some(*v)
        } else {
            None
        }
    }

    /// The text, if it is text or a graph's name.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(s) | Self::Graph(s) => Some(s),
            _ => None,
        }
    }

    /// The integers of a list of integers.
    pub fn as_ints(&self) -> Option<Vec<i64>> {
        if let Self::List(v) = self {
            v.iter().map(Self::as_int).collect()
        } else {
            None
        }
    }
}

/// The attribute called `name`.
pub fn find<'a>(attributes: &'a [(Arc<str>, Attr)], name: &str) -> Option<&'a Attr> {
    attributes
        .iter()
        .find(|(n, _)| &**n == name)
        .map(|(_, a)| a)
}

/// The texts of the list called `inputs`: which operand plays which part.
pub fn roles(attributes: &[(Arc<str>, Attr)]) -> Vec<&str> {
    match find(attributes, "inputs") {
        Some(Attr::List(items)) => items.iter().filter_map(Attr::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Checks that a composite's declaration is of version 1, as one without a version is, and has no attributes but these (and
/// `inputs`): one of another version, or with more to say, means something else.
pub fn only(attributes: &[(Arc<str>, Attr)], known: &[&str]) -> Result<(), OpError> {
    let fits = |(name, value): &(Arc<str>, Attr)| match &**name {
        "version" => *value == Attr::Int(1),
        "inputs" => true,
        name => known.contains(&name),
    };
    if attributes.iter().all(fits) {
        return Ok(());
    }
    Err(OpError::Attribute {
        name: "version",
        expected: "1, with the attributes of that version",
    })
}

/// Checks that a composite's declaration has no attributes, and takes just these roles in this order, which are as `expected` says.
pub fn just_roles(
    attributes: &[(Arc<str>, Attr)],
    wanted: &[&str],
    expected: &'static str,
) -> Result<(), OpError> {
    only(attributes, &[])?;
    if roles(attributes) == wanted {
        return Ok(());
    }
    Err(OpError::Attribute {
        name: "inputs",
        expected,
    })
}

/// The attribute called `name` read by `read`, or `default` where there is none.
pub fn value_or<'a, T>(
    attributes: &'a [(Arc<str>, Attr)],
    name: &'static str,
    default: T,
    (read, expected): (impl Fn(&'a Attr) -> Option<T>, &'static str),
) -> Result<T, OpError> {
    let found = find(attributes, name).filter(|a| **a != Attr::Unit);
    found
        .map_or(Some(default), read)
        .ok_or(OpError::Attribute { name, expected })
}

/// A list of texts.
pub fn texts(values: &[&str]) -> Attr {
    Attr::List(values.iter().map(|v| Attr::str(v)).collect())
}

/// Writes `{a = 1, b}`.
pub(crate) fn write_dict(f: &mut impl fmt::Write, dict: &[(Arc<str>, Attr)]) -> fmt::Result {
    f.write_char('{')?;
    for (i, (name, value)) in dict.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        if is_word(name) {
            f.write_str(name)?;
        } else {
            f.write_str(&quoted(name))?;
        }
        if *value != Attr::Unit {
            write!(f, " = {value}")?;
        }
    }
    f.write_char('}')
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit => f.write_str("unit"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Int(v) => write!(f, "{v}"),
            Self::Float(v) if v.0.is_finite() => write!(f, "{:?}", v.0),
            Self::Float(v) => write!(f, "float(0x{:016x})", v.0.to_bits()),
            Self::Str(s) => f.write_str(&quoted(s)),
            Self::Graph(s) => write!(f, "@{}", quoted(s)),
            Self::Type(t) => write!(f, "type({t})"),
            Self::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    let comma = if i > 0 { ", " } else { "" };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
            Self::Dict(d) => write_dict(f, d),
            Self::Bytes(b) => {
                f.write_str("bytes(0x")?;
                b.iter().try_for_each(|x| write!(f, "{x:02x}"))?;
                f.write_str(")")
            }
        }
    }
}
