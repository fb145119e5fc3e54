//! How much of JSON Schema grammars cover: schemas that compile, instances that are taken and refused, and how long each step takes.
//!
//! Files are those of MaskBench (guidance-ai/jsonschemabench: `{"schema": …, "tests": [{"data": …, "valid": true}, …]}`), of
//! the JSON Schema Test Suite (a list of such objects), or schemas alone.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

use super::{Constraint, Grammar, GrammarError, JsonOptions, Matcher, Vocabulary};
use crate::bench::quantiles;

/// A schema with instances of which it is known whether they are valid.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SchemaCase {
    /// The schema.
    pub schema: Value,
    /// The instances.
    #[serde(default)]
    pub tests: Vec<SchemaTest>,
}

/// An instance.
#[derive(Clone, Debug, Deserialize)]
pub struct SchemaTest {
    /// The value.
    pub data: Value,
    /// Whether the schema allows it.
    pub valid: bool,
}

impl SchemaCase {
    /// The cases of a file; a schema without instances where it is neither of the two forms.
    ///
    /// # Errors
    /// Where it is no JSON, or a list of something else.
    pub fn read(text: &[u8]) -> serde_json::Result<Vec<Self>> {
        let value: Value = serde_json::from_slice(text)?;
        match value {
            Value::Array(_) => serde_json::from_value(value),
            Value::Object(ref o) if o.contains_key("schema") && o.contains_key("tests") => {
                Ok(vec![serde_json::from_value(value)?])
            }
            schema => Ok(vec![Self {
                schema,
                tests: Vec::new(),
            }]),
        }
    }
}

/// What became of one case.
#[derive(Debug, Default)]
pub struct CaseResult {
    /// Why the schema was refused.
    pub refused: Option<GrammarError>,
    /// Instances that were judged otherwise than they should be: which, and the error that stopped a valid one.
    pub wrong: Vec<(usize, Option<String>)>,
}

impl CaseResult {
    /// Whether the schema compiled and every instance was judged as it should be.
    pub fn is_right(&self) -> bool {
        self.refused.is_none() && self.wrong.is_empty()
    }
}

/// Counts of instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Instances {
    /// Valid ones that may be written.
    pub valid_taken: usize,
    /// Valid ones that may not.
    pub valid_refused: usize,
    /// Invalid ones that may not be written.
    pub invalid_refused: usize,
    /// Invalid ones that may: there should be none.
    pub invalid_taken: usize,
}

/// Seconds that something took, over and over.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<f64>);

/// How long it took half the time, and all but one in a hundred, one in a thousand, and at most; in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tail {
    /// How often it was measured.
    pub count: usize,
    /// Half.
    pub p50: f64,
    /// All but one in a hundred.
    pub p99: f64,
    /// All but one in a thousand.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Times {
    fn of<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = run();
        self.0.push(start.elapsed().as_secs_f64());
        result
    }

    /// The summary.
    pub fn tail(&self) -> Tail {
        let [p50, p99, p999, max] = quantiles(self.0.iter().copied(), [0.5, 0.99, 0.999, 1.0]);
        Tail {
            count: self.0.len(),
            p50,
            p99,
            p999,
            max,
        }
    }
}

/// Judges cases one after the other, on the thread that calls, and adds up.
#[derive(Debug)]
pub struct Coverage {
    vocabulary: Arc<Vocabulary>,
    options: JsonOptions,
    mask: Vec<u32>,
    /// Cases so far.
    pub schemas: usize,
    /// Of them, those that were refused.
    pub refused: usize,
    /// Of them, those with all instances judged as they should be.
    pub right: usize,
    /// Of them, those with a check that is made when a value is whole.
    pub checked_late: usize,
    /// The instances of schemas that compiled.
    pub instances: Instances,
    /// Compiling a schema, its first mask included.
    pub compile: Times,
    /// Making a mask.
    pub mask_time: Times,
    /// Accepting a token.
    pub accept: Times,
}

impl Coverage {
    /// Nothing judged so far. Instances become the tokens that the vocabulary's tokenizer makes of them.
    pub fn new(vocabulary: &Arc<Vocabulary>, options: JsonOptions) -> Self {
        Self {
            vocabulary: vocabulary.clone(),
            options,
            mask: vec![0; vocabulary.mask_words()],
            schemas: 0,
            refused: 0,
            right: 0,
            checked_late: 0,
            instances: Instances::default(),
            compile: Times::default(),
            mask_time: Times::default(),
            accept: Times::default(),
        }
    }

    /// Judges a case: every token of a valid instance must be allowed, and its end; of an invalid one something must not.
    pub fn judge(&mut self, case: &SchemaCase) -> CaseResult {
        self.schemas += 1;
        let constraint = Constraint::json_schema(case.schema.clone());
        let constraint = constraint.with_options(self.options.clone());
        let vocabulary = self.vocabulary.clone();
        let compiled = self.compile.of(|| Grammar::new(&vocabulary, &constraint));
        let grammar = match compiled {
            Ok(grammar) => grammar,
            Err(error) => {
                self.compile.0.pop();
                self.refused += 1;
                return CaseResult {
                    refused: Some(error),
                    wrong: Vec::new(),
                };
            }
        };
        self.checked_late += usize::from(!grammar.checked_late().is_empty());
        let mut result = CaseResult::default();
        for (i, test) in case.tests.iter().enumerate() {
            let taken = self.write(&mut grammar.matcher(), &test.data);
            self.instances.count(test.valid, taken.is_ok());
            if test.valid != taken.is_ok() {
                result.wrong.push((i, taken.err()));
            }
        }
        self.right += usize::from(result.is_right());
        result
    }

    /// Writes an instance token by token.
    fn write(&mut self, matcher: &mut Matcher, data: &Value) -> Result<(), String> {
        let text = spaced(data).map_err(|e| e.to_string())?;
        // Not `Tokenizer::encode`, which may write a character in another way than the instance.
        for token in self.vocabulary.tokens(text.as_bytes()) {
            let mask = &mut self.mask;
            let filled = self.mask_time.of(|| matcher.fill_mask(mask));
            filled.map_err(|e| e.to_string())?;
            let accepted = self.accept.of(|| matcher.accept(token));
            accepted.map_err(|e| e.to_string())?;
        }
        let whole = matcher.can_finish();
        whole
            .then_some(())
            .ok_or_else(|| "the text may not end here".to_owned())
    }
}

impl Instances {
    fn count(&mut self, valid: bool, taken: bool) {
        let counter = match (valid, taken) {
            (true, true) => &mut self.valid_taken,
            (true, false) => &mut self.valid_refused,
            (false, false) => &mut self.invalid_refused,
            (false, true) => &mut self.invalid_taken,
        };
        *counter += 1;
    }
}

/// JSON in one line with a space after commas and colons, as models mostly write it.
fn spaced(value: &Value) -> serde_json::Result<String> {
    let mut text = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut text, Spaced))?;
    Ok(String::from_utf8(text).unwrap_or_default())
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(to, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}
