//! Which engine runs a model: by the names of its functions (contract B §4.2, §5.2), or as the caller says.

use std::fmt;
use std::str::FromStr;

use super::EngineError;

/// How a model is cut into functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStructure {
    /// Functions of fixed shapes: `load_embeddings` and `extend_<context>_<queries>` (contract B §5.5).
    ChunkedStatic {
        /// Tokens that the first `extend` function takes.
        queries: usize,
    },
    /// One function that takes any number of tokens, `main`.
    Dynamic,
    /// `image_encode`, `text_encode` and `detect`: an image segmenter.
    MultiFunctionSegmenter,
    /// None of these.
    Unknown,
}

impl ModelStructure {
    /// The structure that function names tell. `main` is the name of the main function, which a bundle may map
    /// (`language.function_map`).
    pub fn of(names: &[&str], main: &str) -> Self {
        let has = |name: &str| names.contains(&name);
        let extend = names.iter().find(|n| n.starts_with("extend"));
        if let Some(extend) = extend.filter(|_| has("load_embeddings")) {
            let queries = extend.split('_').nth(2).and_then(|q| q.parse().ok());
            return Self::ChunkedStatic {
                queries: queries.unwrap_or(0),
            };
        }
        // Some segmenters have a thin `main` besides, so this comes before it.
        if ["image_encode", "text_encode", "detect"]
            .into_iter()
            .all(has)
        {
            return Self::MultiFunctionSegmenter;
        }
        if has(main) {
            Self::Dynamic
        } else {
            Self::Unknown
        }
    }
}

/// An engine, by the name that Apple's tools give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineVariant {
    /// One step after the other.
    Sequential,
    /// The model runs ahead of what is done with its tokens.
    Pipelined,
    /// Functions of fixed shapes.
    StaticShape,
}

impl EngineVariant {
    const NAMES: [(Self, &'static str); 3] = [
        (Self::Sequential, "coreai-sequential"),
        (Self::Pipelined, "coreai-pipelined"),
        (Self::StaticShape, "static-shape"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(v, _)| *v == self)
            .map_or("", |(_, n)| n)
    }

    /// The variant of a name; `None` for `auto` and `default`, which leave it to the model's structure.
    ///
    /// # Errors
    /// [`EngineError::UnknownVariant`] for any other name.
    pub fn parse(name: &str) -> Result<Option<Self>, EngineError> {
        if matches!(name, "auto" | "default") {
            return Ok(None);
        }
        let found = Self::NAMES.iter().find(|(_, n)| *n == name);
        found
            .map(|(v, _)| Some(*v))
            .ok_or_else(|| EngineError::UnknownVariant(name.into()))
    }

    /// The engine for a structure: the one asked for where it can run the model, else the fastest that can.
    ///
    /// # Errors
    /// [`EngineError::VariantMismatch`] where the one asked for, or any, cannot.
    pub fn select(structure: ModelStructure, asked: Option<Self>) -> Result<Self, EngineError> {
        use ModelStructure::{ChunkedStatic, Dynamic, MultiFunctionSegmenter, Unknown};
        let refused = |reason| Err(EngineError::VariantMismatch(reason));
        match (structure, asked) {
            (ChunkedStatic { .. }, None | Some(Self::StaticShape)) => Ok(Self::StaticShape),
            (Dynamic, None) => Ok(Self::Pipelined),
            (Dynamic, Some(v @ (Self::Sequential | Self::Pipelined))) => Ok(v),
            (Dynamic, Some(Self::StaticShape)) => {
                refused("Static-shape variant requires chunked static model (extend_* functions)")
            }
            (ChunkedStatic { .. }, Some(Self::Pipelined)) => {
                refused("Core AI pipelined variant requires dynamic model")
            }
            (ChunkedStatic { .. }, Some(Self::Sequential)) => {
                refused("Sequential variant requires dynamic model")
            }
            (MultiFunctionSegmenter | Unknown, _) => {
                refused("LLM engine variants are incompatible with this model structure")
            }
        }
    }
}

impl fmt::Display for EngineVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the key/value caches get their memory (contract B §5.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvCacheStrategy {
    /// Growing where the model leaves the caches' length open, else of fixed size.
    #[default]
    Auto,
    /// Room for 256 tokens at first, doubled when it is used up.
    Growing,
    /// Room for the whole context from the start.
    FixedSize,
    /// A sliding window: when it is full, the oldest tokens but the first few are forgotten, and the conversation goes on
    /// without end.
    Chunked,
}

impl KvCacheStrategy {
    /// Every strategy and its name.
    pub const NAMES: [(Self, &'static str); 4] = [
        (Self::Auto, "auto"),
        (Self::Growing, "growing"),
        (Self::FixedSize, "fixed_size"),
        (Self::Chunked, "chunked"),
    ];
}

impl fmt::Display for KvCacheStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(s, _)| s == self);
        f.write_str(name.map_or("", |(_, n)| n))
    }
}

impl FromStr for KvCacheStrategy {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self, EngineError> {
        let found = Self::NAMES.iter().find(|(_, n)| *n == name);
        found
            .map(|(s, _)| *s)
            .ok_or_else(|| EngineError::UnknownStrategy(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structure(names: &[&str]) -> ModelStructure {
        ModelStructure::of(names, "main")
    }

    const STATIC: ModelStructure = ModelStructure::ChunkedStatic { queries: 8 };

    #[test]
    fn names_of_functions_tell_the_structure() {
        let trio = ["main", "image_encode", "text_encode", "detect"];
        for (names, want) in [
            (&["main"][..], ModelStructure::Dynamic),
            (&["load_embeddings", "extend_256_8", "main"], STATIC),
            (&["extend_256_8", "main"], ModelStructure::Dynamic),
            (&["extend_256_8"], ModelStructure::Unknown),
            (&trio, ModelStructure::MultiFunctionSegmenter),
            (&["encode"], ModelStructure::Unknown),
            (&[], ModelStructure::Unknown),
        ] {
            assert_eq!(structure(names), want, "{names:?}");
        }
        let renamed = ModelStructure::of(&["decode"], "decode");
        assert_eq!(renamed, ModelStructure::Dynamic);
    }

    #[test]
    fn the_table_of_engines_and_structures() {
        use EngineVariant::{Pipelined, Sequential, StaticShape};
        let dynamic = ModelStructure::Dynamic;
        for (structure, asked, want) in [
            (dynamic, None, Ok(Pipelined)),
            (dynamic, Some(Sequential), Ok(Sequential)),
            (dynamic, Some(Pipelined), Ok(Pipelined)),
            (
                dynamic,
                Some(StaticShape),
                Err("requires chunked static model"),
            ),
            (STATIC, None, Ok(StaticShape)),
            (STATIC, Some(StaticShape), Ok(StaticShape)),
            (
                STATIC,
                Some(Sequential),
                Err("Sequential variant requires dynamic model"),
            ),
            (
                STATIC,
                Some(Pipelined),
                Err("pipelined variant requires dynamic model"),
            ),
            (
                ModelStructure::MultiFunctionSegmenter,
                None,
                Err("incompatible"),
            ),
            (
                ModelStructure::Unknown,
                Some(Sequential),
                Err("incompatible"),
            ),
        ] {
            match (EngineVariant::select(structure, asked), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want),
                (Err(e), Err(want)) => assert!(e.to_string().contains(want), "{e}"),
                other => panic!("{structure:?} {asked:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn names_are_parsed_and_others_are_told_the_names() {
        assert_eq!(EngineVariant::parse("auto").unwrap(), None);
        assert_eq!(EngineVariant::parse("default").unwrap(), None);
        for (variant, name) in EngineVariant::NAMES {
            assert_eq!(EngineVariant::parse(name).unwrap(), Some(variant));
        }
        let error = EngineVariant::parse("ane").unwrap_err().to_string();
        let want =
            "Unknown variant 'ane'. Valid: auto, coreai-sequential, coreai-pipelined, static-shape";
        assert_eq!(error, want);
        for (strategy, name) in KvCacheStrategy::NAMES {
            assert_eq!(name.parse::<KvCacheStrategy>().unwrap(), strategy);
            assert_eq!(strategy.to_string(), name);
        }
        assert!("fixed-size".parse::<KvCacheStrategy>().is_err());
    }
}
