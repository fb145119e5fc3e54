//! Running a plan.

use std::sync::Arc;
use std::time::{Duration, Instant};

use russet_kernels::mem::{AlignedBuf, OutOfMemory};
use russet_kernels::threads::Pool;

use super::build::{Home, Place, Plan};
use super::kernels::{Cx, Out};
use super::states::States;
use super::view::{Geometry, MAX_RANK, View};
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::{DType, Symbol, TensorType};

/// Why a call fails.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An input is missing.
    #[error("{function}: input {name:?} is missing")]
    Missing {
        /// The function.
        function: String,
        /// The input.
        name: String,
    },
    /// An input or state does not fit its type.
    #[error("{function}: {name:?} is {got}, the function takes {expected}")]
    Mismatch {
        /// The function.
        function: String,
        /// The input or state.
        name: String,
        /// What it is.
        got: String,
        /// What the function takes.
        expected: String,
    },
    /// Lengths that contradict the graph, or that the plan does not allow for: a bound that counts from the end, a span that is
    /// empty. Nothing has run.
    #[error("{function}: the lengths given make the extent {dim} invalid")]
    Extent {
        /// The function.
        function: String,
        /// The extent, as an expression of the inputs' lengths.
        dim: String,
    },
    /// A step fails.
    #[error("{function}, step {step} ({op}): {error}")]
    Step {
        /// The function.
        function: String,
        /// Position in the plan.
        step: usize,
        /// The operation.
        op: &'static str,
        /// What is wrong.
        #[source]
        error: OpError,
    },
    /// Memory ran out.
    #[error("{0}")]
    Memory(String),
}

impl From<OutOfMemory> for RunError {
    fn from(e: OutOfMemory) -> Self {
        Self::Memory(e.to_string())
    }
}

/// A tensor input of a call: element kind, shape, packed bytes (aligned to the element).
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The input's name.
    pub name: &'a str,
    /// Element kind.
    pub dtype: DType,
    /// Extents.
    pub shape: &'a [usize],
    /// Row-major elements.
    pub data: &'a [u8],
}

impl<'a> Input<'a> {
    /// A tensor under a name.
    pub fn tensor(name: &'a str, tensor: &'a Tensor) -> Self {
        Self {
            name,
            dtype: tensor.dtype,
            shape: &tensor.shape,
            data: tensor.bytes(),
        }
    }
}

/// Runs one plan, again and again, in its own memory.
#[derive(Debug)]
pub struct Executor {
    plan: Arc<Plan>,
    pool: Arc<Pool>,
    slots: Vec<AlignedBuf>,
    inputs: Vec<AlignedBuf>,
    dims: Vec<i64>,
    symbols: Vec<(Symbol, i64)>,
    taken: Vec<(Taken, AlignedBuf)>,
    scratch: Vec<f32>,
    numbers: Vec<i64>,
    profile: Option<Vec<Duration>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Slot(usize),
    State(usize),
}

impl Executor {
    /// An executor with empty memory.
    pub fn new(plan: Arc<Plan>, pool: Arc<Pool>) -> Self {
        let slots = (0..plan.slots).map(|_| AlignedBuf::default()).collect();
        let inputs = plan.inputs.iter().map(|_| AlignedBuf::default()).collect();
        let dims = vec![0; plan.dims.len()];
        Self {
            plan,
            pool,
            slots,
            inputs,
            dims,
            symbols: Vec::new(),
            taken: Vec::new(),
            scratch: Vec::new(),
            numbers: Vec::new(),
            profile: None,
        }
    }

    /// From now on sums up the time of every step; starts from zero.
    pub fn start_profile(&mut self) {
        self.profile = Some(vec![Duration::ZERO; self.plan.steps.len()]);
    }

    /// The time each step took since [`Executor::start_profile`], in the plan's order; empty without it.
    pub fn profile(&self) -> &[Duration] {
        self.profile.as_deref().unwrap_or_default()
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The threads it runs on.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Memory held between calls, in bytes, without states and constants.
    pub fn size(&self) -> usize {
        self.slots
            .iter()
            .chain(&self.inputs)
            .map(|b| b.as_bytes().len())
            .sum::<usize>()
            + self.scratch.len() * 4
    }

    /// Runs the function. Outputs can be read until the next call. On an error the states may hold a part of the step.
    pub fn run(&mut self, inputs: &[Input<'_>], states: &mut States) -> Result<(), RunError> {
        self.bind(inputs, states)?;
        let plan = self.plan.clone();
        for (index, step) in plan.steps.iter().enumerate() {
            let at = |error| RunError::Step {
                function: plan.function.clone(),
                step: index,
                op: step.name,
                error,
            };
            self.numbers.clear();
            self.numbers
                .extend(step.numbers.iter().map(|d| self.dims[d.0 as usize]));
            for place in &step.outputs {
                self.take(place, states);
            }
            let start = self.profile.is_some().then(Instant::now);
            let result = self.step(step, states);
            if let (Some(times), Some(start)) = (&mut self.profile, start) {
                times[index] += start.elapsed();
            }
            for (from, buffer) in self.taken.drain(..) {
                match from {
                    Taken::Slot(i) => self.slots[i] = buffer,
                    Taken::State(i) => states.buffers[i] = buffer,
                }
            }
            result.map_err(at)?;
        }
        Ok(())
    }

    fn take(&mut self, place: &Place, states: &mut States) {
        let from = match place.home {
            Home::Buffer(i) => Taken::Slot(i),
            Home::State(i) => Taken::State(i),
            Home::Input(_) | Home::Constant(_) => return,
        };
        if self.taken.iter().any(|(t, _)| *t == from) {
            return;
        }
        let buffer = match from {
            Taken::Slot(i) => std::mem::take(&mut self.slots[i]),
            Taken::State(i) => std::mem::take(&mut states.buffers[i]),
        };
        self.taken.push((from, buffer));
    }

    fn step(&mut self, step: &super::build::Step, states: &States) -> Result<(), OpError> {
        const INLINE: usize = 8;
        let (dims, slots, held) = (&self.dims[..], &self.slots[..], &self.inputs[..]);
        let mut inline: [View<'_>; INLINE] = [View {
            dtype: DType::U8,
            geometry: EMPTY,
            data: &[],
        }; INLINE];
        let mut many = Vec::new();
        let inputs = if step.inputs.len() <= INLINE {
            for (v, place) in inline.iter_mut().zip(&step.inputs) {
                *v = resolve(place, dims, slots, held, states)?;
            }
            &inline[..step.inputs.len()]
        } else {
            for place in &step.inputs {
                many.push(resolve(place, dims, slots, held, states)?);
            }
            &many[..]
        };
        let mut run = |outputs: &mut [Out<'_>]| {
            let mut cx = Cx {
                inputs,
                outputs,
                numbers: &self.numbers,
                pool: &self.pool,
                scratch: &mut self.scratch,
            };
            step.kernel.run(&mut cx)
        };
        match (&step.outputs[..], &mut self.taken[..]) {
            ([place], [(_, buffer)]) => run(&mut [out(place, &self.dims, buffer)?]),
            ([a, b], [(_, x), (_, y)]) => {
                run(&mut [out(a, &self.dims, x)?, out(b, &self.dims, y)?])
            }
            ([a, b, c], [(_, x), (_, y), (_, z)]) => run(&mut [
                out(a, &self.dims, x)?,
                out(b, &self.dims, y)?,
                out(c, &self.dims, z)?,
            ]),
            (places, taken) if places.len() == taken.len() => {
                let outs: Result<Vec<_>, _> = places
                    .iter()
                    .zip(taken)
                    .map(|(p, (_, b))| out(p, &self.dims, b))
                    .collect();
                run(&mut outs?)
            }
            _ => Err(OpError::NotExecutable(
                "two results share their memory".into(),
            )),
        }
    }

    /// Checks inputs and states, evaluates every dim and makes room in every slot.
    fn bind(&mut self, inputs: &[Input<'_>], states: &States) -> Result<(), RunError> {
        let plan = self.plan.clone();
        self.symbols.clear();
        for (index, wanted) in plan.inputs.iter().enumerate() {
            let given = inputs
                .iter()
                .find(|i| *i.name == *wanted.name)
                .ok_or_else(|| RunError::Missing {
                    function: plan.function.clone(),
                    name: wanted.name.to_string(),
                })?;
            self.bind_shape(
                (&wanted.name, &wanted.ty, &wanted.binds),
                given.dtype,
                given.shape,
            )?;
            let bytes = crate::tensor::element_count(given.shape)
                .ok()
                .and_then(|n| given.dtype.packed_len(n));
            if bytes != Some(given.data.len()) {
                let got = format!("{} bytes for {:?}", given.data.len(), given.shape);
                return Err(mismatch(&plan, &wanted.name, &wanted.ty, got));
            }
            self.inputs[index].ensure_len(given.data.len())?;
            self.inputs[index].as_bytes_mut()[..given.data.len()].copy_from_slice(given.data);
        }
        if states.len() != plan.states.len() {
            return Err(RunError::Missing {
                function: plan.function.clone(),
                name: "states".into(),
            });
        }
        for (index, wanted) in plan.states.iter().enumerate() {
            let (dtype, shape) = states.ty(index);
            self.bind_shape((&wanted.name, &wanted.ty, &wanted.binds), dtype, shape)?;
        }
        let symbols = &self.symbols;
        let lookup = |s: &Symbol| symbols.iter().find(|(name, _)| name == s).map(|(_, v)| *v);
        let invalid = |dim: String| RunError::Extent {
            function: plan.function.clone(),
            dim,
        };
        plan.dims
            .evaluate(&lookup, &mut self.dims)
            .map_err(|d| invalid(d.to_string()))?;
        if let Some(at) = plan.assumed.iter().find(|d| self.dims[d.0 as usize] < 0) {
            return Err(invalid(plan.dims.name(*at)));
        }
        for slot in &plan.uses {
            let elements = usize::try_from(self.dims[slot.elements.0 as usize])
                .map_err(|_| invalid("a negative length".into()))?;
            let bytes = slot
                .dtype
                .packed_len(elements)
                .ok_or_else(|| RunError::Memory("a buffer is too large".into()))?;
            self.slots[slot.slot].ensure_len(bytes)?;
        }
        Ok(())
    }

    fn bind_shape(
        &mut self,
        (name, ty, binds): (&str, &TensorType, &[Option<Symbol>]),
        dtype: DType,
        shape: &[usize],
    ) -> Result<(), RunError> {
        let got = || format!("{}", TensorType::fixed(dtype, shape));
        if dtype != ty.dtype || shape.len() != ty.rank() {
            return Err(mismatch(&self.plan, name, ty, got()));
        }
        for ((dim, symbol), &n) in ty.shape.iter().zip(binds).zip(shape) {
            let n = n as i64;
            let fits = match (dim.as_const(), symbol) {
                (Some(c), _) => c == n,
                (None, Some(symbol)) => match self.symbols.iter().find(|(s, _)| s == symbol) {
                    Some((_, bound)) => *bound == n,
                    None => {
                        self.symbols.push((symbol.clone(), n));
                        true
                    }
                },
                (None, None) => true,
            };
            if !fits {
                return Err(mismatch(&self.plan, name, ty, got()));
            }
        }
        Ok(())
    }

    /// An output of the last call.
    pub fn output(&self, name: &str) -> Option<View<'_>> {
        let place = &self.plan.outputs.iter().find(|o| *o.name == *name)?.place;
        let none = States::default();
        let view = resolve(place, &self.dims, &self.slots, &self.inputs, &none);
        // The borrow of `none` ends here: outputs live in slots.
        view.ok().map(|v| View {
            data: self.output_data(place),
            ..v
        })
    }

    fn output_data(&self, place: &Place) -> &[u8] {
        match place.home {
            Home::Buffer(i) => self.slots[i].as_bytes(),
            _ => &[],
        }
    }
}

fn mismatch(plan: &Plan, name: &str, ty: &TensorType, got: String) -> RunError {
    RunError::Mismatch {
        function: plan.function.clone(),
        name: name.into(),
        got,
        expected: ty.to_string(),
    }
}

const EMPTY: Geometry = Geometry {
    rank: 0,
    shape: [0; MAX_RANK],
    strides: [0; MAX_RANK],
    offset: 0,
};

pub(super) fn geometry(place: &Place, dims: &[i64]) -> Result<Geometry, OpError> {
    let number = |d: super::dims::DimRef| {
        let value = dims[d.0 as usize];
        usize::try_from(value).map_err(|_| OpError::Range {
            what: "an extent",
            value,
            allowed: "0 or more".into(),
        })
    };
    let mut g = Geometry {
        rank: place.shape.len(),
        offset: number(place.offset)?,
        ..EMPTY
    };
    if g.rank > MAX_RANK {
        return Err(OpError::NotExecutable(format!(
            "tensors of more than {MAX_RANK} axes"
        )));
    }
    for (i, (&d, &s)) in place.shape.iter().zip(&place.strides).enumerate() {
        (g.shape[i], g.strides[i]) = (number(d)?, number(s)?);
    }
    Ok(g)
}

/// A view, after checking that its storage holds all of it.
fn resolve<'a>(
    place: &'a Place,
    dims: &[i64],
    slots: &'a [AlignedBuf],
    inputs: &'a [AlignedBuf],
    states: &'a States,
) -> Result<View<'a>, OpError> {
    let data: &[u8] = match &place.home {
        Home::Buffer(i) => slots[*i].as_bytes(),
        Home::State(i) => states.buffers[*i].as_bytes(),
        Home::Input(i) => inputs[*i].as_bytes(),
        Home::Constant(c) => c.storage.bytes(),
    };
    let geometry = geometry(place, dims)?;
    check(&geometry, place.dtype, data.len())?;
    Ok(View {
        dtype: place.dtype,
        geometry,
        data,
    })
}

fn check(geometry: &Geometry, dtype: DType, bytes: usize) -> Result<(), OpError> {
    let need = geometry.end().and_then(|n| dtype.packed_len(n));
    if need.is_none_or(|n| n > bytes) {
        return Err(OpError::Bytes {
            dtype,
            shape: geometry.shape().to_vec(),
            bytes,
        });
    }
    Ok(())
}

fn out<'a>(place: &Place, dims: &[i64], buffer: &'a mut AlignedBuf) -> Result<Out<'a>, OpError> {
    let geometry = geometry(place, dims)?;
    check(&geometry, place.dtype, buffer.as_bytes().len())?;
    Ok(Out {
        dtype: place.dtype,
        geometry,
        data: buffer.as_bytes_mut(),
    })
}
