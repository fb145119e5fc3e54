//! Regular expressions of schemas: which the grammar can take, and what they match.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fancy_regex::Regex;
use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;

/// Steps allowed to decide a question about expressions.
const FUEL: u64 = 20_000;

/// Steps of backtracking in one match.
const BACKTRACKS: usize = 100_000;

/// An expression of ECMA 262 in the notation of the regex crates: classes of ASCII.
fn ascii(pattern: &str) -> String {
    regex_to_lark(pattern, "dw")
}

/// Whether the grammar can take an expression: it has no look-around and no back reference.
pub(super) fn in_grammar(pattern: &str) -> bool {
    RegexBuilder::new()
        .mk_regex_for_serach(&ascii(pattern))
        .is_ok()
}

/// Whether no text has both somewhere, as far as that can be decided.
pub(super) fn disjoint(a: &str, b: &str) -> bool {
    let mut builder = RegexBuilder::new();
    let (Ok(a), Ok(b)) = (
        builder.mk_regex_for_serach(&ascii(a)),
        builder.mk_regex_for_serach(&ascii(b)),
    ) else {
        return false;
    };
    let both = RegexAst::And(vec![RegexAst::ExprRef(a), RegexAst::ExprRef(b)]);
    let both = builder
        .mk(&both)
        .and_then(|both| builder.to_regex_limited(both, FUEL));
    both.is_ok_and(|mut r| r.always_empty())
}

/// Expressions compiled for matching, by their text; nothing for those that cannot be.
#[derive(Debug, Default)]
pub(super) struct Patterns(Mutex<HashMap<String, Option<Arc<Regex>>>>);

impl Patterns {
    fn get(&self, pattern: &str) -> Option<Arc<Regex>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(regex) = known.get(pattern) {
            return regex.clone();
        }
        let regex = fancy_regex::RegexBuilder::new(&ascii(pattern))
            .backtrack_limit(BACKTRACKS)
            .delegate_size_limit(1 << 22)
            .build();
        let regex = regex.ok().map(Arc::new);
        known.insert(pattern.to_owned(), regex.clone());
        regex
    }

    /// Whether the expression can be matched.
    pub(super) fn knows(&self, pattern: &str) -> bool {
        self.get(pattern).is_some()
    }

    /// Whether a text has a match; not where finding out takes too long.
    pub(super) fn matches(&self, pattern: &str, text: &str) -> bool {
        let regex = self.get(pattern);
        regex.is_some_and(|r| r.is_match(text).unwrap_or(false))
    }
}

/// Whether a text is a regular expression.
pub(super) fn is_expression(text: &str) -> bool {
    Regex::new(text).is_ok()
}

/// The characters that mean something in an expression, escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\.+*?()|[]{}^$#&-~/ ".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// An expression for every text but these: what leaves the tree of their characters, or stops inside it.
pub(super) fn none_of(texts: &[&str]) -> String {
    let chars: Vec<Vec<char>> = texts.iter().map(|t| t.chars().collect()).collect();
    let words: Vec<&[char]> = chars.iter().map(Vec::as_slice).collect();
    format!("^(?:{})$", leaves(&words))
}

fn leaves(words: &[&[char]]) -> String {
    let mut firsts: Vec<char> = words.iter().filter_map(|w| w.first().copied()).collect();
    firsts.sort_unstable();
    firsts.dedup();
    let class: String = firsts.iter().map(|c| escaped(&c.to_string())).collect();
    let mut options = vec![if class.is_empty() {
        "(?s:.)(?s:.*)".to_owned()
    } else {
        format!("[^{class}](?s:.*)")
    }];
    if words.iter().all(|w| !w.is_empty()) {
        options.push(String::new());
    }
    for first in firsts {
        let rest: Vec<&[char]> = words
            .iter()
            .filter(|w| w.first() == Some(&first))
            .filter_map(|w| w.get(1..))
            .collect();
        options.push(format!(
            "{}(?:{})",
            escaped(&first.to_string()),
            leaves(&rest)
        ));
    }
    options.join("|")
}
