//! A position in untrusted bytes.
//!
//! Every read is checked against the end of its section and says where it failed. Counts are checked against the bytes
//! that are left before anything is reserved for them, so that no file can ask for more memory than a small multiple of
//! its own size.

use std::ops::Range;

use super::error::{Problem, ReadError, Result, Section};

/// Reads the bytes of one section from front to back.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    file: &'a [u8],
    at: usize,
    end: usize,
    section: Section,
}

impl<'a> Cursor<'a> {
    /// A cursor over `range` of the file. A range beyond the file reads as empty.
    pub fn new(file: &'a [u8], range: Range<usize>, section: Section) -> Self {
        let end = range.end.min(file.len());
        Self {
            file,
            at: range.start.min(end),
            end,
            section,
        }
    }

    /// A cursor over another part of the same section.
    pub fn at(&self, range: Range<usize>) -> Self {
        Self::new(self.file, range, self.section)
    }

    /// Bytes from the start of the file.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.end - self.at
    }

    /// The part of the file that is being read.
    pub fn section(&self) -> Section {
        self.section
    }

    /// An error at the present position.
    pub fn error(&self, problem: Problem) -> ReadError {
        ReadError::new(self.section, self.at, problem)
    }

    /// An error about something that began at `offset`.
    pub fn error_at(&self, offset: usize, problem: Problem) -> ReadError {
        ReadError::new(self.section, offset, problem)
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8]> {
        let range = self.span(n, what)?;
        self.file
            .get(range)
            .ok_or_else(|| self.error(Problem::Truncated(what)))
    }

    /// The place of the next `n` bytes in the file; passes over them without reading them.
    pub fn span(&mut self, n: usize, what: &'static str) -> Result<Range<usize>> {
        if n > self.left() {
            return Err(self.error(Problem::Truncated(what)));
        }
        let start = self.at;
        self.at += n;
        Ok(start..self.at)
    }

    /// One byte.
    pub fn byte(&mut self, what: &'static str) -> Result<u8> {
        Ok(self.take(1, what)?.first().copied().unwrap_or(0))
    }

    /// A PrefixVarInt: the number of trailing zero bits of the first byte says how many bytes follow.
    pub fn varint(&mut self, what: &'static str) -> Result<u64> {
        let first = self.byte(what)?;
        let more = first.trailing_zeros() as usize;
        let mut raw = [0u8; 8];
        for (to, from) in raw.iter_mut().zip(self.take(more, what)?) {
            *to = *from;
        }
        let rest = u64::from_le_bytes(raw);
        Ok(match more {
            0 => u64::from(first >> 1),
            8 => rest,
            // The first byte keeps 7 - `more` value bits, its low bits.
            _ => rest << (7 - more) | u64::from(first) >> (more + 1),
        })
    }

    /// A variable-length integer in two's complement, zigzag.
    pub fn signed(&mut self, what: &'static str) -> Result<i64> {
        let raw = self.varint(what)?;
        Ok((raw >> 1).cast_signed() ^ -((raw & 1).cast_signed()))
    }

    /// A variable-length integer whose lowest bit is a flag.
    pub fn flagged(&mut self, what: &'static str) -> Result<(u64, bool)> {
        let raw = self.varint(what)?;
        Ok((raw >> 1, raw & 1 == 1))
    }

    /// A variable-length integer that is the index of an entry of a table of `len` entries.
    pub fn index(&mut self, what: &'static str, len: usize) -> Result<u32> {
        let at = self.at;
        let raw = self.varint(what)?;
        self.checked_index(what, raw, len)
            .map_err(|e| ReadError { offset: at, ..e })
    }

    /// Checks an index that was read already.
    pub fn checked_index(&self, what: &'static str, index: u64, len: usize) -> Result<u32> {
        let bad = || self.error(Problem::Index { what, index, len });
        let small = u32::try_from(index).map_err(|_| bad())?;
        if (small as usize) < len {
            Ok(small)
        } else {
            Err(bad())
        }
    }

    /// A number of things that take at least `each` bytes, all of which must still be there.
    pub fn count(&mut self, what: &'static str, each: usize) -> Result<usize> {
        let at = self.at;
        let raw = self.varint(what)?;
        self.checked_count(what, raw, each)
            .map_err(|e| ReadError { offset: at, ..e })
    }

    /// Checks a count that was read already.
    pub fn checked_count(&self, what: &'static str, count: u64, each: usize) -> Result<usize> {
        let limit = self.left() / each.max(1);
        match usize::try_from(count) {
            Ok(n) if n <= limit => Ok(n),
            _ => Err(self.error(Problem::Limit {
                what,
                value: count,
                limit: limit as u64,
            })),
        }
    }

    /// A size in bytes.
    pub fn size(&mut self, what: &'static str) -> Result<usize> {
        let raw = self.varint(what)?;
        usize::try_from(raw).map_err(|_| self.error(Problem::Truncated(what)))
    }

    /// Text up to a zero byte.
    pub fn text(&mut self, what: &'static str) -> Result<&'a str> {
        let rest = self.file.get(self.at..self.end).unwrap_or_default();
        let len = rest
            .iter()
            .position(|&b| b == 0)
            .ok_or_else(|| self.error(Problem::Truncated(what)))?;
        let bytes = self.take(len, what)?;
        self.at += 1;
        std::str::from_utf8(bytes).map_err(|_| self.error(Problem::Text(what)))
    }

    /// A list: a count, then that many items of at least one byte.
    pub fn list<T>(
        &mut self,
        what: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.count(what, 1)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Passes over padding up to a multiple of `alignment` from the start of the file.
    pub fn align(&mut self, alignment: usize) -> Result<()> {
        if !alignment.is_power_of_two() {
            return Err(self.error(Problem::Alignment("not a power of two")));
        }
        let padding = self.at.wrapping_neg() & (alignment - 1);
        if self.take(padding, "padding")?.iter().any(|&b| b != 0xcb) {
            return Err(self.error(Problem::Alignment("padding is not 0xcb")));
        }
        Ok(())
    }

    /// Fails where bytes are left.
    pub fn finish(&self, what: &'static str) -> Result<()> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.error(Problem::Trailing { what, left })),
        }
    }
}
