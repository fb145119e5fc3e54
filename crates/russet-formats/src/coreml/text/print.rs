//! A program as text, for tests: what a compiled package would hold.

use std::fmt::Write;

use russet_graph::tensor::Tensor;
use russet_graph::types::Class;

use super::super::program::{
    Argument, Data, Element, Function, Named, Operation, Program, TensorType, Value, ValueType,
};
use super::values::kind_name;

/// The text of a program.
pub(in super::super) fn print(program: &Program) -> String {
    let mut out = String::from(
        "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3520.4.1\"}})]\n{\n",
    );
    for function in &program.functions {
        print_function(&mut out, function);
    }
    out + "}\n"
}

fn print_function(out: &mut String, function: &Function) {
    let inputs: Vec<String> = function.inputs.iter().map(named).collect();
    let _ = writeln!(
        out,
        "    func {}<ios18>({}) [FlexibleShapeInformation = tuple<tuple<string, int32>>(((\"x\", 1)))] {{",
        function.name,
        inputs.join(", ")
    );
    for op in &function.body.operations {
        let _ = writeln!(out, "            {}", operation(op));
    }
    let _ = writeln!(out, "        }} -> ({});", function.body.outputs.join(", "));
}

fn operation(op: &Operation) -> String {
    let outputs: Vec<String> = op.outputs.iter().map(named).collect();
    let left = if outputs.is_empty() {
        String::new()
    } else {
        outputs.join(", ") + " = "
    };
    let argument = |a: &Argument| match a {
        Argument::Name(name) => name.to_string(),
        Argument::Value(v) => value(v),
    };
    let inputs = op.inputs.iter().map(|(name, list)| match &list[..] {
        [one] => format!("{name} = {}", argument(one)),
        many => format!(
            "{name} = ({})",
            many.iter().map(argument).collect::<Vec<_>>().join(", ")
        ),
    });
    let inputs = inputs.collect::<Vec<_>>().join(", ");
    let mut attributes = vec!["name = string(\"op\")".to_owned()];
    attributes.extend(
        op.attributes
            .iter()
            .map(|(name, v)| format!("{name} = {}", value(v))),
    );
    format!("{left}{}({inputs})[{}];", op.kind, attributes.join(", "))
}

fn named(named: &Named) -> String {
    let ty = match &named.ty {
        ValueType::Tensor(t) => tensor_type(t),
        ValueType::State(t) => format!("state<{}>", tensor_type(t)),
        ValueType::Other => "list<int32, ?>".into(),
    };
    format!("{ty} {}", named.name)
}

fn element(ty: &TensorType) -> &'static str {
    match ty.element {
        Element::Text => "string",
        Element::Number(dtype) => kind_name(dtype),
    }
}

/// Scalars are written without `tensor`.
fn tensor_type(ty: &TensorType) -> String {
    if ty.shape.is_empty() {
        return element(ty).into();
    }
    let extents = ty
        .shape
        .iter()
        .map(|d| d.map_or("?".into(), |n| n.to_string()));
    format!(
        "tensor<{}, [{}]>",
        element(ty),
        extents.collect::<Vec<_>>().join(", ")
    )
}

fn value(value: &Value) -> String {
    let ty = tensor_type(&value.ty);
    let elements: Vec<String> = match &value.data {
        Data::Blob { file, offset } => {
            return format!("{ty}(BLOBFILE(path = string({file:?}), offset = uint64({offset})))");
        }
        Data::Texts(list) => list.iter().map(|t| format!("{t:?}")).collect(),
        Data::Bytes(bytes) => {
            let Element::Number(dtype) = value.ty.element else {
                panic!("numbers")
            };
            let len = value.ty.elements().unwrap();
            let tensor = Tensor::new(dtype, vec![len], bytes.clone()).unwrap();
            let shown = |i: usize| match dtype.class() {
                Class::Float => hexadecimal(tensor.get(i).float()),
                Class::Bool => tensor.get(i).bool().to_string(),
                _ => tensor.get(i).int().to_string(),
            };
            (0..len).map(shown).collect()
        }
    };
    match value.ty.shape.is_empty() {
        true => format!("{ty}({})", elements.join(", ")),
        false => format!("{ty}([{}])", elements.join(", ")),
    }
}

/// As C prints it with `%a`.
fn hexadecimal(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i64, bits & ((1 << 52) - 1));
    if exponent == 0 {
        return format!("{sign}0x0p+0");
    }
    format!("{sign}0x1.{fraction:013x}p{:+}", exponent - 1023)
}
