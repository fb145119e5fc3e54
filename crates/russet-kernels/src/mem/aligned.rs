//! A zeroed byte buffer aligned to a cache line; large ones live in huge pages where the system offers them.

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use super::{Pod, cast_slice, cast_slice_mut};

/// From this size a buffer is its own mapping, advised to use huge pages.
const MAP_FROM: usize = 4 << 20;

/// The allocator refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The bytes asked for.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot allocate {} bytes", self.bytes)
    }
}

impl std::error::Error for OutOfMemory {}

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

enum Store {
    Heap(Vec<Line>),
    Map(MmapMut),
}

/// Zeroed bytes, aligned to 64.
pub struct AlignedBuf {
    store: Store,
    len: usize,
}

impl AlignedBuf {
    /// An empty buffer; allocates nothing.
    pub const fn new() -> Self {
        Self {
            store: Store::Heap(Vec::new()),
            len: 0,
        }
    }

    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the allocator refuses.
    pub fn with_len(len: usize) -> Result<Self, OutOfMemory> {
        let store = if len >= MAP_FROM {
            map(len, true)?
        } else {
            heap(len)?
        };
        Ok(Self { store, len })
    }

    /// As [`Self::with_len`], for a large buffer of which little may ever be used: pages of the usual size, of which those never
    /// written cost nothing.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the allocator refuses.
    pub fn sparse(len: usize) -> Result<Self, OutOfMemory> {
        let store = if len >= MAP_FROM {
            map(len, false)?
        } else {
            heap(len)?
        };
        Ok(Self { store, len })
    }

    /// A zeroed buffer with room for `count` elements of `T`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the size overflows or the allocator refuses.
    pub fn of<T: Pod>(count: usize) -> Result<Self, OutOfMemory> {
        Self::with_len(byte_count::<T>(count)?)
    }

    /// Grows to at least `len` bytes; never shrinks. When it grows the contents are zero again. A buffer that grows again and
    /// again gets half as much more each time, so that it soon stops.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the allocator refuses; the buffer is then unchanged.
    pub fn ensure_len(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len > self.len {
            *self = Self::with_len(len.max(self.len + self.len / 2))?;
        }
        Ok(())
    }

    /// Grows to hold `count` elements of `T` (see [`Self::ensure_len`]) and returns the first `count`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the size overflows or the allocator refuses.
    pub fn ensure<T: Pod>(&mut self, count: usize) -> Result<&mut [T], OutOfMemory> {
        let bytes = byte_count::<T>(count)?;
        self.ensure_len(bytes)?;
        cast_slice_mut(&mut self[..bytes]).ok_or(OutOfMemory { bytes })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self
    }

    /// The bytes, writable.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    /// As many whole `T` as fit.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        cast_slice(&self[..self.len - self.len % size_of::<T>()]).unwrap_or(&[])
    }

    /// As many whole `T` as fit, writable.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        let whole = self.len - self.len % size_of::<T>();
        cast_slice_mut(&mut self[..whole]).unwrap_or(&mut [])
    }
}

fn byte_count<T: Pod>(count: usize) -> Result<usize, OutOfMemory> {
    count
        .checked_mul(size_of::<T>())
        .ok_or(OutOfMemory { bytes: usize::MAX })
}

fn heap(len: usize) -> Result<Store, OutOfMemory> {
    let lines = len.div_ceil(64);
    let mut vec = Vec::new();
    vec.try_reserve_exact(lines)
        .map_err(|_| OutOfMemory { bytes: len })?;
    vec.resize(lines, Line([0; 64]));
    Ok(Store::Heap(vec))
}

fn map(len: usize, huge: bool) -> Result<Store, OutOfMemory> {
    if isize::try_from(len).is_err() {
        return Err(OutOfMemory { bytes: len });
    }
    let map = MmapMut::map_anon(len).map_err(|_| OutOfMemory { bytes: len })?;
    // Advice only: a kernel without huge pages says no, and the mapping is as good as before.
    #[cfg(target_os = "linux")]
    let _ = map.advise(if huge {
        memmap2::Advice::HugePage
    } else {
        memmap2::Advice::NoHugePage
    });
    #[cfg(not(target_os = "linux"))]
    let _ = huge;
    Ok(Store::Map(map))
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.store {
            // SAFETY: the vector holds at least `len` initialised bytes in whole lines, and `Line` has no padding.
            Store::Heap(lines) => unsafe {
                std::slice::from_raw_parts(lines.as_ptr().cast(), self.len)
            },
            Store::Map(map) => &map[..self.len],
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.store {
            // SAFETY: as in `deref`; the borrow of the vector is exclusive.
            Store::Heap(lines) => unsafe {
                std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), self.len)
            },
            Store::Map(map) => &mut map[..self.len],
        }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_exact() {
        for len in [0, 1, 63, 64, 65, MAP_FROM - 1, MAP_FROM + 7] {
            let buf = AlignedBuf::with_len(len).unwrap();
            assert_eq!(buf.len(), len);
            assert!(len == 0 || buf.as_ptr().addr().is_multiple_of(64));
            assert!(buf.iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn grows_only() {
        let mut buf = AlignedBuf::new();
        buf.ensure::<f32>(10).unwrap()[9] = 1.0;
        buf.ensure_len(4).unwrap();
        assert_eq!(buf.as_slice::<f32>()[9], 1.0);
        buf.ensure_len(100).unwrap();
        assert_eq!(buf.as_mut_slice::<u64>().len(), 12);
    }

    #[test]
    fn refuses_instead_of_aborting() {
        assert!(AlignedBuf::with_len(usize::MAX - 100).is_err());
        assert!(AlignedBuf::of::<f64>(usize::MAX / 4).is_err());
        assert!(AlignedBuf::with_len(isize::MAX as usize - 4096).is_err());
    }
}
