//! The fast plan: steps joined and weights packed, after lowering and before memory is given out.
//!
//! A product with packed weights adds the bias or residual it is followed by (`products`); products of the same activations
//! become one step; a norm rotates what it has made, or adds it to something (`norms`); functions element by element become one
//! (`elementwise`). Separately, a plan may be asked for the last row of an output only (`narrow`).
//!
//! A buffer, before slots are given out, is written by one step, or by several before anything reads it. So a step may move down to
//! a later one as long as nothing between the two writes what it reads.

mod attention;
mod elementwise;
mod experts;
mod narrow;
mod norms;
mod products;
mod skipping;
#[cfg(test)]
mod tests;

use russet_kernels::elem::Rounding;
use russet_kernels::threads::Pool;

use super::build::Home;
use super::kernels;
use super::lower::{Buffer, Lowered, StepDraft, ViewDraft, What};
use crate::error::OpError;
use crate::types::Dim;

pub(crate) use narrow::narrow_to_last_row;

/// For every buffer, steps.
type Steps = Vec<Vec<usize>>;

/// Steps under revision; `None` where a step has been taken away.
struct Fusion {
    steps: Vec<Option<StepDraft>>,
    outputs: Vec<ViewDraft>,
    buffers: Vec<Buffer>,
}

/// Packs weights, where there is a pool to do it, and joins steps.
pub(crate) fn fuse(lowered: &mut Lowered, pool: Option<&Pool>) -> Result<(), OpError> {
    let mut fusion = Fusion::new(lowered);
    fusion.skip_experts();
    fusion.pack(pool)?;
    fusion.add_residuals();
    fusion.merge_products();
    fusion.rotate_norms();
    fusion.add_to_norms();
    fusion.join_sorts();
    fusion.weigh();
    fusion.join_elementwise();
    fusion.write_through();
    fusion.loosen();
    fusion.finish(lowered);
    lowered.measure();
    Ok(())
}

/// Makes products take their sums in f32 and round them once.
pub(crate) fn round_once(lowered: &mut Lowered) {
    for step in &mut lowered.steps {
        step.kernel = match &step.what {
            What::Matmul => Box::new(kernels::Matmul {
                rounding: Rounding::F32,
            }),
            What::Linear(weights) => Box::new(kernels::LinearOnce(weights.clone())),
            What::Gathered(op) => Box::new(kernels::GatherMatmul {
                op: *op,
                rounding: Rounding::F32,
            }),
            _ => continue,
        };
    }
}

impl Fusion {
    fn new(lowered: &mut Lowered) -> Self {
        Self {
            steps: lowered.steps.drain(..).map(Some).collect(),
            outputs: lowered.outputs.iter().map(|(_, v)| v.clone()).collect(),
            buffers: std::mem::take(&mut lowered.buffers),
        }
    }

    fn finish(self, lowered: &mut Lowered) {
        lowered.buffers = self.buffers;
        lowered.steps = self.steps.into_iter().flatten().collect();
    }

    fn present(&self) -> impl Iterator<Item = (usize, &StepDraft)> {
        let all = self.steps.iter().enumerate();
        all.filter_map(|(i, s)| s.as_ref().map(|s| (i, s)))
    }

    /// For every buffer the steps that read it and the steps that write it; `usize::MAX` stands for an output of the plan.
    fn uses(&self) -> (Steps, Steps) {
        let none = vec![Vec::new(); self.buffers.len()];
        let (mut readers, mut writers) = (none.clone(), none);
        for (i, step) in self.present() {
            step.inputs
                .iter()
                .filter_map(buffer)
                .for_each(|b| readers[b].push(i));
            step.outputs
                .iter()
                .filter_map(buffer)
                .for_each(|b| writers[b].push(i));
        }
        self.outputs
            .iter()
            .filter_map(buffer)
            .for_each(|b| readers[b].push(usize::MAX));
        (readers, writers)
    }

    /// Whether a view is all of a buffer, row-major.
    fn is_all(&self, view: &ViewDraft) -> bool {
        let elements = |b: usize| &self.buffers[b].elements;
        is_whole(view) && buffer(view).is_some_and(|b| *elements(b) == count(view))
    }

    /// The step before `at` whose only result is `view`, which nothing but step `at` reads.
    fn maker(
        &self,
        (readers, writers): &(Steps, Steps),
        view: &ViewDraft,
        at: usize,
    ) -> Option<usize> {
        let b = buffer(view)?;
        let (&[maker], true) = (&writers[b][..], readers[b] == [at]) else {
            return None;
        };
        let step = self.steps[maker].as_ref()?;
        let alone = step.outputs.len() == 1 && self.is_all(&step.outputs[0]);
        (alone && maker < at && self.is_all(view)).then_some(maker)
    }

    /// Whether what `views` show is the same before step `to` as before step `from`.
    fn unchanged(&self, views: &[ViewDraft], from: usize, to: usize) -> bool {
        let between = self.steps[from..to].iter().flatten();
        let mut written = between.flat_map(|s| &s.outputs);
        !written.any(|w| views.iter().any(|v| v.home == w.home))
    }

    /// Steps that stay as they are keep f32 until their result.
    fn loosen(&mut self) {
        for step in self.steps.iter_mut().flatten() {
            step.kernel = match &step.what {
                What::Attention(kernel) => Box::new(kernels::Sdpa {
                    exact: false,
                    ..*kernel
                }),
                What::RmsNorm(eps) => Box::new(kernels::RmsNorm {
                    eps: *eps,
                    exact: false,
                }),
                What::Elementwise(program) if !elementwise::is_gelu(program) => {
                    let (name, kernel) = elementwise::kernel(step, program);
                    step.name = name;
                    kernel
                }
                What::Matmul => Box::new(kernels::Matmul {
                    rounding: Rounding::F32,
                }),
                What::Gathered(op) => Box::new(kernels::GatherMatmul {
                    op: *op,
                    rounding: Rounding::F32,
                }),
                What::GatedDelta(op) => Box::new(kernels::GatedDelta {
                    op: *op,
                    exact: false,
                }),
                What::Products(products) => Box::new(kernels::Products(products.clone())),
                What::Sort(kernel) => Box::new(kernel.clone()),
                What::Skipping(kernel) => Box::new(kernel.clone()),
                What::Experts(kernel) => Box::new(kernels::GatherLinear {
                    exact: false,
                    ..kernel.clone()
                }),
                _ => continue,
            };
        }
    }
}

fn buffer(view: &ViewDraft) -> Option<usize> {
    match view.home {
        Home::Buffer(b) => Some(b),
        _ => None,
    }
}

/// The elements of a view.
fn count(view: &ViewDraft) -> Dim {
    let shape = view.layout.shape.iter();
    shape.fold(Dim::Const(1), |n, d| n.mul(d))
}

/// Whether a view begins where its memory does and has no gaps.
fn is_whole(view: &ViewDraft) -> bool {
    view.layout.is_contiguous() && view.layout.offset == Dim::Const(0)
}
