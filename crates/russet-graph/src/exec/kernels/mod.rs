//! What steps do. A kernel gets views of its inputs and the bytes of its outputs; shapes have been checked against the
//! storage before it runs.

/// Evaluates an expression with `$t` as the element type of a kind: f16, bf16, or else f32.
macro_rules! by_kind {
    ($dtype:expr, $t:ident => $run:expr) => {
        match $dtype {
            crate::types::DType::F16 => {
                type $t = half::f16;
                $run
            }
            crate::types::DType::BF16 => {
                type $t = half::bf16;
                $run
            }
            _ => {
                type $t = f32;
                $run
            }
        }
    };
}

mod cache;
mod composite;
mod copy;
mod edges;
mod elementwise;
mod gated_delta;
mod gather;
mod gather_mm;
mod matmul;
mod reduce;
mod reference;
mod shift;
mod skipping;
mod sort;
mod tables;
mod triangular;
mod weights;

use std::fmt::Debug;

pub(crate) use cache::CacheRows;
pub(crate) use composite::{NormRotate, RmsNorm, RopeTables, Rotate, ScoreMask, Sdpa};
pub(crate) use copy::{Bound, Bounds, Contents, Copy, Range, SliceCopy, SliceWrite};
pub(crate) use edges::MaskEdges;
pub(crate) use elementwise::{
    Binary, Cast, Chain, Gated, Instruction, MAX_DEPTH, MAX_OPERANDS, Unary, Where,
};
pub(crate) use gated_delta::GatedDelta;
pub(crate) use gather::{GatherAlong, GatherNd, GatherRows, GatherScaled, ScatterAlong};
pub(crate) use gather_mm::{GatherLinear, GatherMatmul};
pub(crate) use matmul::{Factor, Linear, LinearOnce, Matmul, Matrix, Products};
pub(crate) use reduce::{Reduce, ReduceKind, Softmax, WeightedSum};
pub(crate) use reference::Reference;
use russet_kernels::threads::Pool;
pub(crate) use shift::ShiftIf;
pub(crate) use skipping::Skipping;
pub(crate) use sort::Sort;
pub(crate) use triangular::UnitLowerInverse;
pub(crate) use weights::{Dequantize, Weights, aligned};

use super::view::{Geometry, View};
use super::work::{Touched, Work};
use crate::error::OpError;
use crate::types::DType;

/// One output of a step.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    pub(crate) dtype: DType,
    pub(crate) geometry: Geometry,
    pub(crate) data: &'a mut [u8],
}

impl Out<'_> {
    /// The bytes of a row-major output.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let size = self.dtype.size().unwrap_or(1);
        let (from, len) = (self.geometry.offset, self.geometry.len());
        &mut self.data[from * size..(from + len) * size]
    }
}

/// What a kernel works with.
pub(crate) struct Cx<'a, 'b, 'c> {
    /// Views of the inputs.
    pub(crate) inputs: &'b [View<'a>],
    /// The outputs.
    pub(crate) outputs: &'b mut [Out<'c>],
    /// Numbers of the step.
    pub(crate) numbers: &'b [i64],
    /// Threads.
    pub(crate) pool: &'b Pool,
    /// Memory that keeps its size between steps.
    pub(crate) scratch: &'b mut Vec<f32>,
}

impl Cx<'_, '_, '_> {
    /// `len` floats of scratch memory with arbitrary contents; grows only while warming up.
    pub(crate) fn scratch_len(&mut self, len: usize) {
        if self.scratch.len() < len {
            self.scratch.resize(len, 0.0);
        }
    }
}

/// One thing that steps do.
pub(crate) trait Kernel: Debug + Send + Sync {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError>;

    /// What a run on these operands has to do; kernels with weights, or with more to do than once for every element, say so.
    fn work(&self, inputs: &[Touched], outputs: &[Touched]) -> Work {
        Work::of_elements(inputs, outputs)
    }
}

/// Work of fewer elements than this is not worth a second thread.
pub(crate) const PARALLEL: usize = 16 * 1024;
