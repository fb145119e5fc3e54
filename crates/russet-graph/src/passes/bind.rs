//! An input that is the same in every call becomes a constant.

use std::sync::Arc;

use crate::graph::{ConstantData, Graph, Node};
use crate::ops::constant::Constant;
use crate::types::{TensorType, Type};

/// Gives input `name` of a graph its value for good: it is an input no more. `false`, and nothing has changed, where there is no
/// such tensor input or the value is of another type.
pub fn bind_input(graph: &mut Graph, name: &str, value: &Arc<ConstantData>) -> bool {
    let Some(at) = graph.inputs.iter().position(|p| &*p.name == name) else {
        return false;
    };
    // How a buffer lies in memory is not a matter of its elements.
    let fits = |ty: &TensorType| ty.dtype == value.ty.dtype && ty.shape == value.ty.shape;
    if !matches!(&graph.inputs[at].ty, Type::Tensor(ty) if fits(ty)) {
        return false;
    }
    graph.inputs.remove(at);
    let id = graph.body.args.remove(at);
    graph.values[id.index()] = value.ty.clone().into();
    let constant = Constant(value.clone());
    graph.body.nodes.insert(0, Node::new(constant, &[], &[id]));
    true
}

#[cfg(test)]
mod tests {
    use russet_kernels::mem::SharedBytes;

    use super::*;
    use crate::graph::{Module, Storage};
    use crate::text::{Text, parse, print};
    use crate::types::DType;
    use crate::verify::verify;

    const TEXT: &str = r#"module {
  graph @"main"(%0 "x": tensor<2xf32>, %1 "table": tensor<2xf32>) -> ("y": tensor<2xf32>) {
    %2 = add(%0, %1) : tensor<2xf32>
    return %2
  }
}
"#;

    fn constant(values: [f32; 2]) -> Arc<ConstantData> {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Arc::new(ConstantData {
            ty: TensorType::fixed(DType::F32, &[2]),
            storage: Storage::Dense(SharedBytes::from_vec(bytes)),
        })
    }

    fn module() -> Module {
        parse(&Text {
            text: TEXT.into(),
            blobs: Vec::new(),
        })
        .unwrap()
    }

    #[test]
    fn an_input_becomes_a_constant() {
        let mut module = module();
        assert!(bind_input(
            &mut module.graphs[0],
            "table",
            &constant([3.0, 4.0])
        ));
        verify(&module).unwrap();
        assert_eq!(module.graphs[0].inputs.len(), 1);
        assert!(print(&module).text.contains("constant"));
    }

    #[test]
    fn other_names_and_types_change_nothing() {
        let mut changed = module();
        let mut wide = (*constant([0.0, 0.0])).clone();
        wide.ty = TensorType::fixed(DType::F32, &[1, 2]);
        assert!(!bind_input(
            &mut changed.graphs[0],
            "y",
            &constant([0.0, 0.0])
        ));
        assert!(!bind_input(
            &mut changed.graphs[0],
            "table",
            &Arc::new(wide)
        ));
        assert_eq!(changed, module());
    }
}
