//! Writing Lark: names, terminals for what is regular, rules for the rest.

use super::{Expr, Rules, lark_string};
use crate::grammar::error::GrammarError;

struct Writer<'a> {
    rules: &'a Rules,
    /// Which rules are regular: no recursion, no tokens.
    regular: Vec<bool>,
    /// Terminals made of parts of rules.
    parts: Vec<String>,
}

/// A grammar in Lark.
pub(super) fn lark(rules: &Rules) -> Result<String, GrammarError> {
    let regular = regular(rules);
    let mut writer = Writer {
        rules,
        regular,
        parts: Vec::new(),
    };
    let mut out = format!("start: {}\n", writer.name(rules.start));
    for (number, body) in rules.bodies.iter().enumerate() {
        let body = if writer.is_regular(number) {
            writer.terminal(body)?
        } else {
            writer.rule(body)?
        };
        out += &format!("{}: {body}\n", writer.name(number));
    }
    for (number, part) in writer.parts.iter().enumerate() {
        out += &format!("PART_{number}: {part}\n");
    }
    Ok(out)
}

/// Rules whose language needs no stack: those that only use such rules.
fn regular(rules: &Rules) -> Vec<bool> {
    let mut regular = vec![false; rules.bodies.len()];
    loop {
        let found = |(number, body): (usize, &Expr)| {
            !regular.get(number).copied().unwrap_or(false) && is_regular(body, &regular)
        };
        let new: Vec<usize> = rules
            .bodies
            .iter()
            .enumerate()
            .filter(|r| found(*r))
            .map(|r| r.0)
            .collect();
        if new.is_empty() {
            return regular;
        }
        for number in new {
            if let Some(known) = regular.get_mut(number) {
                *known = true;
            }
        }
    }
}

fn is_regular(expr: &Expr, rules: &[bool]) -> bool {
    match expr {
        Expr::Literal(_) | Expr::Class(..) => true,
        Expr::Token(..) => false,
        Expr::Rule(number) => rules.get(*number).copied().unwrap_or(false),
        Expr::Sequence(all) | Expr::Choice(all) => all.iter().all(|e| is_regular(e, rules)),
        Expr::Repeat(e, ..) => is_regular(e, rules),
        Expr::Except(a, b) => is_regular(a, rules) && is_regular(b, rules),
    }
}

impl Writer<'_> {
    fn is_regular(&self, number: usize) -> bool {
        self.regular.get(number).copied().unwrap_or(false)
    }

    /// A name that Lark takes: of a terminal in capitals, of a rule in small letters.
    fn name(&self, number: usize) -> String {
        let written = self.rules.names.get(number).map_or("", String::as_str);
        let plain: String = written
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        if self.is_regular(number) {
            format!("T{number}_{}", plain.to_ascii_uppercase())
        } else {
            format!("r{number}_{}", plain.to_ascii_lowercase())
        }
    }

    fn terminal(&self, expr: &Expr) -> Result<String, GrammarError> {
        let all = |items: &[Expr]| -> Result<Vec<String>, GrammarError> {
            items.iter().map(|e| self.terminal(e)).collect()
        };
        Ok(match expr {
            Expr::Literal(text) => lark_string(text),
            Expr::Class(ranges, negated) => class(ranges, *negated),
            Expr::Token(name, _) => {
                let reason = format!("the token {name} cannot be part of a repeated expression");
                return Err(GrammarError::syntax("grammar", reason));
            }
            Expr::Rule(number) => self.name(*number),
            Expr::Sequence(items) if items.is_empty() => "\"\"".to_owned(),
            Expr::Sequence(items) => all(items)?.join(" "),
            Expr::Choice(items) => format!("({})", all(items)?.join(" | ")),
            Expr::Repeat(e, min, max) => format!("({}){}", self.terminal(e)?, bounds(*min, *max)),
            Expr::Except(a, b) => format!("(({}) & ~({}))", self.terminal(a)?, self.terminal(b)?),
        })
    }

    fn rule(&mut self, expr: &Expr) -> Result<String, GrammarError> {
        let lift = matches!(expr, Expr::Repeat(..) | Expr::Except(..) | Expr::Choice(_));
        if lift && is_regular(expr, &self.regular) {
            let part = self.terminal(expr)?;
            self.parts.push(part);
            return Ok(format!("PART_{}", self.parts.len() - 1));
        }
        Ok(match expr {
            Expr::Token(name, false) => name.clone(),
            Expr::Token(name, true) => format!("<[^{}]>", name.trim_matches(['<', '>', '[', ']'])),
            Expr::Sequence(items) if !items.is_empty() => {
                let items: Result<Vec<_>, _> = items.iter().map(|e| self.rule(e)).collect();
                items?.join(" ")
            }
            Expr::Choice(items) => {
                let items: Result<Vec<_>, _> = items.iter().map(|e| self.rule(e)).collect();
                format!("({})", items?.join(" | "))
            }
            Expr::Repeat(e, min, max) => format!("({}){}", self.rule(e)?, bounds(*min, *max)),
            Expr::Except(..) => {
                let reason = "a difference of rules that call themselves";
                return Err(GrammarError::syntax("grammar", reason));
            }
            regular => self.terminal(regular)?,
        })
    }
}

fn bounds(min: u32, max: Option<u32>) -> String {
    match (min, max) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (min, None) => format!("{{{min},}}"),
        (min, Some(max)) => format!("{{{min},{max}}}"),
    }
}

/// A class of characters as a regular expression of Lark.
fn class(ranges: &[(char, char)], negated: bool) -> String {
    if ranges.is_empty() {
        return "/(?s:.)/".to_owned();
    }
    let code = |c: char| format!("\\x{{{:x}}}", u32::from(c));
    let range = |(a, b): &(char, char)| {
        if a == b {
            code(*a)
        } else {
            format!("{}-{}", code(*a), code(*b))
        }
    };
    let all: String = ranges.iter().map(range).collect();
    format!("/[{}{all}]/", if negated { "^" } else { "" })
}
