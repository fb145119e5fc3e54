//! A plan may be asked for the last row of an output only: then the steps that work row by row before it do no more than that row.

use super::{Fusion, buffer, count, is_whole};
use crate::exec::layout::Layout;
use crate::exec::lower::{Lowered, StepDraft, ViewDraft};
use crate::types::Dim;

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

impl Fusion {
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
        self.buffers[b].elements = count(&output);
        if let Some(step) = &mut self.steps[at] {
            step.outputs[0] = output;
        }
        true
    }
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
            by_rows: step.what.by_rows(),
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
