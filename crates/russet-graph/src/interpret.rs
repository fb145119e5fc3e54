//! The interpreter: runs a graph node by node with the references. Slow, allocating, and the truth that plans are tested
//! against.

use std::collections::HashMap;

use crate::error::OpError;
use crate::graph::{Block, Graph, Module, Node, ValueId};
use crate::infer::NodeError;
use crate::ops::Op;
use crate::ops::reduction::reduce_to;
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Type};

/// Loops stop with an error after this many turns.
const MAX_TURNS: usize = 100_000_000;

/// What a value is during a run.
#[derive(Clone, Debug)]
enum Value {
    Tensor(Tensor),
    /// A reference to the state of this name.
    Handle(String),
    Token,
}

/// The states of a run by the name of their input.
pub type States = HashMap<String, Tensor>;

/// Runs a graph on inputs by name. Handles are read from and written to `states`. Returns the tensor outputs by name (outputs
/// without a name are called `output<index>`).
pub fn run(
    module: &Module,
    graph: &Graph,
    inputs: &HashMap<String, Tensor>,
    states: &mut States,
) -> Result<Vec<(String, Tensor)>, NodeError> {
    let start = |error| NodeError {
        graph: graph.name.to_string(),
        node: 0,
        op: "inputs",
        error,
    };
    let mut values = Vec::new();
    for port in &graph.inputs {
        values.push(match &port.ty {
            Type::Handle(_) if states.contains_key(&*port.name) => {
                Value::Handle(port.name.to_string())
            }
            Type::Tensor(_) if inputs.contains_key(&*port.name) => {
                Value::Tensor(inputs[&*port.name].clone())
            }
            Type::Token => Value::Token,
            _ => {
                return Err(start(OpError::NotExecutable(format!(
                    "input {:?} is missing",
                    port.name
                ))));
            }
        });
    }
    let results = Interpreter { module, states }.graph(graph, values)?;
    let named =
        graph.outputs.iter().zip(results).enumerate().filter_map(
            |(i, (port, value))| match value {
                Value::Tensor(t) if port.name.is_empty() => Some((format!("output{i}"), t)),
                Value::Tensor(t) => Some((port.name.to_string(), t)),
                _ => None,
            },
        );
    Ok(named.collect())
}

/// Evaluates one node on tensors, including loops, branches and calls; states cannot be reached from here.
pub fn evaluate(
    module: &Module,
    graph: &Graph,
    node: &Node,
    values: &HashMap<ValueId, Tensor>,
) -> Result<Vec<Tensor>, OpError> {
    let mut states = States::new();
    let mut env: Vec<Option<Value>> = vec![None; graph.values.len()];
    for (id, t) in values {
        env[id.index()] = Some(Value::Tensor(t.clone()));
    }
    let results = Interpreter {
        module,
        states: &mut states,
    }
    .node(graph, node, &mut env)?;
    let tensor = |v| {
        if let Value::Tensor(t) = v {
            Ok(t)
        } else {
            Err(OpError::Unknown("a tensor result"))
        }
    };
    results.into_iter().map(tensor).collect()
}

struct Interpreter<'a> {
    module: &'a Module,
    states: &'a mut States,
}

type Env = Vec<Option<Value>>;

impl Interpreter<'_> {
    fn graph(&mut self, graph: &Graph, inputs: Vec<Value>) -> Result<Vec<Value>, NodeError> {
        let mut env: Env = vec![None; graph.values.len()];
        self.block(graph, &graph.body, inputs, &mut env)
    }

    fn block(
        &mut self,
        graph: &Graph,
        block: &Block,
        inputs: Vec<Value>,
        env: &mut Env,
    ) -> Result<Vec<Value>, NodeError> {
        for (&id, value) in block.args.iter().zip(inputs) {
            env[id.index()] = Some(value);
        }
        for (index, node) in block.nodes.iter().enumerate() {
            let at = |error| NodeError {
                graph: graph.name.to_string(),
                node: index,
                op: node.op.name(),
                error,
            };
            let results = self.node(graph, node, env).map_err(at)?;
            for (&id, value) in node.outputs.iter().zip(results) {
                env[id.index()] = Some(value);
            }
        }
        let end = |error| NodeError {
            graph: graph.name.to_string(),
            node: block.nodes.len(),
            op: "return",
            error,
        };
        block
            .results
            .iter()
            .map(|&id| get(env, id).map_err(end))
            .collect()
    }

    fn node(&mut self, graph: &Graph, node: &Node, env: &mut Env) -> Result<Vec<Value>, OpError> {
        match &node.op {
            Op::Invoke(call) => self.call(&call.graph, node, env),
            Op::CreateToken(_) | Op::JoinToken(_) => Ok(vec![Value::Token]),
            Op::ReadHandle(_) => {
                let state = self
                    .states
                    .get(&handle(env, node)?)
                    .cloned()
                    .ok_or(OpError::Unknown("a state"))?;
                Ok(vec![Value::Tensor(state), Value::Token])
            }
            Op::WriteHandle(_) => {
                let (name, value) = (handle(env, node)?, tensor(env, node, 1)?);
                self.states.insert(name, value);
                Ok(vec![Value::Token])
            }
            Op::While(_) => self.repeat(graph, node, env),
            Op::Reduce(_) => self.reduce(graph, node, env),
            Op::ReduceIndex(_) => self.reduce_index(graph, node, env),
            Op::If(_) => {
                let first = tensor(env, node, 0)?
                    .scalars()
                    .next()
                    .is_some_and(|s| s.bool());
                self.inner(graph, node, usize::from(!first), Vec::new(), env)
            }
            op => {
                let inputs: Result<Vec<Tensor>, _> = (0..node.inputs.len())
                    .map(|i| tensor(env, node, i))
                    .collect();
                Ok(op
                    .reference(&inputs?)?
                    .into_iter()
                    .map(Value::Tensor)
                    .collect())
            }
        }
    }

    fn inner(
        &mut self,
        graph: &Graph,
        node: &Node,
        block: usize,
        inputs: Vec<Value>,
        env: &mut Env,
    ) -> Result<Vec<Value>, OpError> {
        let block = node.blocks.get(block).ok_or(OpError::Unknown("a block"))?;
        self.block(graph, block, inputs, env)
            .map_err(|e| OpError::NotExecutable(e.to_string()))
    }

    fn repeat(&mut self, graph: &Graph, node: &Node, env: &mut Env) -> Result<Vec<Value>, OpError> {
        let mut values: Vec<Value> = node
            .inputs
            .iter()
            .map(|&id| get(env, id))
            .collect::<Result<_, _>>()?;
        for _ in 0..MAX_TURNS {
            let mut out = self.inner(graph, node, 0, values, env)?.into_iter();
            let Some(Value::Tensor(condition)) = out.next() else {
                return Err(OpError::Unknown("a loop's condition"));
            };
            values = out.collect();
            if !condition.scalars().next().is_some_and(|s| s.bool()) {
                return Ok(values);
            }
            values = self.inner(graph, node, 1, values, env)?;
        }
        Err(OpError::NotExecutable(format!(
            "a loop ran {MAX_TURNS} times"
        )))
    }

    /// The block of a reduction on two scalars of kind `dtype`.
    fn combine(
        &mut self,
        graph: &Graph,
        node: &Node,
        env: &mut Env,
        pair: [Scalar; 2],
        dtype: DType,
    ) -> Result<Scalar, OpError> {
        let scalar = |v| Tensor::from_scalars(dtype, &[], &[v]).map(Value::Tensor);
        let inputs = vec![scalar(pair[0])?, scalar(pair[1])?];
        let out = self.inner(graph, node, 0, inputs, env)?;
        match &out[..] {
            [Value::Tensor(t)] => first(t),
            _ => Err(OpError::Unknown("the result of a block")),
        }
    }

    fn reduce(&mut self, graph: &Graph, node: &Node, env: &mut Env) -> Result<Vec<Value>, OpError> {
        let [x, axes, start] = [0, 1, 2].map(|i| tensor(env, node, i));
        let (x, start) = (x?, first(&start?)?);
        let dtype = x.dtype;
        let out = reduce_to(&[x, axes?], dtype, |group| {
            let step = |sum: Scalar, &v: &Scalar| self.combine(graph, node, env, [sum, v], dtype);
            group.iter().try_fold(start, step)
        });
        Ok(out?.into_iter().map(Value::Tensor).collect())
    }

    fn reduce_index(
        &mut self,
        graph: &Graph,
        node: &Node,
        env: &mut Env,
    ) -> Result<Vec<Value>, OpError> {
        let [x, axis, start, index] = [0, 1, 2, 3].map(|i| tensor(env, node, i));
        let (x, start, index) = (x?, first(&start?)?, index?);
        let (dtype, none) = (x.dtype, first(&index)?);
        let out = reduce_to(&[x, axis?], index.dtype, |line| {
            let (mut best, mut at) = (start, none);
            for (k, &v) in line.iter().enumerate() {
                if self.combine(graph, node, env, [best, v], dtype)?.bool() {
                    (best, at) = (v, Scalar::Int(k as i128));
                }
            }
            Ok(at)
        });
        Ok(out?.into_iter().map(Value::Tensor).collect())
    }

    fn call(&mut self, name: &str, node: &Node, env: &Env) -> Result<Vec<Value>, OpError> {
        let callee = self
            .module
            .graph(name)
            .ok_or_else(|| OpError::NotExecutable(format!("there is no graph {name:?}")))?;
        let inputs: Result<Vec<Value>, _> = node.inputs.iter().map(|&id| get(env, id)).collect();
        self.graph(callee, inputs?)
            .map_err(|e| OpError::NotExecutable(e.to_string()))
    }
}

fn get(env: &Env, id: ValueId) -> Result<Value, OpError> {
    env.get(id.index())
        .cloned()
        .flatten()
        .ok_or(OpError::Unknown("an operand"))
}

fn first(t: &Tensor) -> Result<Scalar, OpError> {
    t.scalars()
        .next()
        .ok_or(OpError::Unknown("the element of an empty tensor"))
}

fn tensor(env: &Env, node: &Node, index: usize) -> Result<Tensor, OpError> {
    match get(env, node.inputs[index])? {
        Value::Tensor(t) => Ok(t),
        _ => Err(OpError::NotTensor { index }),
    }
}

fn handle(env: &Env, node: &Node) -> Result<String, OpError> {
    match get(env, node.inputs[0])? {
        Value::Handle(name) => Ok(name),
        _ => Err(OpError::Unknown("the state of a handle")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Text, parse};

    /// Runs the graph `f` of `text` on `x`.
    fn result(text: &str, x: Tensor) -> Tensor {
        let module = parse(&Text {
            text: text.into(),
            blobs: Vec::new(),
        })
        .unwrap();
        crate::verify::verify(&module).unwrap();
        let inputs = HashMap::from([("x".to_owned(), x)]);
        run(&module, &module.graphs[0], &inputs, &mut States::new())
            .unwrap()
            .remove(0)
            .1
    }

    const FOLD: &str = r#"module {
  graph @"f"(%0 "x": tensor<2x3xi32>) -> ("y": tensor<1x3xi32>) {
    %1 = constant hex(00000000) : tensor<1xi32>
    %2 = constant hex(01000000) : tensor<i32>
    %3 = reduce(%0, %1, %2) : tensor<1x3xi32> block (%4: tensor<i32>, %5: tensor<i32>) {
      %6 = mul(%4, %5) : tensor<i32>
      return %6
    }
    return %3
  }
}
"#;

    const WINNER: &str = r#"module {
  graph @"f"(%0 "x": tensor<2x3xi32>) -> ("y": tensor<2x1xu32>) {
    %1 = constant hex(ffffffff) : tensor<i32>
    %2 = constant hex(00000080) : tensor<i32>
    %3 = constant hex(00000000) : tensor<u32>
    %4 = reduce_index(%0, %1, %2, %3) : tensor<2x1xu32> block (%5: tensor<i32>, %6: tensor<i32>) {
      %7 = greater(%6, %5) : tensor<bool>
      return %7
    }
    return %4
  }
}
"#;

    #[test]
    fn blocks_fold_axes() {
        let x = Tensor::from_ints(DType::I32, &[2, 3], &[2, 9, 9, 4, -5, 7]).unwrap();
        let products = result(FOLD, x.clone());
        assert_eq!(
            (&products.shape[..], products.ints()),
            (&[1, 3][..], vec![8, -45, 63])
        );
        let winners = result(WINNER, x);
        assert_eq!((winners.dtype, winners.ints()), (DType::U32, vec![1, 2]));
    }
}
