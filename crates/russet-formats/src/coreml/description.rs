//! What a specification says of inputs, outputs and states, beside the program: names, shapes that are allowed, metadata.

use russet_graph::attr::{Attr, Attributes};
use russet_graph::types::DType;

use super::proto;

/// Element kinds by their number in `FeatureTypes.proto`.
const KINDS: &[(i32, DType)] = &[
    (65568, DType::F32),
    (65600, DType::F64),
    (65552, DType::F16),
    (131_104, DType::I32),
    (131_080, DType::I8),
];

/// The description of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Functions; one without a name in models of a single function.
    pub functions: Vec<FunctionDescription>,
    /// The function that runs where nobody says which; empty where there is just one.
    pub default_function: String,
    /// What it says about itself.
    pub metadata: Metadata,
}

/// Who made a model, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// One line.
    pub short_description: String,
    /// The author's version.
    pub version: String,
    /// The author.
    pub author: String,
    /// The license.
    pub license: String,
    /// Anything else, by name, sorted.
    pub user_defined: Vec<(String, String)>,
}

/// Inputs, outputs and states of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionDescription {
    /// Its name.
    pub name: String,
    /// Inputs.
    pub inputs: Vec<Feature>,
    /// Outputs.
    pub outputs: Vec<Feature>,
    /// States.
    pub states: Vec<Feature>,
}

/// A tensor that goes in, comes out or stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Its element kind; `None` for one that is no array.
    pub dtype: Option<DType>,
    /// Its shape, the default one where others are allowed; empty where none is said.
    pub shape: Vec<i64>,
    /// Which other shapes are allowed.
    pub flexibility: Flexibility,
    /// Whether it may be left out.
    pub optional: bool,
}

/// Which shapes of an input are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Flexibility {
    /// One.
    #[default]
    Fixed,
    /// These.
    Enumerated(Vec<Vec<i64>>),
    /// Those between a smallest and a largest extent of each axis; -1 for no largest.
    Range(Vec<(u64, i64)>),
}

impl Flexibility {
    /// As attributes of a port.
    pub(super) fn attributes(&self) -> Attributes {
        match self {
            Self::Fixed => Vec::new(),
            Self::Enumerated(shapes) => {
                let shapes = shapes.iter().map(|s| Attr::ints(s.iter().copied()));
                vec![("enumerated_shapes".into(), Attr::List(shapes.collect()))]
            }
            Self::Range(sizes) => {
                let bound = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
                let sizes = sizes
                    .iter()
                    .map(|&(low, high)| Attr::ints([bound(low), high]));
                vec![("shape_range".into(), Attr::List(sizes.collect()))]
            }
        }
    }
}

impl Description {
    pub(super) fn of(raw: proto::ModelDescription) -> Self {
        let mut functions: Vec<FunctionDescription> = raw
            .functions
            .into_iter()
            .map(|f| FunctionDescription {
                name: f.name,
                inputs: features(f.input),
                outputs: features(f.output),
                states: features(f.state),
            })
            .collect();
        if functions.is_empty() {
            functions.push(FunctionDescription {
                name: String::new(),
                inputs: features(raw.input),
                outputs: features(raw.output),
                states: features(raw.state),
            });
        }
        Self {
            functions,
            default_function: raw.default_function,
            metadata: raw.metadata.map(Metadata::of).unwrap_or_default(),
        }
    }

    /// The description of a function of the program.
    pub fn function(&self, name: &str) -> Option<&FunctionDescription> {
        let named = self.functions.iter().find(|f| f.name == name);
        named.or_else(|| match &self.functions[..] {
            [one] if one.name.is_empty() => Some(one),
            _ => None,
        })
    }
}

impl Metadata {
    fn of(raw: proto::Metadata) -> Self {
        Self {
            short_description: raw.short_description,
            version: raw.version,
            author: raw.author,
            license: raw.license,
            user_defined: raw.user_defined.into_iter().collect(),
        }
    }
}

fn features(raw: Vec<proto::Feature>) -> Vec<Feature> {
    raw.into_iter().map(feature).collect()
}

fn feature(raw: proto::Feature) -> Feature {
    let ty = raw.ty.unwrap_or_default();
    let array = ty.array.or_else(|| ty.state.and_then(|s| s.array));
    let known = array.is_some();
    let array = array.unwrap_or_default();
    let flexibility = if let Some(shapes) = array.enumerated {
        Flexibility::Enumerated(shapes.shapes.into_iter().map(|s| s.shape).collect())
    } else if let Some(range) = array.range {
        Flexibility::Range(range.sizes.iter().map(|s| (s.lower, s.upper)).collect())
    } else {
        Flexibility::Fixed
    };
    let kind = KINDS.iter().find(|(k, _)| *k == array.data_type);
    Feature {
        name: raw.name,
        dtype: kind.map(|(_, d)| *d).filter(|_| known),
        shape: array.shape,
        flexibility,
        optional: ty.optional,
    }
}
