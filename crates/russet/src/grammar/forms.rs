//! Other forms of the same JSON: `1.0` for the integer `1`, `\/` for `/`. The parser takes neither. It is not told of a fraction of
//! zero, and reads a slash where a slash is escaped; the text and its checks have what was written.

use super::exponent::Place;
use super::matcher::Matcher;
use super::vocabulary::Vocabulary;
use super::{has, set};

/// What of the text the parser has not been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Aside {
    #[default]
    Nothing,
    /// A point behind an integer.
    Point,
    /// A point and a zero.
    Zero,
    /// A backslash where only a slash may come.
    Backslash,
}

/// What the parser is told in place of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Another token, or the same.
    Token(u32),
    Nothing(Aside),
}

/// The tokens that other forms are written with; those that the vocabulary has.
#[derive(Clone, Debug)]
pub(super) struct Forms {
    point: Option<u32>,
    zero: Option<u32>,
    point_zero: Option<u32>,
    pub(super) slash: Option<u32>,
    escaped_slash: Option<u32>,
    pub(super) backslash: Option<u32>,
    /// What may follow a whole number.
    after: Vec<u32>,
    /// Tokens that a number would go on with.
    going_on: Vec<u32>,
}

impl Forms {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let token = |bytes: &[u8]| vocabulary.env.trie.token_id_at_bytes(bytes);
        let goes_on = |token: &u32| {
            let first = vocabulary.bytes(*token).first();
            first.is_some_and(|b| b.is_ascii_digit() || b".eE+-".contains(b))
        };
        Self {
            point: token(b"."),
            zero: token(b"0"),
            point_zero: token(b".0"),
            slash: token(b"/"),
            escaped_slash: token(b"\\/"),
            backslash: token(b"\\"),
            after: b",}] \n".iter().filter_map(|b| token(&[*b])).collect(),
            going_on: (0..vocabulary.width() as u32).filter(goes_on).collect(),
        }
    }

    /// What the parser is to be told of a token, where it is not the token itself. `whole` is asked whether a number may end here.
    pub(super) fn told(
        &self,
        (place, aside): (Place, Aside),
        token: u32,
        whole: impl FnOnce() -> bool,
    ) -> Option<Told> {
        let is = |t: Option<u32>| t == Some(token);
        match aside {
            Aside::Point => return is(self.zero).then_some(Told::Nothing(Aside::Zero)),
            Aside::Backslash => return self.slash.filter(|s| *s == token).map(Told::Token),
            Aside::Zero => return None,
            Aside::Nothing => {}
        }
        if is(self.escaped_slash) && place.is_text() {
            return self.slash.map(Told::Token);
        }
        if is(self.backslash) && place.is_text() {
            return Some(Told::Nothing(Aside::Backslash));
        }
        let fraction = if is(self.point_zero) {
            Aside::Zero
        } else {
            is(self.point).then_some(Aside::Point)?
        };
        (place.is_integer() && whole()).then_some(Told::Nothing(fraction))
    }

    /// Adds other forms to a mask of the parser's, and takes away what the parser cannot know to be wrong.
    pub(super) fn amend(&self, mask: &mut [u32], (place, aside): (Place, Aside), whole: bool) {
        match aside {
            Aside::Point => {
                mask.fill(0);
                self.zero.iter().for_each(|t| set(mask, *t, true));
            }
            Aside::Backslash => {
                mask.fill(0);
                self.slash.iter().for_each(|t| set(mask, *t, true));
            }
            Aside::Zero => self.going_on.iter().for_each(|t| set(mask, *t, false)),
            Aside::Nothing if place.is_text() => {
                let slash = self.slash.is_some_and(|t| has(mask, t));
                let escaped = self.escaped_slash.iter().chain(&self.backslash);
                escaped.filter(|_| slash).for_each(|t| set(mask, *t, true));
            }
            Aside::Nothing if place.is_integer() => {
                let ends = whole || self.after.iter().any(|t| has(mask, *t));
                // Where the parser takes a point the number is none of integers alone.
                if ends && !self.point.is_some_and(|t| has(mask, t)) {
                    let first = self.point.filter(|_| self.zero.is_some());
                    let both = first.iter().chain(&self.point_zero);
                    both.for_each(|t| set(mask, *t, true));
                }
            }
            Aside::Nothing => {}
        }
    }

    /// Whether a mask of the parser's lets a number end.
    pub(super) fn ends(&self, mask: &[u32]) -> bool {
        self.after.iter().any(|t| has(mask, *t))
    }
}

impl Matcher {
    /// What of the text the parser has not been told.
    pub(super) fn aside(&self) -> Aside {
        match self.told.last() {
            Some(Told::Nothing(aside)) => *aside,
            _ => Aside::Nothing,
        }
    }

    /// Where the text stands, if it may take other forms.
    fn stands(&self) -> Option<(Place, Aside)> {
        let place = self.numbers.filter(|_| self.compiled.other_forms)?;
        Some((place, self.aside()))
    }

    /// Whether what comes next may have other forms than the parser knows: nothing is certain then.
    pub(super) fn has_other_forms(&self) -> bool {
        let integer = |place: Place| self.compiled.fractions && place.is_integer();
        let open = |(place, aside): (Place, Aside)| aside != Aside::Nothing || integer(place);
        self.stands().is_some_and(open)
    }

    /// What the parser is to be told of a token; nothing where it is not allowed, an error where the parser has none to give.
    pub(super) fn told(&mut self, token: u32) -> Result<Option<Told>, ()> {
        let Some((place, aside)) = self.stands() else {
            return self.known(token);
        };
        let vocabulary = self.vocabulary.clone();
        let forms = vocabulary.forms();
        if aside == Aside::Zero && forms.going_on.binary_search(&token).is_ok() {
            return Ok(None);
        }
        // The parser first: a point may be one of its own.
        if matches!(aside, Aside::Nothing | Aside::Zero) {
            let known = self.known(token)?;
            if known.is_some() {
                return Ok(known);
            }
        }
        let fractions = self.compiled.fractions;
        match forms.told((place, aside), token, || fractions && self.may_end_number()) {
            Some(Told::Token(other)) => self.known(other),
            Some(Told::Nothing(Aside::Backslash)) => {
                let slash = forms.slash.map_or(Ok(None), |slash| self.known(slash))?;
                Ok(slash.map(|_| Told::Nothing(Aside::Backslash)))
            }
            Some(told) => Ok(Some(told)),
            None if forms.slash == Some(token) && self.after_backslash() => {
                Ok(self.slash_for_backslash().then_some(Told::Token(token)))
            }
            None => Ok(None),
        }
    }

    fn known(&mut self, token: u32) -> Result<Option<Told>, ()> {
        match self.parser.validate_tokens(&[token]) {
            Ok(1) => Ok(Some(Told::Token(token))),
            Ok(_) => Ok(None),
            Err(_) => Err(()),
        }
    }

    /// Whether the number so far may be whole, for the checks too: with a fraction it is the same number.
    fn may_end_number(&mut self) -> bool {
        if !self.checks_let_end() {
            return false;
        }
        if self.parser.is_accepting().unwrap_or(false) {
            return true;
        }
        let mask = self.parser.compute_mask();
        mask.is_ok_and(|m| self.vocabulary.forms().ends(m.as_slice()))
    }

    fn checks_let_end(&mut self) -> bool {
        let stream = self.stream.as_mut();
        stream.is_none_or(|s| s.may_end_after(&[]))
    }

    /// Tells the parser; `false` where it does not take it.
    pub(super) fn tell(&mut self, told: Told) -> bool {
        let Told::Token(token) = told else {
            return true;
        };
        if self.vocabulary.forms().slash == Some(token) && self.after_backslash() {
            // The slash stands for the backslash too.
            if self.parser.rollback(1).is_err() {
                return false;
            }
            if let Some(last) = self.told.last_mut() {
                *last = Told::Nothing(Aside::Nothing);
            }
        }
        self.parser.consume_token(token).is_ok()
    }

    /// Whether the last token was a backslash, told to the parser, and begins an escape.
    fn after_backslash(&self) -> bool {
        let escaped = Place::Text { escaped: true };
        let backslash = self.vocabulary.forms().backslash;
        let stands = self.stands().is_some_and(|s| s.0 == escaped);
        stands && backslash.is_some_and(|b| self.told.last() == Some(&Told::Token(b)))
    }

    /// Whether the parser would take a slash in place of the backslash that it took last.
    fn slash_for_backslash(&mut self) -> bool {
        let forms = self.vocabulary.forms();
        let (Some(slash), Some(backslash)) = (forms.slash, forms.backslash) else {
            return false;
        };
        if self.parser.rollback(1).is_err() {
            return false;
        }
        let fits = matches!(self.parser.validate_tokens(&[slash]), Ok(1));
        self.parser.consume_token(backslash).is_ok() && fits
    }

    /// Tells the parser of a backslash at the end of the text that a slash stood for, which was taken back.
    pub(super) fn tell_backslash(&mut self) {
        let backslash = self.vocabulary.forms().backslash;
        let (Some(last), Some(token)) = (self.told.last_mut(), self.tokens.last()) else {
            return;
        };
        if *last == Told::Nothing(Aside::Nothing) && backslash == Some(*token) {
            *last = Told::Token(*token);
            let _ = self.parser.consume_token(*token);
        }
    }

    /// Adds other forms to the mask of the parser.
    pub(super) fn amend(&mut self, mask: &mut [u32]) {
        let Some(stands) = self.stands() else {
            return;
        };
        let vocabulary = self.vocabulary.clone();
        let forms = vocabulary.forms();
        if self.after_backslash() {
            let fits = self.slash_for_backslash();
            forms
                .slash
                .filter(|_| fits)
                .iter()
                .for_each(|t| set(mask, *t, true));
            return;
        }
        let is_integer = stands.0.is_integer();
        if is_integer && !(self.compiled.fractions && self.checks_let_end()) {
            return;
        }
        let whole = is_integer && self.parser.is_accepting().unwrap_or(false);
        forms.amend(mask, stands, whole);
    }
}
