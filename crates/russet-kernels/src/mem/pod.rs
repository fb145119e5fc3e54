//! Views of bytes as numbers and back, checked for alignment and length.

use std::mem::{align_of, size_of, size_of_val};
use std::slice::{from_raw_parts, from_raw_parts_mut};

use half::{bf16, f16};

mod sealed {
    /// Keeps [`super::Pod`] to the types listed in this file.
    pub trait Sealed {}
}

/// Numbers for which every bit pattern is a value and which have no padding. Little-endian hosts read the formats' bytes as they are.
pub trait Pod: sealed::Sealed + Copy + Default + Send + Sync + 'static {}

macro_rules! pod {
    ($($t:ty)*) => {$(
        impl sealed::Sealed for $t {}
        impl Pod for $t {}
    )*};
}
pod!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 f16 bf16);

#[inline(always)]
fn fits<T: Pod>(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(align_of::<T>())
        && bytes.len().is_multiple_of(size_of::<T>())
}

/// `bytes` as a slice of `T`; `None` if misaligned or not a whole number of elements.
#[inline(always)]
pub fn cast_slice<T: Pod>(bytes: &[u8]) -> Option<&[T]> {
    // SAFETY: aligned and of whole elements (checked by `fits`); any bits are a value of a `Pod`; same lifetime.
    fits::<T>(bytes)
        .then(|| unsafe { from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) })
}

/// `bytes` as a mutable slice of `T`; `None` if misaligned or not a whole number of elements.
#[inline(always)]
pub fn cast_slice_mut<T: Pod>(bytes: &mut [u8]) -> Option<&mut [T]> {
    let len = bytes.len() / size_of::<T>();
    // SAFETY: as in `cast_slice`; the borrow of `bytes` is exclusive, and any `T` written is initialised bytes.
    fits::<T>(bytes).then(|| unsafe { from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) })
}

/// The bytes of `values`.
#[inline(always)]
pub fn bytes_of<T: Pod>(values: &[T]) -> &[u8] {
    // SAFETY: a `Pod` has no padding, so all its bytes are initialised; u8 has no alignment; same lifetime.
    unsafe { from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of `values`, writable.
#[inline(always)]
pub fn bytes_of_mut<T: Pod>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; the borrow is exclusive, and any bytes are a value of a `Pod`.
    unsafe { from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_check_alignment_and_length() {
        let words = [0x0403_0201_u32, 0x0807_0605];
        let bytes = bytes_of(&words);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(cast_slice::<u32>(bytes), Some(&words[..]));
        assert_eq!(cast_slice::<u16>(&bytes[2..4]), Some(&[0x0403_u16][..]));
        assert_eq!(cast_slice::<u32>(&bytes[1..5]), None, "misaligned");
        assert_eq!(cast_slice::<u32>(&bytes[..6]), None, "not whole");
    }

    #[test]
    fn mutable_casts_write_through() {
        let mut words = [0_u32; 2];
        cast_slice_mut::<f32>(bytes_of_mut(&mut words)).unwrap()[1] = 1.0;
        assert_eq!(words, [0, 0x3f80_0000]);
    }
}
