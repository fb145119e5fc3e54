//! Keys of a config: each is asked for by name, and what nobody asked for must be known to change nothing.

use std::cell::RefCell;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::super::config::LARGEST;
use super::super::{CheckpointError, Result};

/// Keys that say nothing about what is computed: training, generation, labels, bookkeeping.
const HARMLESS: &[&str] = &[
    "add_cross_attention",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "mamba_ssm_dtype",
    "max_length",
    "min_length",
    "model_type",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "typical_p",
    "use_bfloat16",
    "use_cache",
];
/// Beginnings and ends of others.
const HARMLESS_STARTS: [&str; 2] = ["_", "unsloth"];
const HARMLESS_ENDS: [&str; 6] = [
    "_token_id",
    "_token_ids",
    "_token_index",
    "_version",
    "dropout",
    "_pdrop",
];

/// An object of the config.
pub(super) struct Keys<'a> {
    path: String,
    object: &'a Map<String, Value>,
    defaults: &'static [(&'static str, f64)],
    asked: RefCell<HashSet<String>>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(
        path: &str,
        object: &'a Map<String, Value>,
        defaults: &'static [(&'static str, f64)],
    ) -> Self {
        Self {
            path: path.into(),
            object,
            defaults,
            asked: RefCell::default(),
        }
    }

    /// An error about a key.
    pub(super) fn error(&self, name: &str, reason: impl Into<String>) -> CheckpointError {
        CheckpointError::Config {
            key: format!("{}{name}", self.path),
            reason: reason.into(),
        }
    }

    /// What is there; nothing where it is `null`.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(name.into());
        self.object.get(name).filter(|v| !v.is_null())
    }

    /// Whether the key is there, be it `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// A number, as the config or the family's defaults have it.
    pub(super) fn float(&self, name: &str) -> Result<Option<f64>> {
        let value = match self.get(name) {
            Some(value) => value.as_f64(),
            None if self.has(name) => return Ok(None),
            None => {
                let found = self.defaults.iter().find(|(n, _)| *n == name);
                return Ok(found.map(|(_, v)| *v));
            }
        };
        let usable = value.filter(|v| v.is_finite());
        usable
            .map(Some)
            .ok_or_else(|| self.error(name, "is not a number"))
    }

    /// A number greater than zero.
    pub(super) fn positive(&self, name: &str) -> Result<Option<f64>> {
        match self.float(name)? {
            Some(v) if v <= 0.0 => Err(self.error(name, format!("is {v}"))),
            other => Ok(other),
        }
    }

    /// A whole number from 0 to [`LARGEST`].
    pub(super) fn number(&self, name: &str) -> Result<Option<usize>> {
        let Some(value) = self.float(name)? else {
            return Ok(None);
        };
        if value < 0.0 || value > LARGEST as f64 || value.fract() != 0.0 {
            let why = format!("is {value}, which is no whole number from 0 to {LARGEST}");
            return Err(self.error(name, why));
        }
        Ok(Some(value as usize))
    }

    /// A whole number from 1.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>> {
        match self.number(name)? {
            Some(0) => Err(self.error(name, "is 0")),
            other => Ok(other),
        }
    }

    pub(super) fn required(&self, name: &str) -> Result<usize> {
        self.count(name)?
            .ok_or_else(|| self.error(name, "is missing"))
    }

    /// A truth value; false where it is absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        Ok(self.truth(name)?.unwrap_or(false))
    }

    pub(super) fn truth(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let truth = value.as_bool();
        truth
            .map(Some)
            .ok_or_else(|| self.error(name, "is neither true nor false"))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let text = value.as_str();
        text.map(Some).ok_or_else(|| self.error(name, "is no text"))
    }

    pub(super) fn list(&self, name: &str) -> Result<Option<&'a [Value]>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let list = value.as_array();
        list.map(|l| Some(&l[..]))
            .ok_or_else(|| self.error(name, "is no list"))
    }

    /// An object within.
    pub(super) fn object(&self, name: &str) -> Result<Option<Keys<'a>>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let object = value.as_object();
        let object = object.ok_or_else(|| self.error(name, "is no object"))?;
        Ok(Some(Keys::new(
            &format!("{}{name}.", self.path),
            object,
            &[],
        )))
    }

    /// The names of its keys.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.object.keys().map(|k| &**k)
    }

    /// Fails where a key may change what is computed and nobody asked for it.
    pub(super) fn all_asked(&self) -> Result<()> {
        let asked = self.asked.borrow();
        let open = |name: &str, value: &Value| {
            !asked.contains(name) && !is_nothing(value) && !harmless(name)
        };
        match self.object.iter().find(|(name, value)| open(name, value)) {
            Some((name, value)) => {
                let why = format!("is {value}: what it asks for is not known here");
                Err(self.error(name, why))
            }
            None => Ok(()),
        }
    }
}

fn harmless(name: &str) -> bool {
    HARMLESS.binary_search(&name).is_ok()
        || HARMLESS_STARTS.iter().any(|s| name.starts_with(s))
        || HARMLESS_ENDS.iter().any(|e| name.ends_with(e))
}

/// Whether a value asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harmless_are_in_order() {
        assert!(HARMLESS.is_sorted());
    }
}
