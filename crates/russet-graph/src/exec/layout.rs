//! Layouts: how a view's elements lie in the storage under it, in symbolic dims.

use crate::types::Dim;

/// Extents, strides and offset, in elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) shape: Vec<Dim>,
    pub(crate) strides: Vec<Dim>,
    pub(crate) offset: Dim,
}

impl Layout {
    /// Row-major, from the start.
    pub(crate) fn contiguous(shape: &[Dim]) -> Self {
        let mut strides = vec![Dim::Const(1); shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i].mul(&shape[i]);
        }
        Self {
            shape: shape.to_vec(),
            strides,
            offset: Dim::Const(0),
        }
    }

    /// Whether the elements lie row-major without gaps. Axes of extent 1 may have any stride.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut expected = Dim::Const(1);
        for (d, s) in self.shape.iter().zip(&self.strides).rev() {
            if *d != Dim::Const(1) {
                if *s != expected {
                    return false;
                }
                expected = expected.mul(d);
            }
        }
        true
    }

    /// A box: `begin[i] + k·stride[i]` for `k < extent[i]`.
    pub(crate) fn slice(&self, begin: &[Dim], extent: &[Dim], stride: &[Dim]) -> Self {
        let moved = begin
            .iter()
            .zip(&self.strides)
            .fold(self.offset.clone(), |o, (b, s)| o.add(&b.mul(s)));
        let strides = self
            .strides
            .iter()
            .zip(stride)
            .map(|(s, k)| s.mul(k))
            .collect();
        Self {
            shape: extent.to_vec(),
            strides,
            offset: moved,
        }
    }

    /// Axes in another order.
    pub(crate) fn permute(&self, order: &[usize]) -> Self {
        let pick = |v: &[Dim]| order.iter().map(|&i| v[i].clone()).collect();
        Self {
            shape: pick(&self.shape),
            strides: pick(&self.strides),
            offset: self.offset.clone(),
        }
    }

    /// Repeated along axes of extent 1 (and new leading axes) to a larger shape.
    pub(crate) fn broadcast(&self, shape: &[Dim]) -> Option<Self> {
        let lead = shape.len().checked_sub(self.shape.len())?;
        let strides = shape
            .iter()
            .enumerate()
            .map(|(i, d)| match i.checked_sub(lead) {
                None => Dim::Const(0),
                Some(j) if self.shape[j] == Dim::Const(1) && *d != Dim::Const(1) => Dim::Const(0),
                Some(j) => self.strides[j].clone(),
            });
        Some(Self {
            strides: strides.collect(),
            shape: shape.to_vec(),
            offset: self.offset.clone(),
        })
    }

    /// The same elements under another shape, where no copy is needed: for contiguous layouts, where only axes of extent 1 come or
    /// go, and where axes are split, or joined that lie side by side.
    pub(crate) fn reshape(&self, shape: &[Dim]) -> Option<Self> {
        if self.is_contiguous() {
            return Some(Self {
                offset: self.offset.clone(),
                ..Self::contiguous(shape)
            });
        }
        self.same_axes(shape).or_else(|| self.other_axes(shape))
    }

    /// Another shape that differs by axes of extent 1 only.
    fn same_axes(&self, shape: &[Dim]) -> Option<Self> {
        let one = Dim::Const(1);
        let mut rest = self
            .shape
            .iter()
            .zip(&self.strides)
            .filter(|(d, _)| **d != one);
        let mut strides = Vec::with_capacity(shape.len());
        for d in shape {
            if *d == one {
                strides.push(Dim::Const(0));
                continue;
            }
            let (have, stride) = rest.next()?;
            if have != d {
                return None;
            }
            strides.push(stride.clone());
        }
        rest.next()
            .is_none()
            .then(|| self.with_axes(shape, strides))
    }

    fn with_axes(&self, shape: &[Dim], strides: Vec<Dim>) -> Self {
        Self {
            shape: shape.to_vec(),
            strides,
            offset: self.offset.clone(),
        }
    }

    /// Another shape of known extents: runs of axes with as many elements are matched, each of which lies evenly.
    fn other_axes(&self, shape: &[Dim]) -> Option<Self> {
        let known = |dims: &[Dim]| dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
        let (from, to, strides) = (known(&self.shape)?, known(shape)?, known(&self.strides)?);
        let axes: Vec<(i64, i64)> = from.into_iter().zip(strides).filter(|a| a.0 != 1).collect();
        let mut made = vec![0; to.len()];
        let (mut old, mut new) = (0, 0);
        while old < axes.len() {
            let (first, start) = (old, new);
            let (mut have, mut want) = (axes[old].0, *to.get(new)?);
            while have != want {
                if have < want {
                    old += 1;
                    have = have.checked_mul(axes.get(old)?.0)?;
                } else {
                    new += 1;
                    want = want.checked_mul(*to.get(new)?)?;
                }
            }
            let run = &axes[first..=old];
            let even = run.windows(2).all(|w| w[0].1 == w[1].0 * w[1].1);
            let mut stride = run.last().filter(|_| even)?.1;
            for at in (start..=new).rev() {
                made[at] = stride;
                stride = stride.checked_mul(to[at])?;
            }
            (old, new) = (old + 1, new + 1);
        }
        let rest = to.get(new..).unwrap_or_default().iter().all(|d| *d == 1);
        rest.then(|| self.with_axes(shape, made.into_iter().map(Dim::Const).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(v: &[i64]) -> Vec<Dim> {
        v.iter().map(|&x| Dim::Const(x)).collect()
    }

    #[test]
    fn views_compose() {
        let q = Dim::symbol("q");
        let shape = vec![Dim::Const(1), q.clone(), Dim::Const(8), Dim::Const(16)];
        let x = Layout::contiguous(&shape).permute(&[0, 2, 1, 3]);
        assert!(!x.is_contiguous());
        let heads = x.slice(
            &c(&[0, 6, 0, 0]),
            &[Dim::Const(1), Dim::Const(2), q.clone(), Dim::Const(16)],
            &c(&[1, 1, 1, 1]),
        );
        assert_eq!(heads.offset, Dim::Const(96));
        assert_eq!(heads.strides[2], Dim::Const(128));
        let wide = heads
            .reshape(&[
                Dim::Const(1),
                Dim::Const(1),
                Dim::Const(2),
                q.clone(),
                Dim::Const(16),
            ])
            .unwrap();
        assert_eq!(wide.strides[3], Dim::Const(128));
        assert!(heads.reshape(&[Dim::Const(32), q]).is_none());
        // Channels first, as an order of rows of 12: split where they lie, joined only where nothing lies between.
        let x = Layout::contiguous(&c(&[1, 5, 12])).permute(&[0, 2, 1]);
        let split = x.reshape(&c(&[1, 3, 4, 5])).unwrap();
        assert_eq!(split.strides[1..], c(&[4, 1, 12]));
        assert_eq!(
            split.reshape(&c(&[12, 1, 5])).unwrap().strides,
            c(&[1, 60, 12])
        );
        assert!(x.reshape(&c(&[60])).is_none() && x.reshape(&c(&[1, 4, 15])).is_none());
        assert_eq!(
            Layout::contiguous(&c(&[3, 1]))
                .broadcast(&c(&[2, 3, 4]))
                .unwrap()
                .strides,
            c(&[0, 1, 0])
        );
    }
}
