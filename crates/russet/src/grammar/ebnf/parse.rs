//! Reading GBNF and W3C EBNF. They share `name ::= …`, strings, classes and `* + ?`; GBNF has escapes in strings, bounds in
//! braces, `.` and `<token>`, and comments behind `#`; the W3C's has `#x20`, differences and comments like C.

use std::collections::HashMap;

use super::{Expr, Rules};
use crate::grammar::error::GrammarError;

/// Groups in groups at most.
const DEPTH: usize = 64;

/// The largest bound of a repetition.
const BOUND: u32 = 100_000;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Strings have no escapes.
    plain: bool,
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    depth: usize,
}

/// All rules of a grammar.
pub(super) fn rules(text: &str) -> Result<Rules, GrammarError> {
    let plain = text.contains("/*") || text.contains("'") && !text.contains('\\');
    let mut parser = Parser {
        text,
        at: 0,
        plain,
        numbers: HashMap::new(),
        names: Vec::new(),
        depth: 0,
    };
    let mut bodies: HashMap<usize, Expr> = HashMap::new();
    let mut first = None;
    parser.skip();
    while parser.at < text.len() {
        let name = parser
            .name()
            .ok_or_else(|| parser.error("expected the name of a rule"))?;
        parser.skip();
        if !parser.eat("::=") {
            return Err(parser.error("expected ::= after the name of a rule"));
        }
        let number = parser.number(&name);
        first.get_or_insert(number);
        let body = parser.choice()?;
        if bodies.insert(number, body).is_some() {
            return Err(parser.error(&format!("the rule {name} is there twice")));
        }
        parser.skip();
    }
    let first = first.ok_or_else(|| parser.error("there are no rules"))?;
    let start = parser
        .numbers
        .get("root")
        .copied()
        .filter(|r| bodies.contains_key(r));
    let mut all = Vec::with_capacity(parser.names.len());
    for (number, name) in parser.names.iter().enumerate() {
        let body = bodies.remove(&number);
        all.push(body.ok_or_else(|| parser.error(&format!("there is no rule {name}")))?);
    }
    Ok(Rules {
        names: parser.names,
        bodies: all,
        start: start.unwrap_or(first),
    })
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, what: &str) -> bool {
        let there = self.rest().starts_with(what);
        if there {
            self.at += what.len();
        }
        there
    }

    fn error(&self, reason: &str) -> GrammarError {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        GrammarError::syntax("grammar", format!("line {line}: {reason}"))
    }

    /// White space and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let space = rest.len() - rest.trim_start().len();
            let comment = if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |e| e + 2)
            } else if rest.starts_with('#') && code(rest).is_none() || rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else {
                0
            };
            if space + comment == 0 {
                return;
            }
            self.at += space.max(comment);
        }
    }

    fn name(&mut self) -> Option<String> {
        let part = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        let rest = self.rest();
        let start = rest
            .chars()
            .next()
            .filter(|c| c.is_alphabetic() || *c == '_')?;
        let end = rest
            .find(|c| !part(c))
            .unwrap_or(rest.len())
            .max(start.len_utf8());
        let name = rest.get(..end)?.to_owned();
        self.at += end;
        Some(name)
    }

    fn number(&mut self, name: &str) -> usize {
        let next = self.names.len();
        let number = *self.numbers.entry(name.to_owned()).or_insert(next);
        if number == next {
            self.names.push(name.to_owned());
        }
        number
    }

    /// Whether the next thing is the left side of another rule.
    fn at_rule(&mut self) -> bool {
        let here = self.at;
        let is = self.name().is_some() && {
            self.skip();
            self.rest().starts_with("::=")
        };
        self.at = here;
        is
    }

    fn choice(&mut self) -> Result<Expr, GrammarError> {
        let mut options = vec![self.sequence()?];
        while {
            self.skip();
            self.eat("|")
        } {
            options.push(self.sequence()?);
        }
        Ok(one_or(options, Expr::Choice))
    }

    fn sequence(&mut self) -> Result<Expr, GrammarError> {
        let mut items = Vec::new();
        loop {
            self.skip();
            if matches!(self.peek(), None | Some('|' | ')')) || self.at_rule() {
                return Ok(one_or(items, Expr::Sequence));
            }
            let mut item = self.repeated()?;
            self.skip();
            if self.rest().starts_with("- ") && self.eat("-") {
                self.skip();
                item = Expr::Except(Box::new(item), Box::new(self.repeated()?));
            }
            items.push(item);
        }
    }

    fn repeated(&mut self) -> Result<Expr, GrammarError> {
        let mut item = self.item()?;
        while let Some((min, max)) = self.bounds()? {
            item = Expr::Repeat(Box::new(item), min, max);
        }
        Ok(item)
    }

    fn bounds(&mut self) -> Result<Option<(u32, Option<u32>)>, GrammarError> {
        const SIGNS: [(&str, (u32, Option<u32>)); 3] =
            [("*", (0, None)), ("+", (1, None)), ("?", (0, Some(1)))];
        if let Some((_, bounds)) = SIGNS.iter().find(|(s, _)| self.rest().starts_with(s)) {
            self.at += 1;
            return Ok(Some(*bounds));
        }
        if !self.eat("{") {
            return Ok(None);
        }
        let (inside, rest) = self
            .rest()
            .split_once('}')
            .ok_or_else(|| self.error("expected }"))?;
        let (min, max) = inside.split_once(',').unwrap_or((inside, inside));
        let bound = |s: &str| s.trim().parse::<u32>().ok().filter(|n| *n <= BOUND);
        let parsed = (bound(min), bound(max));
        let open = max.trim().is_empty();
        let after = self.text.len() - rest.len();
        let (Some(min), true) = (
            parsed.0,
            open || parsed.1.is_some_and(|m| Some(m) >= parsed.0),
        ) else {
            return Err(self.error("bounds of a repetition are {m}, {m,} or {m,n} up to 100000"));
        };
        self.at = after;
        Ok(Some((min, parsed.1.filter(|_| !open))))
    }

    fn item(&mut self) -> Result<Expr, GrammarError> {
        if let Some((c, length)) = code(self.rest()) {
            self.at += length;
            return Ok(Expr::Literal(c.to_string()));
        }
        match self.peek() {
            Some('(') => self.group(),
            Some(quote @ ('"' | '\'')) => self.string(quote),
            Some('[') => self.class(),
            Some('<' | '!') => self.token(),
            Some('.') => {
                self.at += 1;
                Ok(Expr::Class(vec![], true))
            }
            _ => {
                let name = self
                    .name()
                    .ok_or_else(|| self.error("expected a rule, a string, a class or a group"))?;
                Ok(Expr::Rule(self.number(&name)))
            }
        }
    }

    fn group(&mut self) -> Result<Expr, GrammarError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.error("groups are nested too deeply"));
        }
        let inside = self.choice()?;
        self.depth -= 1;
        self.skip();
        if self.eat(")") {
            Ok(inside)
        } else {
            Err(self.error("expected )"))
        }
    }

    fn string(&mut self, quote: char) -> Result<Expr, GrammarError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return Err(self.error("a string without an end")),
                Some(c) if c == quote => return Ok(Expr::Literal(text)),
                Some('\\') if !self.plain => text.push(self.escape()?),
                Some(c) => text.push(c),
            }
        }
    }

    /// What stands behind a backslash.
    fn escape(&mut self) -> Result<char, GrammarError> {
        let c = self
            .next()
            .ok_or_else(|| self.error("a backslash at the end"))?;
        let digits = match c {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c => return Ok(c),
        };
        let code = self
            .rest()
            .get(..digits)
            .and_then(|d| u32::from_str_radix(d, 16).ok());
        let c = code.and_then(char::from_u32);
        let c = c.ok_or_else(|| self.error("an escape that is no character"))?;
        self.at += digits;
        Ok(c)
    }

    fn class(&mut self) -> Result<Expr, GrammarError> {
        self.at += 1;
        let negated = self.eat("^");
        let mut ranges = Vec::new();
        while !self.eat("]") {
            let first = self.class_char()?;
            let range =
                self.rest().starts_with('-') && !self.rest().starts_with("-]") && self.eat("-");
            let last = if range { self.class_char()? } else { first };
            if last < first {
                return Err(self.error("a range of characters that is backwards"));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() && !negated {
            return Err(self.error("a class of no characters"));
        }
        Ok(Expr::Class(ranges, negated))
    }

    fn class_char(&mut self) -> Result<char, GrammarError> {
        if let Some((c, length)) = code(self.rest()) {
            self.at += length;
            return Ok(c);
        }
        match self.next() {
            None | Some('\n') => Err(self.error("a class without an end")),
            Some('\\') if !self.plain => self.escape(),
            Some(c) => Ok(c),
        }
    }

    fn token(&mut self) -> Result<Expr, GrammarError> {
        let not = self.eat("!");
        let end = self
            .rest()
            .find('>')
            .filter(|_| self.rest().starts_with('<'));
        let end = end.ok_or_else(|| self.error("expected a token in < and >"))?;
        let name = self.rest().get(..=end).unwrap_or("").to_owned();
        self.at += end + 1;
        Ok(Expr::Token(name, not))
    }
}

/// The only one, or all.
fn one_or(mut items: Vec<Expr>, all: impl Fn(Vec<Expr>) -> Expr) -> Expr {
    match items.len() {
        1 => items.remove(0),
        _ => all(items),
    }
}

/// A character as `#x20`, with its length.
fn code(text: &str) -> Option<(char, usize)> {
    let digits = text.strip_prefix("#x")?;
    let end = digits
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(digits.len());
    let code = u32::from_str_radix(digits.get(..end)?, 16).ok()?;
    Some((char::from_u32(code)?, end + 2))
}
