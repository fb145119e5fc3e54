//! From a constraint to a parser: schemas are lowered to what llguidance takes, the other notations become Lark.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{Matcher as Parser, panic_utils};
use serde_json::{Value, json};

use super::constraint::{Constraint, JsonOptions, Kind, ToolCalls};
use super::error::GrammarError;
use super::schema::{Checks, Relaxed, lower};
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
    /// Whether the text is JSON from its first byte.
    pub(super) is_json: bool,
    /// Whether that JSON may be written in other forms.
    pub(super) other_forms: bool,
    /// Whether one of those is a fraction of zero behind an integer.
    pub(super) fractions: bool,
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
    pub fn new(
        vocabulary: &Arc<Vocabulary>,
        constraint: &Constraint,
    ) -> Result<Self, GrammarError> {
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

    /// Whether two are one, compiled once.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
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
    /// Whether `1.0` is an integer.
    fractions: bool,
}

fn compile(vocabulary: &Vocabulary, constraint: &Constraint) -> Result<Compiled, GrammarError> {
    let mut relaxed = Relaxed::default();
    let (mut parser, watch, fractions) = loop {
        let parts = parts(vocabulary, constraint, &relaxed)?;
        match parser(vocabulary, parts.grammars) {
            Ok(parser) => break (parser, parts.watch, parts.fractions),
            Err(e) if relaxed.after(&e) => {}
            Err(e) => return Err(engine_error(&e, constraint)),
        }
    };
    // A grammar without a first token would be found out by its first mask.
    if let Err(e) = parser.compute_mask() {
        return Err(engine_error(&e.to_string(), constraint));
    }
    Ok(Compiled {
        parser,
        checks: watch,
        is_json: matches!(constraint.kind, Kind::Schema(_)),
        other_forms: constraint.options.other_forms,
        fractions,
    })
}

/// A parser that has read nothing, or llguidance's words for why there is none.
fn parser(vocabulary: &Vocabulary, grammars: Vec<GrammarWithLexer>) -> Result<Parser, String> {
    let grammar = TopLevelGrammar {
        grammars,
        max_tokens: None,
    };
    let make = AssertUnwindSafe(|| vocabulary.factory.create_parser(grammar));
    let parser = panic_utils::catch_unwind(make).map_err(|e| format!("{e:#}"))?;
    let parser = Parser::new(Ok(parser));
    parser.get_error().map_or(Ok(parser), Err)
}

/// An error of llguidance in this module's terms.
fn engine_error(text: &str, constraint: &Constraint) -> GrammarError {
    let text = text.split("\n<").next().unwrap_or(text);
    let text = text.split("\n").next().unwrap_or(text).trim();
    const LIMITS: [&str; 6] = [
        "too large",
        "too big",
        "fuel",
        "too many",
        "too complex",
        "limit",
    ];
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

fn parts(
    vocabulary: &Vocabulary,
    constraint: &Constraint,
    relaxed: &Relaxed,
) -> Result<Parts, GrammarError> {
    let plain = |grammar| Parts {
        grammars: vec![grammar],
        watch: None,
        fractions: false,
    };
    Ok(match &constraint.kind {
        Kind::Schema(schema) => {
            let (grammar, checks, fractions) =
                schema_grammar(schema, &constraint.options, relaxed)?;
            let watch = checks.map(|checks| Watch {
                checks,
                marker: None,
            });
            Parts {
                grammars: vec![grammar],
                watch,
                fractions,
            }
        }
        Kind::Regex(regex) => plain(GrammarWithLexer::from_regex(regex)),
        Kind::Lark(lark) => plain(GrammarWithLexer::from_lark(lark.clone())),
        Kind::After(marker, body) => after(vocabulary, marker, body, relaxed)?,
        Kind::Tools(tools) => tool_grammar(vocabulary, tools, &constraint.options, relaxed)?,
    })
}

/// A schema as llguidance takes it, with the checks for what it does not, and whether `1.0` is an integer in it.
fn schema_grammar(
    schema: &Value,
    options: &JsonOptions,
    relaxed: &Relaxed,
) -> Result<(GrammarWithLexer, Option<Arc<Checks>>, bool), GrammarError> {
    let lowered = lower(schema, relaxed)?;
    let late = lowered.checks.pointers();
    if let (true, Some(pointer)) = (options.strict, late.first()) {
        let keyword = lowered.checks.keyword(pointer);
        let reason = "can only be checked when the value is whole, which strict schemas refuse";
        return Err(GrammarError::schema(pointer, &keyword, reason));
    }
    let mut schema = match lowered.schema {
        Value::Object(schema) => Value::Object(schema),
        Value::Bool(true) => json!({}),
        _ => {
            return Err(GrammarError::Unsatisfiable(
                "the schema is false".to_owned(),
            ));
        }
    };
    let whitespace = match options.whitespace {
        0 => json!({"whitespace_flexible": false}),
        n => json!({"whitespace_pattern": format!("[ \\t]|\\r?\\n[ \\t]{{0,{}}}", n - 1)}),
    };
    schema["x-guidance"] = whitespace;
    schema["x-guidance"]["json_allow_general_unicode_escapes"] = json!(true);
    let checks = (!late.is_empty()).then(|| Arc::new(lowered.checks));
    let grammar = GrammarWithLexer::from_json_schema(schema);
    Ok((grammar, checks, lowered.fractions))
}

/// Text up to a marker and with it, as a rule of Lark named `before`, and text that does not hold the marker.
fn text_before(marker: &str, special: bool) -> String {
    let (spelled, any) = (ebnf::lark_string(marker), "/(?s:.*)/");
    if special {
        format!("before: TEXT {marker}\nTEXT: {any}\n")
    } else {
        format!("before[suffix={spelled}]: {any}\nTEXT: {any} & ~({any} {spelled} {any})\n")
    }
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
    relaxed: &Relaxed,
) -> Result<Parts, GrammarError> {
    let inner = parts(vocabulary, body, relaxed)?;
    let (_, special) = marker_in_lark(vocabulary, marker);
    let lark = format!("start: before @body\n{}", text_before(marker, special));
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
    Ok(Parts {
        grammars,
        watch,
        fractions: false,
    })
}

fn tool_grammar(
    vocabulary: &Vocabulary,
    tools: &ToolCalls,
    options: &JsonOptions,
    relaxed: &Relaxed,
) -> Result<Parts, GrammarError> {
    if tools.tools.is_empty() && tools.required {
        return Err(GrammarError::Unsatisfiable(
            "a call is required of no tools".to_owned(),
        ));
    }
    let (mut grammar, checks, _) = schema_grammar(&tools.schema(), options, relaxed)?;
    grammar.name = Some("call".to_owned());
    let (begin, special) = marker_in_lark(vocabulary, &tools.begin);
    let (end, _) = marker_in_lark(vocabulary, &tools.end);
    let more = if tools.parallel { "(/\\n?/ call)*" } else { "" };
    let start = if tools.required {
        format!("call {more}")
    } else {
        format!("TEXT | before rest {more}")
    };
    let lark = format!(
        "start: {start}\ncall: {begin} rest\nrest: /\\n?/ @call /\\n?/ {end}\n{}",
        text_before(&tools.begin, special)
    );
    let watch = checks.map(|checks| Watch {
        checks,
        marker: Some(tools.begin.as_bytes().to_vec()),
    });
    Ok(Parts {
        grammars: vec![GrammarWithLexer::from_lark(lark), grammar],
        watch,
        fractions: false,
    })
}
