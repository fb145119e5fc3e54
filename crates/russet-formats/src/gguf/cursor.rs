//! A position in untrusted little-endian bytes. Every read is checked and says where it failed.

use std::ops::Range;

use super::error::{GgufError, Place, Problem, Result};

/// Reads from front to back. Errors are placed in the header; callers that know better say so.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

macro_rules! numbers {
    ($($name:ident: $ty:ty;)*) => {$(
        pub(super) fn $name(&mut self, what: &'static str) -> Result<$ty> {
            let mut raw = [0; size_of::<$ty>()];
            raw.copy_from_slice(self.take(size_of::<$ty>(), what)?);
            Ok(<$ty>::from_le_bytes(raw))
        }
    )*};
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes from the start.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn error(&self, problem: Problem) -> GgufError {
        GgufError::new(self.at, Place::Header, problem)
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8]> {
        let range = self.span(n, what)?;
        self.bytes
            .get(range)
            .ok_or_else(|| self.error(Problem::Truncated(what)))
    }

    /// The place of the next `n` bytes, which are passed over.
    pub(super) fn span(&mut self, n: usize, what: &'static str) -> Result<Range<usize>> {
        if n > self.left() {
            return Err(self.error(Problem::Truncated(what)));
        }
        let start = self.at;
        self.at += n;
        Ok(start..self.at)
    }

    numbers! {
        u8: u8; i8: i8; u16: u16; i16: i16; u32: u32; i32: i32; u64: u64; i64: i64; f32: f32; f64: f64;
    }

    /// Checks a count of things that take at least `each` bytes against what is left.
    pub(super) fn checked(&self, what: &'static str, count: u64, each: usize) -> Result<usize> {
        let limit = self.left() / each.max(1);
        let over = || {
            self.error(Problem::Limit {
                what,
                value: count,
                limit: limit as u64,
            })
        };
        usize::try_from(count)
            .ok()
            .filter(|&n| n <= limit)
            .ok_or_else(over)
    }

    /// The bytes of a string: a length in 8 bytes, then as many.
    pub(super) fn string(&mut self, what: &'static str) -> Result<&'a [u8]> {
        let at = self.at;
        let len = self.u64(what)?;
        let len = self
            .checked(what, len, 1)
            .map_err(|e| GgufError { offset: at, ..e })?;
        self.take(len, what)
    }

    /// A string that is UTF-8.
    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str> {
        let at = self.at;
        std::str::from_utf8(self.string(what)?)
            .map_err(|_| GgufError::new(at, Place::Header, Problem::Text(what)))
    }

    /// A name: UTF-8, not empty, of at most `limit` bytes.
    pub(super) fn name(&mut self, what: &'static str, limit: usize) -> Result<&'a str> {
        let at = self.at;
        let name = self.text(what)?;
        let bad = |problem| Err(GgufError::new(at, Place::Header, problem));
        match name.len() {
            0 => bad(Problem::Value(format!("{what} is empty"))),
            n if n > limit => bad(Problem::Limit {
                what,
                value: n as u64,
                limit: limit as u64,
            }),
            _ => Ok(name),
        }
    }
}
