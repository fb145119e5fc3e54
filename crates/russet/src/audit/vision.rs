//! The vision part: what it leaves to defaults, and what it promises to the language part.

use super::finding::{self as rules, At, Findings};
use super::subject::Subject;

pub(super) fn part(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let nested = subject.raw("language").and_then(|l| l.get("vision"));
    if nested.is_some_and(|v| !v.is_null()) {
        findings.add(
            &rules::VISION_NESTED,
            At::metadata("language.vision"),
            "field 'vision' is inside 'language', where nothing reads it: move it to the top level of metadata.json",
            "move it out of language, to the top level of metadata.json",
        );
    }
    let given = subject.raw("vision");
    let vision = subject.vision.as_ref();
    if let (Some(given), Some(_)) = (given, vision) {
        channels(given, findings);
    }
    let Some(vision) = vision else {
        return nested.map(drop);
    };
    if vision.image_size % vision.patch_size != 0 {
        findings.add(
            &rules::VISION_PATCHES,
            At::metadata("vision.patch_size"),
            format!(
                "patches of {} pixels do not tile an image of {}",
                vision.patch_size, vision.image_size
            ),
            "take both from the checkpoint's preprocessor_config.json",
        );
    }
    let vocabulary = subject.language.as_ref().map(|l| l.vocab_size);
    if vocabulary.is_some_and(|v| vision.image_token_id as usize >= v) {
        findings.add(
            &rules::VISION_TOKEN,
            At::metadata("vision.image_token_id"),
            format!(
                "the image token {} is outside the vocabulary of {}",
                vision.image_token_id,
                vocabulary.unwrap_or(0)
            ),
            "take it from the checkpoint's config.json (image_token_id)",
        );
    }
    Some(())
}

/// Mean and deviation that are not given are CLIP's, which other models see badly with.
fn channels(given: &serde_json::Value, findings: &mut Findings) {
    for key in ["image_mean", "image_std"] {
        if given.get(key).is_none_or(serde_json::Value::is_null) {
            findings.add(
                &rules::VISION_CHANNELS,
                At::metadata(&format!("vision.{key}")),
                format!("{key} is not given: CLIP's is used, which is right for models made from CLIP alone"),
                "take it from the checkpoint's preprocessor_config.json; say CLIP's if it is meant",
            );
        }
    }
}
