//! Folders of Core ML packages in ANEMLL's layout: `meta.yaml`, an embeddings model, decoder chunks, an LM head (contract A).
//!
//! Keys stand under `model_info.parameters`, or directly under `model_info`; those that are not known are passed over. A part is
//! the file that `meta.yaml` names, the same with the other extension, or one by its name; `_lutN`, `_int8` and `_int4` in
//! names say how weights are stored, which the files themselves say.

use serde_yaml_ng::Value;

use super::error::BundleError;
use super::source::Source;

/// The file that says what a folder holds.
pub const META: &str = "meta.yaml";

/// Extensions of a part, the one that is preferred first.
const EXTENSIONS: [&str; 2] = ["mlmodelc", "mlpackage"];

/// Tokens of a `prefill` call where nothing is said.
const DEFAULT_BATCH: usize = 64;

/// A folder in ANEMLL's layout.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AnemllBundle {
    /// Its name.
    pub name: String,
    /// The family, such as `qwen3`.
    pub architecture: String,
    /// The length of the context.
    pub context_length: Option<usize>,
    /// Tokens of a `prefill` call.
    pub batch_size: usize,
    /// Entries of the vocabulary.
    pub vocab_size: Option<usize>,
    /// Entries of each part of a split head; empty where nothing is said.
    pub head_sizes: Vec<usize>,
    /// `prefill` may be used for a prompt: it writes where `current_pos` says, or takes a mask of what to update.
    pub prefill: bool,
    /// What `prefill` gives back is what the head wants of the last token.
    pub last_token_output: bool,
    /// States that cannot be taken back.
    pub recurrent_state: bool,
    /// Positions of a cache that shifts by blocks.
    pub local_cache_length: Option<usize>,
    /// Positions from which on the functions that rotate a cache run, where there are such.
    pub sliding_window: Option<usize>,
    /// Every chunk has states of its own, whatever they are called.
    pub per_chunk_state: bool,
    /// The files.
    pub parts: AnemllParts,
}

/// The models of a folder, as paths in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnemllParts {
    /// Embeddings, chunks in order, head.
    Chunked {
        /// Tokens to hidden states.
        embeddings: String,
        /// Hidden states to hidden states.
        chunks: Vec<Vec<String>>,
        /// The last hidden state to logits.
        head: String,
    },
    /// Tokens to logits.
    Monolithic(String),
}

impl AnemllParts {
    /// All files, in the order they run.
    pub fn files(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Monolithic(file) => Box::new(std::iter::once(&**file)),
            Self::Chunked {
                embeddings,
                chunks,
                head,
            } => {
                let first = std::iter::once(&**embeddings);
                let chunks = chunks.iter().flatten().map(|f| &**f);
                Box::new(first.chain(chunks).chain([&**head]))
            }
        }
    }
}

impl AnemllBundle {
    /// Whether a source holds such a folder.
    pub fn is_at(source: &dyn Source) -> bool {
        source.exists(META)
    }

    /// Reads `meta.yaml` and finds the parts.
    ///
    /// # Errors
    /// [`BundleError`] where the file cannot be read, a key has a value of another kind, or a part is not there.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        let bytes = source.read(META).map_err(|error| BundleError::Io {
            file: META.into(),
            source: error,
        })?;
        let document: Value =
            serde_yaml_ng::from_slice(&bytes).map_err(|e| malformed(e.to_string()))?;
        let info = document.get("model_info").filter(|v| v.is_mapping());
        let info = info.ok_or_else(|| malformed("there is no model_info".into()))?;
        let keys = Keys {
            parameters: info.get("parameters"),
            info,
        };
        let parts = Finder {
            keys: &keys,
            source,
            files: list(source)?,
        }
        .parts()?;
        let flag = |key: &str| keys.flag(key);
        Ok(Self {
            name: keys.text("name")?.unwrap_or_default(),
            architecture: keys.text("architecture")?.unwrap_or_default(),
            context_length: keys.size("context_length")?,
            batch_size: keys.size("batch_size")?.unwrap_or(DEFAULT_BATCH),
            vocab_size: keys.size("vocab_size")?,
            head_sizes: keys.sizes("lm_head_chunk_sizes")?,
            prefill: flag("prefill_dynamic_slice")?
                || flag("update_mask_prefill")?
                || flag("prefill_last_token_output")?,
            last_token_output: flag("prefill_last_token_output")?,
            recurrent_state: flag("recurrent_state")?,
            local_cache_length: keys.size("local_cache_length")?,
            sliding_window: keys.size("sliding_window")?,
            per_chunk_state: flag("per_chunk_state")?,
            parts,
        })
    }
}

impl AnemllBundle {
    /// Takes the size of the vocabulary and the widths of the head's parts, one behind the other with commas, from where they are
    /// said besides; what is said already stays.
    pub(crate) fn complete(&mut self, vocabulary: Option<&str>, widths: Option<&str>) {
        let number = |text: &str| text.trim().parse().ok().filter(|n: &usize| *n > 0);
        if self.vocab_size.is_none() {
            self.vocab_size = vocabulary.and_then(number);
        }
        if self.head_sizes.is_empty() {
            let all = widths.map(|w| w.trim_matches(['[', ']']).split(',').map(number));
            let all = all.and_then(Iterator::collect::<Option<Vec<usize>>>);
            self.head_sizes = all.unwrap_or_default();
        }
    }
}

fn malformed(reason: String) -> BundleError {
    BundleError::Malformed {
        file: META.into(),
        reason,
    }
}

fn list(source: &dyn Source) -> Result<Vec<String>, BundleError> {
    source.list("").map_err(|error| BundleError::Io {
        file: source.location().display().to_string(),
        source: error,
    })
}

/// The keys of a document, which stand in one of two places.
struct Keys<'a> {
    parameters: Option<&'a Value>,
    info: &'a Value,
}

impl Keys<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        let found = self.parameters.and_then(|p| p.get(key));
        found
            .or_else(|| self.info.get(key))
            .filter(|v| !v.is_null())
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, BundleError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let found = read(value);
        found
            .map(Some)
            .ok_or_else(|| malformed(format!("{key} is not {expected}")))
    }

    /// A text; a number may stand for one.
    fn text(&self, key: &str) -> Result<Option<String>, BundleError> {
        self.read(key, "text", |v| match v {
            Value::String(s) => Some(s.clone()),
            Value::Number(n) => Some(n.to_string()),
            _ => None,
        })
    }

    fn size(&self, key: &str) -> Result<Option<usize>, BundleError> {
        self.read(key, "a positive integer", size)
    }

    fn sizes(&self, key: &str) -> Result<Vec<usize>, BundleError> {
        let all = |v: &Value| v.as_sequence()?.iter().map(size).collect();
        Ok(self
            .read(key, "a list of positive integers", all)?
            .unwrap_or_default())
    }

    fn flag(&self, key: &str) -> Result<bool, BundleError> {
        Ok(self
            .read(key, "true or false", Value::as_bool)?
            .unwrap_or(false))
    }
}

fn size(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok().filter(|n| *n > 0)
}

/// Finds parts by what `meta.yaml` calls them, or by their names.
struct Finder<'a> {
    keys: &'a Keys<'a>,
    source: &'a dyn Source,
    files: Vec<String>,
}

impl Finder<'_> {
    fn parts(&self) -> Result<AnemllParts, BundleError> {
        if let Some(file) = self.found("monolithic_model", "_monolithic_full")? {
            return Ok(AnemllParts::Monolithic(file));
        }
        let need = |key: &str, mark: &str| {
            let found = self.found(key, mark)?;
            found.ok_or_else(|| BundleError::MissingAsset {
                key: key.into(),
                path: self.source.location().display().to_string(),
            })
        };
        let (embeddings, head) = (
            need("embeddings", "_embeddings")?,
            need("lm_head", "_lm_head")?,
        );
        Ok(AnemllParts::Chunked {
            embeddings,
            chunks: self.chunks()?,
            head,
        })
    }

    /// The part that a key names, else the first one with a mark behind the prefix.
    fn found(&self, key: &str, mark: &str) -> Result<Option<String>, BundleError> {
        if let Some(name) = self.keys.text(key)?
            && let Some(file) = self.with_either_extension(&name)?
        {
            return Ok(Some(file));
        }
        let marked = |stem: &str| {
            let rest = stem.split_once(mark).map(|(_, rest)| rest);
            rest.is_some_and(|r| r.is_empty() || r.starts_with('_'))
        };
        Ok(self.first(marked))
    }

    fn with_either_extension(&self, name: &str) -> Result<Option<String>, BundleError> {
        if name.contains(['/', '\\']) {
            return Err(BundleError::OutsideAsset {
                key: META.into(),
                path: name.into(),
            });
        }
        let stem = stem(name).unwrap_or(name);
        Ok(self.first(|s| s == stem))
    }

    /// The first part whose name without extension is right, in the extension that is preferred.
    fn first(&self, right: impl Fn(&str) -> bool) -> Option<String> {
        let with = |extension: &str| {
            self.files.iter().find(|f| {
                f.rsplit_once('.')
                    .is_some_and(|(stem, e)| e == extension && right(stem))
            })
        };
        EXTENSIONS.iter().find_map(|e| with(e)).cloned()
    }

    /// Decoder chunks in order, each with a file for functions that rotate where those are split off.
    fn chunks(&self) -> Result<Vec<Vec<String>>, BundleError> {
        let named = self.keys.text("ffn")?;
        let pattern = named.as_deref().and_then(stem).and_then(chunk_of);
        let mut found = Vec::new();
        let mut all = 0;
        for file in &self.files {
            let Some((base, number, count)) = stem(file).and_then(chunk_of) else {
                continue;
            };
            let wanted = pattern.map_or_else(|| base.contains("_FFN_PF"), |(b, ..)| b == base);
            if wanted {
                found.push((number, file));
                all = all.max(count);
            }
        }
        let all = all.max(1);
        let missing = |n: usize| BundleError::MissingAsset {
            key: format!("chunk {n} of {all}"),
            path: self.source.location().display().to_string(),
        };
        (1..=all)
            .map(|n| self.chunk(&found, n).ok_or_else(|| missing(n)))
            .collect()
    }

    fn chunk(&self, found: &[(usize, &String)], number: usize) -> Option<Vec<String>> {
        let own = found.iter().find(|(n, _)| *n == number)?.1;
        let base = stem(own)?;
        let file = self.first(|s| s == base)?;
        let rotating = self.first(|s| s.strip_suffix("_rot") == Some(base));
        Some(std::iter::once(file).chain(rotating).collect())
    }
}

fn stem(file: &str) -> Option<&str> {
    let (stem, extension) = file.rsplit_once('.')?;
    EXTENSIONS.contains(&extension).then_some(stem)
}

/// `BASE_chunk_NNofNN`: the base, the number of the chunk, the number of chunks.
fn chunk_of(stem: &str) -> Option<(&str, usize, usize)> {
    let (base, numbers) = stem.rsplit_once("_chunk_")?;
    let (number, count) = numbers.split_once("of")?;
    let (number, count) = (number.parse().ok()?, count.parse().ok()?);
    (number >= 1 && number <= count && count <= 1000).then_some((base, number, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::MemorySource;

    fn folder(meta: &str, files: &[&str]) -> MemorySource {
        let source = MemorySource::new("model").with(META, meta.as_bytes().to_vec());
        files.iter().fold(source.unwrap(), |source, file| {
            source.with(&format!("{file}/Manifest.json"), "{}").unwrap()
        })
    }

    const CHUNKED: &str = "model_info:\n  name: tiny\n  parameters:\n    context_length: 128\n    batch_size: 16\n    \
        embeddings: qwen_embeddings.mlmodelc\n    lm_head: qwen_lm_head_lut6.mlmodelc\n    \
        ffn: qwen_FFN_PF_lut4_chunk_01of02.mlmodelc\n    prefill_dynamic_slice: true\n    lm_head_chunk_sizes: [3, 2]\n";
    const FILES: [&str; 4] = [
        "qwen_embeddings.mlpackage",
        "qwen_FFN_PF_lut4_chunk_02of02.mlpackage",
        "qwen_FFN_PF_lut4_chunk_01of02.mlpackage",
        "qwen_lm_head_lut6.mlpackage",
    ];

    #[test]
    fn keys_stand_in_either_place_and_parts_have_either_extension() {
        let bundle = AnemllBundle::read(&folder(CHUNKED, &FILES)).unwrap();
        assert_eq!((bundle.context_length, bundle.batch_size), (Some(128), 16));
        assert_eq!(
            (&bundle.head_sizes[..], bundle.prefill),
            (&[3, 2][..], true)
        );
        let AnemllParts::Chunked {
            embeddings,
            chunks,
            head,
        } = &bundle.parts
        else {
            panic!("chunks");
        };
        assert_eq!((&**embeddings, &**head), (FILES[0], FILES[3]));
        assert_eq!(
            chunks,
            &[vec![FILES[2].to_owned()], vec![FILES[1].to_owned()]]
        );
        let flat = CHUNKED.replace("  parameters:\n", "").replace("    ", "  ");
        assert_eq!(AnemllBundle::read(&folder(&flat, &FILES)).unwrap(), bundle);
    }

    #[test]
    fn what_models_say_stands_where_nothing_else_does() {
        let mut bundle = AnemllBundle::read(&folder(CHUNKED, &FILES)).unwrap();
        bundle.complete(Some("5"), Some("4,1"));
        assert_eq!(
            (bundle.vocab_size, &bundle.head_sizes[..]),
            (Some(5), &[3, 2][..])
        );
        bundle.head_sizes.clear();
        bundle.complete(Some("9"), Some("[4, 1]"));
        assert_eq!(
            (bundle.vocab_size, &bundle.head_sizes[..]),
            (Some(5), &[4, 1][..])
        );
    }

    #[test]
    fn parts_are_found_by_name_where_nothing_names_them() {
        let meta = "model_info:\n  name: tiny\n";
        let bundle = AnemllBundle::read(&folder(meta, &FILES)).unwrap();
        assert!(
            matches!(bundle.parts, AnemllParts::Chunked { ref chunks, .. } if chunks.len() == 2)
        );
        let one = ["x_monolithic_full_lut4.mlpackage"];
        let bundle = AnemllBundle::read(&folder(meta, &one)).unwrap();
        assert_eq!(bundle.parts, AnemllParts::Monolithic(one[0].into()));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (meta, files, want) in [
            (CHUNKED, &FILES[1..], "'embeddings' not found"),
            (CHUNKED, &FILES[..1], "'lm_head' not found"),
            (
                CHUNKED,
                &[FILES[0], FILES[1], FILES[3]],
                "'chunk 1 of 2' not found",
            ),
            ("a: [", &FILES, "meta.yaml is malformed"),
            ("a: 1", &FILES, "no model_info"),
            (
                "model_info: {batch_size: few}",
                &FILES,
                "batch_size is not a positive integer",
            ),
            (
                "model_info: {embeddings: ../x.mlpackage}",
                &FILES,
                "outside the bundle",
            ),
        ] {
            let error = AnemllBundle::read(&folder(meta, files))
                .unwrap_err()
                .to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
