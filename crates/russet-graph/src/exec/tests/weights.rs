//! Weights in every format stay compressed: a product with them and rows of them are steps that read them, and what comes out is what
//! the interpreter makes of them spelled out.

use super::*;
use crate::ops::broadcasting_batch_matmul::BroadcastingBatchMatmul;
use crate::ops::broadcasting_mul::BroadcastingMul;
use crate::ops::gather_nd::GatherNd;
use crate::ops::lut_to_dense::LutToDense;
use crate::ops::relu::Relu;
use crate::ops::reshape::Reshape;
use crate::ops::slice::Slice;

/// A matrix of 12 by 96 unless said otherwise: its codes, what they are looked up in, and how that is scaled.
struct Form {
    codes: DType,
    shape: [usize; 2],
    /// The kind and shape of the tables.
    lut: Option<(DType, [usize; 4])>,
    /// The kind of the scales, the shape of all parameters, and whether zeros and shifts are there too.
    scale: Option<(DType, [usize; 2], bool)>,
}

const fn lut(codes: DType, shape: [usize; 2], tables: [usize; 4]) -> Form {
    Form {
        codes,
        shape,
        lut: Some((DType::F16, tables)),
        scale: None,
    }
}

const fn blocks(codes: DType, scale: DType, shape: [usize; 2], affine: bool) -> Form {
    Form {
        codes,
        shape: [12, 96],
        lut: None,
        scale: Some((scale, shape, affine)),
    }
}

const FORMS: [Form; 26] = [
    // Palettes: for the tensor, for groups of rows and of columns, of vectors along the rows.
    lut(DType::U1, [12, 96], [1, 1, 2, 1]),
    lut(DType::U2, [12, 96], [3, 1, 4, 1]),
    lut(DType::U3, [12, 96], [12, 1, 8, 1]),
    lut(DType::U4, [12, 96], [2, 1, 16, 1]),
    lut(DType::U6, [12, 96], [1, 2, 64, 1]),
    lut(DType::U8, [12, 96], [2, 3, 256, 1]),
    lut(DType::U4, [6, 96], [3, 1, 16, 2]),
    // Palettes with a scale for each row, and of integers and small floats.
    Form {
        scale: Some((DType::F16, [12, 1], false)),
        ..lut(DType::U4, [12, 96], [2, 1, 16, 1])
    },
    Form {
        lut: Some((DType::I8, [3, 1, 64, 1])),
        scale: Some((DType::F16, [3, 1], false)),
        ..lut(DType::U6, [12, 96], [1; 4])
    },
    Form {
        lut: Some((DType::U8, [1, 1, 16, 1])),
        scale: Some((DType::F16, [12, 1], true)),
        ..lut(DType::U4, [12, 96], [1; 4])
    },
    Form {
        lut: Some((DType::F8E4M3, [2, 1, 16, 1])),
        scale: Some((DType::F16, [2, 1], false)),
        ..lut(DType::U4, [12, 96], [1; 4])
    },
    // Blocks: of every width, of lengths that are no multiple of 32, of several rows, for the tensor.
    blocks(DType::U1, DType::F16, [12, 3], true),
    blocks(DType::I2, DType::F16, [12, 3], false),
    blocks(DType::U2, DType::F16, [12, 6], true),
    blocks(DType::I3, DType::F16, [12, 1], false),
    blocks(DType::I4, DType::F16, [12, 8], true),
    blocks(DType::U4, DType::F16, [4, 4], true),
    blocks(DType::I6, DType::F16, [12, 3], true),
    blocks(DType::I8, DType::F16, [12, 32], true),
    blocks(DType::I8, DType::F16, [1, 1], false),
    blocks(DType::U8, DType::F16, [1, 12], true),
    // Small floats.
    blocks(DType::F8E4M3, DType::F16, [12, 3], false),
    blocks(DType::F8E5M2, DType::F16, [1, 1], false),
    blocks(DType::F8E4M3, DType::F8E8M0, [12, 3], false),
    blocks(DType::F4E2M1, DType::F8E8M0, [12, 3], false),
    blocks(DType::F4E2M1, DType::F16, [12, 6], false),
];

/// Numbers of a kind that are none too large.
fn numbers(dtype: DType, shape: &[usize], step: i64) -> Result<Tensor, OpError> {
    let n = shape.iter().product::<usize>() as i64;
    if dtype.is_float() {
        let by = if dtype == DType::F8E8M0 { 0.0 } else { 0.03125 };
        let value = |i: i64| (i * step % 31 - 15) as f64 * by + if by == 0.0 { 0.25 } else { 0.0 };
        return Tensor::from_floats(dtype, shape, &(0..n).map(value).collect::<Vec<_>>());
    }
    let (range, lowest) = (
        1 << dtype.bits(),
        Tensor::from_ints(dtype, &[1], &[-1])?.ints()[0],
    );
    let start = if lowest < 0 { -range / 2 } else { 0 };
    let value = |i: i64| (i * step + i / 7) % range + start;
    Tensor::from_ints(dtype, shape, &(0..n).map(value).collect::<Vec<_>>())
}

impl Form {
    fn result(&self) -> [usize; 2] {
        [
            self.shape[0] * self.lut.map_or(1, |(_, t)| t[3]),
            self.shape[1],
        ]
    }

    /// The weights as a value of `g`.
    fn build(&self, g: &mut Graph) -> ValueId {
        let (mut kind, mut w) = (self.codes, constant(g, numbers(self.codes, &self.shape, 5)));
        if let Some((dtype, tables)) = self.lut {
            let table = constant(g, numbers(dtype, &tables, 7));
            let axis = constant(g, Tensor::from_ints(DType::I16, &[], &[0]));
            w = g.push(
                LutToDense,
                &[w, table, axis],
                [fixed(dtype, &self.result())],
            )[0];
            kind = dtype;
        }
        if let Some((dtype, shape, affine)) = self.scale {
            let one = if affine { 3 } else { 0 };
            let scale = constant(g, numbers(dtype, &shape, 11));
            let zero = constant(g, numbers_or_zeros(kind, &shape, one));
            let shift = constant(g, numbers_or_zeros(DType::F16, &shape, one));
            let ty = fixed(DType::F16, &self.result());
            w = g.push(BlockwiseShiftScale, &[w, scale, zero, shift], [ty])[0];
        }
        w
    }
}

fn numbers_or_zeros(dtype: DType, shape: &[usize], step: i64) -> Result<Tensor, OpError> {
    if step == 0 {
        return Tensor::from_floats(dtype, shape, &vec![0.0; shape.iter().product()]);
    }
    numbers(dtype, shape, step)
}

/// `x` of `m` rows times the weights: turned, as a linear layer has them, or as they are.
fn product(form: &Form, turned: bool, m: usize) -> Module {
    let mut g = Graph::new("main");
    let [rows, columns] = form.result();
    let (n, k) = if turned {
        (rows, columns)
    } else {
        (columns, rows)
    };
    let x = g.add_input("x", fixed(DType::F16, &[1, m, k]));
    let mut w = form.build(&mut g);
    if turned {
        let order = constant(&mut g, Tensor::from_ints(DType::I32, &[2], &[1, 0]));
        w = g.push(Transpose, &[w, order], [fixed(DType::F16, &[k, n])])[0];
    }
    let y = g.push(
        BroadcastingBatchMatmul,
        &[x, w],
        [fixed(DType::F16, &[1, m, n])],
    );
    g.add_output("y", y[0]);
    module(g)
}

/// Five of the weights' rows.
fn rows(form: &Form) -> Module {
    let mut g = Graph::new("main");
    let ids = g.add_input("x", fixed(DType::I32, &[5, 1]));
    let w = form.build(&mut g);
    let y = g.push(
        GatherNd,
        &[w, ids],
        [fixed(DType::F16, &[5, form.result()[1]])],
    );
    g.add_output("y", y[0]);
    module(g)
}

fn module(graph: Graph) -> Module {
    Module {
        graphs: vec![graph],
        attributes: Vec::new(),
    }
}

/// Runs a module planned; the result has to come from `step` alone and be that of the interpreter, within `tolerance`
/// of its largest element.
fn check(module: &Module, x: &Tensor, precision: Precision, steps: &[&str], tolerance: f64) {
    crate::verify::verify(module).unwrap();
    let options = PlanOptions {
        precision,
        ..PlanOptions::default()
    };
    let plan = Plan::build(module, "main", &options).unwrap();
    let names: Vec<&str> = plan.steps().map(|s| s.name).collect();
    assert_eq!(names, steps, "{module:?}");
    let mut executor = Executor::new(Arc::new(plan), Arc::new(Pool::new(2)));
    let input = [Input::tensor("x", x)];
    executor.run(&input, &mut States::default()).unwrap();
    let inputs: HashMap<String, Tensor> = [("x".to_owned(), x.clone())].into();
    let mut states = interpret::States::new();
    let want = interpret::run(module, &module.graphs[0], &inputs, &mut states).unwrap();
    let got = elements(&executor.output("y").unwrap());
    let largest = want[0]
        .1
        .floats()
        .into_iter()
        .fold(0.0, |m: f64, v| m.max(v.abs()));
    for (g, w) in got.into_iter().zip(want[0].1.scalars()) {
        let near = (g.float() - w.float()).abs() <= tolerance * (1.0 + largest);
        assert!(near, "{precision:?}: {g:?} is not {w:?} in {module:?}");
    }
}

#[test]
fn products_and_rows_of_every_format_are_steps() {
    for form in &FORMS {
        for (m, turned) in [(1, true), (9, true), (2, false), (9, false)] {
            if !turned && form.lut.is_some_and(|(_, t)| t[3] != 1) {
                continue;
            }
            let module = product(form, turned, m);
            let k = form.result()[usize::from(turned)];
            let x = numbers(DType::F16, &[1, m, k], 13).unwrap();
            check(&module, &x, Precision::Exact, &["linear"], 0.02);
            check(&module, &x, Precision::Fast, &["linear"], 0.02);
        }
        let ids = Tensor::from_ints(DType::I32, &[5, 1], &[3, 0, 11, 7, 3]).unwrap();
        for precision in [Precision::Exact, Precision::Fast] {
            check(&rows(form), &ids, precision, &["gather_rows"], 0.0);
        }
    }
}

/// Three experts between rows of 24 and of 12: the first product with plain weights, the one behind with these.
fn experts(form: &Form) -> Module {
    let mut g = Graph::new("main");
    let kind = DType::F16;
    let x = g.add_input("x", fixed(kind, &[1, 2, 99]));
    let parts = [
        [[0, 0, 0], [1, 2, 96], [1, 1, 1]],
        [[0, 0, 96], [1, 2, 99], [1, 1, 1]],
    ];
    let [inner, route] = parts.map(|bounds| {
        let shape = [0, 1, 2].map(|i| (bounds[1][i] - bounds[0][i]) as usize);
        let ints = |v: [i64; 3]| Tensor::from_ints(DType::I32, &[3], &v);
        let bounds = bounds.map(|b| constant(&mut g, ints(b)));
        g.push(Slice, &[&[x], &bounds[..]].concat(), [fixed(kind, &shape)])[0]
    });
    let route = g.push(Relu, &[route], [fixed(kind, &[1, 2, 3])])[0];
    let order = constant(&mut g, Tensor::from_ints(DType::I32, &[2], &[1, 0]));
    let before = constant(&mut g, numbers(kind, &[96, 96], 17));
    let before = g.push(Transpose, &[before, order], [fixed(kind, &[96, 96])])[0];
    let inner = g.push(
        BroadcastingBatchMatmul,
        &[inner, before],
        [fixed(kind, &[1, 2, 96])],
    )[0];
    let shapes = [vec![1, 2, 3, 32], vec![1, 2, 3, 1], vec![1, 2, 96]];
    let [apart, each, together] = shapes.map(|shape| {
        let ints: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
        let ints = constant(&mut g, Tensor::from_ints(DType::I32, &[ints.len()], &ints));
        (ints, fixed(kind, &shape))
    });
    let inner = g.push(Reshape, &[inner, apart.0], [apart.1.clone()])[0];
    let route = g.push(Reshape, &[route, each.0], [each.1])[0];
    let inner = g.push(BroadcastingMul, &[inner, route], [apart.1])[0];
    let inner = g.push(Reshape, &[inner, together.0], [together.1])[0];
    let w = form.build(&mut g);
    let w = g.push(Transpose, &[w, order], [fixed(kind, &[96, 12])])[0];
    let y = g.push(
        BroadcastingBatchMatmul,
        &[inner, w],
        [fixed(kind, &[1, 2, 12])],
    )[0];
    g.add_output("y", y);
    module(g)
}

#[test]
fn experts_in_every_format_are_left_out() {
    for form in &FORMS {
        let module = experts(form);
        let (rows, routes) = (
            numbers(DType::F16, &[192], 13).unwrap().floats(),
            [[0.5, -1.0, 0.25], [0.0, 0.0, 1.0]],
        );
        let rows = rows
            .chunks(96)
            .zip(routes)
            .flat_map(|(row, route)| row.iter().copied().chain(route));
        let x = Tensor::from_floats(DType::F16, &[1, 2, 99], &rows.collect::<Vec<_>>()).unwrap();
        let plan = |precision| {
            let options = PlanOptions {
                precision,
                ..PlanOptions::default()
            };
            Plan::build(&module, "main", &options).unwrap()
        };
        let names: Vec<&str> = plan(Precision::Fast).steps().map(|s| s.name).collect();
        let chosen = names.iter().filter(|n| **n == "chosen_experts").count();
        assert_eq!(chosen, 2, "{names:?} {:?} {:?}", form.codes, form.scale);
        check(&module, &x, Precision::Fast, &names, 0.02);
    }
}
