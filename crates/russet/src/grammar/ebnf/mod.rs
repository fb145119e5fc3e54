//! Grammars in GBNF (llama.cpp) and in the EBNF of the W3C, turned into Lark.
//!
//! Rules without recursion become terminals, whole: a terminal is a regular language, matched by derivatives, exactly. In rules
//! with recursion, repeated parts that are regular become terminals too, which are matched as long as possible.

mod parse;
mod write;

use super::error::GrammarError;

/// A grammar as written: rules in order.
#[derive(Debug)]
struct Rules {
    names: Vec<String>,
    bodies: Vec<Expr>,
    start: usize,
}

/// The right side of a rule.
#[derive(Clone, Debug, PartialEq)]
enum Expr {
    Literal(String),
    /// Ranges of characters, and whether it is all others that are meant.
    Class(Vec<(char, char)>, bool),
    /// A special token by its text, or any other.
    Token(String, bool),
    Rule(usize),
    Sequence(Vec<Self>),
    Choice(Vec<Self>),
    Repeat(Box<Self>, u32, Option<u32>),
    /// What the first matches and the second does not.
    Except(Box<Self>, Box<Self>),
}

/// The same grammar in Lark.
///
/// # Errors
/// [`GrammarError::Syntax`] with the line.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let rules = parse::rules(text)?;
    write::lark(&rules)
}

/// A text as a string of Lark.
pub(super) fn lark_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' || c == '\u{7f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
