//! Programs that no exporter of ours writes, as text: what engines would stumble over.

use russet_graph::graph::Module;
use russet_graph::text::{self, Text};

use super::super::subject::Subject;
use super::*;

fn module(text: &str) -> Module {
    text::parse(&Text {
        text: text.into(),
        blobs: Vec::new(),
    })
    .unwrap()
}

/// Audits a whole bundle with this program in place of its own.
fn with_program(text: &str) -> Vec<Finding> {
    let source = memory(&whole("lm/qwen3-4bit"));
    let options = AuditOptions::default();
    let mut subject = Subject::read(&source, &options);
    subject.assets[0].module = Some(module(text));
    run(&subject).0
}

fn found(text: &str) -> Vec<&'static str> {
    let all = with_program(text);
    let about = |f: &&Finding| {
        f.code.starts_with("io-")
            || [
                "prefill-contract",
                "states-count",
                "kernel-foreign",
                "program-inconsistent",
                "logits-dtype",
            ]
            .contains(&f.code)
    };
    all.iter().filter(about).map(|f| f.code).collect()
}

/// A function of inputs, with two caches and logits.
fn function(name: &str, inputs: &str, outputs: &str) -> String {
    let cache = "handle<tensor<1x1x1x256x4xf16>>";
    let n = inputs.matches('%').count();
    let ports = format!(
        "{inputs}, %{n} \"keyCache\": {cache}, %{} \"valueCache\": {cache}",
        n + 1
    );
    format!(
        "  graph @\"{name}\"({ports}) -> ({outputs}) {{\n    return{}\n  }}\n",
        match outputs.matches(':').count() {
            0 => "",
            1 => " %0",
            _ => " %0, %1",
        }
    )
}

fn program(functions: &[String]) -> String {
    format!("module {{\n{}}}\n", functions.concat())
}

const IDS: &str = "%0 \"input_ids\": tensor<1x4xi32>, %1 \"position_ids\": tensor<1x4xi32>";
const LOGITS: &str = "\"logits\": tensor<1x4xi32>";

#[test]
fn the_ports_of_main_are_compared_with_what_engines_give() {
    let swapped = "%0 \"position_ids\": tensor<1x4xi32>, %1 \"input_ids\": tensor<1x4xi32>";
    let older = "%0 \"in_new_token_ids\": tensor<1x4xi32>, %1 \"pos_ids\": tensor<1x4xi32>";
    let masked = format!("{IDS}, %2 \"attn_mask\": tensor<1x4xf16>");
    let three = format!("{IDS}, %2 \"pixels\": tensor<1x4xf16>");
    let wide = "%0 \"input_ids\": tensor<1x4xi64>, %1 \"position_ids\": tensor<1x4xi32>";
    let two = "\"hidden\": tensor<1x4xi32>, \"logits\": tensor<1x4xi32>";
    let other = "\"scores\": tensor<1x4xi32>";
    let cases: [(&str, &str, &[&str]); 8] = [
        (IDS, LOGITS, &["io-dtype"]),
        (older, LOGITS, &["io-dtype"]),
        (&masked, LOGITS, &["io-dtype"]),
        (swapped, LOGITS, &["io-dtype", "io-order"]),
        (&three, LOGITS, &["io-inputs", "io-dtype"]),
        (
            wide,
            "\"logits\": tensor<1x4xi64>",
            &["io-dtype", "io-dtype"],
        ),
        (IDS, two, &["io-dtype", "io-order"]),
        (IDS, other, &["io-dtype", "io-names"]),
    ];
    for (inputs, outputs, expected) in cases {
        assert_eq!(
            found(&program(&[function("main", inputs, outputs)])),
            expected,
            "{inputs} -> {outputs}"
        );
    }
    assert_eq!(
        found(&program(&[function("main", IDS, "")])),
        ["io-outputs"]
    );
}

/// Contract B §10.2, 8: engines that bind by position feed a graph of another order garbage, without an error.
#[test]
fn silent_failure_8_inputs_in_another_order() {
    let swapped = "%0 \"position_ids\": tensor<1x4xi32>, %1 \"input_ids\": tensor<1x4xi32>";
    let all = with_program(&program(&[function("main", swapped, LOGITS)]));
    let finding = all.iter().find(|f| f.code == "io-order").unwrap();
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.field.as_deref(), Some("main"));
    assert!(
        finding.what.contains("position_ids, input_ids")
            && finding.what.contains("without an error")
    );
    assert!(finding.mend.contains("input_ids first"));
}

#[test]
fn a_prefill_function_goes_with_main() {
    let main = || function("main", IDS, LOGITS);
    let good = program(&[main(), function("prefill", IDS, "")]);
    assert_eq!(found(&good), ["io-dtype"]);
    let outputs = program(&[main(), function("prefill", IDS, LOGITS)]);
    assert_eq!(found(&outputs), ["io-dtype", "prefill-contract"]);
    let inputs = program(&[
        main(),
        function("prefill", "%0 \"input_ids\": tensor<1x4xi32>", ""),
    ]);
    assert_eq!(found(&inputs), ["io-dtype", "prefill-contract"]);
}

#[test]
fn a_model_without_states_and_a_kernel_for_other_hardware_are_told() {
    let bare = "module {\n  graph @\"main\"(%0 \"input_ids\": tensor<1x4xi32>, %1 \"position_ids\": tensor<1x4xi32>) -> (\"logits\": tensor<1x4xf16>) {\n    %2 = opaque_kernel(%0) {kind = \"metal.metal4_kernel_v1\", name = \"swirl\", to = [type(tensor<1x4xf16>)]} : tensor<1x4xf16>\n    return %2\n  }\n}\n";
    assert_eq!(found(bare), ["kernel-foreign", "states-count"]);
}

#[test]
fn logits_of_other_floats_are_noted() {
    let inputs = format!("{IDS}, %2 \"x\": tensor<1x4xbf16>");
    let text = program(&[function("main", &inputs, "\"logits\": tensor<1x4xbf16>")])
        .replace("return %0", "return %2");
    assert!(found(&text).contains(&"logits-dtype"), "{:?}", found(&text));
}

#[test]
fn a_program_that_breaks_a_rule_is_told() {
    let text = program(&[function("main", IDS, "\"logits\": tensor<1x4xf16>")]);
    assert_eq!(found(&text), ["program-inconsistent"]);
}
