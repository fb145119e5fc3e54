//! Caches of eight bits, where a plan is asked for them: a state that attention reads keys or values from, and that is only written otherwise,
//! keeps its rows as codes with a scale behind each.
//!
//! What a step wrote into the state it writes into memory of its own; the next step turns those rows into codes. The state's last axis is as long
//! as a row of codes is; views of it are taken in those strides.

use russet_kernels::attention::cached_width;

use super::build::{Home, PlanState};
use super::kernels::CacheRows;
use super::layout::Layout;
use super::lower::{Buffer, Lowered, StepDraft, ViewDraft, What};
use crate::types::{DType, Dim};

/// Keeps what states can be kept so in eight bits, and gives those states their new type.
pub(crate) fn narrow(lowered: &mut Lowered, states: &mut [PlanState]) {
    let widths = chosen(lowered, states);
    if widths.iter().all(Option::is_none) {
        return;
    }
    let mut steps = Vec::with_capacity(lowered.steps.len());
    for mut step in std::mem::take(&mut lowered.steps) {
        for view in &mut step.inputs {
            if let Some(width) = width(view, &widths) {
                *view = in_codes(view, width);
            }
        }
        let mut after = Vec::new();
        for view in &mut step.outputs {
            if let Some(width) = width(view, &widths) {
                let rows = memory(lowered, view);
                after.push((rows.clone(), whole_rows(&in_codes(view, width), width)));
                *view = rows;
            }
        }
        steps.push(step);
        steps.extend(
            after
                .into_iter()
                .map(|(rows, codes)| cache_rows(rows, codes)),
        );
    }
    lowered.steps = steps;
    for (state, width) in states.iter_mut().zip(&widths) {
        if let (Some(width), Some(last)) = (width, state.ty.shape.last_mut()) {
            state.ty.dtype = DType::I8;
            *last = Dim::Const(codes(*width));
        }
    }
    lowered.measure();
}

/// The width of the rows of every state that is kept in eight bits.
fn chosen(lowered: &Lowered, states: &[PlanState]) -> Vec<Option<i64>> {
    let mut widths: Vec<Option<i64>> = (0..states.len())
        .map(|i| cache_width(lowered, i, &states[i]))
        .collect();
    // Keys and values of one attention are kept in the same way.
    loop {
        let before = widths.clone();
        for step in lowered
            .steps
            .iter()
            .filter(|s| matches!(s.what, What::Attention(_)))
        {
            let of = |view: &ViewDraft| state(view).filter(|i| widths[*i].is_some());
            let (keys, values) = (of(&step.inputs[1]), of(&step.inputs[2]));
            if keys.is_some() != values.is_some() {
                [keys, values]
                    .into_iter()
                    .flatten()
                    .for_each(|i| widths[i] = None);
            }
        }
        if widths == before {
            return widths;
        }
    }
}

/// The width of the rows of a state that attention reads, and nothing else does.
fn cache_width(lowered: &Lowered, index: usize, ty: &PlanState) -> Option<i64> {
    let float = matches!(ty.ty.dtype, DType::F16 | DType::BF16 | DType::F32);
    let width = ty.ty.shape.last()?.as_const().filter(|_| float)?;
    let is_rows = |v: &ViewDraft| {
        let last = v.layout.shape.len().checked_sub(1)?;
        (v.layout.shape[last] == Dim::Const(width) && v.layout.strides[last] == Dim::Const(1))
            .then_some(())
    };
    let mut read = false;
    for step in &lowered.steps {
        for (at, view) in step.inputs.iter().enumerate() {
            if state(view) == Some(index) {
                let attends = matches!(step.what, What::Attention(_)) && matches!(at, 1 | 2);
                is_rows(view).filter(|()| attends)?;
                read = true;
            }
        }
        for view in step.outputs.iter().filter(|v| state(v) == Some(index)) {
            is_rows(view)?;
        }
    }
    let returned = lowered.outputs.iter().any(|(_, v)| state(v) == Some(index));
    (read && !returned).then_some(width)
}

fn state(view: &ViewDraft) -> Option<usize> {
    match view.home {
        Home::State(i) => Some(i),
        _ => None,
    }
}

fn width(view: &ViewDraft, widths: &[Option<i64>]) -> Option<i64> {
    widths[state(view)?]
}

/// Bytes of a row of `width` elements.
fn codes(width: i64) -> i64 {
    usize::try_from(width).map_or(width, |w| cached_width(w) as i64)
}

/// The same elements where rows are longer by their scales.
fn in_codes(view: &ViewDraft, width: i64) -> ViewDraft {
    let longer = |d: &Dim| d.mul(&Dim::Const(codes(width))).div(&Dim::Const(width));
    let (last, strides) = view
        .layout
        .strides
        .split_last()
        .unwrap_or((&Dim::Const(1), &[]));
    let mut strides: Vec<Dim> = strides.iter().map(longer).collect();
    strides.push(last.clone());
    ViewDraft {
        dtype: DType::I8,
        home: view.home.clone(),
        layout: Layout {
            shape: view.layout.shape.clone(),
            strides,
            offset: longer(&view.layout.offset),
        },
    }
}

/// The rows with their scales.
fn whole_rows(view: &ViewDraft, width: i64) -> ViewDraft {
    let mut view = view.clone();
    if let Some(last) = view.layout.shape.last_mut() {
        *last = Dim::Const(codes(width));
    }
    view
}

/// Memory for what a view holds.
fn memory(lowered: &mut Lowered, view: &ViewDraft) -> ViewDraft {
    let shape = &view.layout.shape;
    lowered.buffers.push(Buffer {
        dtype: view.dtype,
        elements: shape.iter().fold(Dim::Const(1), |n, d| n.mul(d)),
        last_use: 0,
    });
    ViewDraft {
        dtype: view.dtype,
        home: Home::Buffer(lowered.buffers.len() - 1),
        layout: Layout::contiguous(shape),
    }
}

fn cache_rows(rows: ViewDraft, codes: ViewDraft) -> StepDraft {
    StepDraft {
        name: "cache_rows",
        kernel: Box::new(CacheRows),
        inputs: vec![rows],
        outputs: vec![codes],
        numbers: Vec::new(),
        what: What::Other,
    }
}
