//! `russet call`: files of every kind in and out, states from one call to the next, and what is said of a wrong call.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use russet::tensors::{self, NamedTensors};
use russet_graph::tensor::Tensor;
use russet_graph::types::DType;

use crate::tools::{Folder, RUSSET, complaint, fixture, russet, stdout};

/// `out0` is the state `s` (four f32), which grows by `x`.
const COUNTER: &str = "ops/write_handle/accumulate.aimodel";
/// Sum, product, quotient and remainder of `x` and `y` (3 × 4, i16).
const PAIR: &str = "ops/add/si16.aimodel";
/// The places of what is not zero in `x` (2 × 3, f32): the extent of the result is known only when it has been computed.
const PLACES: &str = "ops/non_zero/some.aimodel";

fn recording(asset: &str) -> PathBuf {
    fixture(asset).with_extension("safetensors")
}

/// The tensors of a recording whose names begin with `part`, by the rest of their names.
fn recorded(asset: &str, part: &str) -> NamedTensors {
    let all = tensors::read(&recording(asset)).unwrap().into_iter();
    all.filter_map(|(name, t)| Some((name.strip_prefix(part)?.to_owned(), t)))
        .collect()
}

fn floats(values: &[f64]) -> Tensor {
    Tensor::from_floats(DType::F32, &[values.len()], values).unwrap()
}

/// Writes one tensor under a name.
fn file(folder: &Folder, file: &str, name: &str, tensor: Tensor) -> PathBuf {
    let path = folder.join(file);
    tensors::write(&path, &[(name.into(), tensor)]).unwrap();
    path
}

fn named(tensors: &NamedTensors, name: &str) -> Tensor {
    let found = tensors.iter().find(|(n, _)| n == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {tensors:?}"))
        .1
        .clone()
}

/// `NAME=PATH`.
fn under(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

#[test]
fn a_recorded_call_is_repeated_from_its_own_file() {
    for asset in [COUNTER, PAIR, PLACES, "ops/invoke/twice.aimodel"] {
        let folder = Folder::new();
        let out = folder.join("out.safetensors");
        let done = russet(&[
            &"call",
            &fixture(asset),
            &"--in",
            &recording(asset),
            &"--out",
            &out,
        ]);
        assert_eq!(stdout(&done), "", "{asset}");
        let results = tensors::read(&out).unwrap();
        for (name, want) in recorded(asset, "out.") {
            assert_eq!(named(&results, &name), want, "{asset}, {name}");
        }
        for (name, want) in recorded(asset, "after.") {
            assert_eq!(
                named(&results, &format!("state.{name}")),
                want,
                "{asset}, {name}"
            );
        }
        assert_eq!(folder.names(), ["out.safetensors"], "nothing else is left");
    }
}

#[test]
fn every_format_goes_in_and_out() {
    let (x, want) = (recorded(PAIR, "in."), recorded(PAIR, "out."));
    let folder = Folder::new();
    for extension in ["safetensors", "npz"] {
        let given = folder.join(&format!("in.{extension}"));
        tensors::write(&given, &x).unwrap();
        for out in ["safetensors", "npz"] {
            let out = folder.join(&format!("{extension}-out.{out}"));
            stdout(&russet(&[
                &"call",
                &fixture(PAIR),
                &"--in",
                &given,
                &"--out",
                &out,
            ]));
            let mut got = tensors::read(&out).unwrap();
            got.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(got, want);
        }
    }
    let [a, b] = ["x", "y"].map(|n| file(&folder, &format!("{n}.npy"), n, named(&x, n)));
    let out = folder.join("out.npz");
    let (a, b) = (under("y", &b), under("x", &a));
    stdout(&russet(&[
        &"call",
        &fixture(PAIR),
        &"--in",
        &a,
        &"--in",
        &b,
        &"--out",
        &out,
    ]));
    assert_eq!(tensors::read(&out).unwrap().len(), 4);
}

#[test]
fn the_array_of_a_npy_is_the_only_input_and_the_only_result() {
    let folder = Folder::new();
    let x = named(&recorded(PLACES, "in."), "x");
    let (given, out) = (file(&folder, "x.npy", "x", x), folder.join("places.npy"));
    stdout(&russet(&[
        &"call",
        &fixture(PLACES),
        &"--in",
        &given,
        &"--out",
        &out,
    ]));
    let got = tensors::read(&out).unwrap();
    assert_eq!(
        got,
        [(String::new(), named(&recorded(PLACES, "out."), "out0"))]
    );
}

#[test]
fn without_a_result_file_the_types_are_printed() {
    let done = russet(&[&"call", &fixture(COUNTER), &"--in", &recording(COUNTER)]);
    assert_eq!(
        stdout(&done),
        "out0: tensor<4xf32>\nstate.s: tensor<4xf32>\n"
    );
}

#[test]
fn states_go_from_one_call_to_the_next() {
    let folder = Folder::new();
    let asset = fixture(COUNTER);
    let mut sum = [0.0; 4];
    let mut before: Option<PathBuf> = None;
    for (turn, kind) in ["safetensors", "npz", "safetensors", "npz"]
        .iter()
        .enumerate()
    {
        let x = [1.0, -2.0, 0.5, turn as f64];
        let given = file(&folder, "x.npy", "x", floats(&x));
        let out = folder.join(&format!("{turn}.{kind}"));
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
            vec![&"call", &asset, &"--in", &given, &"--out", &out];
        if let Some(before) = &before {
            args.extend([&"--states" as &dyn AsRef<std::ffi::OsStr>, before]);
        }
        stdout(&russet(&args));
        let results = tensors::read(&out).unwrap();
        assert_eq!(named(&results, "out0"), floats(&sum), "turn {turn}");
        sum.iter_mut().zip(x).for_each(|(s, x)| *s += x);
        assert_eq!(named(&results, "state.s"), floats(&sum), "turn {turn}");
        before = Some(out);
    }
    let state = file(&folder, "s.npy", "s", floats(&[5.0; 4]));
    let (x, out) = (folder.join("x.npy"), folder.join("given.safetensors"));
    let state = under("state.s", &state);
    stdout(&russet(&[
        &"call", &asset, &"--in", &x, &"--in", &state, &"--out", &out,
    ]));
    assert_eq!(
        named(&tensors::read(&out).unwrap(), "out0"),
        floats(&[5.0; 4])
    );
}

/// Calls the counter or the pair with one file, and gives what is said about it.
fn refused(asset: &str, args: &[String]) -> String {
    let folder = Folder::new();
    let out = folder.join("out.npz");
    let mut command = Command::new(RUSSET);
    command
        .arg("call")
        .arg(fixture(asset))
        .args(args)
        .arg("--out")
        .arg(&out);
    let said = complaint(&command.output().unwrap(), 1);
    assert_eq!(folder.names(), Vec::<String>::new(), "no file is left");
    said
}

/// What is said of the counter called on these tensors, each in a file of its own.
fn refused_with(tensors: &[(&str, Tensor)]) -> String {
    let folder = Folder::new();
    let mut args = Vec::new();
    for (i, (name, tensor)) in tensors.iter().enumerate() {
        let path = file(&folder, &format!("{i}.npz"), name, tensor.clone());
        args.extend(["--in".into(), path.display().to_string()]);
    }
    refused(COUNTER, &args)
}

/// Tensors that do not fit, and what is said of them.
type Wrong<'a> = (&'a [(&'a str, Tensor)], &'a [&'a str]);

#[test]
fn wrong_tensors_are_named_with_what_was_wanted() {
    let four = || floats(&[1.0; 4]);
    let square = Tensor::from_floats(DType::F32, &[2, 2], &[1.0; 4]).unwrap();
    let whole = Tensor::from_ints(DType::I32, &[4], &[1; 4]).unwrap();
    let three = "expected tensor<4xf32>, got tensor<3xf32>";
    let cases: [Wrong<'_>; 8] = [
        (&[], &["needs the input \"x\"", "tensor<4xf32>"]),
        (&[("y", four())], &["no input \"y\"", "\"x\" tensor<4xf32>"]),
        (&[("x", floats(&[1.0; 3]))], &["input \"x\"", three]),
        (&[("x", whole)], &["got tensor<4xi32>"]),
        (&[("x", square)], &["got tensor<2x2xf32>"]),
        (
            &[("x", four()), ("state.s", floats(&[0.0; 3]))],
            &["state \"s\"", three],
        ),
        (
            &[("x", four()), ("state.t", four())],
            &["no state \"t\"", "\"s\" tensor<4xf32>"],
        ),
        (
            &[("x", four()), ("in.x", four())],
            &["input \"x\" is given twice"],
        ),
    ];
    for (tensors, parts) in cases {
        let said = refused_with(tensors);
        assert!(parts.iter().all(|p| said.contains(p)), "{said}");
    }
}

#[test]
fn functions_and_files_that_are_not_there_are_named() {
    let folder = Folder::new();
    let x = file(&folder, "x.npy", "x", floats(&[1.0; 4]));
    let args = ["--in", &x.display().to_string(), "--function", "extend"];
    let said = refused(COUNTER, &args.map(String::from));
    assert!(said.contains("no function \"extend\""), "{said}");
    assert!(said.contains("the functions are main"), "{said}");
    let none = folder.join("none.npz").display().to_string();
    let said = refused(COUNTER, &["--in".into(), none]);
    assert!(
        said.contains("none.npz") && said.contains("No such file"),
        "{said}"
    );
}

#[test]
fn an_array_without_a_name_does_not_choose_among_inputs() {
    let folder = Folder::new();
    let x = file(&folder, "x.npy", "x", named(&recorded(PAIR, "in."), "x"));
    let said = refused(PAIR, &["--in".into(), x.display().to_string()]);
    assert!(
        said.contains("say NAME=FILE") && said.contains("\"y\""),
        "{said}"
    );
    let both = recording(PAIR);
    let said = refused(PAIR, &["--in".into(), under("x", &both)]);
    assert!(said.contains("given twice"), "{said}");
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    let folder = Folder::new();
    let good = fs::read(recording(COUNTER)).unwrap();
    for (name, bytes, part) in [
        (
            "cut.safetensors",
            &good[..good.len() - 1],
            "not a sound .safetensors file",
        ),
        ("empty.npz", &[], "not a sound .npz file"),
        ("text.npy", b"1 2 3", "not a sound .npy file"),
        ("x.bin", b"1234", ".safetensors, .npz and .npy"),
    ] {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let said = refused(COUNTER, &["--in".into(), path.display().to_string()]);
        assert!(said.contains(name) && said.contains(part), "{said}");
    }
}

/// Calls the counter with a result file.
fn counter_to(out: &Path) -> Output {
    russet(&[
        &"call",
        &fixture(COUNTER),
        &"--in",
        &recording(COUNTER),
        &"--out",
        &out,
    ])
}

#[test]
fn result_files_that_cannot_be_written_are_refused_before_the_call() {
    let folder = Folder::new();
    fs::write(folder.join("file"), b"").unwrap();
    fs::create_dir(folder.join("folder.npz")).unwrap();
    for (out, part) in [
        ("none/out.npz", "No such file"),
        ("file/out.npz", "ot a directory"),
        ("folder.npz", "s a directory"),
        ("out.bin", ".safetensors, .npz and .npy"),
        ("out", ".safetensors, .npz and .npy"),
    ] {
        let said = complaint(&counter_to(&folder.join(out)), 1);
        assert!(said.contains(out) && said.contains(part), "{said}");
    }
    assert_eq!(folder.names(), ["file", "folder.npz"]);
}

#[test]
fn results_that_do_not_fit_a_format_leave_the_file_as_it_was() {
    let folder = Folder::new();
    let out = folder.join("out.npy");
    fs::write(&out, b"before").unwrap();
    let said = complaint(&counter_to(&out), 1);
    assert!(said.contains("holds one tensor, not 2"), "{said}");
    assert_eq!(fs::read(&out).unwrap(), b"before");
    assert_eq!(folder.names(), ["out.npy"]);
}

/// A limit on the size of files stands in for a full disk: the write fails half-way in the same manner.
#[cfg(unix)]
#[test]
fn a_disk_that_is_full_leaves_no_half_file() {
    let folder = Folder::new();
    let out = folder.join("out.safetensors");
    fs::write(&out, b"before").unwrap();
    let limited = |out: &Path| {
        let script = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh", RUSSET, "call"])
            .arg(fixture(COUNTER));
        command
            .arg("--in")
            .arg(recording(COUNTER))
            .arg("--out")
            .arg(out);
        complaint(&command.output().unwrap(), 1)
    };
    let said = limited(&out);
    assert!(
        said.contains("out.safetensors") && said.contains("File too large"),
        "{said}"
    );
    assert_eq!(fs::read(&out).unwrap(), b"before");
    limited(&folder.join("new.safetensors"));
    assert_eq!(folder.names(), ["out.safetensors"]);
}

/// What is no file is written to, not replaced: a device that is always full says so.
#[cfg(target_os = "linux")]
#[test]
fn devices_are_written_to_and_their_errors_told() {
    let folder = Folder::new();
    let full = folder.join("full.safetensors");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let said = complaint(&counter_to(&full), 1);
    assert!(said.contains("No space left on device"), "{said}");
    let null = folder.join("null.safetensors");
    std::os::unix::fs::symlink("/dev/null", &null).unwrap();
    stdout(&counter_to(&null));
    assert_eq!(folder.names(), ["full.safetensors", "null.safetensors"]);
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link() {
    let folder = Folder::new();
    fs::write(folder.join("target.npz"), b"before").unwrap();
    std::os::unix::fs::symlink("target.npz", folder.join("link.npz")).unwrap();
    stdout(&counter_to(&folder.join("link.npz")));
    assert!(folder.join("link.npz").is_symlink());
    assert_eq!(tensors::read(&folder.join("target.npz")).unwrap().len(), 2);
}

#[test]
fn a_bundle_stands_for_its_main_asset() {
    let folder = Folder::new();
    let out = folder.join("table.safetensors");
    let bundle = fixture("static/static");
    stdout(&russet(&[
        &"call",
        &bundle,
        &"--function",
        &"load_embeddings",
        &"--out",
        &out,
    ]));
    let want = tensors::read(&fixture("static/static.safetensors")).unwrap();
    assert_eq!(
        named(&tensors::read(&out).unwrap(), "embedding_table"),
        named(&want, "embedding_table")
    );
}
