//! The same graphs in wider arithmetic: every f16 becomes an f32.
//!
//! What a graph computes in f16 differs from run-time to run-time, because nothing says where sums are rounded; in f32 the
//! differences are small, and what is left of them is wrong. Constants keep their values: those that are stored compressed are
//! decoded as the graph says, to f16, and then widened.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::OpError;
use crate::graph::{Block, ConstantData, Graph, Module, Node, Storage, ValueId};
use crate::infer::NodeError;
use crate::ops::Op;
use crate::ops::cast::Cast;
use crate::ops::constant::Constant;
use crate::tensor::{Tensor, TensorMut};
use crate::types::{DType, TensorType, Type};

const NARROW: DType = DType::F16;
const WIDE: DType = DType::F32;

/// Retypes f16 values, states, inputs and outputs of every graph to f32.
///
/// # Errors
/// Where a constant cannot be decoded.
pub fn widen(module: &mut Module) -> Result<(), NodeError> {
    module.graphs.iter_mut().try_for_each(graph)
}

fn graph(graph: &mut Graph) -> Result<(), NodeError> {
    let ports = graph.inputs.iter_mut().chain(&mut graph.outputs);
    ports.for_each(|port| retype(&mut port.ty));
    let name = graph.name.to_string();
    let mut widening = Widening {
        name: &name,
        constants: HashMap::new(),
    };
    widening.block(&mut graph.body)?;
    graph.values.iter_mut().for_each(retype);
    Ok(())
}

fn retype(ty: &mut Type) {
    if let Type::Tensor(t) | Type::Handle(t) = ty
        && t.dtype == NARROW
    {
        t.dtype = WIDE;
    }
}

struct Widening<'a> {
    name: &'a str,
    /// Constants as they were.
    constants: HashMap<ValueId, Arc<ConstantData>>,
}

impl Widening<'_> {
    fn block(&mut self, block: &mut Block) -> Result<(), NodeError> {
        for (index, node) in block.nodes.iter_mut().enumerate() {
            let op = node.op.name();
            self.node(node).map_err(|error| NodeError {
                graph: self.name.to_string(),
                node: index,
                op,
                error,
            })?;
            node.blocks.iter_mut().try_for_each(|b| self.block(b))?;
        }
        Ok(())
    }

    fn node(&mut self, node: &mut Node) -> Result<(), OpError> {
        if let (Op::Constant(constant), [id]) = (&node.op, &node.outputs[..]) {
            self.constants.insert(*id, constant.0.clone());
        }
        if let Some(decoded) = self.decoded(node)? {
            if let [id] = node.outputs[..] {
                self.constants.insert(id, decoded.clone());
            }
            node.op = Constant(decoded).into();
            node.inputs.clear();
        }
        match &node.op {
            Op::Constant(c) if c.0.ty.dtype == NARROW => {
                node.op = Constant(Arc::new(wide(&c.0)?)).into();
            }
            Op::Cast(cast) if cast.to == NARROW => node.op = Cast { to: WIDE }.into(),
            _ => {}
        }
        Ok(())
    }

    /// What a node that decodes constants gives.
    fn decoded(&self, node: &Node) -> Result<Option<Arc<ConstantData>>, OpError> {
        let decodes = matches!(
            node.op,
            Op::LutToDense(_)
                | Op::BlockwiseShiftScale(_)
                | Op::BuildSparseWithBitmask(_)
                | Op::LutToSparseWithBitmask(_)
                | Op::SparseWithBitmaskToDense(_)
        );
        let inputs = node.inputs.iter().map(|id| self.constants.get(id));
        let Some(inputs) = inputs.collect::<Option<Vec<_>>>().filter(|_| decodes) else {
            return Ok(None);
        };
        let inputs = inputs.into_iter().map(|c| Tensor::from_constant(c));
        let results = node.op.reference(&inputs.collect::<Result<Vec<_>, _>>()?)?;
        Ok(results.first().map(|t| Arc::new(dense(t))))
    }
}

fn dense(tensor: &Tensor) -> ConstantData {
    ConstantData {
        ty: tensor.ty(),
        storage: Storage::Dense(tensor.bytes().clone()),
    }
}

/// The same elements in the wider kind.
fn wide(data: &ConstantData) -> Result<ConstantData, OpError> {
    let ty = TensorType {
        dtype: WIDE,
        ..data.ty.clone()
    };
    if let Storage::Splat(one) = &data.storage {
        let one = Tensor::new(NARROW, vec![1], one.clone())?;
        let storage = Storage::Splat(widened(&one)?.bytes().clone());
        return Ok(ConstantData { ty, storage });
    }
    let storage = Storage::Dense(widened(&Tensor::from_constant(data)?)?.bytes().clone());
    Ok(ConstantData { ty, storage })
}

fn widened(tensor: &Tensor) -> Result<Tensor, OpError> {
    let mut out = TensorMut::zeros(WIDE, &tensor.shape)?;
    (0..out.len()).for_each(|i| out.set(i, tensor.get(i)));
    Ok(out.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Text, parse, print};
    use crate::verify::verify;

    const TEXT: &str = r#"module {
  graph @"main"(%0 "x": tensor<2xf16>, %1 "state": handle<tensor<2xf16>>) -> ("y": tensor<2xf16>) {
    %2 = create_token() : token
    %3, %4 = read_handle(%1, %2) : tensor<2xf16>, token
    %5 = add(%0, %3) : tensor<2xf16>
    %6 = cast(%5) {to = type(tensor<f32>)} : tensor<2xf32>
    %7 = cast(%6) {to = type(tensor<f16>)} : tensor<2xf16>
    return %7
  }
}
"#;

    fn widened_text(text: &str) -> String {
        let text = Text {
            text: text.into(),
            blobs: Vec::new(),
        };
        let mut module = parse(&text).unwrap();
        widen(&mut module).unwrap();
        verify(&module).unwrap();
        print(&module).text
    }

    #[test]
    fn nothing_narrow_is_left() {
        let text = widened_text(TEXT);
        assert!(!text.contains("f16"), "{text}");
        assert_eq!(text, TEXT.replace("f16", "f32"));
    }

    #[test]
    fn a_palette_is_decoded_before_it_is_widened() {
        let f16 = |values: &[f64], shape: &[usize]| {
            dense(&Tensor::from_floats(DType::F16, shape, values).unwrap())
        };
        let mut graph = Graph::new("main");
        let bits = Tensor::from_ints(DType::U1, &[1, 4], &[0, 1, 1, 0]).unwrap();
        let axis = Tensor::from_ints(DType::I32, &[], &[0]).unwrap();
        let constants = [dense(&bits), f16(&[0.1, 0.2], &[1, 1, 2, 1]), dense(&axis)];
        let ids = constants.map(|c| {
            let ty = Type::Tensor(c.ty.clone());
            graph.push(Constant(Arc::new(c)), &[], [ty])[0]
        });
        let lut = crate::ops::lut_to_dense::LutToDense;
        let ty = TensorType::fixed(DType::F16, &[1, 4]);
        let out = graph.push(lut, &ids, [ty.into()])[0];
        graph.add_output("y", out);
        let mut module = Module {
            graphs: vec![graph],
            attributes: Vec::new(),
        };
        widen(&mut module).unwrap();
        verify(&module).unwrap();
        let Op::Constant(c) = &module.graphs[0].body.nodes[3].op else {
            panic!("a constant");
        };
        let values = Tensor::from_constant(&c.0).unwrap();
        let [a, b] = [0.1, 0.2].map(|v| crate::tensor::round_to(DType::F16, v));
        assert_eq!(
            (values.dtype, values.floats()),
            (DType::F32, vec![a, b, b, a])
        );
    }
}
