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

    /// The same elements under another shape, where no copy is needed: for contiguous layouts, and where only axes of extent 1
    /// come or go.
    pub(crate) fn reshape(&self, shape: &[Dim]) -> Option<Self> {
        if self.is_contiguous() {
            return Some(Self {
                offset: self.offset.clone(),
                ..Self::contiguous(shape)
            });
        }
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
        rest.next().is_none().then(|| Self {
            shape: shape.to_vec(),
            strides,
            offset: self.offset.clone(),
        })
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
        assert_eq!(
            Layout::contiguous(&c(&[3, 1]))
                .broadcast(&c(&[2, 3, 4]))
                .unwrap()
                .strides,
            c(&[0, 1, 0])
        );
    }
}
