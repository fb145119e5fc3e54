//! Attention: its result goes where it is wanted.

use super::{Fusion, buffer, is_whole};
use crate::exec::layout::Layout;
use crate::exec::lower::{StepDraft, ViewDraft, What};
use crate::types::Dim;

impl Fusion {
    /// Attention whose result is only copied into another order of axes writes in that order at once.
    pub(super) fn write_through(&mut self) {
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
