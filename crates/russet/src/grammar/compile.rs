//! From a constraint to a parser: schemas are lowered to what llguidance takes, the other notations become Lark.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{Matcher as Parser, panic_utils};
use serde_json::{Value, json};

use super::constraint::{Constraint, JsonOptions, Kind, ToolCalls};
use super::error::GrammarError;
use super::schema::{Checks, lower};
use super::vocabulary::Vocabulary;
use super::{Matcher, ebnf};

/// A constraint, compiled for a vocabulary. Cheap to clone; shared between threads, each answer takes a [`Matcher`] of its own.
#[derive(Clone)]
pub struct Grammar {
    vocabulary: Arc<Vocabulary>,
    compiled: Arc<Compiled>,
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammar")
            .field("checked_late", &self.checked_late())
            .finish_non_exhaustive()
    }
}

/// What is made of a constraint once.
pub(super) struct Compiled {
    /// A parser that has read nothing.
    pub(super) parser: Parser,
    /// Checks of values beside the grammar, where there are any.
    pub(super) checks: Option<Watch>,
}

/// Where checked JSON is in the text.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) checks: Arc<Checks>,
    /// What stands before each value; nothing where the text is one value.
    pub(super) marker: Option<Vec<u8>>,
}

impl Grammar {
    /// Compiles a constraint, or takes it from the vocabulary's cache.
    ///
    /// # Errors
    /// [`GrammarError`] with the place: nothing is left to be found out while generating but dead ends.
    pub fn new(vocabulary: &Arc<Vocabulary>, constraint: &Constraint) -> Result<Self, GrammarError> {
        let key = constraint.key();
        let compiled = match vocabulary.cache.get(&key) {
            Some(compiled) => compiled,
            None => {
                let compiled = Arc::new(compile(vocabulary, constraint)?);
                vocabulary.cache.put(key, compiled.clone());
                compiled
            }
        };
        Ok(Self {
            vocabulary: vocabulary.clone(),
            compiled,
        })
    }

    /// A matcher that has read nothing.
    pub fn matcher(&self) -> Matcher {
        Matcher::new(self.vocabulary.clone(), self.compiled.clone())
    }

    /// The vocabulary it was compiled for.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// JSON pointers of schemas with keywords that are checked when a value of theirs is whole, and not before: the text cannot
    /// go on where the check fails.
    pub fn checked_late(&self) -> Vec<String> {
        let watch = self.compiled.checks.as_ref();
        watch.map_or_else(Vec::new, |w| w.checks.pointers())
    }
}

/// Grammars that refer to each other by name, the first being the start, and what is checked beside them.
struct Parts {
    grammars: Vec<GrammarWithLexer>,
    watch: Option<Watch>,
}

fn compile(vocabulary: &Vocabulary, constraint: &Constraint) -> Result<Compiled, GrammarError> {
    let parts = parts(vocabulary, constraint)?;
    let grammar = TopLevelGrammar {
        grammars: parts.grammars,
        max_tokens: None,
    };
    let mut parser = parser(vocabulary, grammar, constraint)?;
    // A grammar without a first token would be found out by its first mask.
    if let Err(e) = parser.compute_mask() {
        return Err(engine_error(&e.to_string(), constraint));
    }
    Ok(Compiled {
        parser,
        checks: parts.watch,
    })
}

fn parser(
    vocabulary: &Vocabulary,
    grammar: TopLevelGrammar,
    constraint: &Constraint,
) -> Result<Parser, GrammarError> {
    let make = AssertUnwindSafe(|| vocabulary.factory.create_parser(grammar));
    let parser = panic_utils::catch_unwind(make);
    let parser = parser.map_err(|e| engine_error(&format!("{e:#}"), constraint))?;
    let parser = Parser::new(Ok(parser));
    match parser.get_error() {
        Some(e) => Err(engine_error(&e, constraint)),
        None => Ok(parser),
    }
}

/// An error of llguidance in this module's terms.
fn engine_error(text: &str, constraint: &Constraint) -> GrammarError {
    let text = text.split("\n<").next().unwrap_or(text);
    let text = text.split("\n").next().unwrap_or(text).trim();
    const LIMITS: [&str; 6] = ["too large", "too big", "fuel", "too many", "too complex", "limit"];
    const EMPTY: [&str; 3] = ["nsatisfiable", "NoExtension", "empty"];
    let has = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if has(&LIMITS) {
        return GrammarError::Limit(text.to_owned());
    }
    if has(&EMPTY) {
        return GrammarError::Unsatisfiable(text.to_owned());
    }
    GrammarError::syntax(constraint.notation(), text)
}

impl Constraint {
    fn notation(&self) -> &'static str {
        match &self.kind {
            Kind::Schema(_) => "JSON schema",
            Kind::Regex(_) => "regular expression",
            Kind::Lark(_) => "grammar",
            Kind::After(_, body) => body.notation(),
            Kind::Tools(_) => "schemas of the tools",
        }
    }
}

fn parts(vocabulary: &Vocabulary, constraint: &Constraint) -> Result<Parts, GrammarError> {
    let plain = |grammar| Parts {
        grammars: vec![grammar],
        watch: None,
    };
    Ok(match &constraint.kind {
        Kind::Schema(schema) => {
            let (grammar, checks) = schema_grammar(schema, &constraint.options)?;
            let watch = checks.map(|checks| Watch {
                checks,
                marker: None,
            });
            Parts {
                grammars: vec![grammar],
                watch,
            }
        }
        Kind::Regex(regex) => plain(GrammarWithLexer::from_regex(regex)),
        Kind::Lark(lark) => plain(GrammarWithLexer::from_lark(lark.clone())),
        Kind::After(marker, body) => after(vocabulary, marker, body)?,
        Kind::Tools(tools) => tool_grammar(vocabulary, tools, &constraint.options)?,
    })
}

/// A schema as llguidance takes it, with the checks for what it does not.
fn schema_grammar(
    schema: &Value,
    options: &JsonOptions,
) -> Result<(GrammarWithLexer, Option<Arc<Checks>>), GrammarError> {
    let lowered = lower(schema)?;
    let late = lowered.checks.pointers();
    if let (true, Some(pointer)) = (options.strict, late.first()) {
        let keyword = lowered.checks.keyword(pointer);
        let reason = "can only be checked when the value is whole, which strict schemas refuse";
        return Err(GrammarError::schema(pointer, &keyword, reason));
    }
    let mut schema = match lowered.schema {
        Value::Object(schema) => Value::Object(schema),
        Value::Bool(true) => json!({}),
        _ => return Err(GrammarError::Unsatisfiable("the schema is false".to_owned())),
    };
    let whitespace = match options.whitespace {
        0 => json!({"whitespace_flexible": false}),
        n => json!({"whitespace_pattern": format!("[ \\t\\n\\r]{{1,{n}}}")}),
    };
    schema["x-guidance"] = whitespace;
    let checks = (!late.is_empty()).then(|| Arc::new(lowered.checks));
    Ok((GrammarWithLexer::from_json_schema(schema), checks))
}

/// Text that does not hold `marker`, as a Lark terminal.
fn text_without(marker: &str) -> String {
    format!(
        "TEXT: /(?s:.*)/ & ~(/(?s:.*)/ {} /(?s:.*)/)\n",
        ebnf::lark_string(marker)
    )
}

/// A marker in Lark: the special token of that name, or the text.
fn marker_in_lark(vocabulary: &Vocabulary, marker: &str) -> (String, bool) {
    let special = vocabulary.env.trie.get_special_token(marker).is_some();
    if special {
        (marker.to_owned(), true)
    } else {
        (ebnf::lark_string(marker), false)
    }
}

fn after(
    vocabulary: &Vocabulary,
    marker: &str,
    body: &Constraint,
) -> Result<Parts, GrammarError> {
    let inner = parts(vocabulary, body)?;
    let (spelled, special) = marker_in_lark(vocabulary, marker);
    let text = if special {
        "TEXT: /(?s:.*)/\n".to_owned()
    } else {
        text_without(marker)
    };
    let lark = format!("start: TEXT {spelled} @body\n{text}");
    let mut grammars = vec![GrammarWithLexer::from_lark(lark)];
    grammars.extend(inner.grammars.into_iter().enumerate().map(|(i, mut g)| {
        if i == 0 {
            g.name = Some("body".to_owned());
        }
        g
    }));
    let watch = inner.watch.map(|w| Watch {
        marker: Some(w.marker.unwrap_or_else(|| marker.as_bytes().to_vec())),
        ..w
    });
    Ok(Parts { grammars, watch })
}

fn tool_grammar(
    vocabulary: &Vocabulary,
    tools: &ToolCalls,
    options: &JsonOptions,
) -> Result<Parts, GrammarError> {
    if tools.tools.is_empty() && tools.required {
        return Err(GrammarError::Unsatisfiable("a call is required of no tools".to_owned()));
    }
    let (mut grammar, checks) = schema_grammar(&tools.schema(), options)?;
    grammar.name = Some("call".to_owned());
    let (begin, special) = marker_in_lark(vocabulary, &tools.begin);
    let (end, _) = marker_in_lark(vocabulary, &tools.end);
    let more = if tools.parallel { "(/\\n?/ call)*" } else { "" };
    let calls = format!("call {more}");
    let start = if tools.required {
        calls
    } else {
        format!("TEXT ({calls})?")
    };
    let text = if special || tools.required {
        "TEXT: /(?s:.*)/\n".to_owned()
    } else {
        text_without(&tools.begin)
    };
    let lark = format!("start: {start}\ncall: {begin} /\\n?/ @call /\\n?/ {end}\n{text}");
    let watch = checks.map(|checks| Watch {
        checks,
        marker: Some(tools.begin.as_bytes().to_vec()),
    });
    Ok(Parts {
        grammars: vec![GrammarWithLexer::from_lark(lark), grammar],
        watch,
    })
}
