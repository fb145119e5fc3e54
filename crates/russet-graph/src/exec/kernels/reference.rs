//! The fallback: an operation without a kernel runs by its reference, control flow by the interpreter. It allocates.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Cx, Kernel};
use crate::error::OpError;
use crate::exec::view::View;
use crate::graph::{Graph, Module, Node, ValueId};
use crate::interpret;
use crate::tensor::Tensor;
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

/// A copy of a view as a tensor. Packed kinds are always whole constants.
pub(super) fn tensor(view: &View<'_>) -> Result<Tensor, OpError> {
    let shape = view.shape().to_vec();
    let Some(size) = view.dtype.size() else {
        let bytes = view
            .dtype
            .packed_len(view.len())
            .and_then(|n| view.data.get(..n))
            .ok_or(OpError::Unknown("packed bytes"))?;
        return Tensor::new(view.dtype, shape, SharedBytes::from_vec(bytes.to_vec()));
    };
    let mut bytes = Vec::with_capacity(view.len() * size);
    for i in 0..view.len() {
        let at = view.geometry.element_offset(i) * size;
        bytes.extend_from_slice(&view.data[at..at + size]);
    }
    Tensor::new(view.dtype, shape, SharedBytes::from_vec(bytes))
}
