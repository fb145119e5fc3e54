//! The fallback: an operation without a kernel runs by its reference, control flow by the interpreter. It allocates.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Cx, Kernel};
use crate::error::OpError;
use crate::exec::view::View;
use crate::graph::{Graph, Module, Node, ValueId};
use crate::interpret;
use crate::tensor::{Tensor, TensorMut};
use russet_kernels::mem::SharedBytes;

/// One node, evaluated.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) module: Arc<Module>,
    pub(crate) graph: Arc<Graph>,
    pub(crate) node: Node,
    /// The values behind the inputs of the step: operands, then captured values.
    pub(crate) values: Vec<ValueId>,
}

impl Kernel for Reference {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let mut values = HashMap::new();
        for (&id, view) in self.values.iter().zip(cx.inputs) {
            values.insert(id, tensor(view)?);
        }
        let results = interpret::evaluate(&self.module, &self.graph, &self.node, &values)?;
        for (result, out) in results.iter().zip(cx.outputs.iter_mut()) {
            if result.shape != out.geometry.shape() {
                return Err(OpError::shapes(
                    "a result has the planned shape",
                    &[&result.shape, out.geometry.shape()],
                ));
            }
            out.bytes().copy_from_slice(result.bytes());
        }
        Ok(())
    }
}

/// A copy of a view as a tensor.
pub(super) fn tensor(view: &View<'_>) -> Result<Tensor, OpError> {
    let shape = view.shape().to_vec();
    let Some(size) = view.dtype.size() else {
        return packed(view);
    };
    let mut bytes = Vec::with_capacity(view.len() * size);
    for i in 0..view.len() {
        let at = view.geometry.element_offset(i) * size;
        bytes.extend_from_slice(&view.data[at..at + size]);
    }
    Tensor::new(view.dtype, shape, SharedBytes::from_vec(bytes))
}

/// A copy of a view of elements below a byte.
fn packed(view: &View<'_>) -> Result<Tensor, OpError> {
    let dtype = view.dtype;
    let held = view
        .geometry
        .end()
        .and_then(|n| Some((n, dtype.packed_len(n)?)));
    let held = held.and_then(|(n, len)| Some((n, view.data.get(..len)?)));
    let (elements, bytes) = held.ok_or(OpError::Unknown("packed bytes"))?;
    let stored = Tensor::new(dtype, vec![elements], SharedBytes::from_vec(bytes.to_vec()))?;
    if view.geometry.is_contiguous() && view.geometry.offset == 0 {
        return stored.reshaped(view.shape());
    }
    let mut out = TensorMut::zeros(dtype, view.shape())?;
    (0..out.len()).for_each(|i| out.set(i, stored.get(view.geometry.element_offset(i))));
    Ok(out.finish())
}
