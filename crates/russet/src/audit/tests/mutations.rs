//! Bundles broken in one place each.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const ASSET: &str = "qwen3-4bit.aimodel";
const TOKENIZER: &str = "tokenizer/tokenizer.json";
const CONFIG: &str = "tokenizer/tokenizer_config.json";

type Break = fn(&mut Files);

fn metadata(files: &mut Files, change: impl FnOnce(&mut Value)) {
    edit(files, METADATA, change);
}

fn remove(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().remove(key).unwrap();
}

/// Gives the asset another name, in its folder alone.
fn rename_asset(files: &mut Files, to: &str) {
    let inner = ["main.hash", "main.mlirb", "metadata.json"];
    for name in inner {
        let bytes = files.remove(&format!("{ASSET}/{name}")).unwrap();
        files.insert(format!("{to}/{name}"), bytes);
    }
}

fn program(files: &mut Files) -> &mut Vec<u8> {
    files.get_mut(&format!("{ASSET}/main.mlirb")).unwrap()
}

/// Replaces a name in the program by one of the same length.
fn respell(files: &mut Files, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let program = program(files);
    let at = program
        .windows(from.len())
        .position(|w| w == from.as_bytes());
    let at = at.unwrap();
    program[at..at + to.len()].copy_from_slice(to.as_bytes());
}

fn vlm(files: &mut Files, vision: Value, nested: bool) {
    metadata(files, |v| {
        v["kind"] = "vlm".into();
        v["assets"]["vision"] = ASSET.into();
        v["assets"]["embedding"] = ASSET.into();
        let place = if nested { &mut v["language"] } else { v };
        place["vision"] = vision;
    });
}

/// Adds tokens beyond the logits.
fn more_tokens(files: &mut Files) {
    edit(files, TOKENIZER, |v| {
        let added = v["added_tokens"].as_array_mut().unwrap();
        for id in 307..330 {
            let mut token = added[0].clone();
            token["id"] = id.into();
            token["content"] = format!("<extra {id}>").into();
            added.push(token);
        }
    });
}

fn vision() -> Value {
    json!({"image_size": 448, "patch_size": 16, "image_token_count": 196, "image_token_id": 300,
           "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})
}

fn without(mut value: Value, key: &str) -> Value {
    remove(&mut value, key);
    value
}

fn with(mut value: Value, key: &str, to: impl Into<Value>) -> Value {
    value[key] = to.into();
    value
}

/// What is done to a whole bundle, the finding that must follow, and a part of its mend.
const BROKEN: &[(&str, &str, Break)] = &[
    ("metadata-missing", "export it again", |f| {
        drop(f.remove(METADATA))
    }),
    ("metadata-missing", "give the folder", |f| {
        f.retain(|path, _| path.starts_with("tokenizer/"))
    }),
    ("metadata-malformed", "export the model again", |f| {
        f.get_mut(METADATA).unwrap().truncate(100)
    }),
    ("metadata-malformed", "export the model again", |f| {
        drop(f.insert(METADATA.into(), b"[]".to_vec()))
    }),
    ("metadata-version", "write 0.2", |f| {
        metadata(f, |v| v["metadata_version"] = "0.1".into())
    }),
    ("metadata-version", "write 0.2", |f| {
        metadata(f, |v| remove(v, "metadata_version"))
    }),
    ("kind-unknown", "one of llm", |f| {
        metadata(f, |v| v["kind"] = "lmm".into())
    }),
    ("field-missing", "the model's name", |f| {
        metadata(f, |v| remove(v, "name"))
    }),
    ("field-missing", "tokenizer, vocab_size", |f| {
        metadata(f, |v| remove(v, "language"))
    }),
    ("field-missing", "width of the logits", |f| {
        metadata(f, |v| remove(&mut v["language"], "vocab_size"))
    }),
    ("field-missing", "\"main\": \"qwen3-4bit.aimodel\"", |f| {
        metadata(f, |v| v["assets"] = json!({}))
    }),
    ("field-type", "a positive integer", |f| {
        metadata(f, |v| v["language"]["max_context_length"] = "256".into())
    }),
    ("field-type", "an object of paths", |f| {
        metadata(f, |v| v["assets"] = json!(["x"]))
    }),
    ("asset-missing", "--asset main=other.aimodel", |f| {
        rename_asset(f, "other.aimodel")
    }),
    ("asset-missing", "case of letters", |f| {
        rename_asset(f, "Qwen3-4bit.aimodel")
    }),
    ("asset-compiled", "compiled from", |f| {
        rename_asset(f, "qwen3-4bit.h18p.aimodelc")
    }),
    ("asset-outside", "into the bundle", |f| {
        metadata(f, |v| v["assets"]["main"] = "../m.aimodel".into())
    }),
    ("asset-invalid", "a folder with main.mlirb", |f| {
        drop(f.remove("qwen3-4bit.aimodel/main.mlirb"))
    }),
    ("asset-unused", "give it a role", |f| {
        drop(f.insert("draft.aimodel/main.mlirb".into(), vec![1]))
    }),
    ("asset-unreadable", "export the asset again", |f| {
        program(f).truncate(70_000)
    }),
    ("asset-unreadable", "export the asset again", |f| {
        program(f).fill(7)
    }),
    ("operation-unknown", "without this operation", |f| {
        respell(f, "primitive.slice_v1", "primitive.slicf_v1")
    }),
    ("hash-missing", "main.hash", |f| {
        drop(f.remove("qwen3-4bit.aimodel/main.hash"))
    }),
    ("file-empty", "copy or export", |f| program(f).clear()),
    ("file-empty", "copy or export", |f| {
        drop(f.insert(CONFIG.into(), Vec::new()))
    }),
    ("file-leftover", "remove it", |f| {
        drop(f.insert("tokenizer/.tokenizer.json.17-0.part".into(), vec![1]))
    }),
    ("file-pointer", "git lfs pull", |f| {
        let text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 73021\n";
        f.insert(TOKENIZER.into(), text.into());
    }),
    ("compression-false", "read the log", |f| {
        metadata(f, |v| v["compression"] = "3bit".into())
    }),
    ("compression-unclear", "4bit can be checked", |f| {
        metadata(f, |v| v["compression"] = "small".into())
    }),
    ("compression-unnamed", "4bit tells", |f| {
        metadata(f, |v| v["compression"] = Value::Null)
    }),
    ("context-cache", "max_context_length 256", |f| {
        metadata(f, |v| v["language"]["max_context_length"] = 512.into())
    }),
    ("function-missing", "[\"main\"]", |f| {
        metadata(f, |v| {
            v["language"]["function_map"]["main"] = json!(["run"])
        })
    }),
    ("function-map-ignored", "leave out", |f| {
        metadata(f, |v| {
            v["language"]["function_map"]["extend"] = json!(["a", "b"])
        })
    }),
    ("io-names", "input_ids", |f| {
        respell(f, "input_ids", "inputs_id")
    }),
    ("state-kind", "kv_cache, sliding_cache, fixed", |f| {
        metadata(f, |v| v["language"]["states"] = json!({"keyCache": "kv"}))
    }),
    ("state-unknown", "as the asset does", |f| {
        metadata(f, |v| {
            v["language"]["states"] = json!({"key_cache": "kv_cache"})
        })
    }),
    (
        "tokenizer-missing",
        "that nothing on the way leaves out *.json",
        |f| drop(f.remove(TOKENIZER)),
    ),
    ("tokenizer-missing", "move tokenizer.json", |f| {
        let bytes = f.remove(TOKENIZER).unwrap();
        f.insert("tokenizer.json".into(), bytes);
    }),
    ("tokenizer-elsewhere", "set it to true", |f| {
        metadata(f, |v| v["language"]["embedded_tokenizer"] = false.into())
    }),
    ("tokenizer-broken", "copy it again", |f| {
        f.get_mut(TOKENIZER).unwrap().truncate(4000)
    }),
    ("tokenizer-broken", "copy it again", |f| {
        f.get_mut(CONFIG).unwrap().truncate(40)
    }),
    ("tokenizer-config", "copy it from", |f| {
        drop(f.remove(CONFIG))
    }),
    ("vocabulary-logits", "make it 320", |f| {
        metadata(f, |v| v["language"]["vocab_size"] = 300.into())
    }),
    (
        "vocabulary-tokenizer",
        "the checkpoint that was exported",
        more_tokens,
    ),
    (
        "vocabulary-small",
        "the checkpoint that was exported",
        |f| {
            let tiny = json!({"version": "1.0", "added_tokens": [],
            "model": {"type": "WordLevel", "vocab": {"a": 0, "<|im_end|>": 1}, "unk_token": "a"}});
            f.insert(TOKENIZER.into(), tiny.to_string().into_bytes());
        },
    ),
    ("stop-none", "eos_token", |f| {
        edit(f, CONFIG, |v| remove(v, "eos_token"));
        edit(f, TOKENIZER, |v| {
            let text = v.to_string();
            let text = text
                .replace("im_end", "im_stop")
                .replace("endoftext", "pad");
            *v = serde_json::from_str(&text).unwrap();
        });
    }),
    ("stop-outside", "generation_config.json", |f| {
        metadata(f, |v| v["language"]["eos_token_ids"] = json!([2, 999]))
    }),
    ("template-missing", "chat_template", |f| {
        edit(f, CONFIG, |v| remove(v, "chat_template"))
    }),
    ("template-broken", "from the checkpoint again", |f| {
        edit(f, CONFIG, |v| {
            v["chat_template"] = "{% for m in messages %}".into()
        })
    }),
    ("template-broken", "from the checkpoint again", |f| {
        edit(f, CONFIG, |v| {
            v["chat_template"] = "{{ raise_exception('no') }}".into()
        })
    }),
    ("vision-nested", "top level", |f| vlm(f, vision(), true)),
    ("field-missing", "export the model again", |f| {
        vlm(f, without(vision(), "image_size"), false)
    }),
    ("vision-channels", "preprocessor_config.json", |f| {
        vlm(f, without(vision(), "image_mean"), false)
    }),
    ("vision-patches", "preprocessor_config.json", |f| {
        vlm(f, with(vision(), "patch_size", 15), false)
    }),
    ("vision-token", "image_token_id", |f| {
        vlm(f, with(vision(), "image_token_id", 151_655), false)
    }),
    ("pipeline-legacy", "remove pipeline.json", |f| {
        metadata(f, |v| {
            v["kind"] = "diffusion".into();
            v["diffusion"] = json!({});
        });
        f.insert("pipeline.json".into(), b"{}".to_vec());
    }),
    ("components-missing", "missing components", |f| {
        metadata(f, |v| {
            v["kind"] = "diffusion".into();
            v["diffusion"] = json!({});
        })
    }),
    ("metadata-bare", "guessed from their names", |f| {
        f.retain(|path, _| path.starts_with(ASSET))
    }),
];

#[test]
fn broken_bundles_are_found_out_and_each_finding_tells_the_mend() {
    let good = whole("lm/qwen3-4bit");
    assert!(
        audited(&good).findings.is_empty(),
        "{:?}",
        audited(&good).findings
    );
    for (i, (code, mend, change)) in BROKEN.iter().enumerate() {
        let mut files = good.clone();
        change(&mut files);
        let report = audited(&files);
        assert_explained(&report);
        let found = report.findings.iter().filter(|f| f.code == *code);
        let texts: Vec<String> = found.map(|f| format!("{} {}", f.what, f.mend)).collect();
        assert!(!texts.is_empty(), "{i}: {code}: {:?}", report.findings);
        assert!(
            texts.iter().any(|t| t.contains(mend)),
            "{i}: {mend}: {texts:?}"
        );
    }
}

/// One break is one finding, where nothing follows from it.
#[test]
fn what_is_broken_once_is_told_once() {
    let follow = [
        "metadata-missing",
        "metadata-bare",
        "file-empty",
        "components-missing",
        "pipeline-legacy",
    ];
    for (code, _, change) in BROKEN.iter().filter(|(code, _, _)| !follow.contains(code)) {
        let mut files = whole("lm/qwen3-4bit");
        change(&mut files);
        let found = codes(&audited(&files));
        let same = found.iter().filter(|c| *c == code).count();
        assert!(same <= 2 && found.len() <= 3, "{code}: {found:?}");
    }
}

#[test]
fn a_digest_is_compared_when_asked() {
    let mut files = whole("lm/qwen3-4bit");
    *program(&mut files).last_mut().unwrap() ^= 1;
    let source = memory(&files);
    assert!(audit(&source, &AuditOptions::default()).findings.is_empty());
    let options = AuditOptions {
        hash: true,
        ..AuditOptions::default()
    };
    let report = audit(&source, &options);
    assert_eq!(codes(&report), ["hash-wrong"]);
}

#[test]
fn a_limit_of_bytes_is_compared_when_given() {
    let source = memory(&whole("lm/qwen3-4bit"));
    for (max_bytes, expected) in [
        (Some(1000), &["size-limit"][..]),
        (Some(1_000_000), &[]),
        (None, &[]),
    ] {
        let options = AuditOptions {
            max_bytes,
            ..AuditOptions::default()
        };
        assert_eq!(codes(&audit(&source, &options)), expected);
    }
}

/// Contract B §10.2, 1: a failed quantisation leaves a four-bit name on sixteen-bit weights.
#[test]
fn silent_failure_1_compression_records_the_request() {
    let mut files = whole("lm/qwen3");
    edit(&mut files, METADATA, |v| v["compression"] = "4bit".into());
    let report = audited(&files);
    assert_eq!(codes(&report), ["compression-false"]);
    let what = &report.findings[0].what;
    assert!(what.contains("100 % f16"), "{what}");
    assert!(!report.is_sound());
    // One layer of many that was meant to be left out is no lie; most of them is worth a look.
    let mixed = audited(&whole("lm/moe-4bit"));
    assert_eq!(codes(&mixed), ["compression-partly"]);
    assert!(mixed.is_sound());
}

/// Contract B §10.2, 2: a missing `tokenizer/` is fetched from a network, where there is one.
#[test]
fn silent_failure_2_a_missing_tokenizer_is_fetched() {
    let mut files = whole("lm/qwen3-4bit");
    files.retain(|path, _| !path.starts_with("tokenizer/"));
    let report = audited(&files);
    assert_eq!(codes(&report), ["tokenizer-missing"]);
    assert!(report.findings[0].what.contains("asked from a network"));
}

#[test]
fn a_ladder_that_does_not_reach_the_context_is_told() {
    let mut files = whole("static/static");
    edit(&mut files, METADATA, |v| {
        v["language"]["max_context_length"] = 1024.into()
    });
    let report = audited(&files);
    assert!(
        codes(&report).contains(&"context-functions"),
        "{:?}",
        report.findings
    );
    let mut files = whole("static/static");
    let program = files.get_mut("static.aimodel/main.mlirb").unwrap();
    let at = program.windows(12).position(|w| w == b"extend_512_8");
    let at = at.unwrap();
    program[at..at + 12].copy_from_slice(b"extend_x12_8");
    assert!(codes(&audited(&files)).contains(&"function-name"));
}

#[test]
fn a_length_without_embeddings_is_told() {
    let mut files = whole("static/static");
    let program = files.get_mut("static.aimodel/main.mlirb").unwrap();
    let name = b"gather_embeddings_8";
    let at = program.windows(name.len()).position(|w| w == name);
    program[at.unwrap() + name.len() - 1] = b'9';
    let report = audited(&files);
    assert!(
        codes(&report).contains(&"gather-missing"),
        "{:?}",
        report.findings
    );
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_are_told() {
    let folder = std::env::temp_dir().join(format!("russet-audit-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.join("x.json")).unwrap();
    let report = audit(&DirectorySource::new(&folder), &AuditOptions::default());
    assert!(codes(&report).contains(&"file-special"), "{report:?}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn names_of_compressions_say_bits_of_weights() {
    for (name, bits) in [
        ("4bit", &[4][..]),
        ("8bit", &[8]),
        ("mixed_4bit_8bit", &[4, 8]),
        ("4bit_weight_palettized_group8", &[4]),
        ("4bit_weights_8bit_kv_cache", &[4]),
        ("fp8_weights_fp8_activations_fp8_kv_cache", &[8]),
        ("qwen3_0_6b_mixed_4bit_8bit.yaml", &[4, 8]),
        ("int4", &[4]),
        ("float16", &[16]),
        ("small", &[]),
        ("99999999999999999999bit", &[]),
    ] {
        assert_eq!(compression::bits(name), bits, "{name}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~]{0,8}".prop_map(Value::from),
        Just("qwen3-4bit.aimodel".into()),
        Just("../../etc/passwd".into()),
        Just("llm".into()),
        Just("diffusion".into()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z_]{0,8}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Every place in a document, as keys.
fn places(value: &Value, at: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    if let Value::Object(map) = value {
        for (key, inner) in map {
            at.push(key.clone());
            found.push(at.clone());
            places(inner, at, found);
            at.pop();
        }
    }
}

fn vlm_metadata() -> Value {
    let mut files = whole("lm/qwen3-4bit");
    vlm(&mut files, vision(), false);
    serde_json::from_slice(&files[METADATA]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Metadata with anything in any place is audited to the end.
    #[test]
    fn damaged_metadata_is_audited_to_the_end(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any_json()), 1..4),
        cut in proptest::option::of(0_usize..700),
    ) {
        let mut files = whole("lm/qwen3-4bit");
        let mut value = vlm_metadata();
        for (place, to) in changes {
            let mut found = Vec::new();
            places(&value, &mut Vec::new(), &mut found);
            if found.is_empty() {
                break;
            }
            let path = place.get(&found);
            let (last, parents) = path.split_last().unwrap();
            let parent = parents.iter().fold(&mut value, |v, key| &mut v[key]);
            parent[last] = to;
        }
        let mut text = value.to_string().into_bytes();
        text.truncate(cut.unwrap_or(usize::MAX));
        files.insert(METADATA.into(), text);
        assert_explained(&audited(&files));
    }

    /// So is a tokenizer's config.
    #[test]
    fn damaged_tokenizer_configs_are_audited_to_the_end(config in any_json(), key in "(eos_token|chat_template|added_tokens_decoder|additional_special_tokens)") {
        let mut files = whole("lm/qwen3-4bit");
        edit(&mut files, CONFIG, |v| v[key] = config);
        assert_explained(&audited(&files));
    }
}
