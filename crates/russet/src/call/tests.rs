//! Calls of functions written in the text form.

use russet_graph::text::{Text, parse};
use russet_graph::types::DType;

use super::*;

fn function(text: &str) -> Function {
    let module = parse(&Text {
        text: text.into(),
        blobs: Vec::new(),
    })
    .unwrap();
    russet_graph::verify::verify(&module).unwrap();
    Function::new(Arc::new(module), "f", 1).unwrap()
}

const SUM: &str = r#"module {
  graph @"f"(%0 "x": tensor<?xi32>, %1 "y": tensor<2xi32>) -> ("z": tensor<?xi32>) {
    %2 = broadcasting_add(%0, %1) : tensor<?xi32>
    return %2
  }
}
"#;

const PLACES: &str = r#"module {
  graph @"f"(%0 "x": tensor<2x2xi32>) -> ("z": tensor<?x2xi32>) {
    %1 = non_zero(%0) : tensor<?x2xi32>
    return %1
  }
}
"#;

const COUNTER: &str = r#"module {
  graph @"f"(%0 "x": tensor<2xi32>, %1 "s": handle<tensor<2xi32>>) -> ("z": tensor<2xi32>) {
    %2 = create_token() : token
    %3, %4 = read_handle(%1, %2) : tensor<2xi32>, token
    %5 = add(%0, %3) : tensor<2xi32>
    %6 = write_handle(%1, %5, %4) : token
    return %3
  }
}
"#;

fn ints(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_ints(DType::I32, shape, values).unwrap()
}

fn named(name: &str, tensor: Tensor) -> (String, Tensor) {
    (name.into(), tensor)
}

#[test]
fn functions_are_called_by_name() {
    let mut f = function(SUM);
    let (x, y) = (ints(&[2], &[1, 2]), ints(&[2], &[30, 40]));
    let results = f.call(&[named("y", y), named("x", x)], &[]).unwrap();
    assert_eq!(results.outputs, [named("z", ints(&[2], &[31, 42]))]);
    assert!(f.is_planned() && results.states.is_empty());
}

#[test]
fn extents_that_depend_on_values_are_interpreted() {
    let mut f = function(PLACES);
    let results = f
        .call(&[named("", ints(&[2, 2], &[0, 7, 0, 7]))], &[])
        .unwrap();
    assert_eq!(results.outputs, [named("z", ints(&[2, 2], &[0, 1, 1, 1]))]);
    assert!(!f.is_planned());
}

#[test]
fn states_are_zeros_or_given_and_handed_back() {
    let mut f = function(COUNTER);
    let x = [named("x", ints(&[2], &[1, 2]))];
    let fresh = f.call(&x, &[]).unwrap();
    assert_eq!(fresh.outputs, [named("z", ints(&[2], &[0, 0]))]);
    assert_eq!(fresh.states, [named("s", ints(&[2], &[1, 2]))]);
    let given = f.call(&x, &[named("s", ints(&[2], &[10, 20]))]).unwrap();
    assert_eq!(given.states, [named("s", ints(&[2], &[11, 22]))]);
}

#[test]
fn wrong_tensors_are_named() {
    let mut f = function(SUM);
    let x = named("x", ints(&[2], &[1, 2]));
    let message = |f: &mut Function, inputs: &[(String, Tensor)]| {
        f.call(inputs, &[]).unwrap_err().to_string()
    };
    let missing = message(&mut f, std::slice::from_ref(&x));
    assert!(
        missing.contains("\"y\"") && missing.contains("2xi32"),
        "{missing}"
    );
    let y = named("y", ints(&[3], &[1, 2, 3]));
    let shape = message(&mut f, &[x.clone(), y]);
    assert!(
        shape.contains("expected tensor<2xi32>") && shape.contains("3xi32"),
        "{shape}"
    );
    let float = named(
        "y",
        Tensor::from_floats(DType::F32, &[2], &[0.0; 2]).unwrap(),
    );
    assert!(message(&mut f, &[x.clone(), float]).contains("2xf32"));
    let stranger = message(&mut f, &[x, named("w", ints(&[1], &[1]))]);
    assert!(stranger.contains("no input \"w\""), "{stranger}");
    let none = Function::new(f.module, "g", 1).unwrap_err();
    assert!(none.to_string().contains("the functions are f"), "{none}");
}
