//! Whole packages, programs made by hand, and everything that can be cut off or turned over.

use std::path::PathBuf;
use std::sync::Arc;

use prost::Message;
use russet_graph::exec::{Executor, Input, Plan, PlanOptions, Precision, States};
use russet_graph::graph::Module;
use russet_graph::tensor::Tensor;
use russet_graph::types::DType;
use russet_graph::verify::verify;
use russet_kernels::mem::SharedBytes;
use russet_kernels::threads::Pool;

use super::error::{CoremlError, Place, Problem};
use super::model::CoremlModel;
use super::weights::Weights;
use super::{manifest, proto, text};
use crate::safetensors::Safetensors;

/// The name that programs give to their weights.
const WEIGHTS: &str = "@model_path/weights/weight.bin";

/// A committed package: its specification and its weights.
struct Package {
    specification: Vec<u8>,
    weights: Vec<u8>,
}

impl Package {
    fn read(name: &str) -> Self {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/coreml/");
        let folder = PathBuf::from(root).join(format!("{name}.mlpackage"));
        let manifest = std::fs::read(folder.join(manifest::MANIFEST)).unwrap();
        let path = folder.join(manifest::specification(&manifest).unwrap());
        let weights = std::fs::read(path.with_file_name("weights/weight.bin"));
        Self {
            specification: std::fs::read(path).unwrap(),
            weights: weights.unwrap(),
        }
    }

    fn model(&self) -> CoremlModel {
        CoremlModel::read(shared(&self.specification)).unwrap()
    }

    fn module(&self) -> Module {
        self.model().module(&weights(&self.weights)).unwrap()
    }
}

fn shared(bytes: &[u8]) -> SharedBytes {
    SharedBytes::from_vec(bytes.to_vec())
}

fn weights(bytes: &[u8]) -> Weights {
    let mut all = Weights::default();
    all.add(WEIGHTS, shared(bytes));
    all
}

const PARTS: [&str; 6] = [
    "gemma4/gemma4_embeddings",
    "gemma4/gemma4_FFN_PF_chunk_01of01",
    "gemma4/gemma4_lm_head",
    "qwen3-lut4/qwen_embeddings",
    "qwen3-lut4/qwen_FFN_PF_lut4_chunk_01of01",
    "qwen3-lut4/qwen_lm_head",
];

#[test]
fn packages_become_graphs_that_verify() {
    for name in PARTS {
        let package = Package::read(name);
        let model = package.model();
        assert_eq!(model.version, 9, "{name}");
        assert_eq!(model.weight_files().len(), 1, "{name}");
        let module = package.module();
        verify(&module).unwrap();
        let functions: Vec<&str> = module.functions().map(|g| &*g.name).collect();
        let several = name.contains("FFN");
        assert_eq!(
            functions,
            if several {
                &["infer", "prefill"][..]
            } else {
                &["main"]
            },
            "{name}"
        );
    }
}

#[test]
fn inputs_keep_their_types_and_the_shapes_that_are_allowed() {
    let module = Package::read(PARTS[3]).module();
    let input = &module.graphs[0].inputs[0];
    assert_eq!(
        (&*input.name, input.ty.to_string()),
        ("input_ids", "tensor<1x?xi32>".into())
    );
    let (name, shapes) = &input.attributes[0];
    assert_eq!(
        (&**name, shapes.to_string()),
        ("enumerated_shapes", "[[1, 1], [1, 16]]".into())
    );
    let module = Package::read(PARTS[1]).module();
    let states = module.graphs[0].inputs.iter().map(|p| p.ty.to_string());
    let states: Vec<String> = states.filter(|t| t.starts_with("handle")).collect();
    assert_eq!(
        states,
        [
            "handle<tensor<3x4x68x24xf16>>",
            "handle<tensor<2x4x160x40xf16>>"
        ]
    );
}

#[test]
fn the_text_form_gives_the_same_graphs() {
    for name in PARTS {
        let package = Package::read(name);
        let mut model = package.model();
        let printed = text::print::print(&model.program);
        let compiled = CoremlModel::read_compiled(printed.as_bytes(), None).unwrap();
        let weights = weights(&package.weights);
        model.description = compiled.description.clone();
        model.version = compiled.version;
        let same = compiled.module(&weights).unwrap() == model.module(&weights).unwrap();
        assert!(same, "{name}");
    }
}

/// Packages whose programs spell something out, and how many steps of a fast plan stand for it.
const FOUND: [(&str, &str, usize); 2] = [
    ("../coreml-ops/doubling", "unit_lower_inverse", 8),
    // Three products for every kind of weights.
    ("../coreml-ops/experts", "chosen_experts", 36),
];

/// The recorded inputs or outputs of a package.
fn recorded(name: &str, part: &str) -> Vec<(String, Tensor)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/coreml/");
    let bytes = std::fs::read(format!("{root}{name}.safetensors")).unwrap();
    let file = Safetensors::read(shared(&bytes)).unwrap();
    let all = file.tensors().filter_map(|(tensor, entry)| {
        let data = file.data(entry).unwrap();
        let value = Tensor::new(entry.dtype, entry.shape.clone(), shared(&data)).unwrap();
        Some((tensor.strip_prefix(part)?.to_owned(), value))
    });
    all.collect()
}

#[test]
fn fast_plans_find_what_programs_spell_out() {
    for (name, step, count) in FOUND {
        let mut options = PlanOptions::default();
        options.precision = Precision::Fast;
        let plan = Plan::build(&Package::read(name).module(), "main", &options).unwrap();
        let steps: Vec<&str> = plan.steps().map(|s| s.name).collect();
        let found = steps.iter().filter(|s| **s == step).count();
        assert_eq!(found, count, "{name}: {steps:?}");
        let mut executor = Executor::new(Arc::new(plan), Arc::new(Pool::new(2)));
        let given = recorded(name, "in.");
        let inputs: Vec<Input<'_>> = given.iter().map(|(n, t)| Input::tensor(n, t)).collect();
        executor.run(&inputs, &mut States::default()).unwrap();
        for (output, want) in recorded(name, "out.") {
            let got = executor.output(&output).unwrap();
            let mut row = vec![0.0; want.shape[want.shape.len() - 1]];
            let largest = want.floats().iter().fold(0.0, |m: f64, v| m.max(v.abs()));
            for (i, want) in want.floats().chunks(row.len()).enumerate() {
                got.read_row(i, &mut row);
                let far = row.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).abs());
                let far = far.fold(0.0, f64::max);
                assert!(far <= 0.01 * (1.0 + largest), "{name}, {output}: {far}");
            }
        }
    }
}

/// What a compiled package holds beside its program: 83 bytes of header, then the description.
fn described(description: &proto::ModelDescription) -> Vec<u8> {
    let mut bytes = [502u32, 9].map(u32::to_le_bytes).concat();
    bytes.resize(0x4B, 0);
    bytes.extend((description.encoded_len() as u64).to_le_bytes());
    bytes.extend(description.encode_to_vec());
    bytes
}

#[test]
fn a_compiled_description_is_that_of_the_package() {
    let package = Package::read(PARTS[3]);
    let raw = proto::Model::decode(&package.specification[..]).unwrap();
    let bytes = described(&raw.description.unwrap());
    let printed = text::print::print(&package.model().program);
    let read = |bytes: &[u8]| CoremlModel::read_compiled(printed.as_bytes(), Some(shared(bytes)));
    assert_eq!(
        read(&bytes).unwrap().description,
        package.model().description
    );
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len}");
    }
}

/// A program of one function with these operations, which take `x`, a vector of three f16.
fn program(operations: Vec<proto::Operation>) -> Vec<u8> {
    let last = operations.last().unwrap().outputs.first();
    let block = proto::Block {
        outputs: last.iter().map(|o| o.name.clone()).collect(),
        operations,
        inputs: Vec::new(),
    };
    let function = proto::Function {
        inputs: vec![named("x", 10, &[3])],
        opset: "CoreML8".into(),
        blocks: [("CoreML8".to_owned(), block)].into(),
    };
    let model = proto::Model {
        specification_version: 9,
        description: None,
        program: Some(proto::Program {
            functions: [("main".to_owned(), function)].into(),
        }),
    };
    model.encode_to_vec()
}

fn named(name: &str, kind: i32, shape: &[u64]) -> proto::NamedType {
    let dimensions = shape.iter().map(|&size| proto::Dimension {
        constant: Some(proto::ConstantDimension { size }),
    });
    let tensor = proto::TensorType {
        data_type: kind,
        rank: shape.len() as i64,
        dimensions: dimensions.collect(),
    };
    proto::NamedType {
        name: name.into(),
        ty: Some(proto::ValueType {
            tensor: Some(tensor),
            state: None,
        }),
    }
}

fn operation(kind: &str, arguments: &[(&str, &str)], output: proto::NamedType) -> proto::Operation {
    let argument = |name: &&str| proto::Argument {
        bindings: vec![proto::Binding {
            bound: Some(proto::Bound::Name((*name).into())),
        }],
    };
    proto::Operation {
        kind: kind.into(),
        inputs: arguments
            .iter()
            .map(|(n, v)| ((*n).into(), argument(v)))
            .collect(),
        outputs: vec![output],
        blocks: Vec::new(),
        attributes: Default::default(),
    }
}

fn read(bytes: &[u8]) -> Result<Module, CoremlError> {
    CoremlModel::read(shared(bytes))?.module(&Weights::default())
}

#[test]
fn what_is_wrong_with_an_operation_is_said_with_its_place() {
    let y = || named("y", 10, &[3]);
    let place = |kind: &str| Place::Operation {
        function: "main".into(),
        index: 1,
        kind: kind.into(),
        name: "z".into(),
    };
    let second = |kind, arguments: &[_], output| {
        let first = operation("tanh", &[("x", "x")], y());
        read(&program(vec![first, operation(kind, arguments, output)])).unwrap_err()
    };
    let z = || named("z", 10, &[3]);
    let unknown = second("warp", &[("x", "y")], z());
    assert_eq!(unknown.place, place("warp"));
    let shown = unknown.to_string();
    assert_eq!(
        shown,
        r#"function "main", operation 1 (warp "z"): operation "warp" is not known"#
    );
    let undefined = second("exp", &[("x", "w")], z());
    assert_eq!(undefined, Problem::Undefined("w".into()).at(place("exp")));
    let missing = second("add", &[("x", "y")], z());
    assert_eq!(
        missing,
        Problem::Missing(r#"argument "y""#.into()).at(place("add"))
    );
    let declared = second("exp", &[("x", "y")], named("z", 10, &[4]));
    assert_eq!(declared.place, place("exp"));
    assert!(
        declared
            .to_string()
            .contains("declared as tensor<f16, [4]>, and is tensor<3xf16>")
    );
    let state = second("read_state", &[("input", "y")], z());
    assert!(
        state
            .to_string()
            .contains(r#"argument "input" should be a state"#),
        "{state}"
    );
}

#[test]
fn other_models_and_versions_are_refused() {
    let mut model = proto::Model::decode(
        &program(vec![operation("exp", &[("x", "x")], named("y", 10, &[3]))])[..],
    )
    .unwrap();
    for version in [0, 4, 11] {
        model.specification_version = version;
        let error = read(&model.encode_to_vec()).unwrap_err();
        assert_eq!(*error.problem, Problem::Version(version));
    }
    model.specification_version = 9;
    assert!(read(&model.encode_to_vec()).is_ok());
    model.program = None;
    assert_eq!(
        *read(&model.encode_to_vec()).unwrap_err().problem,
        Problem::NoProgram
    );
    assert!(matches!(
        *read(b"\xff\xff").unwrap_err().problem,
        Problem::Wire(_)
    ));
}

/// A length-delimited field.
fn field(number: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for mut value in [number << 3 | 2, content.len() as u64] {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    [&out, content].concat()
}

#[test]
fn small_bytes_do_not_stand_for_many_structures() {
    let operations = field(3, &[]).repeat(100_000);
    let block = field(2, &operations);
    let function = field(2, &field(3, &block));
    let program = field(502, &field(2, &function));
    let model = [vec![8, 9], program].concat();
    let error = CoremlModel::read(shared(&model)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("more messages than the file justifies"),
        "{error}"
    );
    assert!(matches!(error.place, Place::File { offset, .. } if offset < model.len() as u64));
    let deep = (0..200).fold(Vec::new(), |inner, _| field(1, &field(5, &inner)));
    let named = field(1, &field(2, &deep));
    let program = field(502, &field(2, &field(2, &named)));
    assert!(CoremlModel::read(shared(&[vec![8, 9], program].concat())).is_err());
}

#[test]
fn manifests_name_a_model_inside_the_package() {
    let with = |path: &str| {
        format!(
            r#"{{"fileFormatVersion": "1.0.0", "rootModelIdentifier": "a", "itemInfoEntries": {{"a": {{"path": "{path}"}}}}}}"#
        )
    };
    let path = manifest::specification(with("com.apple.CoreML/model.mlmodel").as_bytes());
    assert_eq!(path.unwrap(), "Data/com.apple.CoreML/model.mlmodel");
    let none = with("x").replace(
        r#""rootModelIdentifier": "a""#,
        r#""rootModelIdentifier": "b""#,
    );
    let wrong = ["../x", "/x", "a//b", "", "a/../../b", r"a\\b"].map(with);
    for text in wrong.iter().chain([&none, &"{".into(), &"{}".into()]) {
        let error = manifest::specification(text.as_bytes()).unwrap_err();
        assert_eq!(error.place, Place::Manifest, "{text}");
    }
    assert_eq!(manifest::beside(WEIGHTS), Some("weights/weight.bin"));
    assert_eq!(manifest::beside("@model_path/../weight.bin"), None);
    assert_eq!(manifest::beside("weights/weight.bin"), None);
}

/// A weight file with one value of two f16.
fn weight_file() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes.extend([0xDEAD_BEEF_u32, 1].map(u32::to_le_bytes).concat());
    bytes.extend([4_u64, 128].map(u64::to_le_bytes).concat());
    bytes.resize(128, 0);
    bytes.extend([1, 2, 3, 4]);
    bytes
}

#[test]
fn values_of_weight_files_are_what_the_program_says() {
    let name = WEIGHTS.into();
    let file = weight_file();
    let get = |file: &[u8], offset, dtype, len| weights(file).value(&name, offset, dtype, len);
    assert_eq!(get(&file, 64, DType::F16, 2).unwrap()[..], [1, 2, 3, 4]);
    for (offset, dtype, len, want) in [
        (0, DType::F16, 2, "no value at this offset"),
        (65, DType::F16, 2, "no value at this offset"),
        (u64::MAX, DType::F16, 2, "no value at this offset"),
        (
            64,
            DType::BF16,
            2,
            "the value is f16, the program wants bf16",
        ),
        (64, DType::F16, 3, "the value has 4 bytes"),
        (64, DType::F16, usize::MAX, "the value has 4 bytes"),
    ] {
        let error = get(&file, offset, dtype, len).unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
        assert!(matches!(error.place, Place::File { offset: o, .. } if o == offset));
    }
    for cut in 0..file.len() {
        assert!(get(&file[..cut], 64, DType::F16, 2).is_err(), "{cut}");
    }
    let missing = Weights::default()
        .value(&name, 64, DType::F16, 2)
        .unwrap_err();
    assert!(
        missing.to_string().ends_with("the weight file is missing"),
        "{missing}"
    );
}

/// Reads hostile bytes: an error, or a module, and nothing else.
fn survives(specification: &[u8], file: &[u8]) -> bool {
    let model = CoremlModel::read(shared(specification));
    model.and_then(|m| m.module(&weights(file))).is_ok()
}

#[test]
fn a_specification_may_end_anywhere() {
    for name in [PARTS[0], PARTS[3]] {
        let package = Package::read(name);
        let whole = &package.specification;
        let sound = (0..whole.len()).filter(|&cut| survives(&whole[..cut], &package.weights));
        assert_eq!(sound.count(), 0, "{name}: a part of a program is none");
    }
}

#[test]
fn every_byte_of_a_specification_may_be_another() {
    let package = Package::read(PARTS[3]);
    let mut bytes = package.specification.clone();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x02, 0x08, 0x40, 0x80, 0xff] {
            bytes[at] ^= flip;
            survives(&bytes, &package.weights);
            bytes[at] ^= flip;
        }
    }
    assert_eq!(bytes, package.specification);
}

#[test]
fn bytes_of_a_large_specification_may_be_others() {
    let package = Package::read(PARTS[4]);
    let mut bytes = package.specification.clone();
    let step = bytes.len() / 24;
    for at in (7..bytes.len()).step_by(step.max(1)) {
        bytes[at] ^= 0x11;
        survives(&bytes, &package.weights);
        bytes[at] ^= 0x11;
    }
    for cut in (0..bytes.len()).step_by(step.max(1)) {
        assert!(!survives(&bytes[..cut], &package.weights), "{cut}");
    }
}

#[test]
fn a_weight_file_may_end_anywhere() {
    let package = Package::read(PARTS[0]);
    let len = package.weights.len();
    for cut in (0..len).step_by(997).chain([len - 1]) {
        assert!(
            !survives(&package.specification, &package.weights[..cut]),
            "{cut}"
        );
    }
}

#[test]
fn a_text_may_end_anywhere_and_every_byte_may_be_another() {
    let package = Package::read(PARTS[3]);
    let printed = text::print::print(&package.model().program).into_bytes();
    let read = |bytes: &[u8]| {
        let model = CoremlModel::read_compiled(bytes, None);
        model.and_then(|m| m.module(&weights(&package.weights)))
    };
    for cut in 0..printed.len() - 1 {
        let error = read(&printed[..cut]).unwrap_err();
        if let Place::File { name, offset } = error.place {
            assert!(
                &*name == text::FILE && offset <= cut as u64,
                "{cut}: {offset}"
            );
        }
    }
    let mut bytes = printed.clone();
    for at in 0..bytes.len() {
        for other in [b'(', b']', b'"', b'?', b'-', b'x', 0xff, b'\n'] {
            bytes[at] = other;
            // Whatever it says now, it is an error or a program.
            let _ = read(&bytes);
        }
        bytes[at] = printed[at];
    }
}
