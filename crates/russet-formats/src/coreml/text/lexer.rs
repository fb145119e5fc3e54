//! Tokens of `model.mil`: names, numbers, texts and marks, one at a time.

use super::super::error::{Outcome, Problem};

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A name or a word.
    Word(&'a str),
    /// A number as it stands, sign included.
    Number(&'a str),
    /// A text between quotes, as it stands.
    Text(&'a str),
    /// `->`.
    Arrow,
    /// Any other mark.
    Mark(char),
}

/// Reads tokens from the start of what is left.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

/// The most bytes of a name or number that an error shows.
const SHOWN: usize = 40;

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_number(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-')
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Where the next token begins, in bytes.
    pub(super) fn offset(&self) -> usize {
        self.text.len() - self.rest().len()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default().trim_start()
    }

    /// The next token, which stays; `None` at the end.
    pub(super) fn peek(&self) -> Outcome<Option<Token<'a>>> {
        self.clone().next()
    }

    /// The next token; `None` at the end.
    pub(super) fn next(&mut self) -> Outcome<Option<Token<'a>>> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            self.at = self.text.len();
            return Ok(None);
        };
        let signed = matches!(first, '-' | '+') && rest.chars().nth(1).is_some_and(is_number);
        let (token, len) = if rest.starts_with("->") {
            (Token::Arrow, 2)
        } else if first == '"' {
            let text = quoted(rest)?;
            (Token::Text(text), text.len() + 2)
        } else if first.is_ascii_digit() || signed {
            let word = number(rest);
            (Token::Number(word), word.len())
        } else if is_word(first) {
            let word = prefix(rest, is_word);
            (Token::Word(word), word.len())
        } else {
            (Token::Mark(first), first.len_utf8())
        };
        self.at = self.offset() + len;
        Ok(Some(token))
    }

    /// The next token, which must be there.
    pub(super) fn must(&mut self, what: &str) -> Outcome<Token<'a>> {
        let token = self.next()?;
        token.ok_or_else(|| Problem::Value(format!("the text ends where {what} should be")))
    }

    /// Takes a mark, which must come next.
    pub(super) fn mark(&mut self, mark: char) -> Outcome<()> {
        match self.must(&format!("{mark:?}"))? {
            Token::Mark(m) if m == mark => Ok(()),
            other => Err(unexpected(other, &format!("{mark:?}"))),
        }
    }

    /// Takes a mark where it comes next.
    pub(super) fn take(&mut self, mark: char) -> Outcome<bool> {
        let here = self.peek()? == Some(Token::Mark(mark));
        if here {
            self.next()?;
        }
        Ok(here)
    }

    /// A name.
    pub(super) fn word(&mut self, what: &str) -> Outcome<&'a str> {
        match self.must(what)? {
            Token::Word(word) => Ok(word),
            other => Err(unexpected(other, what)),
        }
    }

    /// Passes over what stands between a bracket, which has been taken, and the one that closes it.
    pub(super) fn skip(&mut self) -> Outcome<()> {
        let mut depth = 1usize;
        while depth > 0 {
            match self.must("a closing bracket")? {
                Token::Mark('[' | '(' | '{') => depth += 1,
                Token::Mark(']' | ')' | '}') => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }
}

/// A token where another belongs.
pub(super) fn unexpected(token: Token<'_>, wanted: &str) -> Problem {
    let short = |s: &str| s.chars().take(SHOWN).collect::<String>();
    let found = match token {
        Token::Word(s) | Token::Number(s) => short(s),
        Token::Text(s) => format!("{:?}", short(s)),
        Token::Arrow => "->".into(),
        Token::Mark(c) => c.into(),
    };
    Problem::Value(format!("{found} stands where {wanted} should be"))
}

fn prefix(text: &str, holds: fn(char) -> bool) -> &str {
    let end = text.find(|c| !holds(c)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// A number: a sign inside one belongs to an exponent.
fn number(text: &str) -> &str {
    let mut before = ' ';
    let hex = text.trim_start_matches(['-', '+']).starts_with("0x");
    let end = text.find(|c: char| {
        let exponent = if hex {
            matches!(before, 'p' | 'P')
        } else {
            matches!(before, 'e' | 'E')
        };
        let sign = matches!(c, '-' | '+') && before != ' ' && !exponent;
        before = c;
        !is_number(c) || sign
    });
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// What stands between quotes; a quote behind a backslash does not end it.
fn quoted(text: &str) -> Outcome<&str> {
    let inner = text.get(1..).unwrap_or_default();
    let mut escaped = false;
    let end = inner.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let text = end.and_then(|end| inner.get(..end));
    text.ok_or_else(|| Problem::Value("a text does not end".into()))
}
