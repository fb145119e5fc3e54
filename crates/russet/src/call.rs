//! Calling one function of an asset on named tensors: what `russet call` and the conformance run do.
//!
//! A function is planned where its extents follow from those of its inputs. Where an extent follows from the *values* of a
//! tensor (`non_zero`, a `range` up to a computed number) or elements narrower than a byte are computed, the interpreter runs
//! it, with the same results and slowly; so it does where the lengths of a call make a symbolic bound count from the end.

use std::collections::HashMap;
use std::sync::Arc;

use russet_graph::error::OpError;
use russet_graph::exec::{Executor, Input, Plan, PlanError, PlanOptions, RunError, States};
use russet_graph::graph::{Graph, Module};
use russet_graph::infer::{NodeError, name_unknowns};
use russet_graph::interpret;
use russet_graph::tensor::{Tensor, TensorMut};
use russet_graph::types::{Dim, TensorType, Type};
use russet_kernels::mem::SharedBytes;
use russet_kernels::threads::Pool;

use crate::coreml;
use crate::tensors::NamedTensors;

/// Why a function cannot be called on these tensors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No function of this name.
    #[error("there is no function {name:?}; the functions are {functions}")]
    NoFunction {
        /// The name asked for.
        name: String,
        /// The names there are.
        functions: String,
    },
    /// A tensor is missing.
    #[error("function {function:?} needs the input {name:?} of type {expected}")]
    Missing {
        /// The function.
        function: String,
        /// The input.
        name: String,
        /// Its type.
        expected: String,
    },
    /// A tensor that the function does not take.
    #[error("function {function:?} has no {what} {name:?}; it takes {known}")]
    Unknown {
        /// The function.
        function: String,
        /// Input or state.
        what: &'static str,
        /// The tensor.
        name: String,
        /// What there is.
        known: String,
    },
    /// A name that two tensors have.
    #[error("function {function:?}: the {what} {name:?} is given twice")]
    Twice {
        /// The function.
        function: String,
        /// Input or state.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A tensor without a name, where that does not say which input it is.
    #[error(
        "function {function:?}: a tensor without a name can only be the only input; say NAME=FILE, where NAME is one of {known}"
    )]
    Nameless {
        /// The function.
        function: String,
        /// The inputs.
        known: String,
    },
    /// A tensor of another kind or shape.
    #[error("function {function:?}, {what} {name:?}: expected {expected}, got {got}")]
    Mismatch {
        /// The function.
        function: String,
        /// Input or state.
        what: &'static str,
        /// Its name.
        name: String,
        /// The type of the function.
        expected: String,
        /// The type of the tensor.
        got: String,
    },
    /// A state whose extents nothing fixes.
    #[error("function {function:?}: state {name:?} is {expected}; give its value before the call")]
    OpenState {
        /// The function.
        function: String,
        /// The state.
        name: String,
        /// Its type.
        expected: String,
    },
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A step of the plan.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A node under interpretation.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Memory, or a value that cannot be represented.
    #[error(transparent)]
    Value(#[from] OpError),
}

/// What a call gives back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// The outputs, in the function's order.
    pub outputs: NamedTensors,
    /// Every state after the call, in the function's order.
    pub states: NamedTensors,
}

/// One function of a module, prepared to be called on tensors by name.
#[derive(Debug)]
pub struct Function {
    module: Arc<Module>,
    name: String,
    plan: Option<Executor>,
}

impl Function {
    /// Prepares a function of a verified module, to run on this many threads (0: one a CPU).
    pub fn new(module: Arc<Module>, name: &str, threads: usize) -> Result<Self, CallError> {
        let mut options = PlanOptions::default();
        options.sums = coreml::sums(&module);
        Self::planned(module, name, threads, &options)
    }

    /// Like [`Self::new`], planned as `options` say.
    pub fn planned(
        module: Arc<Module>,
        name: &str,
        threads: usize,
        options: &PlanOptions,
    ) -> Result<Self, CallError> {
        if !module.functions().any(|g| &*g.name == name) {
            let names: Vec<&str> = module.functions().map(|g| &*g.name).collect();
            return Err(CallError::NoFunction {
                name: name.into(),
                functions: names.join(", "),
            });
        }
        let plan = match Plan::build(&module, name, options) {
            Ok(plan) => Some(Executor::new(Arc::new(plan), Arc::new(Pool::new(threads)))),
            Err(PlanError::Node(NodeError {
                error: OpError::Unknown(_),
                ..
            })) => None,
            Err(other) => return Err(other.into()),
        };
        Ok(Self {
            module,
            name: name.into(),
            plan,
        })
    }

    /// The same function by the interpreter: the meaning itself, to compare plans with.
    pub fn interpreted(&self) -> Self {
        Self {
            module: self.module.clone(),
            name: self.name.clone(),
            plan: None,
        }
    }

    /// Whether it runs by a plan rather than by the interpreter.
    pub fn is_planned(&self) -> bool {
        self.plan.is_some()
    }

    /// Calls the function. A tensor without a name stands for the only input. States that are not given start as zeros.
    pub fn call(
        &mut self,
        inputs: &[(String, Tensor)],
        states: &[(String, Tensor)],
    ) -> Result<Results, CallError> {
        let module = self.module.clone();
        let Some(graph) = module.graph(&self.name) else {
            return Ok(Results::default());
        };
        let bound = Binding::new(graph).bind(inputs, states)?;
        match &mut self.plan {
            Some(executor) => match planned(executor, &bound) {
                Err(CallError::Run(RunError::Extent { .. })) => interpreted(&module, graph, bound),
                results => results,
            },
            None => interpreted(&module, graph, bound),
        }
    }
}

/// Every input and state of a call, complete and checked.
struct Bound {
    inputs: NamedTensors,
    states: NamedTensors,
}

/// The ports of a function being matched with tensors.
struct Binding<'a> {
    graph: &'a Graph,
    symbols: Vec<(Dim, usize)>,
}

impl<'a> Binding<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self {
            graph,
            symbols: Vec::new(),
        }
    }

    /// The ports that are inputs (or states) with their types, unknown extents named.
    fn ports(&self, states: bool) -> Vec<(&'a str, TensorType)> {
        let port = |p: &'a russet_graph::graph::Port| match (name_unknowns(&p.name, &p.ty), states)
        {
            (Type::Tensor(t), false) | (Type::Handle(t), true) => Some((&*p.name, t)),
            _ => None,
        };
        self.graph.inputs.iter().filter_map(port).collect()
    }

    fn function(&self) -> String {
        self.graph.name.to_string()
    }

    fn bind(
        mut self,
        inputs: &[(String, Tensor)],
        states: &[(String, Tensor)],
    ) -> Result<Bound, CallError> {
        let ports = self.ports(false);
        let mut named = Vec::with_capacity(inputs.len());
        for (name, tensor) in inputs {
            let name = match (&**name, &ports[..]) {
                ("", [(only, _)]) => *only,
                (name, _) => name,
            };
            named.push((name, tensor));
        }
        let names: Vec<&str> = named.iter().map(|(n, _)| *n).collect();
        self.known("input", &ports, &names)?;
        let mut bound = Vec::with_capacity(ports.len());
        for (name, ty) in &ports {
            let given = named.iter().find(|(n, _)| n == name);
            let (_, tensor) = given.ok_or_else(|| CallError::Missing {
                function: self.function(),
                name: (*name).into(),
                expected: ty.to_string(),
            })?;
            self.fits("input", name, ty, tensor)?;
            bound.push(((*name).to_owned(), (*tensor).clone()));
        }
        Ok(Bound {
            inputs: bound,
            states: self.states(states)?,
        })
    }

    fn states(&mut self, given: &[(String, Tensor)]) -> Result<NamedTensors, CallError> {
        let ports = self.ports(true);
        let names: Vec<&str> = given.iter().map(|(n, _)| &**n).collect();
        self.known("state", &ports, &names)?;
        let mut bound = Vec::with_capacity(ports.len());
        for (name, ty) in &ports {
            let tensor = match given.iter().find(|(n, _)| n == name) {
                Some((_, tensor)) => tensor.clone(),
                None => self.zeros(name, ty)?,
            };
            self.fits("state", name, ty, &tensor)?;
            bound.push(((*name).to_owned(), tensor));
        }
        Ok(bound)
    }

    /// A state of zeros; open extents are those that inputs and other states have bound.
    fn zeros(&self, name: &str, ty: &TensorType) -> Result<Tensor, CallError> {
        let extent = |d: &Dim| match d.as_const() {
            Some(c) => usize::try_from(c).ok(),
            None => self.symbols.iter().find(|(s, _)| s == d).map(|(_, n)| *n),
        };
        let shape: Option<Vec<usize>> = ty.shape.iter().map(extent).collect();
        let shape = shape.ok_or_else(|| CallError::OpenState {
            function: self.function(),
            name: name.into(),
            expected: ty.to_string(),
        })?;
        Ok(TensorMut::zeros(ty.dtype, &shape)?.finish())
    }

    /// Checks that every name is that of a port, and none comes twice.
    fn known(
        &self,
        what: &'static str,
        ports: &[(&str, TensorType)],
        names: &[&str],
    ) -> Result<(), CallError> {
        let is_port = |name: &str| ports.iter().any(|(port, _)| *port == name);
        if let Some(stranger) = names.iter().find(|n| !is_port(n)) {
            return Err(self.stranger(what, ports, stranger));
        }
        let mut places = names.iter().enumerate();
        match places.find(|(at, name)| names[..*at].contains(name)) {
            None => Ok(()),
            Some((_, name)) => Err(CallError::Twice {
                function: self.function(),
                what,
                name: (*name).into(),
            }),
        }
    }

    fn stranger(&self, what: &'static str, ports: &[(&str, TensorType)], name: &str) -> CallError {
        let list: Vec<String> = ports.iter().map(|(n, t)| format!("{n:?} {t}")).collect();
        let (function, known) = (self.function(), list.join(", "));
        match (name, list.is_empty()) {
            ("", false) => CallError::Nameless { function, known },
            (name, none) => CallError::Unknown {
                function,
                what,
                name: name.into(),
                known: if none { "none".into() } else { known },
            },
        }
    }

    /// Checks a tensor against its port; extents of one name agree everywhere.
    fn fits(
        &mut self,
        what: &'static str,
        name: &str,
        ty: &TensorType,
        tensor: &Tensor,
    ) -> Result<(), CallError> {
        let mut agrees = ty.dtype == tensor.dtype && ty.rank() == tensor.shape.len();
        for (dim, &n) in ty.shape.iter().zip(&tensor.shape) {
            let wanted = match dim.as_const() {
                Some(c) => usize::try_from(c).ok(),
                None => self.symbols.iter().find(|(s, _)| s == dim).map(|(_, n)| *n),
            };
            agrees &= wanted.is_none_or(|w| w == n);
            if wanted.is_none() {
                self.symbols.push((dim.clone(), n));
            }
        }
        if agrees {
            return Ok(());
        }
        Err(CallError::Mismatch {
            function: self.function(),
            what,
            name: name.into(),
            expected: ty.to_string(),
            got: tensor.ty().to_string(),
        })
    }
}

fn planned(executor: &mut Executor, bound: &Bound) -> Result<Results, CallError> {
    let plan = executor.plan().clone();
    let state = |name: &str| bound.states.iter().find(|(n, _)| n == name).map(|(_, t)| t);
    let extent = |name: &str, axis: usize| {
        state(name)
            .and_then(|t| t.shape.get(axis))
            .copied()
            .unwrap_or(0)
    };
    let mut states = States::new(&plan, extent)?;
    for (index, port) in plan.states().iter().enumerate() {
        if let Some(tensor) = state(&port.name) {
            let bytes = &tensor.bytes()[..];
            states.bytes_mut(index)[..bytes.len()].copy_from_slice(bytes);
        }
    }
    let inputs: Vec<Input<'_>> = bound
        .inputs
        .iter()
        .map(|(name, tensor)| Input::tensor(name, tensor))
        .collect();
    executor.run(&inputs, &mut states)?;
    let mut results = Results::default();
    for name in plan.outputs() {
        let view = executor
            .output(name)
            .ok_or(OpError::Unknown("an output of the plan"))?;
        let bytes = view
            .contiguous()
            .ok_or(OpError::Unknown("the bytes of an output"))?;
        let data = SharedBytes::from_vec(bytes.to_vec());
        let tensor = Tensor::new(view.dtype(), view.shape().to_vec(), data)?;
        results.outputs.push((name.to_owned(), tensor));
    }
    for (index, port) in plan.states().iter().enumerate() {
        let (dtype, shape) = states.ty(index);
        let len = dtype.packed_len(shape.iter().product()).unwrap_or(0);
        let bytes = states.bytes(index).get(..len).unwrap_or_default();
        let tensor = Tensor::new(dtype, shape.to_vec(), SharedBytes::from_vec(bytes.to_vec()))?;
        results.states.push((port.name.to_string(), tensor));
    }
    Ok(results)
}

fn interpreted(module: &Module, graph: &Graph, bound: Bound) -> Result<Results, CallError> {
    let names: Vec<String> = bound.states.iter().map(|(n, _)| n.clone()).collect();
    let mut states: HashMap<String, Tensor> = bound.states.into_iter().collect();
    let inputs: HashMap<String, Tensor> = bound.inputs.into_iter().collect();
    let outputs = interpret::run(module, graph, &inputs, &mut states)?;
    let states = names
        .into_iter()
        .filter_map(|n| states.remove(&n).map(|t| (n, t)));
    Ok(Results {
        outputs,
        states: states.collect(),
    })
}

#[cfg(test)]
mod tests;
