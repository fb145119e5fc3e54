//! What each kind adds to the metadata, and folders without any.

use super::*;

const VLM: &str = r#"{"metadata_version": "0.2", "kind": "vlm", "name": "n", "assets": {"main": "m.aimodel"},
    "language": {"tokenizer": "t", "vocab_size": 320, "max_context_length": 256},
    "vision": {"image_size": 448, "patch_size": 16, "image_token_count": 196, "image_token_id": 151655,
               "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "max_video_frames": 8}}"#;

/// What to change in [`VLM`], and a part of what is said then.
const VISION_FAULTS: [(&str, &str, &str); 8] = [
    (
        "\"patch_size\": 16, ",
        "",
        "missing required field 'vision.patch_size'",
    ),
    ("151655", "-1", "'vision.image_token_id' is not a token"),
    (
        "151655",
        "3000000000",
        "'vision.image_token_id' is not a token",
    ),
    (
        "[0.5, 0.5, 0.5]",
        "[0.5]",
        "'vision.image_mean' is not three numbers",
    ),
    (
        "\"image_std\": [0.5",
        "\"image_std\": [0",
        "'vision.image_std' is not three positive numbers",
    ),
    (
        "\"max_video_frames\": 8",
        "\"image_strategy\": \"crop\"",
        "is not stretch, center_crop or pad",
    ),
    (
        "\"max_video_frames\": 8",
        "\"rescale_factor\": 0",
        "'vision.rescale_factor' is not a positive number",
    ),
    (
        "\"vision\": {",
        "\"language2\": {",
        "missing required field 'vision'",
    ),
];

#[test]
fn a_vision_part_has_defaults_and_checks() {
    let vision =
        |metadata: &str| LanguageBundle::read(&bundle(metadata)).map(|b| b.vision.unwrap());
    let given = vision(VLM).unwrap();
    assert_eq!((given.image_size, given.image_token_id), (448, 151_655));
    assert_eq!((given.image_mean, given.image_std), ([0.5; 3], [0.5; 3]));
    assert_eq!(given.image_strategy, ImageStrategy::Stretch);
    assert!(given.supports_video() && !given.include_image_info);
    let bare = VLM.replace(
        "\"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, 0.5, 0.5], \"max_video_frames\": 8",
        "\"image_strategy\": \"pad\"",
    );
    let bare = vision(&bare).unwrap();
    assert_eq!((bare.image_mean, bare.image_std), (CLIP_MEAN, CLIP_STD));
    assert_eq!(
        (bare.rescale_factor, bare.image_strategy),
        (1.0, ImageStrategy::Pad)
    );
    assert!(!bare.supports_video());
    for (from, to, expected) in VISION_FAULTS {
        let text = error(&VLM.replacen(from, to, 1));
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_vision_part_inside_language_says_where_to_move_it() {
    let nested = VLM.replace("256},", "256,").replace("8}}", "8}}}");
    assert_eq!(
        error(&nested),
        "field 'vision' is inside 'language', where nothing reads it: move it to the top level of metadata.json"
    );
}

fn diffusion(part: &str, assets: &str) -> String {
    format!(
        r#"{{"metadata_version": "0.2", "kind": "diffusion", "name": "d", "assets": {{{assets}}}, "diffusion": {{{part}}}}}"#
    )
}

fn named_components() -> String {
    diffusion(
        r#""default_steps": 4, "rope_axes_dims": [32, 32]"#,
        r#""unet": "u.aimodel", "vae_decoder": "v.aimodel""#,
    )
}

/// A folder of assets by their names, with metadata where it is not empty.
fn assets(metadata: &str, names: &[&str]) -> MemorySource {
    let start = match metadata {
        "" => MemorySource::new("d"),
        text => with(text, "x"),
    };
    names.iter().fold(start, |source, name| {
        source.with(&format!("{name}/main.mlirb"), "").unwrap()
    })
}

#[test]
fn an_image_generator_finds_its_components_three_ways() {
    use DiffusionMode as M;
    let named = named_components();
    let cases: [(&str, &[&str], &[M]); 6] = [
        (&named, &["u.aimodel", "v.aimodel"], &[M::Full]),
        (
            &named,
            &["u.aimodel", "v.aimodel", "VAEDecoder_half.aimodel"],
            &[M::Full, M::Tiled],
        ),
        (
            &diffusion("", ""),
            &["Transformer_512.aimodel", "VAEDecoder_half.aimodelc"],
            &[M::Half],
        ),
        (
            "",
            &["sd_mmdit_v2.aimodel", "vae_decoder.aimodel"],
            &[M::Full],
        ),
        (
            "",
            &["Unet.aimodel", "VAEDecoder_half.aimodel", "notes.txt"],
            &[M::Tiled],
        ),
        (
            "",
            &[
                "flux-transformer-512.aimodel",
                "my_vae_decoder_half.aimodel",
            ],
            &[M::Half],
        ),
    ];
    for (metadata, names, modes) in cases {
        let found = DiffusionBundle::read(&assets(metadata, names)).unwrap();
        assert_eq!(found.modes().collect::<Vec<_>>(), modes, "{names:?}");
    }
}

#[test]
fn components_are_told_apart() {
    use DiffusionComponent as C;
    let named = named_components();
    let found = DiffusionBundle::read(&assets(&named, &["u.aimodel", "v.aimodel"])).unwrap();
    assert_eq!(found.component(C::Denoiser), Some("u.aimodel"));
    assert_eq!(found.config.default_steps, Some(4));
    assert_eq!(found.config.rope_axes_dims, [32, 32]);
    let both = [
        "TextEncoder2.aimodel",
        "text_encoder.aimodel",
        "unet.aimodel",
        "vaedecoder.aimodel",
    ];
    let found = DiffusionBundle::read(&assets("", &both)).unwrap();
    assert_eq!(
        found.component(C::TextEncoder2),
        Some("TextEncoder2.aimodel")
    );
    assert_eq!(
        found.component(C::TextEncoder),
        Some("text_encoder.aimodel")
    );
}

#[test]
fn an_image_generator_that_is_not_whole_says_what_it_needs() {
    let said = |source: &MemorySource| DiffusionBundle::read(source).unwrap_err().to_string();
    let none = said(&assets(&diffusion("", ""), &["Transformer.aimodel"]));
    for mode in ["(full)", "(tiled)", "(half)"] {
        assert!(none.contains(mode), "{none}");
    }
    let legacy = assets(
        "",
        &["Transformer.aimodel", "VAEDecoder.aimodel", "pipeline.json"],
    );
    assert!(said(&legacy).starts_with("pipeline.json is a format that is no longer read"));
    let missing = diffusion("", r#""transformer": "t.aimodel""#);
    assert_eq!(
        said(&assets(&missing, &[])),
        "asset 'transformer' not found at b/t.aimodel"
    );
    let part = diffusion(r#""default_steps": "four""#, "");
    let typed = said(&assets(
        &part,
        &["Transformer.aimodel", "VAEDecoder.aimodel"],
    ));
    assert!(
        typed.contains("'diffusion.default_steps' is not a positive integer"),
        "{typed}"
    );
    let other = diffusion("", "").replace("\"diffusion\", \"name\"", "\"llm\", \"name\"");
    assert!(said(&assets(&other, &[])).contains("expected bundle kind diffusion, got llm"));
}

const SPEECH: &str = r#"{"metadata_version": "0.2", "kind": "speech_recognizer", "name": "p",
    "assets": {"encoder": "e.aimodel", "decoder_step": "d.aimodel", "joint": "j.aimodel"},
    "config": {"architecture": "parakeet_tdt", "vocab_size": 1024, "blank_token_id": 1024, "decoder_hidden_size": 640,
               "num_decoder_layers": 2, "max_symbols_per_step": 10, "durations": [0, 1, 2, 3, 4],
               "encoder": {"num_mel_bins": 128, "subsampling_factor": 8}}}"#;

#[test]
fn speech_is_known_by_metadata_or_by_file_names() {
    let all = ["e.aimodel", "d.aimodel", "j.aimodel"];
    let SpeechBundle::Transducer { config, .. } =
        SpeechBundle::read(&assets(SPEECH, &all)).unwrap()
    else {
        panic!("no transducer")
    };
    assert_eq!((config.durations.len(), config.subsampling_factor), (5, 8));
    let split = assets("", &SPLIT);
    assert!(matches!(
        SpeechBundle::read(&split).unwrap(),
        SpeechBundle::Split
    ));
    let said = |source: &MemorySource| SpeechBundle::read(source).unwrap_err().to_string();
    assert!(
        said(&assets("", &["encoder.aimodel"]))
            .contains("must contain encoder.aimodel and decoder.aimodel")
    );
    for (from, to, expected) in [
        (
            "parakeet_tdt",
            "whisper",
            "field 'config.architecture' is not one that is known: 'whisper' is not parakeet_tdt",
        ),
        (
            "\"subsampling_factor\": 8",
            "\"subsampling_factor\": 6",
            "'config.encoder.subsampling_factor' is not a power of two",
        ),
        (
            "[0, 1, 2, 3, 4]",
            "[-1]",
            "'config.durations' is not a list of frames",
        ),
        (
            "\"joint\"",
            "\"joiner\"",
            "missing required field 'assets.joint'",
        ),
        (
            "\"config\"",
            "\"configuration\"",
            "missing required field 'config'",
        ),
        (
            "speech_recognizer",
            "segmenter",
            "expected bundle kind speech_recognizer, got segmenter",
        ),
    ] {
        let text = said(&assets(&SPEECH.replacen(from, to, 1), &all));
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_segmenter_has_a_main_asset() {
    let metadata = GOOD.replace("\"llm\"", "\"segmenter\"");
    let found = SegmenterBundle::read(&bundle(&metadata)).unwrap();
    assert_eq!(
        (found.main.as_str(), found.model.kind),
        ("m.aimodel", BundleKind::Segmenter)
    );
    let said = SegmenterBundle::read(&bundle(GOOD))
        .unwrap_err()
        .to_string();
    assert_eq!(said, "expected bundle kind segmenter, got llm");
}

#[test]
fn a_folder_is_known_by_what_lies_in_it() {
    let cases: [(&str, &[&str], Layout); 4] = [
        (GOOD, &[], Layout::Bundle),
        ("", &["encoder.aimodel", "decoder.aimodel"], Layout::Speech),
        (
            "",
            &["unet.aimodel", "vae_decoder.aimodel"],
            Layout::Diffusion,
        ),
        (
            "",
            &["yolos.aimodel", "clip.aimodel"],
            Layout::Assets(vec!["clip.aimodel".into(), "yolos.aimodel".into()]),
        ),
    ];
    for (metadata, names, layout) in cases {
        assert_eq!(Layout::of(&assets(metadata, names)).unwrap(), layout);
    }
    assert!(matches!(
        Layout::of(&assets("", &["x.txt"])),
        Err(BundleError::MissingMetadata(_))
    ));
}

#[test]
fn an_asset_that_is_none_is_told() {
    for (file, reason) in [
        ("m.aimodel", "it is not a folder"),
        ("m.aimodel/other", "it is a folder without main.mlirb"),
    ] {
        let text = LanguageBundle::read(&with(GOOD, file))
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            format!("asset 'main' is no model asset (m.aimodel): {reason}")
        );
    }
}
