//! Operations whose meaning lies in the module or in the states of a run: calls, control flow, handles, tokens, kernels of other
//! hardware. Each has small programs here, with results that were worked out by hand; together with the examples of the table
//! they leave no operation of the table out.

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::mem::SharedBytes;
use russet_kernels::threads::Pool;

use super::*;
use crate::graph::{Block, Module};
use crate::infer;
use crate::interpret;
use crate::ops::Op;
use crate::tensor::Tensor;
use crate::text::{Text, parse, print};
use crate::types::{DType, Type};
use crate::verify::verify;

/// A tensor by name: its extents and elements, of i32 where the name begins with `i`, else of f32.
type Named = (&'static str, &'static [usize], &'static [i64]);

struct Program {
    /// The operation it is for.
    op: &'static str,
    text: &'static str,
    inputs: &'static [Named],
    states: &'static [Named],
    outputs: &'static [Named],
    after: &'static [Named],
}

const PROGRAMS: &[Program] = &[
    Program {
        op: "invoke",
        text: r#"module {
  graph @"main"(%0 "x": tensor<3xf32>) -> ("y": tensor<3xf32>) {
    %1 = invoke(%0) {graph = @"twice"} : tensor<3xf32>
    %2 = invoke(%1) {graph = @"twice"} : tensor<3xf32>
    return %2
  }
  graph private @"twice"(%0 "a": tensor<3xf32>) -> ("b": tensor<3xf32>) {
    %1 = add(%0, %0) : tensor<3xf32>
    return %1
  }
}
"#,
        inputs: &[("x", &[3], &[1, -2, 5])],
        states: &[],
        outputs: &[("y", &[3], &[4, -8, 20])],
        after: &[],
    },
    Program {
        op: "if",
        text: BRANCHES,
        inputs: &[("i", &[], &[7]), ("x", &[2], &[3, -4])],
        states: &[],
        outputs: &[("y", &[2], &[6, -8]), ("z", &[2], &[3, -4])],
        after: &[],
    },
    Program {
        op: "if",
        text: BRANCHES,
        inputs: &[("i", &[], &[0]), ("x", &[2], &[3, -4])],
        states: &[],
        outputs: &[("y", &[2], &[9, 16]), ("z", &[2], &[3, 4])],
        after: &[],
    },
    Program {
        op: "while",
        text: LOOP,
        inputs: &[("i", &[], &[4]), ("x", &[2], &[1, -3])],
        states: &[],
        outputs: &[("i_last", &[], &[4]), ("y", &[2], &[5, -15])],
        after: &[],
    },
    Program {
        op: "while",
        text: LOOP,
        inputs: &[("i", &[], &[0]), ("x", &[2], &[1, -3])],
        states: &[],
        outputs: &[("i_last", &[], &[0]), ("y", &[2], &[1, -3])],
        after: &[],
    },
    Program {
        op: "reduce",
        text: r#"module {
  graph @"main"(%0 "i": tensor<2x3xi32>) -> ("i_all": tensor<1x1xi32>, "i_rows": tensor<2x1xi32>) {
    %1 = constant hex(0000000001000000) : tensor<2xi32>
    %2 = constant hex(ffffffff) : tensor<1xi32>
    %3 = constant hex(01000000) : tensor<i32>
    %4 = reduce(%0, %1, %3) : tensor<1x1xi32> block(%5: tensor<i32>, %6: tensor<i32>) {
      %7 = mul(%5, %6) : tensor<i32>
      return %7
    }
    %8 = reduce(%0, %2, %3) : tensor<2x1xi32> block(%9: tensor<i32>, %10: tensor<i32>) {
      %11 = add(%10, %10) : tensor<i32>
      %12 = sub(%9, %11) : tensor<i32>
      return %12
    }
    return %4, %8
  }
}
"#,
        inputs: &[("i", &[2, 3], &[1, 2, 3, 4, -5, 6])],
        states: &[],
        outputs: &[("i_all", &[1, 1], &[-720]), ("i_rows", &[2, 1], &[-11, -9])],
        after: &[],
    },
    Program {
        op: "reduce_index",
        text: r#"module {
  graph @"main"(%0 "i": tensor<2x3xi32>) -> ("i_first": tensor<2x1xi32>) {
    %1 = constant hex(ffffffff) : tensor<i32>
    %2 = constant hex(00000080) : tensor<i32>
    %3 = constant hex(00000000) : tensor<i32>
    %4 = reduce_index(%0, %1, %2, %3) : tensor<2x1xi32> block(%5: tensor<i32>, %6: tensor<i32>) {
      %7 = greater(%6, %5) : tensor<bool>
      return %7
    }
    return %4
  }
}
"#,
        inputs: &[("i", &[2, 3], &[2, 9, 9, 4, -5, 7])],
        states: &[],
        outputs: &[("i_first", &[2, 1], &[1, 2])],
        after: &[],
    },
    Program {
        op: "create_token",
        text: STATES,
        inputs: &[("x", &[2], &[10, 20])],
        states: &[("s", &[2], &[1, 2]), ("r", &[2], &[-3, 5])],
        outputs: &[("old", &[2], &[1, 2]), ("new", &[2], &[11, 22])],
        after: &[("s", &[2], &[11, 22]), ("r", &[2], &[1, 2])],
    },
    Program {
        op: "join_token",
        text: STATES,
        inputs: &[("x", &[2], &[0, -1])],
        states: &[("s", &[2], &[4, 4]), ("r", &[2], &[0, 0])],
        outputs: &[("old", &[2], &[4, 4]), ("new", &[2], &[4, 3])],
        after: &[("s", &[2], &[4, 3]), ("r", &[2], &[4, 4])],
    },
    Program {
        op: "read_handle",
        text: r#"module {
  graph @"main"(%0 "x": tensor<2xf32>, %1 "s": handle<tensor<2xf32>>) -> ("t": token, "y": tensor<2xf32>) {
    %2 = create_token() : token
    %3, %4 = read_handle(%1, %2) : tensor<2xf32>, token
    %5 = mul(%3, %0) : tensor<2xf32>
    return %4, %5
  }
}
"#,
        inputs: &[("x", &[2], &[2, -1])],
        states: &[("s", &[2], &[5, 7])],
        outputs: &[("y", &[2], &[10, -7])],
        after: &[("s", &[2], &[5, 7])],
    },
    Program {
        op: "write_handle",
        text: r#"module {
  graph @"main"(%0 "x": tensor<2xf32>, %1 "s": handle<tensor<2xf32>>) -> ("t": token) {
    %2 = create_token() : token
    %3 = add(%0, %0) : tensor<2xf32>
    %4 = write_handle(%1, %0, %2) : token
    %5 = write_handle(%1, %3, %4) : token
    return %5
  }
}
"#,
        inputs: &[("x", &[2], &[2, -1])],
        states: &[("s", &[2], &[5, 7])],
        outputs: &[],
        after: &[("s", &[2], &[4, -2])],
    },
];

/// Where `i` is not 0 twice `x` and `x`; else its square and its magnitude. The condition is computed, the blocks capture.
const BRANCHES: &str = r#"module {
  graph @"main"(%0 "i": tensor<i32>, %1 "x": tensor<2xf32>) -> ("y": tensor<2xf32>, "z": tensor<2xf32>) {
    %2 = constant hex(00000000) : tensor<i32>
    %3 = not_equal(%0, %2) : tensor<bool>
    %4, %5 = if(%3) : tensor<2xf32>, tensor<2xf32> block() {
      %6 = add(%1, %1) : tensor<2xf32>
      return %6, %1
    } block() {
      %7 = mul(%1, %1) : tensor<2xf32>
      %8 = abs(%1) : tensor<2xf32>
      return %7, %8
    }
    return %4, %5
  }
}
"#;

/// Adds `x` to itself `i` times.
const LOOP: &str = r#"module {
  graph @"main"(%0 "i": tensor<i32>, %1 "x": tensor<2xf32>) -> ("i_last": tensor<i32>, "y": tensor<2xf32>) {
    %2 = constant hex(00000000) : tensor<i32>
    %3 = constant hex(01000000) : tensor<i32>
    %4, %5 = while(%2, %1) : tensor<i32>, tensor<2xf32> block(%6: tensor<i32>, %7: tensor<2xf32>) {
      %8 = greater(%0, %6) : tensor<bool>
      return %8, %6, %7
    } block(%9: tensor<i32>, %10: tensor<2xf32>) {
      %11 = add(%9, %3) : tensor<i32>
      %12 = add(%10, %1) : tensor<2xf32>
      return %11, %12
    }
    return %4, %5
  }
}
"#;

/// `s` grows by `x`; `r` becomes what `s` was, which two reads see before the write.
const STATES: &str = r#"module {
  graph @"main"(%0 "x": tensor<2xf32>, %1 "s": handle<tensor<2xf32>>, %2 "r": handle<tensor<2xf32>>) -> ("t": token, "u": token, "old": tensor<2xf32>, "new": tensor<2xf32>) {
    %3 = create_token() : token
    %4 = create_token() : token
    %5, %6 = read_handle(%1, %3) : tensor<2xf32>, token
    %7, %8 = read_handle(%1, %3) : tensor<2xf32>, token
    %9 = join_token(%6, %8) : token
    %10 = add(%7, %0) : tensor<2xf32>
    %11 = write_handle(%1, %10, %9) : token
    %12 = write_handle(%2, %5, %4) : token
    %13, %14 = read_handle(%1, %11) : tensor<2xf32>, token
    return %14, %12, %5, %13
  }
}
"#;

/// The only operation that never runs.
const REFUSED: (&str, &str) = (
    "opaque_kernel",
    r#"module {
  graph @"main"(%0 "x": tensor<2xf32>) -> ("y": tensor<2xf32>) {
    %1 = opaque_kernel(%0) {kind = "metal.metal4_kernel_v1", name = "swirl", to = [type(tensor<2xf32>)]} : tensor<2xf32>
    return %1
  }
}
"#,
);

fn module(text: &str) -> Module {
    let text = Text {
        text: text.into(),
        blobs: Vec::new(),
    };
    parse(&text).unwrap_or_else(|e| panic!("{e}\n{}", text.text))
}

fn tensor(&(name, shape, values): &Named) -> Tensor {
    if name.starts_with('i') {
        return Tensor::from_ints(DType::I32, shape, values).unwrap();
    }
    let values: Vec<f64> = values.iter().map(|&v| v as f64).collect();
    Tensor::from_floats(DType::F32, shape, &values).unwrap()
}

fn tensors(list: &[Named]) -> Vec<(String, Tensor)> {
    list.iter().map(|n| (n.0.to_owned(), tensor(n))).collect()
}

fn names(block: &Block, out: &mut Vec<&'static str>) {
    for node in &block.nodes {
        out.push(node.op.name());
        node.blocks.iter().for_each(|b| names(b, out));
    }
}

/// The plan's outputs and states.
fn planned(module: &Module, program: &Program, precision: Precision) -> Vec<(String, Tensor)> {
    let options = PlanOptions {
        precision,
        ..PlanOptions::default()
    };
    let plan = Arc::new(Plan::build(module, "main", &options).unwrap());
    let mut states = States::new(&plan, |_, _| 0).unwrap();
    for (i, port) in plan.states().iter().enumerate() {
        let given = tensors(program.states);
        let (_, t) = given.iter().find(|(n, _)| **n == *port.name).unwrap();
        states.bytes_mut(i)[..t.bytes().len()].copy_from_slice(t.bytes());
    }
    let mut executor = Executor::new(plan.clone(), Arc::new(Pool::new(2)));
    let given = tensors(program.inputs);
    let inputs: Vec<Input<'_>> = given.iter().map(|(n, t)| Input::tensor(n, t)).collect();
    executor.run(&inputs, &mut states).unwrap();
    let bytes = |dtype, shape: &[usize], bytes: &[u8]| {
        let len = dtype_len(dtype, shape);
        let data = SharedBytes::from_vec(bytes[..len].to_vec());
        Tensor::new(dtype, shape.to_vec(), data).unwrap()
    };
    let mut found: Vec<_> = plan
        .outputs()
        .map(|name| {
            let view = executor.output(name).unwrap();
            let data = view.contiguous().unwrap();
            (name.to_owned(), bytes(view.dtype(), view.shape(), data))
        })
        .collect();
    for (i, port) in plan.states().iter().enumerate() {
        let (dtype, shape) = states.ty(i);
        let state = bytes(dtype, shape, states.bytes(i));
        found.push((format!("after {}", port.name), state));
    }
    found
}

fn dtype_len(dtype: DType, shape: &[usize]) -> usize {
    dtype.packed_len(shape.iter().product()).unwrap()
}

#[test]
fn programs_run_as_worked_out() {
    for program in PROGRAMS {
        let module = module(program.text);
        verify(&module).unwrap_or_else(|e| panic!("{}: {e}", program.op));
        assert_eq!(parse(&print(&module)).unwrap(), module, "{}", program.op);
        let graph = &module.graphs[0];
        let mut used = Vec::new();
        names(&graph.body, &mut used);
        assert!(used.contains(&program.op), "{}", program.op);
        let mut want = tensors(program.outputs);
        let after = tensors(program.after).into_iter();
        want.extend(after.map(|(n, t)| (format!("after {n}"), t)));
        let mut states: interpret::States = tensors(program.states).into_iter().collect();
        let inputs: HashMap<String, Tensor> = tensors(program.inputs).into_iter().collect();
        let mut slow = interpret::run(&module, graph, &inputs, &mut states).unwrap();
        for (name, _, _) in program.after {
            slow.push((format!("after {name}"), states[*name].clone()));
        }
        assert_eq!(slow, want, "{}, interpreted", program.op);
        for precision in [Precision::Exact, Precision::Fast] {
            let fast = planned(&module, program, precision);
            assert_eq!(fast, want, "{}, planned {precision:?}", program.op);
        }
        // Inference gives the types of the results.
        let facts = infer::infer(&module, graph).unwrap();
        for (port, &id) in graph.outputs.iter().zip(&graph.body.results) {
            let found = want.iter().find(|(n, _)| **n == *port.name);
            match found {
                Some((_, t)) => assert_eq!(facts.tensor(id), Some(&t.ty()), "{}", program.op),
                None => assert_eq!(facts.ty(id), Some(&Type::Token), "{}", program.op),
            }
        }
    }
}

#[test]
fn a_kernel_for_other_hardware_is_refused_by_its_name() {
    let module = module(REFUSED.1);
    verify(&module).unwrap();
    let plan = Plan::build(&module, "main", &PlanOptions::default());
    let error = plan.unwrap_err().to_string();
    assert!(
        error.contains("swirl") && error.contains("metal4"),
        "{error}"
    );
}

#[test]
fn no_operation_is_left_out() {
    let has = |name: &str| PROGRAMS.iter().any(|p| p.op == name) || REFUSED.0 == name;
    for row in Op::TABLE {
        let examples = !(row.cases)().is_empty();
        assert!(examples || has(row.name), "{} has no example", row.name);
        assert!(!(examples && has(row.name)), "{} has two homes", row.name);
    }
}
