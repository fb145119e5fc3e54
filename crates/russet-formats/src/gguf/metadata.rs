//! The metadata: keys with typed values, in the order of the file.

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::mem::SharedBytes;

use super::cursor::Cursor;
use super::error::{GgufError, Place, Problem, Result};

/// The longest key (specification).
const MAX_KEY: usize = 65_535;
/// How deep arrays of arrays are followed.
const MAX_DEPTH: usize = 8;
/// The least bytes of a pair: a key of one byte, a kind, a value of one byte.
const LEAST: usize = 8 + 1 + 4 + 1;

macro_rules! kinds {
    ($($code:literal $name:ident $text:literal $least:literal;)*) => {
        /// The type of a value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ValueKind { $(#[doc = $text] $name,)* }

        impl ValueKind {
            fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// A word for messages.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The bytes of a number; the least bytes of a string or array.
            const fn least(self) -> usize {
                match self { $(Self::$name => $least,)* }
            }
        }
    };
}

kinds! {
    0 U8 "u8" 1;
    1 I8 "i8" 1;
    2 U16 "u16" 2;
    3 I16 "i16" 2;
    4 U32 "u32" 4;
    5 I32 "i32" 4;
    6 F32 "f32" 4;
    7 Bool "bool" 1;
    8 Str "string" 8;
    9 Array "array" 12;
    10 U64 "u64" 8;
    11 I64 "i64" 8;
    12 F64 "f64" 8;
}

/// A value of the metadata. Integers and floats of all widths are kept in the widest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Str(Arc<str>),
    /// A sequence, decoded when asked for.
    Array(Array),
}

impl Value {
    fn describe(&self) -> String {
        match self {
            Self::Unsigned(v) => format!("the integer {v}"),
            Self::Signed(v) => format!("the integer {v}"),
            Self::Float(v) => format!("the float {v}"),
            Self::Bool(v) => format!("{v}"),
            Self::Str(s) => format!("a string of {} bytes", s.len()),
            Self::Array(a) => format!("an array of {} {}", a.len, a.kind.name()),
        }
    }

    /// The value of a non-negative integer of any type.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Unsigned(v) => Some(*v),
            Self::Signed(v) => u64::try_from(*v).ok(),
            _ => None,
        }
    }

    /// The value of a number of any type.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(v) => Some(*v),
            Self::Unsigned(v) => Some(*v as f64),
            Self::Signed(v) => Some(*v as f64),
            _ => None,
        }
    }
}

/// An array of the metadata: a range of the file that was walked, not decoded.
#[derive(Clone, Debug)]
pub struct Array {
    kind: ValueKind,
    len: usize,
    bytes: SharedBytes,
    offset: usize,
}

impl Array {
    /// The type of the items.
    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The items, decoded one by one.
    pub fn items(&self) -> impl Iterator<Item = Result<Value>> + '_ {
        let mut cursor = Cursor::new(&self.bytes);
        (0..self.len).map(move |_| {
            value(&mut cursor, &self.bytes, self.kind, 0).map_err(|e| GgufError {
                offset: e.offset.saturating_add(self.offset),
                ..e
            })
        })
    }
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key, such as `general.architecture`.
    pub key: Arc<str>,
    /// The value.
    pub value: Value,
    /// Where the value stands in the file.
    pub offset: usize,
}

/// All keys with their values, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<Entry>,
    by_key: HashMap<Arc<str>, usize>,
}

impl Metadata {
    pub(super) fn read(cursor: &mut Cursor<'_>, file: &SharedBytes, count: u64) -> Result<Self> {
        let count = cursor.checked("the pair count", count, LEAST)?;
        let mut all = Self::default();
        for number in 0..count {
            let at = cursor.offset();
            let place = || Place::Pair(number as u64);
            let key: Arc<str> = cursor
                .name("a key", MAX_KEY)
                .map_err(|e| e.within(place))?
                .into();
            let place = || Place::Key(key.to_string());
            let (value, offset) = pair_value(cursor, file).map_err(|e| e.within(place))?;
            if all.by_key.insert(key.clone(), number).is_some() {
                return Err(GgufError::new(at, place(), Problem::Twice));
            }
            all.entries.push(Entry { key, value, offset });
        }
        Ok(all)
    }

    /// The pairs, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The pair with this key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(*self.by_key.get(key)?)
    }

    /// The value of this key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|e| &e.value)
    }

    /// An error about a key, placed at its value.
    pub fn error(&self, key: &str, problem: Problem) -> GgufError {
        GgufError::new(
            self.entry(key).map_or(0, |e| e.offset),
            Place::Key(key.to_owned()),
            problem,
        )
    }

    /// The value of `key` as `read` takes it; an error where it does not take it.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wrong = || {
            self.error(
                key,
                Problem::Type {
                    got: value.describe(),
                    expected,
                },
            )
        };
        read(value).map(Some).ok_or_else(wrong)
    }

    /// A non-negative integer of any width.
    ///
    /// # Errors
    /// Where the value is something else.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a non-negative integer", Value::as_u64)
    }

    /// A number of any type.
    ///
    /// # Errors
    /// Where the value is something else.
    pub fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A truth value.
    ///
    /// # Errors
    /// Where the value is something else.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a truth value", |v| {
            if let Value::Bool(b) = v {
                Some(*b)
            } else {
                None
            }
        })
    }

    /// Text.
    ///
    /// # Errors
    /// Where the value is something else.
    pub fn text(&self, key: &str) -> Result<Option<&Arc<str>>> {
        self.typed(key, "a string", |v| {
            if let Value::Str(s) = v { Some(s) } else { None }
        })
    }

    /// An array.
    ///
    /// # Errors
    /// Where the value is something else.
    pub fn array(&self, key: &str) -> Result<Option<&Array>> {
        self.typed(key, "an array", |v| {
            if let Value::Array(a) = v {
                Some(a)
            } else {
                None
            }
        })
    }

    /// The items of an array, each as `read` takes it.
    ///
    /// # Errors
    /// Where the value is not an array, an item cannot be decoded, or `read` does not take it.
    pub fn list<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(array) = self.array(key)? else {
            return Ok(None);
        };
        let take = |item: Result<Value>| {
            let item = item.map_err(|e| e.within(|| Place::Key(key.to_owned())))?;
            read(&item).ok_or_else(|| {
                self.error(
                    key,
                    Problem::Type {
                        got: item.describe(),
                        expected,
                    },
                )
            })
        };
        array
            .items()
            .map(take)
            .collect::<Result<Vec<T>>>()
            .map(Some)
    }

    /// The strings of an array of strings.
    ///
    /// # Errors
    /// Where the value is something else or a string is not UTF-8.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<Arc<str>>>> {
        self.list(key, "a string", |v| {
            if let Value::Str(s) = v {
                Some(s.clone())
            } else {
                None
            }
        })
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// [`Problem::Missing`] where `found` is `None`.
    pub fn required<T>(&self, key: &str, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| self.error(key, Problem::Missing))
    }
}

/// Kind and value of a pair, and where the value starts.
fn pair_value(cursor: &mut Cursor<'_>, file: &SharedBytes) -> Result<(Value, usize)> {
    let kind = value_kind(cursor)?;
    let offset = cursor.offset();
    Ok((value(cursor, file, kind, 0)?, offset))
}

fn value_kind(cursor: &mut Cursor<'_>) -> Result<ValueKind> {
    let at = cursor.offset();
    let code = cursor.u32("the kind of a value")?;
    ValueKind::from_code(code)
        .ok_or_else(|| GgufError::new(at, Place::Header, Problem::ValueKind(code)))
}

fn value(
    cursor: &mut Cursor<'_>,
    bytes: &SharedBytes,
    kind: ValueKind,
    depth: usize,
) -> Result<Value> {
    const WHAT: &str = "a value";
    Ok(match kind {
        ValueKind::U8 => Value::Unsigned(cursor.u8(WHAT)?.into()),
        ValueKind::U16 => Value::Unsigned(cursor.u16(WHAT)?.into()),
        ValueKind::U32 => Value::Unsigned(cursor.u32(WHAT)?.into()),
        ValueKind::U64 => Value::Unsigned(cursor.u64(WHAT)?),
        ValueKind::I8 => Value::Signed(cursor.i8(WHAT)?.into()),
        ValueKind::I16 => Value::Signed(cursor.i16(WHAT)?.into()),
        ValueKind::I32 => Value::Signed(cursor.i32(WHAT)?.into()),
        ValueKind::I64 => Value::Signed(cursor.i64(WHAT)?),
        ValueKind::F32 => Value::Float(cursor.f32(WHAT)?.into()),
        ValueKind::F64 => Value::Float(cursor.f64(WHAT)?),
        ValueKind::Bool => Value::Bool(truth(cursor)?),
        ValueKind::Str => Value::Str(cursor.text("a string")?.into()),
        ValueKind::Array => Value::Array(array(cursor, bytes, depth)?),
    })
}

fn truth(cursor: &mut Cursor<'_>) -> Result<bool> {
    let at = cursor.offset();
    match cursor.u8("a truth value")? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(GgufError::new(at, Place::Header, Problem::Bool(other))),
    }
}

fn array(cursor: &mut Cursor<'_>, bytes: &SharedBytes, depth: usize) -> Result<Array> {
    let (kind, len) = array_head(cursor, depth)?;
    let offset = cursor.offset();
    skip_items(cursor, kind, len, depth)?;
    let bytes = bytes
        .slice(offset..cursor.offset())
        .ok_or_else(|| cursor.error(Problem::Truncated("an array")))?;
    Ok(Array {
        kind,
        len,
        bytes,
        offset,
    })
}

/// Kind and number of the items; that many must still be in the file.
fn array_head(cursor: &mut Cursor<'_>, depth: usize) -> Result<(ValueKind, usize)> {
    if depth >= MAX_DEPTH {
        return Err(cursor.error(Problem::Depth(MAX_DEPTH)));
    }
    let kind = value_kind(cursor)?;
    let at = cursor.offset();
    let len = cursor.u64("the length of an array")?;
    let len = cursor.checked("the length of an array", len, kind.least());
    Ok((kind, len.map_err(|e| GgufError { offset: at, ..e })?))
}

/// Passes over `len` items.
fn skip_items(cursor: &mut Cursor<'_>, kind: ValueKind, len: usize, depth: usize) -> Result<()> {
    match kind {
        ValueKind::Str => {
            (0..len).try_for_each(|_| cursor.string("a string of an array").map(|_| ()))
        }
        ValueKind::Array => (0..len).try_for_each(|_| {
            let (kind, len) = array_head(cursor, depth + 1)?;
            skip_items(cursor, kind, len, depth + 1)
        }),
        number => cursor
            .span(
                number.least().saturating_mul(len),
                "the numbers of an array",
            )
            .map(|_| ()),
    }
}
