//! Which keys a mask leaves that is added to scores: exporters of whole caches hide what is not filled by minus infinity, and what they
//! hide need not be read.

use half::f16;

use super::{Cx, Kernel};
use crate::error::OpError;
use crate::exec::view::{View, store_int, typed};
use crate::ops::scaled_dot_product_attention::ScaledDotProductAttention;
use crate::types::DType;

/// What is added so low hides a key: minus infinity, or the least number of half precision.
const HIDDEN: f32 = -65504.0;

/// The keys that attention reads, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The first key that a query sees.
    pub(super) first: usize,
    /// Keys from there on.
    pub(super) keys: usize,
    /// Whether every query sees one key more than the one before, the last one all.
    pub(super) causal: bool,
    /// How many keys a query sees at most, where it sees the last ones only.
    pub(super) window: Option<usize>,
    /// Whether the mask is to be added.
    pub(super) added: bool,
}

impl Seen {
    /// All keys, as the operation says.
    pub(super) fn all(op: &ScaledDotProductAttention, keys: usize) -> Self {
        Self {
            first: 0,
            keys,
            causal: op.causal,
            window: (op.window > 0).then_some(op.window),
            added: true,
        }
    }

    /// What [`MaskEdges`] has written, of `keys` keys.
    pub(super) fn read(found: &View<'_>, keys: usize) -> Self {
        let number = |at| usize::try_from(found.int_at(at)).unwrap_or(0);
        let first = number(0).min(keys);
        Self {
            first,
            keys: number(1).min(keys - first),
            causal: number(2) != 0,
            window: Some(number(3)).filter(|w| *w > 0),
            added: number(4) != 0,
        }
    }

    fn numbers(&self) -> [usize; MaskEdges::FOUND] {
        let flags = [self.causal, self.added].map(usize::from);
        let window = self.window.unwrap_or(0);
        [self.first, self.keys, flags[0], window, flags[1]]
    }
}

/// Finds the keys that a mask leaves. Input: `[…, q, s]`, one for all heads, its rows without gaps. Output: integers that
/// [`Seen::read`] reads.
#[derive(Debug)]
pub(crate) struct MaskEdges;

impl MaskEdges {
    /// How many numbers it finds.
    pub(crate) const FOUND: usize = 5;
}

impl Kernel for MaskEdges {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let mask = &cx.inputs[0];
        let (keys, _, rows) = mask.geometry.rows();
        let row = |i: usize| {
            let at = mask.geometry.row_offset(i);
            match mask.dtype {
                DType::F16 => edges(&typed::<u16>(mask.data)[at..at + keys], |bits| {
                    // Sign and magnitude: nothing below the least number but minus infinity.
                    let hides = f16::MIN.to_bits()..=f16::NEG_INFINITY.to_bits();
                    (hides.contains(bits), bits & 0x7fff == 0)
                }),
                DType::F32 => edges(&typed::<f32>(mask.data)[at..at + keys], |x| {
                    (*x <= HIDDEN, *x == 0.0)
                }),
                _ => None,
            }
        };
        let seen = seen(rows, keys, row).unwrap_or(Seen {
            first: 0,
            keys,
            causal: false,
            window: None,
            added: true,
        });
        let out = &mut cx.outputs[0];
        let (dtype, size) = (out.dtype, out.dtype.size().unwrap_or(1));
        for (number, place) in seen
            .numbers()
            .iter()
            .zip(out.bytes().chunks_exact_mut(size))
        {
            store_int(dtype, *number as i64, place);
        }
        Ok(())
    }
}

/// The keys of a row that are not hidden: the first, the end, and whether nothing is added to all between.
type Edges = (usize, usize, bool);

/// `kind` tells of an element whether it hides a key, and whether it adds nothing.
fn edges<T>(row: &[T], kind: impl Fn(&T) -> (bool, bool)) -> Option<Edges> {
    let first = row.iter().position(|x| !kind(x).0)?;
    let end = row.iter().rposition(|x| !kind(x).0)? + 1;
    Some((first, end, row[first..end].iter().all(|x| kind(x).1)))
}

/// What `m` rows of `s` elements leave; none where a row hides everything.
fn seen(m: usize, s: usize, row: impl Fn(usize) -> Option<Edges>) -> Option<Seen> {
    let (mut first, mut end, mut plain) = (s, 0, true);
    for i in 0..m {
        let (low, high, zeros) = row(i)?;
        (first, end) = (first.min(low), end.max(high));
        plain &= zeros;
    }
    let keys = end.checked_sub(first)?;
    let all =
        |fits: &dyn Fn(usize, Edges) -> bool| (0..m).all(|i| row(i).is_some_and(|e| fits(i, e)));
    let mut seen = Seen {
        first,
        keys,
        causal: false,
        window: None,
        added: false,
    };
    if plain && all(&|_, (low, high, _)| (low, high) == (first, end)) {
        return Some(seen);
    }
    let (low, high, _) = row(m.checked_sub(1)?)?;
    let reach = high - low;
    seen.causal = plain && all(&|i, (_, high, _)| high + (m - 1 - i) == end);
    if seen.causal && all(&|_, (low, _, _)| low == first) {
        return Some(seen);
    }
    if seen.causal && all(&|_, (low, high, _)| low == first.max(high.saturating_sub(reach))) {
        seen.window = Some(reach);
        return Some(seen);
    }
    (seen.causal, seen.added) = (false, true);
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEG: f32 = f32::NEG_INFINITY;

    fn of<const S: usize>(rows: &[[f32; S]]) -> Option<Seen> {
        seen(rows.len(), S, |i| {
            edges(&rows[i], |x| (*x <= HIDDEN, *x == 0.0))
        })
    }

    fn want(
        first: usize,
        keys: usize,
        causal: bool,
        window: Option<usize>,
        added: bool,
    ) -> Option<Seen> {
        Some(Seen {
            first,
            keys,
            causal,
            window,
            added,
        })
    }

    #[test]
    fn edges_are_found() {
        let one = [[0.0, 0.0, NEG, NEG]];
        assert_eq!(of(&one), want(0, 2, false, None, false));
        let behind = [[NEG, NEG, 0.0, NEG]];
        assert_eq!(of(&behind), want(2, 1, false, None, false));
        let causal = [[0.0, NEG, NEG, NEG], [0.0, 0.0, NEG, NEG]];
        assert_eq!(of(&causal), want(0, 2, true, None, false));
        let window = [
            [0.0, 0.0, NEG, NEG],
            [NEG, 0.0, 0.0, NEG],
            [NEG, NEG, 0.0, 0.0],
        ];
        assert_eq!(of(&window), want(0, 4, true, Some(2), false));
        let begun = [
            [0.0, NEG, NEG, NEG],
            [0.0, 0.0, NEG, NEG],
            [NEG, 0.0, 0.0, NEG],
        ];
        assert_eq!(of(&begun), want(0, 3, true, Some(2), false));
    }

    #[test]
    fn other_masks_are_added() {
        let slope = [[-1.0, 0.0, NEG, NEG]];
        assert_eq!(of(&slope), want(0, 2, false, None, true));
        let hole = [[0.0, NEG, 0.0, NEG], [0.0, 0.0, 0.0, 0.0]];
        assert_eq!(of(&hole), want(0, 4, false, None, true));
        let back = [[0.0, 0.0, 0.0, NEG], [0.0, 0.0, NEG, NEG]];
        assert_eq!(of(&back), want(0, 3, false, None, true));
        assert_eq!(of(&[[NEG, NEG], [0.0, 0.0]]), None);
        let low = [[HIDDEN, 0.0, HIDDEN]];
        assert_eq!(of(&low), want(1, 1, false, None, false));
    }
}
