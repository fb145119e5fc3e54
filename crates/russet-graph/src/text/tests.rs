//! The text form: examples that must not change, and errors with their place.

use super::*;

const SAMPLE: &str = r#"module {a = 1, "b c" = [1, -2.5, "x\"y\n", {k = true, unit}]} {
  graph private @"f.1"(%0 "x": tensor<2x?xf32>) -> ("y": tensor<2x?xf32>) composite "sum"("input") -> ("output") {axes = -1, eps = 1e-6} {
    %1 = add(%0, %0) : tensor<2x?xf32> loc ["m.py", 3, 4]
    return %1
  }
  graph @"main"(%0 "x": tensor<2x[-2*t + min(8, q) + 1]xf32>, %1 "s": handle<tensor<3xf16, {interleave = [1, 8]}>> {mutable}) -> ("t": token, "": tensor<2x?xf32>) {
    %2 = constant hex(0100000002000000) : tensor<2xi32>
    %3 = constant splat hex(ff) : tensor<100xu8>
    %4 = invoke(%0) {graph = @"f.1"} : tensor<2x?xf32>
    return %4
  }
}
"#;

#[test]
fn prints_what_it_parsed() {
    let text = Text {
        text: SAMPLE.into(),
        blobs: Vec::new(),
    };
    let module = parse(&text).unwrap();
    let printed = print(&module);
    assert_eq!(printed.text, SAMPLE);
    assert_eq!(parse(&printed).unwrap(), module);
}

#[test]
fn large_constants_are_blobs() {
    let bytes = SharedBytes::from_vec((0..=255).collect());
    let text = "module {\n  graph @\"f\"() -> (\"\": tensor<256xu8>) {\n    %0 = constant blob(0) : tensor<256xu8>\n    return %0\n  }\n}\n";
    let module = parse(&Text {
        text: text.into(),
        blobs: vec![bytes.clone()],
    })
    .unwrap();
    let printed = print(&module);
    assert_eq!(printed.text, text);
    assert!(
        std::ptr::eq(&printed.blobs[0][..], &bytes[..]),
        "a blob is shared, not copied"
    );
}

#[test]
fn errors_say_where_and_what() {
    let error = |text: &str| {
        parse(&Text {
            text: text.into(),
            blobs: Vec::new(),
        })
        .unwrap_err()
        .to_string()
    };
    assert_eq!(
        error("modul"),
        "line 1, column 1: expected \"module\", found \"modul\""
    );
    assert!(
        error("module {\n  graph @\"f\"() -> () {\n    %0 = nonsense() : token\n")
            .contains("unknown operation \"nonsense\"")
    );
    assert!(
        error("module {\n graph @\"f\"(%0 \"\": token, %0 \"\": token)")
            .contains("%0 is defined twice")
    );
    assert!(error("module {\n graph @\"f\"(%4000000000 \"\": token)").contains("far beyond"));
    assert!(error(&format!("module {{a = {}", "[".repeat(100_000))).contains("nested deeper"));
    assert!(
        error("module {\n graph @\"f\"() -> () {\n %0 = constant blob(3) : tensor<1xu8>")
            .contains("there is no blob 3")
    );
}
