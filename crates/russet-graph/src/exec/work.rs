//! What the steps of a plan have to do in a call of given lengths: bytes that must be moved, operations that must be done.
//!
//! Bytes are counted once for every element that a step reads or writes, in the kind in which it is stored, weights included;
//! what a cache saves or a kernel reads twice does not show. An operation is an addition or a multiplication of two numbers, or any
//! other function of one element. So both are what any implementation needs, and time beside them says how good this one is.

use std::collections::HashMap;

use super::build::{Place, Plan};
use super::run::RunError;
use super::view::Geometry;
use crate::types::{DType, Symbol, TensorType};

/// A tensor that a step touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub(crate) dtype: DType,
    pub(crate) geometry: Geometry,
}

impl Touched {
    /// Elements, those that broadcasting repeats counted every time.
    pub(crate) fn elements(&self) -> u64 {
        self.geometry.len() as u64
    }

    /// Bytes in memory: what broadcasting repeats counts once.
    pub(crate) fn bytes(&self) -> u64 {
        let axes = self.geometry.shape().iter().zip(self.geometry.strides());
        let stored = axes.map(|(&n, &stride)| if stride == 0 { n.min(1) } else { n });
        let bits = stored.product::<usize>() as u64 * self.dtype.bits() as u64;
        bits.div_ceil(8)
    }
}

/// What one run of a kernel has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) bytes: u64,
    pub(crate) operations: u64,
    /// Weights that the kernel holds, as `i4 [1536, 576]`.
    pub(crate) weights: Vec<String>,
}

impl Work {
    /// Every operand and result touched once, one operation for each element of the largest of them.
    pub(crate) fn of_elements(inputs: &[Touched], outputs: &[Touched]) -> Self {
        let all = || inputs.iter().chain(outputs);
        Self {
            bytes: all().map(Touched::bytes).sum(),
            operations: all().map(Touched::elements).max().unwrap_or(0),
            weights: Vec::new(),
        }
    }

    /// The same with another number of operations.
    pub(crate) fn with_operations(self, operations: u64) -> Self {
        Self { operations, ..self }
    }

    /// The same with weights, of which `bytes` are read.
    pub(crate) fn with_weights(mut self, name: String, bytes: u64) -> Self {
        self.bytes += bytes;
        self.weights.push(name);
        self
    }
}

/// A step of a plan in a call of given lengths.
#[derive(Clone, Debug, PartialEq)]
pub struct StepWork {
    /// The operation or kernel.
    pub name: &'static str,
    /// What it reads, apart from weights.
    pub inputs: Vec<TensorType>,
    /// What it writes.
    pub outputs: Vec<TensorType>,
    /// Weights that it holds: kind and shape.
    pub weights: Vec<String>,
    /// Bytes to be read and written.
    pub bytes: u64,
    /// Operations to be done.
    pub operations: u64,
}

impl Plan {
    /// What every step has to do, in order. `extent` gives the extents of inputs and states that the plan leaves open, by
    /// name and axis.
    ///
    /// # Errors
    /// [`RunError::Extent`] where these extents make another one invalid.
    pub fn work(&self, extent: impl Fn(&str, usize) -> usize) -> Result<Vec<StepWork>, RunError> {
        let invalid = |dim: String| RunError::Extent {
            function: self.function().into(),
            dim,
        };
        let inputs = self.inputs.iter().map(|i| (&i.name, &i.binds));
        let states = self.states.iter().map(|s| (&s.name, &s.binds));
        let mut bound: HashMap<&Symbol, i64> = HashMap::new();
        for (name, binds) in inputs.chain(states) {
            for (axis, symbol) in binds.iter().enumerate() {
                if let Some(symbol) = symbol {
                    let n = || i64::try_from(extent(name, axis)).unwrap_or(i64::MAX);
                    bound.entry(symbol).or_insert_with(n);
                }
            }
        }
        let mut dims = vec![0; self.dims.len()];
        let evaluated = self.dims.evaluate(&|s| bound.get(s).copied(), &mut dims);
        evaluated.map_err(|d| invalid(d.to_string()))?;
        let touched = |places: &[Place]| -> Result<Vec<Touched>, RunError> {
            let one = |place: &Place| {
                let geometry = super::run::geometry(place, &dims);
                Ok(Touched {
                    dtype: place.dtype,
                    geometry: geometry.map_err(|e| invalid(e.to_string()))?,
                })
            };
            places.iter().map(one).collect()
        };
        let mut all = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let (inputs, outputs) = (touched(&step.inputs)?, touched(&step.outputs)?);
            let work = step.kernel.work(&inputs, &outputs);
            all.push(StepWork {
                name: step.name,
                inputs: types(&inputs),
                outputs: types(&outputs),
                weights: work.weights,
                bytes: work.bytes,
                operations: work.operations,
            });
        }
        Ok(all)
    }
}

fn types(touched: &[Touched]) -> Vec<TensorType> {
    let ty = |t: &Touched| TensorType::fixed(t.dtype, t.geometry.shape());
    touched.iter().map(ty).collect()
}
