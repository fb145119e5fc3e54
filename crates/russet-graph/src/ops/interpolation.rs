//! What `interpolate` and `interpolate_coordinates` share: the value of a tensor between its elements.

use std::sync::Arc;

use crate::attr::{Attr, Attributes, find};
use crate::error::OpError;
use crate::tensor::{Scalar, Tensor, strides};

/// How a value between elements is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// Linear along every axis.
    #[default]
    Linear,
    /// The nearest element; between two, the one at an even position.
    Nearest,
}

impl Interpolation {
    const NAMES: [(Self, &'static str); 2] = [
        (Self::Linear, "linear"),
        (Self::Nearest, "nearest_neighbor"),
    ];

    /// As the attribute `interpolation_mode`.
    pub fn attributes(self) -> Attributes {
        let name = Self::NAMES
            .iter()
            .find(|(m, _)| *m == self)
            .map_or("linear", |(_, n)| n);
        vec![("interpolation_mode".into(), Attr::str(name))]
    }

    /// From the attribute `interpolation_mode`.
    pub fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let name = find(attributes, "interpolation_mode").and_then(Attr::as_str);
        let found = Self::NAMES.iter().find(|(_, n)| name == Some(*n));
        found.map(|(mode, _)| *mode).ok_or(OpError::Attribute {
            name: "interpolation_mode",
            expected: "linear or nearest_neighbor",
        })
    }

    /// Positions on an axis of `n` elements and their weights for a coordinate, clamped to the axis.
    fn corners(self, coordinate: f32, n: usize) -> [(usize, f32); 2] {
        let last = n.saturating_sub(1);
        let at = if coordinate.is_nan() {
            0.0
        } else {
            coordinate.clamp(0.0, last as f32)
        };
        match self {
            Self::Nearest => [(at.round_ties_even() as usize, 1.0), (0, 0.0)],
            Self::Linear => {
                let low = (at.floor() as usize).min(last);
                let part = at - low as f32;
                [(low, 1.0 - part), ((low + 1).min(last), part)]
            }
        }
    }

    /// The value of `x` at these coordinates, one an axis: a sum of corners in `f32`, the last axis turning slowest. `x` has no
    /// empty axis.
    pub fn sample(self, x: &Tensor, coordinates: &[f32]) -> Scalar {
        let stride = strides(&x.shape);
        let mut corners = vec![(0usize, 1.0f32)];
        for (k, &c) in coordinates.iter().enumerate() {
            let (axis, step) = (self.corners(c, x.shape[k]), stride[k]);
            let one = |(i, v): (usize, f32)| {
                let corner = move |&(at, w): &(usize, f32)| (at + i * step, w * v);
                corners.iter().map(corner).filter(|&(_, w)| w != 0.0)
            };
            corners = axis.into_iter().flat_map(one).collect();
        }
        match corners[..] {
            [(at, _)] => x.get(at),
            _ => {
                let term = |&(at, w): &(usize, f32)| x.get(at).float() as f32 * w;
                let sum = corners.iter().map(term).fold(0.0, |sum: f32, t| sum + t);
                Scalar::Float(sum.into())
            }
        }
    }
}

/// Refuses a tensor without elements: there is nothing to sample.
pub fn not_empty(x: &Tensor) -> Result<(), OpError> {
    if x.is_empty() {
        return Err(OpError::shapes(
            "a sampled tensor is not empty",
            &[&x.shape],
        ));
    }
    Ok(())
}
