//! What reading the metadata and finding the assets complained about, with the mends.

use super::finding::{self as rules, At, Findings, Rule};
use super::subject::Subject;
use crate::bundle::{BundleError, BundleKind, Layout, METADATA};

/// Faults of fields, and that there is no metadata.
pub(super) fn metadata(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    if subject.is_asset {
        findings.add(
            &rules::ASSET_BARE,
            At::file(""),
            "an asset alone: nothing says what it is for, and it has no tokenizer",
            "audit the folder with metadata.json that contains it, if there is one",
        );
    } else if matches!(subject.layout, Some(Layout::Assets(_)))
        && subject.source.exists("tokenizer")
    {
        findings.add(
            &rules::METADATA_MISSING,
            At::file(METADATA),
            "there is no metadata.json, and a tokenizer: this was the bundle of a language model",
            "copy or export it again: nothing says what the assets are for",
        );
    } else if subject
        .layout
        .as_ref()
        .is_some_and(|l| *l != Layout::Bundle)
    {
        findings.add(
            &rules::METADATA_BARE,
            At::file(METADATA),
            "there is no metadata.json: what the assets are for was guessed from their names",
            "none is needed where these names are meant; else export the model with metadata",
        );
    }
    let faults = subject.faults.iter().filter(|f| !is_of_asset(f));
    faults.for_each(|fault| tell(subject, fault, findings));
    Some(())
}

/// Faults of assets.
pub(super) fn assets(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    subject.layout.as_ref()?;
    let faults = subject.faults.iter().filter(|f| is_of_asset(f));
    faults.for_each(|fault| tell(subject, fault, findings));
    Some(())
}

fn is_of_asset(fault: &BundleError) -> bool {
    match fault {
        BundleError::MissingField(field) => field.starts_with("assets."),
        BundleError::MissingAsset { .. }
        | BundleError::CompiledAsset { .. }
        | BundleError::OutsideAsset { .. }
        | BundleError::InvalidAsset { .. }
        | BundleError::MissingComponent(_) => true,
        _ => false,
    }
}

fn tell(subject: &Subject<'_>, fault: &BundleError, findings: &mut Findings) {
    let (rule, field) = place(fault);
    let file = match fault {
        BundleError::Malformed { file, .. } | BundleError::Io { file, .. } => file.as_str(),
        BundleError::LegacyPipeline => "pipeline.json",
        _ => METADATA,
    };
    let at = At {
        file,
        field: field.as_deref(),
    };
    findings.add(rule, at, fault.to_string(), mend(subject, fault));
}

/// The rule that a fault falls under, and the field it is of.
fn place(fault: &BundleError) -> (&'static Rule, Option<String>) {
    use BundleError as E;
    let role = |key: &String| Some(format!("assets.{key}"));
    match fault {
        E::MissingMetadata(_) => (&rules::METADATA_MISSING, None),
        E::UnsupportedVersion(_) => (&rules::METADATA_VERSION, Some("metadata_version".into())),
        E::UnknownKind(_) | E::KindMismatch { .. } => (&rules::KIND_UNKNOWN, Some("kind".into())),
        E::MissingField(field) => (&rules::FIELD_MISSING, Some(field.clone())),
        E::Field { field, .. } => (&rules::FIELD_TYPE, Some(field.clone())),
        E::MissingAsset { key, .. } => (&rules::ASSET_MISSING, role(key)),
        E::CompiledAsset { key, .. } => (&rules::ASSET_COMPILED, role(key)),
        E::OutsideAsset { key, .. } => (&rules::ASSET_OUTSIDE, role(key)),
        E::InvalidAsset { key, .. } => (&rules::ASSET_INVALID, role(key)),
        E::NestedVision => (&rules::VISION_NESTED, Some("language.vision".into())),
        E::LegacyPipeline => (&rules::PIPELINE_LEGACY, None),
        E::MissingComponent(_) | E::MissingSpeechModel(_) => {
            (&rules::COMPONENTS_MISSING, Some("assets".into()))
        }
        _ => (&rules::METADATA_MALFORMED, None),
    }
}

fn mend(subject: &Subject<'_>, fault: &BundleError) -> String {
    use BundleError as E;
    match fault {
        E::MissingMetadata(_) => {
            "give the folder that has a metadata.json; if it was lost, export the model again".into()
        }
        E::UnsupportedVersion(_) => "export the model again with tools that write 0.2".into(),
        E::UnknownKind(_) | E::KindMismatch { .. } => {
            let known: Vec<&str> = BundleKind::NAMES.iter().map(|(_, n)| *n).collect();
            format!("make it one of {}", known.join(", "))
        }
        E::MissingField(field) => missing_field(subject, field),
        E::Field { expected, .. } => format!("make it {expected}"),
        E::MissingAsset { key, path } => missing_asset(subject, key, path),
        E::CompiledAsset { .. } => {
            "put the .aimodel it was compiled from beside it: a compiled asset runs on that device alone".into()
        }
        E::OutsideAsset { .. } => {
            "move the asset into the bundle and give its path from there".into()
        }
        E::InvalidAsset { .. } => {
            "copy or export it again: an asset is a folder with main.mlirb, which some tools flatten".into()
        }
        E::NestedVision => "move it out of language, to the top level of metadata.json".into(),
        E::LegacyPipeline => {
            "export the model again, which writes metadata.json, and remove pipeline.json".into()
        }
        E::MissingComponent(_) | E::MissingSpeechModel(_) => {
            "export the missing components into the bundle".into()
        }
        _ => "mend the file at this place, or export the model again".into(),
    }
}

/// What some fields hold.
const FIELDS: [(&str, &str); 6] = [
    (
        "kind",
        "llm, vlm, diffusion, segmenter or speech_recognizer",
    ),
    ("name", "the model's name"),
    ("language", "tokenizer, vocab_size and max_context_length"),
    ("language.tokenizer", "the Hugging Face id of the model"),
    ("language.vocab_size", "the width of the logits"),
    (
        "language.max_context_length",
        "the most tokens that the caches hold",
    ),
];

fn missing_field(subject: &Subject<'_>, field: &str) -> String {
    if let Some(role) = field.strip_prefix("assets.") {
        let names = loose(subject);
        let name = names.first().map_or("NAME.aimodel", String::as_str);
        return format!("name the asset in assets: {role:?}: {name:?}");
    }
    let known = FIELDS.iter().find(|(name, _)| *name == field);
    match known {
        Some((_, what)) => format!("add it: {what}"),
        None => "add it, or export the model again".into(),
    }
}

fn missing_asset(subject: &Subject<'_>, role: &str, path: &str) -> String {
    let wanted = path.rsplit('/').next().unwrap_or(path);
    let names = loose(subject);
    let same = names.iter().find(|n| n.eq_ignore_ascii_case(wanted));
    let other = same.or_else(|| names.first().filter(|_| names.len() == 1));
    match (same, other) {
        (Some(name), _) => format!("the case of letters counts: it is {name:?} in the folder"),
        (None, Some(name)) => format!(
            "{name} is there and has no role: russet retarget BUNDLE --asset {role}={name}"
        ),
        (None, None) => {
            "copy the asset into the bundle; if it was renamed, russet retarget BUNDLE --asset ROLE=FILE".into()
        }
    }
}

/// Assets at the top of the bundle that the metadata does not name.
pub(super) fn loose(subject: &Subject<'_>) -> Vec<String> {
    let mut names = subject.source.list("").unwrap_or_default();
    let named = |name: &String| {
        let assets = subject.model.as_ref().map(|m| &m.assets[..]);
        let mut paths = assets.unwrap_or_default().iter().map(|(_, path)| path);
        paths.any(|p| p.trim_start_matches("./") == name)
    };
    names.retain(|n| n.ends_with(".aimodel") && !named(n));
    names
}
