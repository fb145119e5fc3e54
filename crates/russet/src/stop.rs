//! Which tokens end a turn, from every place that says so (contract F 1.2 and 10).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::tokenizer::Tokenizer;

/// Parts of the text of special tokens that end a turn.
const MARKS: [&str; 7] = [
    "end_of_turn",
    "im_end",
    "eot_id",
    "endoftext",
    "eot_token",
    "|eot|",
    "|end|",
];

/// Keys of `tokenizer_config.json` that name such tokens directly.
const KEYS: [&str; 5] = ["end_of_turn", "im_end", "eot_id", "endoftext", "eot_token"];

/// Everything that may name stop tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StopSources<'a> {
    /// `tokenizer_config.json`.
    pub(crate) tokenizer_config: Option<&'a Value>,
    /// `generation_config.json`.
    pub(crate) generation_config: Option<&'a Value>,
    /// `language.eos_token_ids` of the bundle, or ids from other metadata.
    pub(crate) ids: &'a [u32],
}

/// The tokens that end a turn, sorted, each once.
pub(crate) fn stop_tokens(tokenizer: &Tokenizer, sources: StopSources<'_>) -> Vec<u32> {
    let mut found: BTreeSet<u32> = sources.ids.iter().copied().collect();
    if let Some(config) = sources.tokenizer_config {
        from_config(tokenizer, config, &mut found);
    }
    if let Some(ids) = sources
        .generation_config
        .and_then(|c| c.get("eos_token_id"))
    {
        let all = ids.as_array().cloned().unwrap_or_else(|| vec![ids.clone()]);
        found.extend(all.iter().filter_map(|v| u32::try_from(v.as_u64()?).ok()));
    }
    // Special tokens of tokenizer.json itself: newer exporters write no `added_tokens_decoder`.
    found.extend(
        tokenizer
            .special_tokens()
            .filter(|(_, text)| MARKS.iter().any(|m| text.contains(m)))
            .map(|(id, _)| id),
    );
    found.extend(tokenizer.id("<|im_end|>"));
    found.into_iter().collect()
}

/// The text of a token entry: a string, or an object with `content`.
fn content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

fn from_config(tokenizer: &Tokenizer, config: &Value, found: &mut BTreeSet<u32>) {
    let mut texts: Vec<&str> = Vec::new();
    match config.get("eos_token") {
        Some(Value::Array(all)) => texts.extend(all.iter().filter_map(content)),
        Some(one) => texts.extend(content(one)),
        None => {}
    }
    let additional = config
        .get("additional_special_tokens")
        .and_then(Value::as_array);
    let ends = |t: &&str| MARKS.iter().any(|m| t.contains(m));
    texts.extend(additional.into_iter().flatten().filter_map(content));
    let decoder = config
        .get("added_tokens_decoder")
        .and_then(Value::as_object);
    let special = |v: &&Value| v.get("special").and_then(Value::as_bool).unwrap_or(false);
    texts.extend(
        decoder
            .into_iter()
            .flatten()
            .map(|(_, v)| v)
            .filter(special)
            .filter_map(content)
            .filter(ends),
    );
    texts.extend(
        KEYS.iter()
            .filter_map(|k| config.get(*k))
            .filter_map(content),
    );
    found.extend(texts.into_iter().filter_map(|t| tokenizer.id(t)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tokenizer::tests::tiny;

    #[test]
    fn every_source_is_read() {
        let tokenizer = tiny();
        let end = tokenizer.id("<|im_end|>").unwrap();
        let text = tokenizer.id("<|endoftext|>").unwrap();
        let think = tokenizer.id("<think>").unwrap();
        let config =
            json!({"eos_token": {"content": "<think>"}, "eot_token": 5, "im_end": "nowhere"});
        let generation = json!({"eos_token_id": [11, 12]});
        let sources = StopSources {
            tokenizer_config: Some(&config),
            generation_config: Some(&generation),
            ids: &[13],
        };
        let stops = stop_tokens(&tokenizer, sources);
        for id in [end, text, think, 11, 12, 13] {
            assert!(stops.contains(&id), "{id} in {stops:?}");
        }
        assert_eq!(stops.len(), 6, "{stops:?}");
        assert!(!stop_tokens(&tokenizer, StopSources::default()).contains(&think));
    }
}
