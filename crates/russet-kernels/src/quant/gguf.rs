//! GGUF's block formats: what the bytes of a block mean.
//!
//! A row is a sequence of blocks of 32 or 256 weights, each with its own scales. The layouts are those of the GGUF
//! specification (`ggml-common.h` names them `block_q4_0` and so on); `value` of a layout is the definition of one weight,
//! and [`BlockFormat::dequantize`] is nothing but that. [`GgufRows`] computes the same numbers in registers.
//!
//! Every product of a scale and a code is exact in f32, so a weight is rounded once, whatever the instruction set.

mod pack;
mod rows;

pub use rows::GgufRows;

/// An f16 as it lies in a block.
type Half = [u8; 2];

/// Widens an f16 without asking the processor what it can do: exact for all values, NaN included.
#[inline(always)]
fn widen(half: Half) -> f32 {
    const REBIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
    let bits = u32::from(u16::from_le_bytes(half));
    let magnitude = (bits & 0x7fff) << 13;
    let special = if bits & 0x7c00 == 0x7c00 {
        0x7f80_0000
    } else {
        0
    };
    let scaled = f32::from_bits(magnitude) * REBIAS;
    f32::from_bits(scaled.to_bits() | special | (bits & 0x8000) << 16)
}

/// A block as it lies in the file.
///
/// # Safety
/// Implementors are `repr(C)` structs of byte arrays: alignment 1, no padding, any bytes are a value.
unsafe trait Layout: Sized + 'static {
    /// Weights in a block.
    const LEN: usize;

    /// Weight `i` of the block.
    fn value(&self, i: usize) -> f32;

    /// The whole blocks of `bytes`.
    #[inline(always)]
    fn blocks(bytes: &[u8]) -> &[Self] {
        let count = bytes.len() / size_of::<Self>();
        // SAFETY: `count` blocks fit in `bytes`; alignment is 1 and any bytes are a value, as the trait demands.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), count) }
    }
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident, $text:literal: $len:literal weights in $bytes:literal bytes {
        $($field:ident: $ty:ty,)*
    } |$block:ident, $i:ident| $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            struct $name {
                $($field: $ty,)*
            }

            const _: () = assert!(size_of::<$name>() == $bytes && align_of::<$name>() == 1);

            // SAFETY: `repr(C)` over byte arrays only; the assertion above rules out padding.
            unsafe impl Layout for $name {
                const LEN: usize = $len;

                fn value(&self, $i: usize) -> f32 {
                    let $block = self;
                    $value
                }
            }
        )*

        /// A block format of GGUF.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum BlockFormat {
            $($(#[$doc])* $name,)*
        }

        impl BlockFormat {
            /// Every format.
            pub const ALL: &'static [BlockFormat] = &[$(BlockFormat::$name,)*];

            /// The name GGUF's tools use, such as `q4_1` or `q6_k`.
            pub const fn name(self) -> &'static str {
                match self { $(BlockFormat::$name => $text,)* }
            }

            /// Weights in a block.
            pub const fn block_len(self) -> usize {
                match self { $(BlockFormat::$name => $len,)* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(BlockFormat::$name => $bytes,)* }
            }

            /// Decodes whole blocks: the definition. Weights beyond the shorter of the two are left alone.
            pub fn dequantize(self, bytes: &[u8], out: &mut [f32]) {
                match self { $(BlockFormat::$name => dequantize::<$name>(bytes, out),)* }
            }
        }
    };
}

layouts! {
    /// 4-bit codes around 8: d · (q - 8).
    Q4_0, "q4_0": 32 weights in 18 bytes {
        d: Half, qs: [u8; 16],
    } |b, i| widen(b.d) * (f32::from(nibble(&b.qs, i)) - 8.0);

    /// 4-bit codes with a minimum: d · q + m.
    Q4_1, "q4_1": 32 weights in 20 bytes {
        d: Half, m: Half, qs: [u8; 16],
    } |b, i| widen(b.d) * f32::from(nibble(&b.qs, i)) + widen(b.m);

    /// 5-bit codes around 16: d · (q - 16), the fifth bits in one word.
    Q5_0, "q5_0": 32 weights in 22 bytes {
        d: Half, qh: [u8; 4], qs: [u8; 16],
    } |b, i| widen(b.d) * (f32::from(nibble(&b.qs, i) | fifth(b.qh, i)) - 16.0);

    /// 5-bit codes with a minimum: d · q + m.
    Q5_1, "q5_1": 32 weights in 24 bytes {
        d: Half, m: Half, qh: [u8; 4], qs: [u8; 16],
    } |b, i| widen(b.d) * f32::from(nibble(&b.qs, i) | fifth(b.qh, i)) + widen(b.m);

    /// 8-bit signed codes: d · q.
    Q8_0, "q8_0": 32 weights in 34 bytes {
        d: Half, qs: [u8; 32],
    } |b, i| widen(b.d) * f32::from(b.qs[i].cast_signed());

    /// 4-bit codes in eight groups of 32 with 6-bit scales and minima: d · scale · q - dmin · min.
    Q4K, "q4_k": 256 weights in 144 bytes {
        d: Half, dmin: Half, scales: [u8; 12], qs: [u8; 128],
    } |b, i| {
        let (scale, min) = scale_min(&b.scales, i / 32);
        widen(b.d) * scale * f32::from(paired(&b.qs, i)) - widen(b.dmin) * min
    };

    /// 5-bit codes in eight groups of 32 with 6-bit scales and minima: d · scale · q - dmin · min.
    Q5K, "q5_k": 256 weights in 176 bytes {
        d: Half, dmin: Half, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128],
    } |b, i| {
        let (scale, min) = scale_min(&b.scales, i / 32);
        let high = (b.qh[i % 32] >> (i / 32) & 1) << 4;
        widen(b.d) * scale * f32::from(paired(&b.qs, i) | high) - widen(b.dmin) * min
    };

    /// 6-bit codes around 32 in sixteen groups of 16 with 8-bit scales: d · scale · (q - 32).
    Q6K, "q6_k": 256 weights in 210 bytes {
        ql: [u8; 128], qh: [u8; 64], scales: [u8; 16], d: Half,
    } |b, i| {
        let scale = f32::from(b.scales[i / 16].cast_signed());
        widen(b.d) * scale * f32::from(b.code(i).cast_signed())
    };
}

impl Q6K {
    /// Code `i` minus 32, as a signed byte. Each half of the block has its low nibbles in 64 bytes, two quarters of 32
    /// weights in the low halves of the bytes and two in the high ones, and its top bits in 32 bytes, two a quarter.
    #[inline(always)]
    fn code(&self, i: usize) -> u8 {
        let (half, quarter, l) = (i / 128, i / 32 % 4, i % 32);
        let low = self.ql[64 * half + 32 * (quarter % 2) + l] >> (4 * (quarter / 2)) & 15;
        let high = self.qh[32 * half + l] >> (2 * quarter) & 3;
        (low | high << 4).wrapping_sub(32)
    }
}

/// Code `i` of 32: the low halves of the bytes are the first sixteen, the high halves the others.
#[inline(always)]
fn nibble(qs: &[u8; 16], i: usize) -> u8 {
    qs[i % 16] >> (4 * (i / 16)) & 15
}

/// Bit `i` of a word, as the fifth bit of a code.
#[inline(always)]
fn fifth(qh: [u8; 4], i: usize) -> u8 {
    ((u32::from_le_bytes(qh) >> i & 1) as u8) << 4
}

/// Code `i` of 256: groups of 32 in pairs that share 32 bytes, the first of a pair in the low halves.
#[inline(always)]
fn paired(qs: &[u8; 128], i: usize) -> u8 {
    qs[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15
}

/// The 6-bit scale and minimum of group `j` of eight. The first four pairs are the low six bits of the first eight bytes;
/// the others have four bits in the last four bytes and two in the top of those first eight.
#[inline(always)]
fn scale_min(s: &[u8; 12], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (
            s[j + 4] & 15 | s[j - 4] >> 6 << 4,
            s[j + 4] >> 4 | s[j] >> 6 << 4,
        )
    };
    (f32::from(scale), f32::from(min))
}

fn dequantize<B: Layout>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in B::blocks(bytes).iter().zip(out.chunks_exact_mut(B::LEN)) {
        out.iter_mut()
            .enumerate()
            .for_each(|(i, y)| *y = block.value(i));
    }
}

impl BlockFormat {
    /// The format with this name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|f| f.name().eq_ignore_ascii_case(name))
    }

    /// Bytes of a row of `len` weights; `None` if that is not whole blocks, or too many to count.
    pub fn row_bytes(self, len: usize) -> Option<usize> {
        let whole = len.is_multiple_of(self.block_len());
        if whole {
            (len / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn every_half_widens_exactly() {
        for bits in 0..=u16::MAX {
            let (got, want) = (widen(bits.to_le_bytes()), f16::from_bits(bits).to_f32());
            assert!(
                got == want || got.is_nan() && want.is_nan(),
                "{bits:#06x}: {got} {want}"
            );
            assert_eq!(
                got.is_sign_negative(),
                want.is_sign_negative(),
                "{bits:#06x}"
            );
        }
    }

    #[test]
    fn names_parse_back_and_rows_are_whole_blocks() {
        for &format in BlockFormat::ALL {
            assert_eq!(
                BlockFormat::parse(&format.name().to_uppercase()),
                Some(format)
            );
            assert_eq!(
                format.row_bytes(3 * format.block_len()),
                Some(3 * format.block_bytes())
            );
            assert_eq!(format.row_bytes(format.block_len() + 1), None);
        }
        assert_eq!(
            BlockFormat::Q8_0.row_bytes(usize::MAX / 64 * 64),
            None,
            "does not overflow"
        );
        assert_eq!(BlockFormat::parse("q9_9"), None);
    }

    /// Random blocks (with sane scales) and what another decoder makes of them: see `fixtures/gguf/README.md`.
    #[test]
    fn agrees_with_an_independent_decoder() {
        let golden = include_bytes!("../../../../fixtures/gguf/blocks.bin");
        let mut rest = &golden[..];
        for &format in BlockFormat::ALL {
            let (bytes, after) = rest.split_at(4 * format.block_bytes());
            let (want, after) = after.split_at(4 * 4 * format.block_len());
            rest = after;
            let mut got = vec![0.0; 4 * format.block_len()];
            format.dequantize(bytes, &mut got);
            for (i, (got, want)) in got.iter().zip(want.chunks_exact(4)).enumerate() {
                let want = f32::from_le_bytes([want[0], want[1], want[2], want[3]]);
                assert_eq!(
                    got.to_bits(),
                    want.to_bits(),
                    "{} {i}: {got} {want}",
                    format.name()
                );
            }
        }
        assert!(rest.is_empty());
    }
}
