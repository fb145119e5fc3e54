//! Plans against the interpreter: every case of every operation, and states across calls.

mod weights;

use std::collections::HashMap;
use std::sync::Arc;

use russet_kernels::threads::Pool;

use super::*;
use crate::error::OpError;
use crate::graph::{ConstantData, Graph, Module, Storage, ValueId};
use crate::interpret;
use crate::ops::blockwise_shift_scale::BlockwiseShiftScale;
use crate::ops::constant::Constant;
use crate::ops::gather_mm::GatherMm;
use crate::ops::shrink_dims::ShrinkDims;
use crate::ops::transpose::Transpose;
use crate::ops::{Case, Op};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, TensorType, Type};

/// Which operands of a case are constants of the program; the others are inputs.
type Fixed = fn(&Tensor) -> bool;

/// First all are inputs; then axes, bounds and shapes are constants, which many operations ask for; then everything.
const FORMS: [Fixed; 3] = [
    |_| false,
    |t| t.shape.len() <= 1 && !t.dtype.is_float(),
    |_| true,
];

fn module_of(case: &Case<Op>, fixed: Fixed) -> Option<Module> {
    let mut g = Graph::new("main");
    let mut inputs = Vec::new();
    for (i, t) in case.inputs.iter().enumerate() {
        if !fixed(t) {
            inputs.push(g.add_input(&format!("x{i}"), t.ty()));
            continue;
        }
        let data = Arc::new(ConstantData {
            ty: t.ty(),
            storage: Storage::Dense(t.bytes().clone()),
        });
        inputs.extend(g.push(Constant(data), &[], [Type::Tensor(t.ty())]));
    }
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
    let mut planned: Vec<&str> = Vec::new();
    for row in Op::TABLE {
        for case in (row.cases)() {
            let ran = FORMS
                .iter()
                .filter(|f| run_case(&case, **f, options, &pool));
            if ran.count() > 0 {
                planned.push(row.name);
            }
        }
    }
    let with_cases = Op::TABLE.iter().filter(|row| !(row.cases)().is_empty());
    let left_out: Vec<&str> = with_cases
        .map(|row| row.name)
        .filter(|name| !planned.contains(name))
        .collect();
    assert_eq!(left_out, [""; 0]);
}

/// Runs a case planned and compares it with the reference, where it can be planned. Inputs and results below a byte have no
/// views, and are left to the interpreter.
fn run_case(case: &Case<Op>, fixed: Fixed, options: &PlanOptions, pool: &Arc<Pool>) -> bool {
    let name = case.op.name();
    let expected = case.op.reference(&case.inputs).unwrap();
    let given = case.inputs.iter().filter(|t| !fixed(t));
    if given.chain(&expected).any(|t| t.dtype.size().is_none()) {
        return false;
    }
    let plan = module_of(case, fixed).map(|m| Plan::build(&m, "main", options));
    let Some(Ok(plan)) = plan else {
        return false;
    };
    let names: Vec<String> = (0..case.inputs.len()).map(|i| format!("x{i}")).collect();
    let inputs: Vec<Input<'_>> = case
        .inputs
        .iter()
        .zip(&names)
        .filter(|(t, _)| !fixed(t))
        .map(|(t, n)| Input::tensor(n, t))
        .collect();
    let mut executor = Executor::new(Arc::new(plan), pool.clone());
    executor
        .run(&inputs, &mut States::default())
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    for (i, want) in expected.iter().enumerate() {
        let got = executor.output(&format!("y{i}")).unwrap();
        assert_eq!(got.shape(), &want.shape[..], "{name}");
        for (g, w) in elements(&got).into_iter().zip(want.scalars()) {
            let same = close(g, w, want.dtype);
            assert!(same, "{name}: {g:?} is not {w:?} in {case:?}");
        }
    }
    true
}

fn fixed(dtype: DType, shape: &[usize]) -> Type {
    Type::Tensor(TensorType::fixed(dtype, shape))
}

fn constant(g: &mut Graph, tensor: Result<Tensor, OpError>) -> ValueId {
    let tensor = tensor.unwrap();
    let data = Arc::new(ConstantData {
        ty: tensor.ty(),
        storage: Storage::Dense(tensor.bytes().clone()),
    });
    g.push(Constant(data), &[], [Type::Tensor(tensor.ty())])[0]
}

/// Weights `[3, 64, 5]` from `[1, 3, 5, 64]` codes of four bits, a scale for every 32.
fn compressed(g: &mut Graph) -> ValueId {
    let codes: Vec<i64> = (0..3 * 5 * 64).map(|i| i * 7 % 16 - 8).collect();
    let scales: Vec<f64> = (0..3 * 5 * 2).map(|i| 0.125 + i as f64 / 64.0).collect();
    let (shape, blocks) = ([1, 3, 5, 64], [1, 3, 5, 2]);
    let parts = [
        constant(g, Tensor::from_ints(DType::I4, &shape, &codes)),
        constant(g, Tensor::from_floats(DType::F16, &blocks, &scales)),
        constant(g, Tensor::from_ints(DType::I4, &blocks, &[0; 30])),
        constant(g, Tensor::from_floats(DType::F16, &blocks, &[0.0; 30])),
    ];
    let axes = constant(g, Tensor::from_ints(DType::I32, &[1], &[0]));
    let order = constant(g, Tensor::from_ints(DType::I32, &[3], &[0, 2, 1]));
    let w = g.push(BlockwiseShiftScale, &parts, [fixed(DType::F16, &shape)])[0];
    let w = g.push(ShrinkDims, &[w, axes], [fixed(DType::F16, &[3, 5, 64])])[0];
    g.push(Transpose, &[w, order], [fixed(DType::F16, &[3, 64, 5])])[0]
}

/// Products with the experts that `ids` name.
fn experts(tokens: usize) -> Module {
    let mut g = Graph::new("main");
    let x = g.add_input("x", fixed(DType::F16, &[tokens, 1, 1, 64]));
    let ids = g.add_input("ids", fixed(DType::I32, &[tokens, 2]));
    let weights = compressed(&mut g);
    let op = GatherMm {
        right: true,
        ..GatherMm::default()
    };
    let out = g.push(
        op,
        &[x, weights, ids],
        [fixed(DType::F16, &[tokens, 2, 1, 5])],
    );
    g.add_output("y", out[0]);
    Module {
        graphs: vec![g],
        attributes: Vec::new(),
    }
}

#[test]
fn experts_stay_compressed() {
    for (tokens, precision) in [
        (1, Precision::Exact),
        (40, Precision::Exact),
        (40, Precision::Fast),
    ] {
        let module = experts(tokens);
        crate::verify::verify(&module).unwrap();
        let options = PlanOptions {
            precision,
            ..PlanOptions::default()
        };
        let plan = Plan::build(&module, "main", &options).unwrap();
        let steps: Vec<&str> = plan.steps().map(|s| s.name).collect();
        assert_eq!(steps, ["gather_linear"]);
        let values: Vec<f64> = (0..tokens * 64)
            .map(|i| (i * 5 % 9) as f64 / 4.0 - 1.0)
            .collect();
        let picks: Vec<i64> = (0..tokens as i64 * 2).map(|i| i * 5 % 3).collect();
        let x = Tensor::from_floats(DType::F16, &[tokens, 1, 1, 64], &values).unwrap();
        let ids = Tensor::from_ints(DType::I32, &[tokens, 2], &picks).unwrap();
        let mut executor = Executor::new(Arc::new(plan), Arc::new(Pool::new(2)));
        let inputs = [Input::tensor("x", &x), Input::tensor("ids", &ids)];
        executor.run(&inputs, &mut States::default()).unwrap();
        let inputs: HashMap<String, Tensor> = [("x".to_owned(), x), ("ids".to_owned(), ids)].into();
        let mut states = interpret::States::new();
        let want = interpret::run(&module, &module.graphs[0], &inputs, &mut states).unwrap();
        let got = elements(&executor.output("y").unwrap());
        for (g, w) in got.into_iter().zip(want[0].1.scalars()) {
            let near = (g.float() - w.float()).abs() <= 0.02 * (1.0 + w.float().abs());
            assert!(near, "{tokens} {precision:?}: {g:?} is not {w:?}");
        }
    }
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
