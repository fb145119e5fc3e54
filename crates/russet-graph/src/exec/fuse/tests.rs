//! Fast plans of small programs: the steps that are left, and what they compute beside the interpreter.

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::mem::SharedBytes;
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

/// Three experts of width 4, all of which run, between rows of 8.
const EXPERTS: &str = r#"module {
  graph @"main"(%0 "x": tensor<1x2x8xf32>, %1 "route": tensor<1x2x3xf32>) -> ("y": tensor<1x2x8xf32>) {
    %2 = constant blob(0) : tensor<12x8xf32>
    %3 = constant blob(1) : tensor<12x8xf32>
    %4 = constant blob(2) : tensor<8x12xf32>
    %5 = constant hex(0100000000000000) : tensor<2xi32>
    %6 = constant hex(ffffffff) : tensor<1xi32>
    %7 = constant hex(01000000020000000300000004000000) : tensor<4xi32>
    %8 = constant hex(01000000020000000c000000) : tensor<3xi32>
    %9 = relu(%1) : tensor<1x2x3xf32>
    %10 = expand_dims(%9, %6) : tensor<1x2x3x1xf32>
    %11 = transpose(%2, %5) : tensor<8x12xf32>
    %12 = broadcasting_batch_matmul(%0, %11) : tensor<1x2x12xf32>
    %13 = silu(%12) : tensor<1x2x12xf32>
    %14 = transpose(%3, %5) : tensor<8x12xf32>
    %15 = broadcasting_batch_matmul(%0, %14) : tensor<1x2x12xf32>
    %16 = broadcasting_mul(%13, %15) : tensor<1x2x12xf32>
    %17 = reshape(%16, %7) : tensor<1x2x3x4xf32>
    %18 = broadcasting_mul(%17, %10) : tensor<1x2x3x4xf32>
    %19 = reshape(%18, %8) : tensor<1x2x12xf32>
    %20 = transpose(%4, %5) : tensor<12x8xf32>
    %21 = broadcasting_batch_matmul(%19, %20) : tensor<1x2x8xf32>
    return %21
  }
}
"#;

#[test]
fn experts_without_weight_are_left_out() {
    let numbers = |n: usize, step: usize| -> Vec<f64> {
        (0..n)
            .map(|i| (i * step % 23) as f64 / 16.0 - 0.625)
            .collect()
    };
    let blob = |step| {
        let values = numbers(96, step).into_iter().map(|v| v as f32);
        SharedBytes::from_vec(values.flat_map(f32::to_le_bytes).collect())
    };
    let build = |text: &str| {
        let text = Text {
            text: text.into(),
            blobs: [7, 5, 3].map(blob).to_vec(),
        };
        let module = parse(&text).unwrap();
        let options = PlanOptions {
            precision: Precision::Fast,
            ..PlanOptions::default()
        };
        let plan = Plan::build(&module, "main", &options).unwrap();
        (module, Arc::new(plan))
    };
    let (module, plan) = build(EXPERTS);
    let chosen = |plan: &Plan| plan.steps().filter(|s| s.name == "chosen_experts").count();
    assert_eq!(chosen(&plan), 3);
    let tensor =
        |shape: &[usize], values: &[f64]| Tensor::from_floats(DType::F32, shape, values).unwrap();
    for route in [[0.5, -1.0, 0.25, 0.0, 0.0, 1.0], [0.0; 6], [1.0; 6]] {
        let inputs = [
            ("x".to_owned(), tensor(&[1, 2, 8], &numbers(16, 11))),
            ("route".to_owned(), tensor(&[1, 2, 3], &route)),
        ];
        let mut executor = Executor::new(plan.clone(), Arc::new(Pool::new(2)));
        let given: Vec<_> = inputs.iter().map(|(n, t)| Input::tensor(n, t)).collect();
        executor.run(&given, &mut States::default()).unwrap();
        let mut states = interpret::States::new();
        let inputs: HashMap<String, Tensor> = inputs.into();
        let want = interpret::run(&module, &module.graphs[0], &inputs, &mut states).unwrap();
        let (got, mut row) = (executor.output("y").unwrap(), [0.0; 8]);
        for (i, want) in want[0].1.floats().chunks(8).enumerate() {
            got.read_row(i, &mut row);
            let far = row.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).abs());
            assert!(far.fold(0.0, f64::max) < 1e-5, "{route:?}");
        }
    }
    // A function that is not zero's, or no number there, keeps every expert.
    let (_, plan) = build(&EXPERTS.replace("silu(%12)", "log(%12)"));
    assert_eq!(chosen(&plan), 0);
}
