//! `.safetensors`: a JSON header of names, kinds, shapes and offsets, then the elements, without gaps.
//!
//! ```text
//! u64 length of the header | {"name": {"dtype", "shape", "data_offsets": [begin, end]}, …, "__metadata__": {…}} | elements
//! ```
//!
//! [`Safetensors::read`] checks the header against the file: kinds, extents and offsets agree, and the tensors cover the bytes
//! after the header exactly, none of them twice. Elements are only sliced.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use russet_graph::types::DType;
use russet_kernels::mem::SharedBytes;
use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use thiserror::Error;

/// Bytes of the length before the header.
const LENGTH: usize = 8;
/// The longest header, as in the reference implementation.
const LONGEST: u64 = 100_000_000;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The file ends within its header, or the header is longer than any.
    #[error("the header of {header} bytes does not fit the file of {file}")]
    Header {
        /// The length that the file gives.
        header: u64,
        /// Bytes of the file.
        file: usize,
    },
    /// The header is no JSON of the right form.
    #[error("the header, byte {at}: {reason}")]
    Json {
        /// The byte of the file.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// A tensor whose offsets or extents are wrong.
    #[error("tensor {name:?}: {reason}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Bytes after the last tensor.
    #[error("the tensors end at byte {end} of the data, which has {data}")]
    Rest {
        /// Where the last one ends.
        end: u64,
        /// Bytes after the header.
        data: usize,
    },
}

/// Kinds of elements by their names.
const KINDS: [(&str, DType); 15] = [
    ("BOOL", DType::Bool),
    ("U8", DType::U8),
    ("I8", DType::I8),
    ("U16", DType::U16),
    ("I16", DType::I16),
    ("U32", DType::U32),
    ("I32", DType::I32),
    ("U64", DType::U64),
    ("I64", DType::I64),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("F32", DType::F32),
    ("F64", DType::F64),
    ("F8_E4M3", DType::F8E4M3),
    ("F8_E5M2", DType::F8E5M2),
];

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// The kind of its elements.
    pub dtype: DType,
    /// Its extents.
    pub shape: Vec<usize>,
    range: Range<usize>,
}

impl TensorEntry {
    /// Bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}

/// An open file.
#[derive(Clone, Debug)]
pub struct Safetensors {
    bytes: SharedBytes,
    tensors: HashMap<String, TensorEntry>,
}

impl Safetensors {
    /// Reads the header. No element is touched.
    ///
    /// # Errors
    /// A [`SafetensorsError`] that says what is wrong, and of which tensor.
    pub fn read(bytes: SharedBytes) -> Result<Self, SafetensorsError> {
        let length = bytes.first_chunk().map(|b| u64::from_le_bytes(*b));
        let header = length.unwrap_or(LENGTH as u64);
        let outside = || SafetensorsError::Header {
            header,
            file: bytes.len(),
        };
        let fits = length.filter(|n| *n <= LONGEST).ok_or_else(outside)?;
        let start = usize::try_from(fits).map_err(|_| outside())? + LENGTH;
        let text = bytes.get(LENGTH..start).ok_or_else(outside)?;
        let parsed: Header = serde_json::from_slice(text).map_err(|e| SafetensorsError::Json {
            at: LENGTH + place(text, &e),
            reason: e.to_string(),
        })?;
        let tensors = checked(parsed.0, start, bytes.len())?;
        Ok(Self { bytes, tensors })
    }

    /// The tensors by name, in no order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.tensors.iter().map(|(name, entry)| (&**name, entry))
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.tensors.get(name)
    }

    /// The elements of one of the tensors.
    pub fn data(&self, tensor: &TensorEntry) -> Option<SharedBytes> {
        self.bytes.slice(tensor.range.clone())
    }
}

/// The byte of a text where its parser stopped.
fn place(text: &[u8], error: &serde_json::Error) -> usize {
    let before = text
        .split_inclusive(|b| *b == b'\n')
        .take(error.line().saturating_sub(1));
    before.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1)
}

/// A tensor as the header has it.
#[derive(Deserialize)]
struct Item {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

struct Header(HashMap<String, Item>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Items)
    }
}

struct Items;

impl<'de> Visitor<'de> for Items {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut all = HashMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let item = map.next_value::<Item>()?;
            if all.insert(name.clone(), item).is_some() {
                return Err(A::Error::custom(format!("{name:?} is there twice")));
            }
        }
        Ok(Header(all))
    }
}

/// The tensors of a file whose data start at `start`.
fn checked(
    items: HashMap<String, Item>,
    start: usize,
    file: usize,
) -> Result<HashMap<String, TensorEntry>, SafetensorsError> {
    let mut ordered: Vec<(String, Item)> = items.into_iter().collect();
    ordered.sort_by_key(|(_, item)| item.data_offsets);
    let data = file - start;
    let mut end = 0;
    let mut tensors = HashMap::with_capacity(ordered.len());
    for (name, item) in ordered {
        let entry = one(&item, end, start, data);
        let entry = entry.map_err(|reason| SafetensorsError::Tensor {
            name: name.clone(),
            reason,
        })?;
        end = item.data_offsets[1];
        tensors.insert(name, entry);
    }
    match end == data as u64 {
        true => Ok(tensors),
        false => Err(SafetensorsError::Rest { end, data }),
    }
}

/// One tensor, which begins where the last one ended; why it cannot be so.
fn one(item: &Item, last: u64, start: usize, data: usize) -> Result<TensorEntry, String> {
    let kind = KINDS.iter().find(|(name, _)| *name == item.dtype);
    let (_, dtype) =
        *kind.ok_or_else(|| format!("elements of kind {:?} are not known", item.dtype))?;
    let [begin, end] = item.data_offsets;
    if begin != last || end < begin || end > data as u64 {
        return Err(format!(
            "bytes {begin} to {end} of {data}, where {last} is next"
        ));
    }
    let extents = item.shape.iter().map(|d| usize::try_from(*d).ok());
    let shape: Option<Vec<usize>> = extents.collect();
    let len = shape.as_ref().and_then(|s| product(s));
    let need = len.and_then(|n| dtype.packed_len(n));
    match (shape, need) {
        (Some(shape), Some(need)) if need as u64 == end - begin => Ok(TensorEntry {
            dtype,
            shape,
            range: start + begin as usize..start + end as usize,
        }),
        _ => Err(format!(
            "{} of extents {:?} in {} bytes",
            item.dtype,
            item.shape,
            end - begin
        )),
    }
}

fn product(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header.as_bytes(), &vec![7; data]].concat()
    }

    fn read(header: &str, data: usize) -> Result<Safetensors, SafetensorsError> {
        Safetensors::read(SharedBytes::from_vec(file(header, data)))
    }

    const TWO: &str = r#"{"__metadata__":{"format":"pt"},
        "b":{"dtype":"F32","shape":[1,2],"data_offsets":[6,14]},"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}}"#;

    #[test]
    fn tensors_are_slices_of_the_file() {
        let file = read(TWO, 14).unwrap();
        let b = file.tensor("b").unwrap();
        assert_eq!((b.dtype, &b.shape[..]), (DType::F32, &[1, 2][..]));
        assert_eq!(file.data(b).unwrap().len(), 8);
        assert_eq!(file.tensors().count(), 2);
    }

    #[test]
    fn files_that_contradict_themselves_are_refused() {
        let one = |offsets: &str, shape: &str, kind: &str| {
            format!(r#"{{"a":{{"dtype":"{kind}","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        let huge = "[18446744073709551615]";
        let cases = [
            (TWO.to_owned(), 15, "end at byte 14"),
            (TWO.to_owned(), 13, "bytes 6 to 14 of 13"),
            (one("[0,4]", "[2]", "F32"), 4, "in 4 bytes"),
            (one("[0,18446744073709551615]", huge, "U8"), 4, "of 4"),
            (one("[0,4]", huge, "F32"), 4, "in 4 bytes"),
            (
                one("[0,4]", "[4611686018427387904,4]", "U8"),
                4,
                "in 4 bytes",
            ),
            (one("[1,5]", "[1]", "F32"), 5, "where 0 is next"),
            (one("[4,0]", "[1]", "F32"), 4, "where 0 is next"),
            (one("[0,4]", "[-1]", "F32"), 4, "byte "),
            (one("[0,4]", "[1]", "F4"), 4, "\"F4\""),
            ("[1]".into(), 0, "byte "),
            ("".into(), 0, "EOF"),
            (
                format!(
                    "{{{0},{0}}}",
                    r#""a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#
                ),
                0,
                "twice",
            ),
            ("[".repeat(100_000), 0, "byte "),
        ];
        for (header, data, why) in cases {
            let error = read(&header, data).unwrap_err().to_string();
            assert!(error.contains(why), "{error} has no {why:?}");
        }
        for length in [0u64, 3, 1 << 20, u64::MAX] {
            let bytes = SharedBytes::from_vec([&length.to_le_bytes()[..], b"{"].concat());
            assert!(Safetensors::read(bytes).is_err());
        }
        assert!(Safetensors::read(SharedBytes::from_vec(vec![1, 2])).is_err());
    }
}
