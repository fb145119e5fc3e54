//! `.npy`: one array (NumPy Enhancement Proposal 1, format versions 1 to 3).
//!
//! Magic, version, length of the header, then the header: the text of a Python dictionary with `descr`, `fortran_order` and
//! `shape`. The elements follow. NumPy has no bfloat16; the package ml_dtypes stores it as two raw bytes, `V2`.

use russet_graph::tensor::{Tensor, TensorMut, strides};
use russet_graph::types::DType;
use russet_kernels::mem::SharedBytes;

use super::Problem;

const FORMAT: &str = ".npy";
const MAGIC: &[u8] = b"\x93NUMPY";

/// Kinds by NumPy's letter and size.
const KINDS: [(&str, DType); 14] = [
    ("b1", DType::Bool),
    ("u1", DType::U8),
    ("i1", DType::I8),
    ("u2", DType::U16),
    ("i2", DType::I16),
    ("u4", DType::U32),
    ("i4", DType::I32),
    ("u8", DType::U64),
    ("i8", DType::I64),
    ("f2", DType::F16),
    ("V2", DType::BF16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("c8", DType::C32),
];

/// The array in `bytes`, which is called `name` in errors.
pub(super) fn read(name: &str, bytes: &[u8]) -> Result<Tensor, Problem> {
    let (header, data) = parts(bytes).ok_or_else(|| Problem::damaged(FORMAT, &"its header"))?;
    let value = |key| value_of(header, key).ok_or_else(|| Problem::damaged(FORMAT, &key));
    let descr = value("descr")?.trim_matches(['\'', '"']);
    let kind = descr.trim_start_matches(['<', '|', '=']);
    let Some(&(_, dtype)) = KINDS.iter().find(|(k, _)| *k == kind) else {
        return Err(Problem::ForeignKind {
            name: name.into(),
            kind: descr.into(),
        });
    };
    let shape = shape_of(value("shape")?).ok_or_else(|| Problem::damaged(FORMAT, &"shape"))?;
    let columns_first = match value("fortran_order")? {
        "True" => true,
        "False" => false,
        _ => return Err(Problem::damaged(FORMAT, &"fortran_order")),
    };
    let data = SharedBytes::from_vec(data.to_vec());
    let damaged = |e| Problem::damaged(FORMAT, &e);
    if !columns_first {
        return Tensor::new(dtype, shape, data).map_err(damaged);
    }
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let stored = Tensor::new(dtype, reversed, data).map_err(damaged)?;
    rows_first(&stored, &shape).map_err(damaged)
}

/// Header and elements.
fn parts(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (len, rest) = if version[0] == 1 {
        let (len, rest) = rest.split_first_chunk::<2>()?;
        (usize::from(u16::from_le_bytes(*len)), rest)
    } else {
        let (len, rest) = rest.split_first_chunk::<4>()?;
        (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
    };
    let (header, data) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(header).ok()?.trim(), data))
}

/// The text behind `'key':`, up to the comma or brace that ends it.
fn value_of<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let after = header
        .split_once(&format!("'{key}'"))?
        .1
        .trim_start()
        .strip_prefix(':')?
        .trim_start();
    let end = match after.strip_prefix('(') {
        Some(_) => after.find(')')? + 1,
        None => after.find([',', '}'])?,
    };
    after.get(..end).map(str::trim)
}

/// `(3, 4)`, `(3,)`, `()`.
fn shape_of(text: &str) -> Option<Vec<usize>> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    let parts = inner.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts.map(|p| p.parse().ok()).collect()
}

/// The elements of a tensor stored with its axes reversed, in the order of `shape`.
fn rows_first(stored: &Tensor, shape: &[usize]) -> Result<Tensor, russet_graph::error::OpError> {
    let mut out = TensorMut::zeros(stored.dtype, shape)?;
    let (here, there) = (strides(shape), strides(&stored.shape));
    for i in 0..out.len() {
        let mut at = 0;
        for (k, step) in here.iter().enumerate() {
            at += i / step % shape[k] * there[shape.len() - 1 - k];
        }
        out.set(i, stored.get(at));
    }
    Ok(out.finish())
}

/// The bytes of a file with this array.
pub(super) fn write(name: &str, tensor: &Tensor) -> Result<Vec<u8>, Problem> {
    let Some(&(kind, _)) = KINDS.iter().find(|(_, d)| *d == tensor.dtype) else {
        return Err(Problem::Kind {
            format: FORMAT,
            name: name.into(),
            kind: tensor.dtype,
        });
    };
    let order = if tensor.dtype.size() == Some(1) {
        '|'
    } else {
        '<'
    };
    let extents: String = tensor.shape.iter().map(|d| format!("{d}, ")).collect();
    let mut header = format!(
        "{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({}), }}",
        extents.trim_end()
    );
    // The elements start at a multiple of 64; the header ends with a newline.
    let before = MAGIC.len() + 4;
    let padded = (before + header.len() + 1).next_multiple_of(64) - before;
    header.push_str(&" ".repeat(padded - header.len() - 1));
    header.push('\n');
    let len = u16::try_from(header.len())
        .map_err(|_| Problem::damaged(FORMAT, &"too many axes for a header"))?;
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend(len.to_le_bytes());
    out.extend(header.as_bytes());
    out.extend_from_slice(tensor.bytes());
    Ok(out)
}
