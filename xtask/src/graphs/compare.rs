//! A finished graph, checked and run: by plans with composites whole and by their bodies, or by the interpreter where extents
//! follow from values.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use russet_graph::error::OpError;
use russet_graph::exec::{Executor, Input, Plan, PlanError, PlanOptions, RunError, States, View};
use russet_graph::graph::{Block, Module, ValueId};
use russet_graph::interpret;
use russet_graph::tensor::{Scalar, Tensor};
use russet_graph::text;
use russet_graph::types::{DType, Dim};
use russet_graph::verify::verify;
use russet_kernels::mem::SharedBytes;
use russet_kernels::threads::Pool;

use super::states::State;
use super::{Builder, Val};

/// What a run must give.
struct Wanted {
    inputs: Vec<(String, Tensor)>,
    outputs: Vec<Val>,
    states: Vec<State>,
    /// Whether some extent follows from values.
    is_open: bool,
    /// Whether some extent is only known when the graph is called.
    has_lengths: bool,
}

/// Runs the graph and compares; `choice` says which values are outputs: all, those that nothing reads, or the last one.
pub(super) fn finish(mut b: Builder, choice: usize) -> Result<usize, String> {
    let nodes = b.nodes.len();
    let outputs = match choice {
        0 => b.values.clone(),
        1 => b.values.last().cloned().into_iter().collect(),
        _ => unread(&b),
    };
    let open = |f: &russet_graph::ops::Fact| {
        let ty = f.ty.as_tensor();
        ty.is_some_and(|t| t.fixed_shape().is_none())
    };
    let unknown = |f: &russet_graph::ops::Fact| {
        let ty = f.ty.as_tensor();
        ty.is_some_and(|t| t.shape.iter().any(Dim::is_unknown))
    };
    let wanted = Wanted {
        inputs: std::mem::take(&mut b.inputs),
        states: std::mem::take(&mut b.states),
        is_open: b.facts.values().any(unknown),
        has_lengths: b.facts.values().any(open),
        outputs,
    };
    let mut graphs = std::mem::take(&mut b.callees);
    graphs.insert(0, b.finished(&wanted.outputs));
    let module = Module {
        graphs,
        attributes: Vec::new(),
    };
    let printed = text::print(&module);
    let told = |what: String| format!("{what}\n{}", printed.text);
    verify(&module).map_err(|e| told(e.to_string()))?;
    match text::parse(&printed) {
        Ok(back) if back == module => {}
        Ok(_) => return Err(told("the text means another graph".into())),
        Err(e) => return Err(told(e.to_string())),
    }
    for whole in [true, false] {
        wanted.check(&module, whole).map_err(|e| {
            told(format!(
                "composites whole: {whole}: {e}\ninputs {:?}",
                wanted.inputs
            ))
        })?;
    }
    Ok(nodes)
}

/// The values that no node reads.
fn unread(b: &Builder) -> Vec<Val> {
    fn note(block: &Block, read: &mut HashSet<ValueId>) {
        read.extend(&block.results);
        for node in &block.nodes {
            read.extend(&node.inputs);
            node.blocks.iter().for_each(|inner| note(inner, read));
        }
    }
    let mut read = HashSet::new();
    for node in &b.nodes {
        read.extend(&node.inputs);
        node.blocks.iter().for_each(|inner| note(inner, &mut read));
    }
    let mut values = b.values.clone();
    values.retain(|v| !read.contains(&v.id));
    values
}

impl Wanted {
    /// Runs the module once more and compares.
    fn check(&self, module: &Module, whole: bool) -> Result<(), String> {
        let mut options = PlanOptions::default();
        options.whole_composites = whole;
        match Plan::build(module, "main", &options) {
            Ok(plan) => match self.planned(plan)? {
                true => Ok(()),
                false => self.interpreted(module),
            },
            Err(PlanError::Node(e)) if self.is_open && matches!(e.error, OpError::Unknown(_)) => {
                self.interpreted(module)
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// Twice: what the first call leaves in memory must not show in the second. `false` where the lengths are not those that the
    /// plan takes for granted.
    fn planned(&self, plan: Plan) -> Result<bool, String> {
        let mut executor = Executor::new(Arc::new(plan), Arc::new(Pool::new(1)));
        for _ in 0..2 {
            let mut states = self.states(executor.plan())?;
            let inputs: Vec<Input<'_>> = self
                .inputs
                .iter()
                .map(|(n, t)| Input::tensor(n, t))
                .collect();
            match executor.run(&inputs, &mut states) {
                Err(RunError::Extent { .. }) if self.has_lengths => return Ok(false),
                done => done.map_err(|e| e.to_string())?,
            }
            for (i, v) in self.outputs.iter().enumerate() {
                let view = executor.output(&format!("y{i}"));
                let got = copied(&view.ok_or("an output is missing")?)?;
                differ(&got, &v.tensor).map_or(Ok(()), |d| Err(format!("y{i}: {d}")))?;
            }
            self.compare_states(executor.plan(), &states)?;
        }
        Ok(true)
    }

    fn state(&self, name: &str) -> Result<&State, String> {
        let found = self.states.iter().find(|s| *s.name == *name);
        found.ok_or_else(|| format!("the plan has another state {name}"))
    }

    fn states(&self, plan: &Plan) -> Result<States, String> {
        let extent = |name: &str, axis: usize| self.state(name).map_or(0, |s| s.before.shape[axis]);
        let mut states = States::new(plan, extent).map_err(|e| e.to_string())?;
        for (index, port) in plan.states().iter().enumerate() {
            let bytes = self.state(&port.name)?.before.bytes();
            states.bytes_mut(index)[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(states)
    }

    fn compare_states(&self, plan: &Plan, states: &States) -> Result<(), String> {
        for (index, port) in plan.states().iter().enumerate() {
            let want = &self.state(&port.name)?.now;
            let bytes = states.bytes(index)[..want.bytes().len()].to_vec();
            let got = Tensor::new(want.dtype, want.shape.clone(), SharedBytes::from_vec(bytes));
            let got = got.map_err(|e| e.to_string())?;
            differ(&got, want).map_or(Ok(()), |d| Err(format!("state {}: {d}", port.name)))?;
        }
        Ok(())
    }

    fn interpreted(&self, module: &Module) -> Result<(), String> {
        let inputs: HashMap<String, Tensor> = self.inputs.iter().cloned().collect();
        let before = |s: &State| (s.name.clone(), s.before.clone());
        let mut states: interpret::States = self.states.iter().map(before).collect();
        let results = interpret::run(module, &module.graphs[0], &inputs, &mut states)
            .map_err(|e| e.to_string())?;
        for ((name, got), v) in results.iter().zip(&self.outputs) {
            differ(got, &v.tensor).map_or(Ok(()), |d| Err(format!("interpreted, {name}: {d}")))?;
        }
        for state in &self.states {
            let got = states.get(&state.name).ok_or("a state is missing")?;
            differ(got, &state.now)
                .map_or(Ok(()), |d| Err(format!("interpreted, {}: {d}", state.name)))?;
        }
        Ok(())
    }
}

fn copied(view: &View<'_>) -> Result<Tensor, String> {
    let bytes = view.contiguous().ok_or("an output has no bytes")?.to_vec();
    let data = SharedBytes::from_vec(bytes);
    Tensor::new(view.dtype(), view.shape().to_vec(), data).map_err(|e| e.to_string())
}

/// How a computed tensor differs from the reference's.
fn differ(got: &Tensor, w: &Tensor) -> Option<String> {
    if (got.dtype, &got.shape) != (w.dtype, &w.shape) {
        return Some(format!("{}, not {}", got.ty(), w.ty()));
    }
    let part = match w.dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 1e-5,
    };
    let largest = w
        .floats()
        .into_iter()
        .filter(|v| v.is_finite())
        .fold(1e-2, |a: f64, v| a.max(v.abs()));
    let near = |a: Scalar, b: Scalar| {
        let (x, y) = (a.float(), b.float());
        a == b
            || (x.is_nan() && y.is_nan())
            || (w.dtype.is_float() && (x - y).abs() <= part * largest)
    };
    let mut places = got.scalars().zip(w.scalars()).enumerate();
    let wrong = places.find(|(_, (a, b))| !near(*a, *b));
    wrong.map(|(i, (a, b))| format!("element {i} is {a:?}, by reference {b:?}"))
}
