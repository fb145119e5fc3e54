//! Plans against the interpreter: every case of every operation, and states across calls.

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::threads::Pool;

use super::*;
use crate::graph::{Graph, Module};
use crate::interpret;
use crate::ops::{Case, Op};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Type};

fn module_of(case: &Case<Op>) -> Option<Module> {
    let mut g = Graph::new("main");
    let names: Vec<String> = (0..case.inputs.len()).map(|i| format!("x{i}")).collect();
    let inputs: Vec<_> = case
        .inputs
        .iter()
        .zip(&names)
        .map(|(t, n)| g.add_input(n, t.ty()))
        .collect();
    let results = case.op.reference(&case.inputs).ok()?;
    let outputs = g.push(
        case.op.clone(),
        &inputs,
        results.iter().map(|t| Type::Tensor(t.ty())),
    );
    outputs
        .iter()
        .enumerate()
        .for_each(|(i, &id)| g.add_output(&format!("y{i}"), id));
    Some(Module {
        graphs: vec![g],
        attributes: Vec::new(),
    })
}

/// The elements of a view as scalars.
fn elements(view: &View<'_>) -> Vec<Scalar> {
    let mut out = Vec::new();
    for i in 0..view.len() {
        let size = view.dtype.size().unwrap_or(1);
        let at = view.geometry.element_offset(i) * size;
        let bytes = view.data[at..at + size].to_vec();
        let one = Tensor::new(
            view.dtype,
            vec![1],
            russet_kernels::mem::SharedBytes::from_vec(bytes),
        )
        .unwrap();
        out.push(one.get(0));
    }
    out
}

/// Equal, both NaN, or floats within a few units in the last place of the kind (of 0.15, where terms have cancelled).
fn close(a: Scalar, b: Scalar, dtype: DType) -> bool {
    let (x, y) = (a.float(), b.float());
    let tolerance = match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 4e-6,
    };
    let same = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan());
    if let (Scalar::Complex(a, b), Scalar::Complex(c, d)) = (a, b) {
        return same(a, c) && same(b, d);
    }
    a == b
        || (x.is_nan() && y.is_nan())
        || (dtype.is_float() && (x - y).abs() <= tolerance * (x.abs().max(y.abs()) + 0.15))
}

#[test]
fn every_case_runs_planned_as_by_reference() {
    for precision in [Precision::Exact, Precision::Fast] {
        run_every_case(&PlanOptions {
            precision,
            ..PlanOptions::default()
        });
    }
}

fn run_every_case(options: &PlanOptions) {
    let pool = Arc::new(Pool::new(2));
    let (mut planned, mut dynamic) = (0, 0);
    for row in Op::TABLE {
        for case in (row.cases)() {
            let Some(module) = module_of(&case) else {
                continue;
            };
            let expected = case.op.reference(&case.inputs).unwrap();
            let packed = |t: &Tensor| t.dtype.size().is_none();
            if case.inputs.iter().chain(&expected).any(packed) {
                continue;
            }
            // Shapes that depend on values of inputs are not planned: the interpreter runs those.
            let Ok(plan) = Plan::build(&module, "main", options) else {
                dynamic += 1;
                continue;
            };
            let names: Vec<String> = (0..case.inputs.len()).map(|i| format!("x{i}")).collect();
            let inputs: Vec<Input<'_>> = case
                .inputs
                .iter()
                .zip(&names)
                .map(|(t, n)| Input::tensor(n, t))
                .collect();
            let mut executor = Executor::new(Arc::new(plan), pool.clone());
            executor
                .run(&inputs, &mut States::default())
                .unwrap_or_else(|e| panic!("{}: {e}", row.name));
            for (i, want) in expected.iter().enumerate() {
                let got = executor.output(&format!("y{i}")).unwrap();
                assert_eq!(got.shape(), &want.shape[..], "{}", row.name);
                for (g, w) in elements(&got).into_iter().zip(want.scalars()) {
                    assert!(
                        close(g, w, want.dtype),
                        "{}: {g:?} is not {w:?} in {:?}",
                        row.name,
                        case
                    );
                }
            }
            planned += 1;
        }
    }
    assert!(planned > dynamic, "{planned} planned, {dynamic} not");
}

/// A cache `[2, 8, 4]` that takes `x [q, 4]` at `total - q` of layer 1 and gives back all rows so far.
const CACHE: &str = r#"module {
  graph @"main"(%0 "x": tensor<?x4xf32>, %1 "positions": tensor<?xi32>, %2 "cache": handle<tensor<2x8x4xf32>>) -> ("t": token, "old": tensor<2x8x4xf32>, "rows": tensor<?x4xf32>) {
    %3 = create_token() : token
    %4, %5 = read_handle(%2, %3) : tensor<2x8x4xf32>, token
    %6 = get_shape(%0) : tensor<2xu32>
    %7 = get_shape(%1) : tensor<1xu32>
    %8 = constant hex(00000000) : tensor<1xi32>
    %9 = constant hex(01000000) : tensor<1xi32>
    %10 = slice(%6, %8, %9, %9) : tensor<1xu32>
    %11 = cast(%10) {to = type(tensor<i32>)} : tensor<1xi32>
    %12 = cast(%7) {to = type(tensor<i32>)} : tensor<1xi32>
    %13 = broadcasting_sub(%12, %11) : tensor<1xi32>
    %14 = constant hex(00000000) : tensor<i32>
    %15 = constant hex(ffffff7f) : tensor<1xi32>
    %16 = concat(%14, %9, %13, %8) : tensor<3xi32>
    %17 = constant hex(02000000) : tensor<1xi32>
    %18 = concat(%14, %17, %12, %15) : tensor<3xi32>
    %19 = constant hex(010000000100000001000000) : tensor<3xi32>
    %20 = expand_dims(%0, %8) : tensor<1x?x4xf32>
    %21 = slice_update(%4, %16, %18, %19, %20) : tensor<2x8x4xf32>
    %22 = write_handle(%2, %21, %5) : token
    %23, %24 = read_handle(%2, %22) : tensor<2x8x4xf32>, token
    %25 = concat(%14, %9, %8, %8) : tensor<3xi32>
    %26 = slice(%23, %25, %18, %19) : tensor<1x?x4xf32>
    %27 = shrink_dims(%26, %8) : tensor<?x4xf32>
    return %24, %4, %27
  }
}
"#;

#[test]
fn states_are_updated_in_place_and_old_values_are_kept() {
    let text = crate::text::Text {
        text: CACHE.into(),
        blobs: Vec::new(),
    };
    let module = crate::text::parse(&text).unwrap();
    crate::verify::verify(&module).unwrap();
    let plan = Arc::new(Plan::build(&module, "main", &PlanOptions::default()).unwrap());
    assert!(
        plan.steps().count() <= 4,
        "{:?}",
        plan.steps().collect::<Vec<_>>()
    );
    let mut executor = Executor::new(plan.clone(), Arc::new(Pool::new(1)));
    let mut states = States::new(&plan, |_, _| 0).unwrap();
    let mut slow: interpret::States = [(
        "cache".into(),
        Tensor::from_floats(DType::F32, &[2, 8, 4], &[0.0; 64]).unwrap(),
    )]
    .into();
    let mut total = 0;
    for q in [3usize, 1, 2] {
        total += q;
        let values: Vec<f64> = (0..q * 4).map(|i| (total * 100 + i) as f64).collect();
        let x = Tensor::from_floats(DType::F32, &[q, 4], &values).unwrap();
        let p = Tensor::from_ints(DType::I32, &[total], &vec![0; total]).unwrap();
        executor
            .run(
                &[Input::tensor("x", &x), Input::tensor("positions", &p)],
                &mut states,
            )
            .unwrap();
        let inputs: HashMap<String, Tensor> =
            [("x".to_owned(), x), ("positions".to_owned(), p)].into();
        let expected = interpret::run(&module, &module.graphs[0], &inputs, &mut slow).unwrap();
        for (name, want) in &expected {
            let got = executor.output(name).unwrap();
            assert_eq!(
                elements(&got),
                want.scalars().collect::<Vec<_>>(),
                "{name} after {total}"
            );
        }
        assert_eq!(states.bytes(0), &slow["cache"].bytes()[..]);
    }
    let x = Tensor::from_floats(DType::F32, &[3, 4], &[0.0; 12]).unwrap();
    let p = Tensor::from_ints(DType::I32, &[9], &[0; 9]).unwrap();
    let error = executor.run(
        &[Input::tensor("x", &x), Input::tensor("positions", &p)],
        &mut states,
    );
    assert!(error.is_err(), "nine rows do not fit into eight");
}

#[test]
fn wrong_inputs_are_named() {
    let text = crate::text::Text {
        text: CACHE.into(),
        blobs: Vec::new(),
    };
    let module = crate::text::parse(&text).unwrap();
    let plan = Arc::new(Plan::build(&module, "main", &PlanOptions::default()).unwrap());
    let mut states = States::new(&plan, |_, _| 0).unwrap();
    let mut executor = Executor::new(plan, Arc::new(Pool::new(1)));
    let x = Tensor::from_floats(DType::F16, &[1, 4], &[0.0; 4]).unwrap();
    let error = executor
        .run(&[Input::tensor("x", &x)], &mut states)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("\"x\"") && error.contains("f16") && error.contains("f32"),
        "{error}"
    );
    let error = executor.run(&[], &mut states).unwrap_err().to_string();
    assert!(error.contains("input \"x\" is missing"), "{error}");
}
