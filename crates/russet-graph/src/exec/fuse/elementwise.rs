//! Functions element by element, joined: a function of a result that nothing else reads is computed with it, in f32 until the end.

use std::sync::Arc;

use russet_kernels::elementwise::{Activation, Binary, Unary};
use russet_kernels::mem::SharedBytes;

use super::{Fusion, Steps, buffer};
use crate::exec::build::Home;
use crate::exec::kernels::{Chain, Gated, Instruction, Kernel, MAX_DEPTH, MAX_OPERANDS};
use crate::exec::layout::Layout;
use crate::exec::lower::{StepDraft, ViewDraft, What};
use crate::graph::{ConstantData, Storage};
use crate::types::{Dim, TensorType};

/// Constants of more elements stay as they lie.
const MAX_SETTLED: i64 = 1 << 20;

impl Fusion {
    pub(super) fn join_elementwise(&mut self) {
        let mut uses = self.uses();
        for at in 0..self.steps.len() {
            let mut operand = 0;
            while self.operands(at) > operand {
                if self.absorb(at, operand, &mut uses).is_none() {
                    operand += 1;
                }
            }
            if let Some(step) = self.steps[at].as_mut().filter(|s| is_elementwise(s)) {
                step.inputs.iter_mut().for_each(settle);
                put_gate_first(step);
            }
        }
    }

    /// The operands of step `at`, where it works element by element.
    fn operands(&self, at: usize) -> usize {
        let step = self.steps[at].as_ref().filter(|s| is_elementwise(s));
        step.map_or(0, |s| s.inputs.len())
    }

    /// Computes the step that makes operand `operand` of step `at` there, if it can be.
    fn absorb(&mut self, at: usize, operand: usize, uses: &mut (Steps, Steps)) -> Option<()> {
        let step = self.steps[at].as_ref()?;
        let view = step.inputs.get(operand)?;
        let maker = self.maker(uses, view, at)?;
        let made = self.steps[maker].as_ref()?;
        let (What::Elementwise(outer), What::Elementwise(inner)) = (&step.what, &made.what) else {
            return None;
        };
        let shape = &view.layout.shape;
        let inputs = made.inputs.iter().map(|v| reshaped(v, shape));
        let inputs: Vec<ViewDraft> = inputs.collect::<Option<_>>()?;
        if !self.unchanged(&inputs, maker, at) {
            return None;
        }
        let joined = joined((outer, &step.inputs), operand, (inner, &inputs))?;
        self.steps[maker] = None;
        for b in inputs.iter().filter_map(buffer) {
            uses.0[b]
                .iter_mut()
                .filter(|s| **s == maker)
                .for_each(|s| *s = at);
        }
        let step = self.steps[at].as_mut()?;
        step.what = What::Elementwise(joined.0);
        step.inputs = joined.1;
        step.name = "elementwise";
        Some(())
    }
}

fn is_elementwise(step: &StepDraft) -> bool {
    matches!(step.what, What::Elementwise(_))
}

/// The same elements in the same order under another shape.
fn reshaped(view: &ViewDraft, shape: &[Dim]) -> Option<ViewDraft> {
    let layout = if view.layout.shape == shape {
        view.layout.clone()
    } else {
        view.layout.reshape(shape)?
    };
    Some(ViewDraft {
        layout,
        ..view.clone()
    })
}

/// A program and its operands.
type Program<'a> = (&'a [Instruction], &'a [ViewDraft]);

/// `outer` with `inner` in place of operand `operand`, which it loads once; none where that is too much for one step.
fn joined(
    outer: Program<'_>,
    operand: usize,
    inner: Program<'_>,
) -> Option<(Vec<Instruction>, Vec<ViewDraft>)> {
    let once = outer.0.iter().filter(|i| **i == Instruction::Load(operand));
    if once.count() != 1 {
        return None;
    }
    let mut inputs = Vec::new();
    let mut load = |view: &ViewDraft| {
        let alike =
            |v: &ViewDraft| v.home == view.home && v.layout == view.layout && v.dtype == view.dtype;
        let at = inputs.iter().position(alike).unwrap_or(inputs.len());
        if at == inputs.len() {
            inputs.push(view.clone());
        }
        Instruction::Load(at)
    };
    let mut program = Vec::new();
    for instruction in outer.0 {
        match instruction {
            Instruction::Load(i) if *i == operand => {
                program.extend(inner.0.iter().map(|instruction| match instruction {
                    Instruction::Load(i) => load(&inner.1[*i]),
                    other => *other,
                }));
            }
            Instruction::Load(i) => program.push(load(&outer.1[*i])),
            other => program.push(*other),
        }
    }
    (inputs.len() <= MAX_OPERANDS && depth(&program) <= MAX_DEPTH).then_some((program, inputs))
}

/// The most values that a program has on its stack.
fn depth(program: &[Instruction]) -> usize {
    let mut depth = 0;
    let depths = program.iter().map(|i| {
        depth = depth + 1 - i.takes();
        depth
    });
    depths.max().unwrap_or(0)
}

/// A small constant that is read with gaps becomes one without.
fn settle(view: &mut ViewDraft) {
    let layout = &view.layout;
    let gaps = layout.strides.last().is_some_and(|s| {
        ![0, 1].map(Dim::Const).contains(s) && layout.shape.last() != Some(&Dim::Const(1))
    });
    let Home::Constant(data) = &view.home else {
        return;
    };
    if let Some((data, layout)) = gaps.then(|| without_gaps(data, layout)).flatten() {
        view.home = Home::Constant(Arc::new(data));
        view.layout = layout;
    }
}

/// What a view of a dense constant shows, as a constant of its own; axes that repeat stay repeated.
fn without_gaps(data: &ConstantData, layout: &Layout) -> Option<(ConstantData, Layout)> {
    let (Storage::Dense(bytes), size) = (&data.storage, data.ty.dtype.size()?) else {
        return None;
    };
    let axes: Vec<(usize, Dim)> = layout.strides.iter().cloned().enumerate().collect();
    let kept = axes
        .into_iter()
        .filter(|(_, stride)| *stride != Dim::Const(0));
    let mut offsets = vec![layout.offset.as_const()?];
    let mut own = vec![Dim::Const(1); layout.shape.len()];
    for (axis, stride) in kept {
        let (n, stride) = (layout.shape[axis].as_const()?, stride.as_const()?);
        if n.checked_mul(offsets.len() as i64)? > MAX_SETTLED {
            return None;
        }
        let steps = |at: i64| (0..n).map(move |i| at + i * stride);
        offsets = offsets.into_iter().flat_map(steps).collect();
        own[axis] = Dim::Const(n);
    }
    let mut copy = Vec::with_capacity(offsets.len() * size);
    for at in offsets {
        let at = usize::try_from(at).ok()?.checked_mul(size)?;
        copy.extend_from_slice(bytes.get(at..at.checked_add(size)?)?);
    }
    let layout = Layout::contiguous(&own).broadcast(&layout.shape)?;
    let storage = Storage::Dense(super::kernels::aligned(&SharedBytes::from_vec(copy)).ok()?);
    let ty = TensorType::new(data.ty.dtype, own);
    Some((ConstantData { ty, storage }, layout))
}

/// Programs that have names: what they do with their operands in turn.
const NAMES: [(&[Instruction], &str); 3] = [
    (&gated_by(Unary::Silu), "silu_mul"),
    (&gated_by(Unary::GeluTanh), "gelu_mul"),
    (
        &[
            Instruction::Load(0),
            Instruction::Load(1),
            Instruction::Binary(Binary::Div),
            Instruction::Unary(Unary::Tanh),
            Instruction::Load(1),
            Instruction::Binary(Binary::Mul),
        ],
        "soft_cap",
    ),
];

const fn gated_by(activation: Unary) -> [Instruction; 4] {
    [
        Instruction::Load(0),
        Instruction::Unary(activation),
        Instruction::Load(1),
        Instruction::Binary(Binary::Mul),
    ]
}

/// `up · activation(gate)` as `activation(gate) · up`.
fn put_gate_first(step: &mut StepDraft) {
    let What::Elementwise(program) = &mut step.what else {
        return;
    };
    if let [
        Instruction::Load(0),
        Instruction::Load(1),
        Instruction::Unary(op),
        product,
    ] = program[..]
        && product == Instruction::Binary(Binary::Mul)
    {
        *program = gated_by(op).to_vec();
        step.inputs.swap(0, 1);
    }
}

/// Whether a program is a gelu alone, which keeps the roundings that the reference runtime has inside it.
pub(super) fn is_gelu(program: &[Instruction]) -> bool {
    let gelu = [Unary::Gelu, Unary::GeluTanh].map(Instruction::Unary);
    matches!(program, [_, op] if gelu.contains(op))
}

/// The name of a step of this program, and what runs it.
pub(super) fn kernel(step: &StepDraft, program: &[Instruction]) -> (&'static str, Box<dyn Kernel>) {
    let named = NAMES.iter().find(|(p, _)| *p == program);
    let activations = [
        (Unary::Silu, Activation::Silu),
        (Unary::GeluTanh, Activation::GeluTanh),
    ];
    let gate = activations.iter().find(|(op, _)| gated_by(*op) == program);
    let plain = |v: &ViewDraft| v.layout.is_contiguous() && v.dtype == step.outputs[0].dtype;
    let kernel: Box<dyn Kernel> = match gate {
        Some((_, gate)) if step.inputs.iter().all(plain) => Box::new(Gated(*gate)),
        _ => Box::new(Chain(program.to_vec())),
    };
    (named.map_or(step.name, |(_, name)| name), kernel)
}
