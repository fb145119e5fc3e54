//! GGUF's blocks as codes for integer products: the codes of the file where 32 weights share a scale, else 8-bit codes anew.

use super::{
    BlockFormat, GgufRows, Layout, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q8_0, fifth, nibble, paired,
    scale_min, widen,
};
use crate::packed::{BLOCK, Bits, BlockSource};
use crate::quant::RowFormat;

impl BlockSource for GgufRows<'_> {
    fn rows(&self) -> usize {
        RowFormat::rows(self)
    }
    fn k(&self) -> usize {
        RowFormat::k(self)
    }
    fn bits(&self) -> Bits {
        match self.format {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4K => Bits::Four,
            _ => Bits::Eight,
        }
    }
    fn zero(&self) -> i32 {
        match self.format {
            BlockFormat::Q4_0 => 8,
            BlockFormat::Q5_0 => 16,
            BlockFormat::Q8_0 | BlockFormat::Q6K => 128,
            _ => 0,
        }
    }
    fn has_offsets(&self) -> bool {
        self.zero() == 0
    }
    fn half_scales(&self) -> bool {
        // The others multiply two scales, which half precision does not hold.
        matches!(
            self.format,
            BlockFormat::Q4_0
                | BlockFormat::Q4_1
                | BlockFormat::Q5_0
                | BlockFormat::Q5_1
                | BlockFormat::Q8_0
        )
    }
    fn block(&self, row: usize, block: usize, codes: &mut [u8; BLOCK]) -> (f32, f32) {
        let (len, size) = (self.format.block_len(), self.format.block_bytes());
        let at = row * self.stride + block * BLOCK / len * size;
        let bytes = &self.data[at..at + size];
        let group = block % (len / BLOCK);
        match self.format {
            BlockFormat::Q4_0 => {
                one::<Q4_0>(bytes, codes, |b, i| nibble(&b.qs, i), |b| (widen(b.d), 0.0))
            }
            BlockFormat::Q4_1 => one::<Q4_1>(
                bytes,
                codes,
                |b, i| nibble(&b.qs, i),
                |b| (widen(b.d), widen(b.m)),
            ),
            BlockFormat::Q5_0 => {
                let code = |b: &Q5_0, i| nibble(&b.qs, i) | fifth(b.qh, i);
                one(bytes, codes, code, |b| (widen(b.d), 0.0))
            }
            BlockFormat::Q5_1 => {
                let code = |b: &Q5_1, i| nibble(&b.qs, i) | fifth(b.qh, i);
                one(bytes, codes, code, |b| (widen(b.d), widen(b.m)))
            }
            BlockFormat::Q8_0 => {
                one::<Q8_0>(bytes, codes, |b, i| b.qs[i] ^ 0x80, |b| (widen(b.d), 0.0))
            }
            BlockFormat::Q4K => one::<Q4K>(
                bytes,
                codes,
                |b, i| paired(&b.qs, 32 * group + i),
                |b| scaled(scale_min(&b.scales, group), b.d, b.dmin),
            ),
            BlockFormat::Q5K => one::<Q5K>(
                bytes,
                codes,
                |b, i| paired(&b.qs, 32 * group + i) | (b.qh[i] >> group & 1) << 4,
                |b| scaled(scale_min(&b.scales, group), b.d, b.dmin),
            ),
            BlockFormat::Q6K => {
                let mut values = [0.0; 256];
                self.format.dequantize(bytes, &mut values);
                anew(&values[BLOCK * group..BLOCK * (group + 1)], codes)
            }
        }
    }
}

fn scaled((scale, min): (f32, f32), d: super::Half, dmin: super::Half) -> (f32, f32) {
    (widen(d) * scale, -widen(dmin) * min)
}

/// The codes and parameters of the first block of `bytes`.
fn one<B: Layout>(
    bytes: &[u8],
    codes: &mut [u8; BLOCK],
    code: impl Fn(&B, usize) -> u8,
    params: impl Fn(&B) -> (f32, f32),
) -> (f32, f32) {
    let Some(block) = B::blocks(bytes).first() else {
        return (0.0, 0.0);
    };
    for (i, place) in codes.iter_mut().enumerate() {
        *place = code(block, i);
    }
    params(block)
}

/// Values as 8-bit codes around 128, the largest magnitude becoming 127.
fn anew(values: &[f32], codes: &mut [u8; BLOCK]) -> (f32, f32) {
    let largest = values.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    for (place, value) in codes.iter_mut().zip(values) {
        *place = ((value * inverse).round_ties_even() as i8).cast_unsigned() ^ 0x80;
    }
    (largest / 127.0, 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elem::Rounding;

    #[test]
    fn codes_and_scales_give_the_weights_back() {
        let golden = include_bytes!("../../../../../fixtures/gguf/blocks.bin");
        let mut rest = &golden[..];
        for &format in BlockFormat::ALL {
            let (bytes, after) = rest.split_at(4 * format.block_bytes());
            rest = &after[4 * 4 * format.block_len()..];
            let k = 4 * format.block_len();
            let rows = GgufRows::new(format, bytes, k, Rounding::F32).unwrap();
            let mut want = vec![0.0; k];
            format.dequantize(bytes, &mut want);
            for (block, want) in want.chunks(BLOCK).enumerate() {
                let mut codes = [0; BLOCK];
                let (scale, offset) = rows.block(0, block, &mut codes);
                // Codes made anew are at most half a step away.
                let slack = if format == BlockFormat::Q6K {
                    0.5
                } else {
                    1e-3
                };
                for (code, want) in codes.iter().zip(want) {
                    let got = scale * (i32::from(*code) - rows.zero()) as f32 + offset;
                    let name = format.name();
                    assert!(
                        (got - want).abs() <= slack * scale.abs() + 1e-6 * want.abs(),
                        "{name}: {got} {want}"
                    );
                }
            }
        }
    }
}
