//! Following a constraint token by token (contract B §7.3): a mask of what may come, the token that came, and the way back.

use std::sync::Arc;

use llguidance::Matcher as Parser;
use llguidance::api::StopReason;

use super::close::Exit;
use super::compile::Compiled;
use super::error::GrammarError;
use super::exponent::Place;
use super::forms::{Aside, Told};
use super::stream::Stream;
use super::vocabulary::Vocabulary;

/// Bytes of text in an error.
const SHOWN: usize = 60;

/// Places beyond the next one that are looked at for an end of the numbers that a check refuses, all of a mask together.
const AHEAD: usize = 64;

/// What a mask says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// The words say which tokens may come.
    Constrained,
    /// Every token may come; the words are all ones.
    Anything,
    /// The text is whole and nothing may follow: stop, without sampling. The words are zeros.
    Finished,
}

/// Text that must come, whatever the model says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jump {
    /// The text, as far as it is whole characters.
    pub text: String,
    /// The tokens that the model would have made of it, without a last one that could still become a longer one; possibly
    /// fewer than the text, even none.
    pub tokens: Vec<u32>,
}

/// How far one answer has come in its constraint.
pub struct Matcher {
    pub(super) vocabulary: Arc<Vocabulary>,
    pub(super) compiled: Arc<Compiled>,
    pub(super) parser: Parser,
    pub(super) stream: Option<Stream>,
    /// Where in JSON the text stands, if it is JSON.
    pub(super) numbers: Option<Place>,
    pub(super) tokens: Vec<u32>,
    /// What the parser was told of each token.
    pub(super) told: Vec<Told>,
    text: Vec<u8>,
    /// An end token has been accepted, which the parser has not been told.
    ended: bool,
    /// The way to an end, as far as it is known.
    pub(super) exit: Exit,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher")
            .field("tokens", &self.tokens.len())
            .field("after", &self.after())
            .finish_non_exhaustive()
    }
}

impl Matcher {
    pub(super) fn new(vocabulary: Arc<Vocabulary>, compiled: Arc<Compiled>) -> Self {
        let parser = compiled.parser.deep_clone();
        let stream = compiled.checks.clone().map(Stream::new);
        let numbers = compiled.is_json.then(Place::default);
        Self {
            vocabulary,
            compiled,
            parser,
            stream,
            numbers,
            tokens: Vec::new(),
            told: Vec::new(),
            text: Vec::new(),
            ended: false,
            exit: Exit::default(),
        }
    }

    /// Whether the text is whole and nothing may follow, or an end token came.
    pub fn is_finished(&self) -> bool {
        self.ended || (self.parser.is_stopped() && self.parser.stop_reason().is_ok())
    }

    /// Whether the text so far is a whole one.
    pub fn can_finish(&mut self) -> bool {
        if self.is_finished() {
            return true;
        }
        let parser = matches!(self.aside(), Aside::Nothing | Aside::Zero)
            && self.parser.is_accepting().unwrap_or(false);
        parser && self.stream.as_mut().is_none_or(Stream::may_end)
    }

    /// Tokens accepted.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// Writes which tokens may come next: bit `i % 32` of word `i / 32` for token `i`. End tokens are among them only where the
    /// text is whole.
    ///
    /// # Errors
    /// [`GrammarError::DeadEnd`] where nothing may come and the text is not whole, [`GrammarError::Limit`] where finding out
    /// takes too long, [`GrammarError::MaskLength`] unless there are [`Vocabulary::mask_words`] words.
    pub fn fill_mask(&mut self, mask: &mut [u32]) -> Result<Mask, GrammarError> {
        let needed = self.vocabulary.mask_words();
        if mask.len() != needed {
            let given = mask.len();
            return Err(GrammarError::MaskLength { given, needed });
        }
        if self.is_finished() {
            mask.fill(0);
            return Ok(Mask::Finished);
        }
        let allowed = match self.parser.compute_mask() {
            Ok(allowed) => allowed,
            Err(_) => return Err(self.failure()),
        };
        let words = allowed.as_slice();
        let (head, tail) = mask.split_at_mut(words.len().min(needed));
        head.copy_from_slice(&words[..head.len()]);
        tail.fill(0);
        self.amend(mask);
        if let Some(stream) = &mut self.stream {
            stream.filter(mask, &self.vocabulary);
            // With a fraction the number is the one that it was before.
            if stream.is_plain_checked() && self.aside() == Aside::Nothing {
                self.filter_ends(mask);
            }
        }
        if let Some(place) = self.numbers {
            place.filter(mask, &self.vocabulary);
        }
        self.verdict(mask)
    }

    /// Takes from a mask the tokens after which the text stands in a number or a word that must not end there, as a check says,
    /// and cannot go on either.
    fn filter_ends(&mut self, mask: &mut [u32]) {
        let vocabulary = self.vocabulary.clone();
        let mut ahead = AHEAD;
        for token in super::bits(mask).collect::<Vec<_>>() {
            let bytes = vocabulary.env.trie.token(token);
            let may_end = |s: &mut Stream| s.may_end_after(bytes);
            if !is_plain(bytes)
                || self.vocabulary.ends.contains(&token)
                || self.stream.as_mut().is_none_or(may_end)
                // Another form is none that the parser knows.
                || !matches!(self.parser.validate_tokens(&[token]), Ok(1))
                || self.parser.consume_token(token).is_err()
            {
                continue;
            }
            let goes_on = self.goes_on(bytes, &mut ahead);
            if !goes_on {
                super::set(mask, token, false);
            }
            if self.parser.rollback(1).is_err() {
                return;
            }
        }
    }

    /// Whether anything may follow that can end or go on itself, the parser having taken `bytes` and the checks not. `ahead` more
    /// places are looked at; what is left then is taken to go on.
    fn goes_on(&mut self, bytes: &[u8], ahead: &mut usize) -> bool {
        if self.parser.is_stopped() {
            return false;
        }
        let vocabulary = self.vocabulary.clone();
        let (Ok(next), Some(stream)) = (self.parser.compute_mask(), &mut self.stream) else {
            return false;
        };
        let mut unended = Vec::new();
        for token in super::bits(next.as_slice()) {
            let more = vocabulary.env.trie.token(token);
            let both = [bytes, more].concat();
            if stream.prefix(&both) != both.len() {
                continue;
            }
            if *ahead == 0 || !is_plain(more) || stream.may_end_after(&both) {
                return true;
            }
            unended.push((token, both));
        }
        unended.into_iter().any(|(token, both)| {
            let Some(rest) = ahead.checked_sub(1) else {
                return true;
            };
            *ahead = rest;
            self.parser.consume_token(token).is_ok() && {
                let goes_on = self.goes_on(&both, ahead);
                self.parser.rollback(1).is_ok() && goes_on
            }
        })
    }

    fn verdict(&self, mask: &mut [u32]) -> Result<Mask, GrammarError> {
        let width = self.vocabulary.width();
        let tail = width % 32;
        if let (Some(last), true) = (mask.last_mut(), tail != 0) {
            *last &= (1u32 << tail) - 1;
        }
        if mask.iter().all(|w| *w == 0) {
            let after = self.after();
            return Err(GrammarError::DeadEnd { after });
        }
        // Looks stop at the first word that decides: a mask is thousands of words, a step some microseconds.
        let whole = mask.get(..width / 32).unwrap_or(&[]);
        let rest = mask.get(width / 32).map_or(0, |w| w.count_ones() as usize);
        if rest == tail && whole.iter().all(|w| *w == u32::MAX) {
            Ok(Mask::Anything)
        } else {
            Ok(Mask::Constrained)
        }
    }

    /// Takes a token. `true` where the text is then whole and nothing may follow.
    ///
    /// # Errors
    /// [`GrammarError::Rejected`] where it is not allowed, [`GrammarError::Limit`]; the matcher is as before.
    pub fn accept(&mut self, token: u32) -> Result<bool, GrammarError> {
        let rejected = |this: &Self| GrammarError::Rejected {
            token,
            after: this.after(),
        };
        if self.is_finished() || token as usize >= self.vocabulary.width() {
            return Err(rejected(self));
        }
        if self.vocabulary.ends.contains(&token) && self.can_finish() {
            self.tokens.push(token);
            self.told.push(Told::Nothing(self.aside()));
            self.ended = true;
            return Ok(true);
        }
        let told = match self.told(token) {
            Ok(Some(told)) => told,
            Ok(None) => return Err(rejected(self)),
            Err(()) => return Err(self.failure()),
        };
        let vocabulary = self.vocabulary.clone();
        let bytes = vocabulary.env.trie.token(token);
        let numbers = match self.numbers.map(|place| place.after(bytes)) {
            Some(None) => return Err(rejected(self)),
            place => place.flatten(),
        };
        if self.stream.as_mut().is_some_and(|s| !s.push(bytes)) {
            return Err(rejected(self));
        }
        if !self.tell(told) {
            return Err(self.failure());
        }
        let whole = |s: &mut Stream| s.may_end();
        if self.is_finished() && !self.stream.as_mut().is_none_or(whole) {
            return self.take_back(token);
        }
        self.numbers = numbers;
        self.text.extend_from_slice(bytes);
        self.tokens.push(token);
        self.told.push(told);
        Ok(self.is_finished())
    }

    /// Whether a token that is no end token may come, without a mask.
    pub(super) fn may_come(&mut self, token: u32) -> bool {
        let vocabulary = self.vocabulary.clone();
        let bytes = vocabulary.env.trie.token(token);
        let stream = |s: &mut Stream| s.prefix(bytes) == bytes.len();
        matches!(self.told(token), Ok(Some(_)))
            && self.numbers.is_none_or(|p| p.after(bytes).is_some())
            && self.stream.as_mut().is_none_or(stream)
    }

    /// Undoes a token that a check forbids after all.
    fn take_back(&mut self, token: u32) -> Result<bool, GrammarError> {
        if let Some(stream) = &mut self.stream {
            stream.truncate(self.text.len());
        }
        if self.parser.rollback(1).is_err() {
            self.replay()?;
        }
        Err(GrammarError::Rejected {
            token,
            after: self.after(),
        })
    }

    /// Takes back the last `count` tokens, as many as there are.
    ///
    /// # Errors
    /// [`GrammarError::Rollback`] where there are fewer; the matcher is as before.
    pub fn rollback(&mut self, count: usize) -> Result<(), GrammarError> {
        let held = self.tokens.len();
        if count > held {
            return Err(GrammarError::Rollback {
                wanted: count,
                held,
            });
        }
        let mut count = count;
        if self.ended && count > 0 {
            self.ended = false;
            self.tokens.pop();
            self.told.pop();
            count -= 1;
        }
        if count == 0 {
            return Ok(());
        }
        self.tokens.truncate(self.tokens.len() - count);
        let bytes: usize = self.tokens.iter().map(|t| self.length(*t)).sum();
        self.text.truncate(bytes);
        if self.numbers.is_some() {
            self.numbers = Place::default().after(&self.text);
        }
        if let Some(stream) = &mut self.stream {
            stream.truncate(bytes);
        }
        let untold = self.told.split_off(self.tokens.len());
        let taken = untold.iter().filter(|t| matches!(t, Told::Token(_)));
        if self.parser.is_error() || self.parser.rollback(taken.count()).is_err() {
            return self.replay();
        }
        self.tell_backslash();
        Ok(())
    }

    fn length(&self, token: u32) -> usize {
        self.vocabulary.env.trie.token(token).len()
    }

    /// A parser that has stopped for good begins again with what was accepted.
    fn replay(&mut self) -> Result<(), GrammarError> {
        self.parser = self.compiled.parser.deep_clone();
        let told = self.told.iter().filter_map(|t| match t {
            Told::Token(token) => Some(*token),
            Told::Nothing(_) => None,
        });
        match self.parser.consume_tokens(&told.collect::<Vec<_>>()) {
            Ok(()) => self.tell_backslash(),
            Err(_) => return Err(self.failure()),
        }
        Ok(())
    }

    /// Forgets every token.
    pub fn reset(&mut self) {
        self.parser = self.compiled.parser.deep_clone();
        self.stream = self.compiled.checks.clone().map(Stream::new);
        self.tokens.clear();
        self.told.clear();
        self.text.clear();
        self.ended = false;
        self.numbers = self.compiled.is_json.then(Place::default);
        self.exit = Exit::default();
    }

    /// What must come next, if anything must. The tokens may be accepted one by one and fed to the model together, unsampled.
    pub fn jump_forward(&mut self) -> Jump {
        if self.is_finished() || self.has_other_forms() {
            return Jump::default();
        }
        let mut tokens = self.parser.compute_ff_tokens();
        let mut text = self.parser.compute_ff_bytes();
        if let Some(stream) = &mut self.stream {
            text.truncate(stream.prefix(&text));
            tokens.truncate(stream.whole_tokens(&tokens, &self.vocabulary));
        }
        let whole = std::str::from_utf8(&text).map_or_else(|e| e.valid_up_to(), str::len);
        text.truncate(whole);
        Jump {
            text: String::from_utf8(text).unwrap_or_default(),
            tokens,
        }
    }

    /// The end of the text so far, for people.
    pub(super) fn after(&self) -> String {
        let from = self.text.len().saturating_sub(SHOWN);
        let tail = self.text.get(from..).unwrap_or(&[]);
        String::from_utf8_lossy(tail).into_owned()
    }

    /// Why the parser gave up.
    fn failure(&self) -> GrammarError {
        let error = self.parser.get_error().unwrap_or_default();
        let first = error.lines().next().unwrap_or("").to_owned();
        match self.parser.stop_reason() {
            _ if first.contains("NoExtension") || first.is_empty() => GrammarError::DeadEnd {
                after: self.after(),
            },
            StopReason::NoExtension | StopReason::NoExtensionBias => GrammarError::DeadEnd {
                after: self.after(),
            },
            _ => GrammarError::Limit(first),
        }
    }
}

/// Whether a token may be part of a number or a word, and of nothing else.
fn is_plain(bytes: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"+-. \n\r\t".contains(b);
    bytes.iter().all(plain)
}
