//! Fast plans of small programs: the steps that are left, and what they compute beside the interpreter.

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::threads::Pool;

use crate::exec::{Executor, Input, Plan, PlanOptions, Precision, States};
use crate::interpret;
use crate::tensor::Tensor;
use crate::text::{Text, parse};
use crate::types::DType;

struct Program {
    /// Operations on `x`, f32 `[2, 3, 8]`, of which `%9` is the result.
    body: &'static str,
    shape: &'static [usize],
    steps: &'static [&'static str],
}

/// `%1` holds 8 numbers, `%2` one, `%3` the axis -1, `%4` the axis -2.
const PROGRAMS: &[Program] = &[
    // The softened step of a gate: its operand is read three times, so that stays a result of its own.
    Program {
        body: "
    %5 = broadcasting_add(%0, %1) : tensor<2x3x8xf32>
    %6 = exp(%5) : tensor<2x3x8xf32>
    %7 = broadcasting_add(%6, %2) : tensor<2x3x8xf32>
    %8 = log(%7) : tensor<2x3x8xf32>
    %10 = broadcasting_greater(%5, %2) : tensor<2x3x8xbool>
    %9 = broadcasting_where(%10, %5, %8) : tensor<2x3x8xf32>",
        shape: &[2, 3, 8],
        steps: &["broadcasting_add", "elementwise"],
    },
    Program {
        body: "
    %5 = broadcasting_divide(%0, %2) : tensor<2x3x8xf32>
    %6 = tanh(%5) : tensor<2x3x8xf32>
    %9 = broadcasting_mul(%6, %2) : tensor<2x3x8xf32>",
        shape: &[2, 3, 8],
        steps: &["soft_cap"],
    },
    Program {
        body: "
    %5 = gelu(%0) {approximate = \"tanh\"} : tensor<2x3x8xf32>
    %6 = broadcasting_mul(%0, %1) : tensor<2x3x8xf32>
    %9 = broadcasting_mul(%5, %6) : tensor<2x3x8xf32>",
        shape: &[2, 3, 8],
        steps: &["elementwise"],
    },
    // What is read twice is computed once; a result of another shape is not what it was made from.
    Program {
        body: "
    %5 = silu(%0) : tensor<2x3x8xf32>
    %6 = reduce_max(%5, %3) : tensor<2x3x1xf32>
    %9 = broadcasting_sub(%5, %6) : tensor<2x3x8xf32>",
        shape: &[2, 3, 8],
        steps: &["silu", "reduce_max", "broadcasting_sub"],
    },
    Program {
        body: "
    %5 = reduce_sum(%0, %3) : tensor<2x3x1xf32>
    %6 = broadcasting_mul(%0, %5) : tensor<2x3x8xf32>
    %7 = reduce_sum(%6, %4) : tensor<2x1x8xf32>
    %9 = broadcasting_add(%7, %7) : tensor<2x1x8xf32>",
        shape: &[2, 1, 8],
        steps: &["reduce_sum", "weighted_sum", "broadcasting_add"],
    },
];

fn module(program: &Program) -> String {
    let shape: Vec<String> = program.shape.iter().map(ToString::to_string).collect();
    let ty = format!("tensor<{}xf32>", shape.join("x"));
    format!(
        r#"module {{
  graph @"main"(%0 "x": tensor<2x3x8xf32>, %1 "row": tensor<8xf32>, %2 "one": tensor<1xf32>) -> ("y": {ty}) {{
    %3 = constant hex(ffffffff) : tensor<1xi32>
    %4 = constant hex(feffffff) : tensor<1xi32>{}
    return %9
  }}
}}
"#,
        program.body
    )
}

#[test]
fn programs_become_few_steps_that_compute_the_same() {
    for program in PROGRAMS {
        let text = Text {
            text: module(program),
            blobs: Vec::new(),
        };
        let module = parse(&text).expect(program.body);
        let options = PlanOptions {
            precision: Precision::Fast,
            ..PlanOptions::default()
        };
        let plan = Plan::build(&module, "main", &options).expect(program.body);
        let steps: Vec<&str> = plan.steps().map(|s| s.name).collect();
        assert_eq!(steps, program.steps, "{}", program.body);
        let floats = |n: usize| {
            (0..n)
                .map(|i| (i * 7 % 23) as f64 / 8.0 - 1.25)
                .collect::<Vec<_>>()
        };
        let tensor = |shape: &[usize]| {
            Tensor::from_floats(DType::F32, shape, &floats(shape.iter().product())).unwrap()
        };
        let inputs = [
            ("x".to_owned(), tensor(&[2, 3, 8])),
            ("row".to_owned(), tensor(&[8])),
            ("one".to_owned(), tensor(&[1])),
        ];
        let mut executor = Executor::new(Arc::new(plan), Arc::new(Pool::new(2)));
        let given: Vec<_> = inputs.iter().map(|(n, t)| Input::tensor(n, t)).collect();
        executor.run(&given, &mut States::default()).unwrap();
        let got = executor.output("y").unwrap();
        let inputs: HashMap<String, Tensor> = inputs.into();
        let mut states = interpret::States::new();
        let want = interpret::run(&module, &module.graphs[0], &inputs, &mut states).unwrap();
        let width = program.shape[program.shape.len() - 1];
        let mut row = vec![0.0; width];
        for (i, want) in want[0].1.floats().chunks(width).enumerate() {
            got.read_row(i, &mut row);
            for (got, want) in row.iter().zip(want) {
                let near = (f64::from(*got) - want).abs() <= 1e-5 * (1.0 + want.abs());
                assert!(
                    near || want.is_nan() && got.is_nan(),
                    "{}: {got} {want}",
                    program.body
                );
            }
        }
    }
}
