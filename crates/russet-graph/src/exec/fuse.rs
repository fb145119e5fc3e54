//! The fast plan: steps joined and weights packed, after lowering and before memory is given out.
//!
//! A product with packed weights adds the residual it is followed by; products of the same activations become one step; the
//! activation of a gate and its product with the other branch become one. Separately, a plan may be asked for the last row of
//! an output only: then the steps that work row by row before it do no more than that row.
//!
//! Every buffer before slots are given out is written by one step (updates in place excepted, which are left alone), so a step
//! may move down to a later one as long as what it reads is such a buffer.

use std::sync::Arc;

use russet_kernels::elem::Rounding;
use russet_kernels::packed::PackedRows;
use russet_kernels::threads::Pool;

use super::build::Home;
use super::kernels::{self, Packed, PackedLinear, Weights};
use super::layout::Layout;
use super::lower::{Buffer, Lowered, StepDraft, ViewDraft, What};
use crate::error::OpError;
use crate::types::Dim;

/// The most products of one step.
const MAX_PRODUCTS: usize = 4;

/// Steps under revision; `None` where a step has been taken away.
struct Fusion {
    steps: Vec<Option<StepDraft>>,
    outputs: Vec<ViewDraft>,
    buffers: Vec<Buffer>,
}

/// Keeps only the last row of output `name`: what comes before it row by row is narrowed too. Nothing changes where the output
/// is not the result of such a step.
pub(crate) fn narrow_to_last_row(lowered: &mut Lowered, name: &str) {
    let Some(at) = lowered.outputs.iter().position(|(n, _)| **n == *name) else {
        return;
    };
    let mut fusion = Fusion::new(lowered);
    let mut out = fusion.outputs[at].clone();
    if fusion.narrow(&out) {
        out = last_row(&out, true);
    }
    fusion.finish(lowered);
    lowered.outputs[at].1 = out;
    lowered.measure();
}

/// Packs weights, where there is a pool to do it, and joins steps.
pub(crate) fn fuse(lowered: &mut Lowered, pool: Option<&Pool>) -> Result<(), OpError> {
    let mut fusion = Fusion::new(lowered);
    if let Some(pool) = pool {
        fusion.pack(pool)?;
    }
    fusion.add_residuals();
    fusion.merge_products();
    fusion.join_activations();
    fusion.write_through();
    fusion.loosen();
    fusion.finish(lowered);
    lowered.measure();
    Ok(())
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
        for step in &mut lowered.steps {
            if let What::Packed(products) = &step.what {
                step.kernel = Box::new(PackedLinear(products.clone()));
            }
        }
    }

    fn present(&self) -> impl Iterator<Item = (usize, &StepDraft)> {
        let all = self.steps.iter().enumerate();
        all.filter_map(|(i, s)| s.as_ref().map(|s| (i, s)))
    }

    /// For every buffer the steps that read it and the steps that write it; `usize::MAX` stands for an output of the plan.
    fn uses(&self) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
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

    /// Gives every product whose weights allow it packed weights; weights used twice are packed once.
    fn pack(&mut self, pool: &Pool) -> Result<(), OpError> {
        let mut all: Vec<Arc<Weights>> = Vec::new();
        for step in self.steps.iter().flatten() {
            let What::Linear(weights) = &step.what else {
                continue;
            };
            if !all.iter().any(|w| Arc::ptr_eq(w, weights)) && weights.source().is_some() {
                all.push(weights.clone());
            }
        }
        let sources: Vec<_> = all.iter().filter_map(|w| w.source()).collect();
        let sources: Vec<_> = sources.iter().map(|s| &**s).collect();
        let packed = PackedRows::pack(pool, &sources);
        let packed = packed.map_err(|e| OpError::TooLarge {
            shape: vec![e.bytes],
        })?;
        let packed: Vec<_> = packed.into_iter().map(Arc::new).collect();
        all.iter().for_each(|w| w.unload());
        for step in self.steps.iter_mut().flatten() {
            let What::Linear(weights) = &step.what else {
                continue;
            };
            if let Some(at) = all.iter().position(|w| Arc::ptr_eq(w, weights)) {
                let rows = packed[at].clone();
                step.what = What::Packed(vec![Packed { rows, add: None }]);
            }
        }
        Ok(())
    }

    /// `x + product` in the product's own step, which moves to where the sum was.
    fn add_residuals(&mut self) {
        let (readers, writers) = self.uses();
        let plain = |v: &ViewDraft| {
            buffer(v).is_some_and(|b| writers[b].len() == 1) && v.layout.is_contiguous()
        };
        for at in 0..self.steps.len() {
            let Some(step) = self.steps[at].as_ref().filter(|s| s.products().len() == 1) else {
                continue;
            };
            let Some(result) = buffer(&step.outputs[0]) else {
                continue;
            };
            let &[reader] = &readers[result][..] else {
                continue;
            };
            if !plain(&step.inputs[0]) {
                continue;
            }
            let Some(sum) = self.steps.get(reader).and_then(Option::as_ref) else {
                continue;
            };
            let Some(other) = sum_with(sum, result).filter(|&i| plain(&sum.inputs[i])) else {
                continue;
            };
            let (other, outputs) = (sum.inputs[other].clone(), sum.outputs.clone());
            if let Some(mut step) = self.steps[at].take() {
                step.name = "linear_add";
                if let What::Packed(products) = &mut step.what {
                    products[0].add = Some(step.inputs.len());
                }
                step.inputs.push(other);
                step.outputs = outputs;
                self.steps[reader] = Some(step);
            }
        }
    }

    /// Products of the same activations become one step, at the first one's place.
    fn merge_products(&mut self) {
        for first in 0..self.steps.len() {
            for later in first + 1..self.steps.len() {
                if !self.mergeable(first, later) {
                    continue;
                }
                let Some(taken) = self.steps[later].take() else {
                    continue;
                };
                if let Some(step) = &mut self.steps[first] {
                    step.name = "linears";
                    if let What::Packed(products) = &mut step.what {
                        products.extend_from_slice(taken.products());
                    }
                    step.outputs.extend(taken.outputs);
                }
            }
        }
    }

    /// Whether two steps are products of the same activations and nothing else.
    fn mergeable(&self, first: usize, later: usize) -> bool {
        let [Some(a), Some(b)] = [&self.steps[first], &self.steps[later]] else {
            return false;
        };
        let ([x, ..], [y, ..]) = (a.products(), b.products()) else {
            return false;
        };
        let alone = a
            .products()
            .iter()
            .chain(b.products())
            .all(|p| p.add.is_none());
        let room = a.products().len() + b.products().len() <= MAX_PRODUCTS;
        alone && room && same(&a.inputs[0], &b.inputs[0]) && x.rows.shares_activations(&y.rows)
    }

    /// `silu(gate) * up` in one step, at the place of the product.
    fn join_activations(&mut self) {
        let (readers, writers) = self.uses();
        let plain = |v: &ViewDraft| {
            buffer(v).is_some_and(|b| writers[b].len() == 1) && v.layout.is_contiguous()
        };
        for at in 0..self.steps.len() {
            let Some(step) = self.steps[at]
                .as_ref()
                .filter(|s| matches!(s.what, What::Silu))
            else {
                continue;
            };
            let Some(result) = buffer(&step.outputs[0]) else {
                continue;
            };
            let &[reader] = &readers[result][..] else {
                continue;
            };
            let gate = step.inputs[0].clone();
            let Some(product) = self.steps.get_mut(reader).and_then(Option::as_mut) else {
                continue;
            };
            if !matches!(product.what, What::Mul) || !is_whole(&product.outputs[0]) || !plain(&gate)
            {
                continue;
            }
            let Some(other) =
                operand_beside(product, result).filter(|&i| plain(&product.inputs[i]))
            else {
                continue;
            };
            let up = product.inputs[other].clone();
            (product.name, product.what) = ("silu_mul", What::Rows);
            product.kernel = Box::new(kernels::SiluMul);
            product.inputs = vec![gate, up];
            self.steps[at] = None;
        }
    }

    /// Attention whose result is only copied into another order of axes writes in that order at once.
    fn write_through(&mut self) {
        let (readers, writers) = self.uses();
        for at in 0..self.steps.len() {
            let Some(step) = self.steps[at]
                .as_ref()
                .filter(|s| matches!(s.what, What::Attention(_)))
            else {
                continue;
            };
            let Some(result) = buffer(&step.outputs[0]).filter(|&b| writers[b].len() == 1) else {
                continue;
            };
            let (&[reader], shape) = (&readers[result][..], &step.outputs[0].layout.shape) else {
                continue;
            };
            let Some(copy) = self.steps.get(reader).and_then(Option::as_ref) else {
                continue;
            };
            let Some(place) = copied_in_order(copy, shape) else {
                continue;
            };
            if buffer(&place).is_none_or(|b| writers[b].len() != 1) {
                continue;
            }
            self.steps[reader] = None;
            if let Some(step) = &mut self.steps[at] {
                step.outputs[0] = place;
            }
        }
    }

    /// Products and attention that stay as they are keep f32 until their result.
    fn loosen(&mut self) {
        for step in self.steps.iter_mut().flatten() {
            step.kernel = match &step.what {
                What::Attention(op) => Box::new(kernels::Sdpa {
                    op: *op,
                    exact: false,
                }),
                What::Linear(weights) => Box::new(kernels::Linear {
                    weights: weights.clone(),
                    exact: false,
                }),
                What::RmsNorm(eps) => Box::new(kernels::RmsNorm {
                    eps: *eps,
                    exact: false,
                }),
                What::Matmul => Box::new(kernels::Matmul {
                    rounding: Rounding::F32,
                }),
                What::Gathered(op) => Box::new(kernels::GatherMatmul {
                    op: *op,
                    rounding: Rounding::F32,
                }),
                What::Experts(kernel) => Box::new(kernels::GatherLinear {
                    exact: false,
                    ..kernel.clone()
                }),
                _ => continue,
            };
        }
    }

    /// Narrows the step that makes `out` (and what leads to it) to the last row; whether that was possible.
    fn narrow(&mut self, out: &ViewDraft) -> bool {
        let (readers, writers) = self.uses();
        let Some(b) = buffer(out) else { return false };
        let (&[at], &[_]) = (&writers[b][..], &readers[b][..]) else {
            return false;
        };
        let Some(step) = self.steps[at].clone_shape() else {
            return false;
        };
        // A reader that sees the result in another shape means other rows, and so does an operand of another shape.
        let (rows, shape) = (row_count(&step.output), &step.output.layout.shape);
        let alike = out.layout.shape == *shape && step.inputs.iter().all(|v| row_count(v) == rows);
        if !step.by_rows || !is_whole(&step.output) || shape.len() < 2 || !alike {
            return false;
        }
        for (i, view) in step.inputs.iter().enumerate() {
            let narrowed = self.narrow(view);
            if let Some(step) = &mut self.steps[at] {
                step.inputs[i] = last_row(view, narrowed);
            }
        }
        let output = last_row(&step.output, true);
        self.buffers[b].elements = output
            .layout
            .shape
            .iter()
            .fold(Dim::Const(1), |n, d| n.mul(d));
        if let Some(step) = &mut self.steps[at] {
            step.outputs[0] = output;
        }
        true
    }
}

/// Where `[1, heads, rows, width]` elements go that `step` copies as `[1, rows, heads, width]`.
fn copied_in_order(step: &StepDraft, shape: &[Dim]) -> Option<ViewDraft> {
    let ([one, heads, rows, width], [from], [to]) = (shape, &step.inputs[..], &step.outputs[..])
    else {
        return None;
    };
    let (line, across) = (heads.mul(width), Dim::Const(1));
    let turned = from.layout.shape == [one.clone(), rows.clone(), heads.clone(), width.clone()]
        && from.layout.strides[1..] == [width.clone(), rows.mul(width), across.clone()];
    let copies = step.name == "copy" && from.layout.offset == Dim::Const(0) && is_whole(to);
    (turned && copies && *one == across).then(|| ViewDraft {
        layout: Layout {
            shape: shape.to_vec(),
            strides: vec![line.mul(rows), width.clone(), line, across],
            offset: Dim::Const(0),
        },
        ..to.clone()
    })
}

/// What narrowing needs to know of a step.
struct Shape {
    by_rows: bool,
    inputs: Vec<ViewDraft>,
    output: ViewDraft,
}

trait CloneShape {
    fn clone_shape(&self) -> Option<Shape>;
}

impl CloneShape for Option<StepDraft> {
    fn clone_shape(&self) -> Option<Shape> {
        let step = self.as_ref()?;
        let [output] = &step.outputs[..] else {
            return None;
        };
        Some(Shape {
            by_rows: !matches!(
                step.what,
                What::Other
                    | What::Attention(_)
                    | What::Matmul
                    | What::Gathered(_)
                    | What::Experts(_)
            ),
            inputs: step.inputs.clone(),
            output: output.clone(),
        })
    }
}

/// All extents but the last.
fn row_count(view: &ViewDraft) -> Option<&[Dim]> {
    view.layout.shape.split_last().map(|(_, rows)| rows)
}

/// The last row of the last but one axis: as a view of all rows, or as memory that holds only this row.
fn last_row(view: &ViewDraft, alone: bool) -> ViewDraft {
    let mut layout = view.layout.clone();
    let axis = layout.shape.len() - 2;
    if !alone {
        let last = layout.shape[axis].sub(&Dim::Const(1));
        layout.offset = layout.offset.add(&last.mul(&layout.strides[axis]));
    }
    layout.shape[axis] = Dim::Const(1);
    if alone {
        layout = Layout::contiguous(&layout.shape);
    }
    ViewDraft {
        layout,
        ..view.clone()
    }
}

fn buffer(view: &ViewDraft) -> Option<usize> {
    match view.home {
        Home::Buffer(b) => Some(b),
        _ => None,
    }
}

/// Whether a view is all of its memory, row-major.
fn is_whole(view: &ViewDraft) -> bool {
    view.layout.is_contiguous() && view.layout.offset == Dim::Const(0)
}

/// Whether two views are the same elements in the same order.
fn same(a: &ViewDraft, b: &ViewDraft) -> bool {
    let rows = is_whole(a) && is_whole(b) && a.layout.shape.last() == b.layout.shape.last();
    a.home == b.home && a.dtype == b.dtype && (rows || a.layout == b.layout)
}

/// The other operand of a step of two operands of one shape, one of which is all of buffer `b`.
fn operand_beside(step: &StepDraft, b: usize) -> Option<usize> {
    let [left, right] = &step.inputs[..] else {
        return None;
    };
    let one_shape = left.layout.shape == right.layout.shape && left.dtype == right.dtype;
    let (at, other) = if buffer(left) == Some(b) {
        (left, right)
    } else {
        (right, left)
    };
    let fits = one_shape && is_whole(at) && buffer(at) == Some(b) && buffer(other) != Some(b);
    fits.then(|| if std::ptr::eq(other, right) { 1 } else { 0 })
}

/// The other operand where `step` adds buffer `b` to something of the same shape.
fn sum_with(step: &StepDraft, b: usize) -> Option<usize> {
    (matches!(step.what, What::Add) && is_whole(&step.outputs[0]))
        .then(|| operand_beside(step, b))
        .flatten()
}
