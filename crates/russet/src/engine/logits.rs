//! A row of logits where the model left it: sampling reads it there, nothing is copied first.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use russet_graph::exec::View;
use russet_graph::types::DType;
use russet_kernels::mem::cast_slice;

use super::Token;

/// Elements that are widened at once.
const BLOCK: usize = 1024;

/// Maxima that are kept side by side, each of every 32nd number.
const LANES: usize = 32;

/// A number for each entry of the vocabulary, in the kind that the model makes.
#[derive(Clone, Copy, Debug)]
pub enum Logits<'a> {
    /// f32.
    F32(&'a [f32]),
    /// f16.
    F16(&'a [f16]),
    /// bf16.
    Bf16(&'a [bf16]),
}

impl Default for Logits<'_> {
    fn default() -> Self {
        Self::F32(&[])
    }
}

impl<'a> From<&'a [f32]> for Logits<'a> {
    fn from(row: &'a [f32]) -> Self {
        Self::F32(row)
    }
}

impl<'a> Logits<'a> {
    /// Row `row` of a view; `None` where there is no such row, or it holds no floats side by side.
    pub(crate) fn of(view: &View<'a>, row: usize) -> Option<Self> {
        let bytes = view.row_bytes(row)?;
        Some(match view.dtype() {
            DType::F32 => Self::F32(cast_slice(bytes)?),
            DType::F16 => Self::F16(cast_slice(bytes)?),
            DType::BF16 => Self::Bf16(cast_slice(bytes)?),
            _ => return None,
        })
    }

    /// Entries of the vocabulary.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::F16(x) => x.len(),
            Self::Bf16(x) => x.len(),
        }
    }

    /// Whether there are none: no token has been processed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the logits, some at a time, and the token of the first of them.
    pub fn blocks(&self, mut f: impl FnMut(Token, &[f32])) {
        let starts = (0..).step_by(BLOCK);
        match self {
            Self::F32(x) => starts.zip(x.chunks(BLOCK)).for_each(|(at, p)| f(at, p)),
            Self::F16(x) => widened(x.chunks(BLOCK), f, |p, wide| p.convert_to_f32_slice(wide)),
            Self::Bf16(x) => widened(x.chunks(BLOCK), f, |p, wide| p.convert_to_f32_slice(wide)),
        }
    }

    /// All of them.
    pub fn to_vec(&self) -> Vec<f32> {
        let mut all = Vec::new();
        self.copy_to(&mut all);
        all
    }

    /// All of them, in place of what `row` holds.
    pub fn copy_to(&self, row: &mut Vec<f32>) {
        row.clear();
        row.reserve(self.len());
        self.blocks(|_, part| row.extend_from_slice(part));
    }

    /// The largest number; minus infinity for an empty row, and where all are NaN.
    pub fn max(&self) -> f32 {
        let mut max = f32::NEG_INFINITY;
        self.blocks(|_, part| max = max.max(largest(part)));
        max
    }

    /// The first of the largest logits; NaN is passed over; 0 for an empty row.
    pub fn argmax(&self) -> Token {
        let mut best = (f32::NEG_INFINITY, 0);
        self.blocks(|start, part| {
            let max = largest(part);
            if max > best.0 {
                let at = part.iter().position(|l| *l == max).unwrap_or(0);
                best = (max, start + at as Token);
            }
        });
        best.1
    }
}

/// Calls `f` with parts of a row, made wider, and with their first token.
fn widened<'a, T: 'a>(
    parts: impl Iterator<Item = &'a [T]>,
    mut f: impl FnMut(Token, &[f32]),
    widen: impl Fn(&[T], &mut [f32]),
) {
    let mut wide = [0.0; BLOCK];
    for (start, part) in (0..).step_by(BLOCK).zip(parts) {
        let wide = &mut wide[..part.len()];
        widen(part, wide);
        f(start, wide);
    }
}

/// The largest number; minus infinity where there is none but NaN. Lane by lane, which `f32::max` in one chain is not.
fn largest(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (whole, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in whole {
        for (lane, l) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *l);
        }
    }
    lanes
        .into_iter()
        .chain(rest.iter().copied())
        .fold(f32::NEG_INFINITY, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_is_found_in_every_kind() {
        let mut row = vec![-1.0_f32; 3000];
        for (at, value) in [(5, f32::NAN), (1023, 7.0), (1024, 7.0), (2999, 6.5)] {
            row[at] = value;
        }
        let half: Vec<f16> = row.iter().map(|x| f16::from_f32(*x)).collect();
        let brain: Vec<bf16> = row.iter().map(|x| bf16::from_f32(*x)).collect();
        for logits in [Logits::F32(&row), Logits::F16(&half), Logits::Bf16(&brain)] {
            assert_eq!((logits.argmax(), logits.max()), (1023, 7.0));
            assert_eq!((logits.len(), logits.to_vec().len()), (3000, 3000));
            assert_eq!(logits.to_vec()[2999], 6.5);
        }
    }

    #[test]
    fn nothing_to_choose_from_is_token_0() {
        assert_eq!(Logits::default().argmax(), 0);
        assert!(Logits::default().is_empty());
        let nothing = [f32::NEG_INFINITY, f32::NAN];
        assert_eq!(Logits::F32(&nothing).argmax(), 0);
    }
}
