//! Checks while JSON is being written: a reader of the text so far that knows which schemas apply to the value at its end, and
//! asks them when the value is whole. The grammar sees to it that the text is JSON.

use serde_json::Value;

use super::compile::Watch;
use super::schema::{Checks, Set, Unfinished};
use super::vocabulary::Vocabulary;

/// The text so far and where in it we are.
pub(super) struct Stream {
    watch: Watch,
    text: Vec<u8>,
    state: State,
    /// Where looks ahead are made: a mask is thousands of them, and its memory is used again.
    ahead: State,
}

/// A place in JSON.
#[derive(Debug, Default)]
struct State {
    mode: Mode,
    open: Vec<Open>,
    /// Where the value or name that is being written begins.
    from: usize,
    /// The schemas of the value that comes or is being written.
    set: Set,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Not JSON; a value comes after the marker.
    #[default]
    Outside,
    Value,
    /// A number or a word.
    Plain,
    /// A string, or a name; whether the last byte was a backslash.
    Text {
        name: bool,
        escaped: bool,
    },
    Name,
    Colon,
    /// A comma or an end.
    After,
    Done,
}

/// An object or array that is not whole yet.
#[derive(Clone, Debug)]
struct Open {
    from: usize,
    set: Set,
    count: usize,
    is_array: bool,
    constants: bool,
}

impl Stream {
    pub(super) fn new(watch: Watch) -> Self {
        let state = State::new(&watch);
        Self {
            watch,
            text: Vec::new(),
            state,
            ahead: State::default(),
        }
    }

    /// Reads on; where a check fails, `false`, and nothing is read.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let held = self.text.len();
        let mut state = self.look();
        let fits = self.read(&mut state, bytes) == bytes.len();
        if fits {
            std::mem::swap(&mut self.state, &mut state);
        } else {
            self.text.truncate(held);
        }
        self.ahead = state;
        fits
    }

    /// How many bytes may follow.
    pub(super) fn prefix(&mut self, bytes: &[u8]) -> usize {
        self.looking(|this, state| this.read(state, bytes))
    }

    /// How many tokens may follow.
    pub(super) fn whole_tokens(&mut self, tokens: &[u32], vocabulary: &Vocabulary) -> usize {
        self.looking(|this, state| {
            let mut fits = |t: &&u32| {
                let bytes = vocabulary.env.trie.token(**t);
                this.read(state, bytes) == bytes.len()
            };
            tokens.iter().take_while(|t| fits(t)).count()
        })
    }

    /// The place that the text has come to, to go on from.
    fn look(&mut self) -> State {
        let mut state = std::mem::take(&mut self.ahead);
        state.clone_from(&self.state);
        state
    }

    /// Reads on for a moment.
    fn looking<T>(&mut self, read: impl FnOnce(&mut Self, &mut State) -> T) -> T {
        let held = self.text.len();
        let mut state = self.look();
        let result = read(self, &mut state);
        self.text.truncate(held);
        self.ahead = state;
        result
    }

    fn read(&mut self, state: &mut State, bytes: &[u8]) -> usize {
        for (i, byte) in bytes.iter().enumerate() {
            self.text.push(*byte);
            if !state.step(&self.watch, &self.text, *byte) {
                return i;
            }
        }
        bytes.len()
    }

    /// Goes back to so many bytes.
    pub(super) fn truncate(&mut self, length: usize) {
        let mut text = std::mem::take(&mut self.text);
        text.truncate(length);
        let mut state = State::new(&self.watch);
        self.read(&mut state, &text);
        self.text = text;
        self.state = state;
    }

    /// Whether the text may end here, as far as the checks go.
    pub(super) fn may_end(&mut self) -> bool {
        self.may_end_after(&[])
    }

    /// Whether a number or a word is being written or may come that a check looks at when it ends.
    pub(super) fn is_plain_checked(&self) -> bool {
        let State {
            mode, open, set, ..
        } = &self.state;
        let asks = |set: &Set| self.watch.checks.asks(set);
        let in_array = open.last().is_some_and(|o| o.is_array && asks(&o.set));
        matches!(mode, Mode::Value | Mode::Plain) && (in_array || asks(set))
    }

    /// Whether the text may end, or the number or word at its end, after these bytes.
    pub(super) fn may_end_after(&mut self, bytes: &[u8]) -> bool {
        self.looking(|this, state| {
            let read = this.read(state, bytes) == bytes.len();
            let plain = state.mode == Mode::Plain;
            read && (!plain || state.finish(&this.watch, &this.text, this.text.len()))
        })
    }

    /// Takes from a mask the tokens that a check forbids.
    pub(super) fn filter(&mut self, mask: &mut [u32], vocabulary: &Vocabulary) {
        let constants = self.state.open.last().is_some_and(|o| o.constants);
        // Only what ends a value, a name or another token can be wrong, unless the values are some constants.
        let only = match self.state.mode {
            Mode::Outside => return,
            _ if constants => None,
            Mode::Text { .. } => Some(vocabulary.quoting()),
            _ => Some(vocabulary.ending()),
        };
        for (i, word) in mask.iter_mut().enumerate() {
            let some = only.map_or(u32::MAX, |o| o.get(i).copied().unwrap_or(0));
            for bit in super::word_bits(*word & some) {
                let token = i as u32 * 32 + bit;
                let fits = if vocabulary.ends.contains(&token) {
                    self.may_end()
                } else {
                    let bytes = vocabulary.env.trie.token(token);
                    self.prefix(bytes) == bytes.len()
                };
                if !fits {
                    *word &= !(1 << bit);
                }
            }
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

impl Clone for State {
    fn clone(&self) -> Self {
        let mut new = Self::default();
        new.clone_from(self);
        new
    }

    fn clone_from(&mut self, from: &Self) {
        self.mode = from.mode;
        self.open.clone_from(&from.open);
        self.from = from.from;
        self.set.clone_from(&from.set);
    }
}

impl State {
    fn new(watch: &Watch) -> Self {
        let inside = watch.marker.is_none();
        Self {
            mode: if inside { Mode::Value } else { Mode::Outside },
            open: Vec::new(),
            from: 0,
            set: watch.checks.root(),
        }
    }

    /// Takes the last byte of the text; `false` where a check fails.
    fn step(&mut self, watch: &Watch, text: &[u8], byte: u8) -> bool {
        let at = text.len() - 1;
        match self.mode {
            Mode::Outside => self.outside(watch, text),
            Mode::Done if watch.marker.is_some() => {
                self.mode = Mode::Outside;
                self.outside(watch, text)
            }
            Mode::Done => true,
            Mode::Plain if matches!(byte, b',' | b'}' | b']') || is_space(byte) => {
                self.finish(watch, text, at) && self.step(watch, text, byte)
            }
            Mode::Text { name, escaped } => self.text(watch, text, byte, name, escaped),
            Mode::Plain => self.begun(watch, text),
            _ if is_space(byte) => true,
            Mode::Value => self.value(watch, text, byte),
            Mode::Name if byte == b'}' => self.close(watch, text),
            Mode::Name => {
                self.from = at;
                self.mode = Mode::Text {
                    name: true,
                    escaped: false,
                };
                true
            }
            Mode::Colon => {
                self.mode = Mode::Value;
                true
            }
            Mode::After => self.after(watch, text, byte),
        }
    }

    fn outside(&mut self, watch: &Watch, text: &[u8]) -> bool {
        if watch.marker.as_ref().is_some_and(|m| text.ends_with(m)) {
            self.mode = Mode::Value;
            self.set = watch.checks.root();
        }
        true
    }

    fn value(&mut self, watch: &Watch, text: &[u8], byte: u8) -> bool {
        self.from = text.len() - 1;
        match byte {
            b'{' | b'[' => {
                let is_array = byte == b'[';
                let set = std::mem::take(&mut self.set);
                let constants = is_array && watch.checks.counts_constants(&set, 0);
                self.set = if is_array {
                    watch.checks.element(&set, 0)
                } else {
                    Set::default()
                };
                self.open.push(Open {
                    from: self.from,
                    set,
                    count: 0,
                    is_array,
                    constants,
                });
                self.mode = if is_array { Mode::Value } else { Mode::Name };
                true
            }
            b']' => self.close(watch, text),
            b'"' => {
                self.mode = Mode::Text {
                    name: false,
                    escaped: false,
                };
                self.begun(watch, text)
            }
            _ => {
                self.mode = Mode::Plain;
                self.begun(watch, text)
            }
        }
    }

    fn text(&mut self, watch: &Watch, text: &[u8], byte: u8, name: bool, escaped: bool) -> bool {
        if escaped || byte != b'"' {
            let escaped = !escaped && byte == b'\\';
            self.mode = Mode::Text { name, escaped };
            return name || self.begun(watch, text);
        }
        if !name {
            return self.finish(watch, text, text.len());
        }
        self.mode = Mode::Colon;
        let Some(open) = self.open.last_mut() else {
            return true;
        };
        let name: Option<String> = parsed(text.get(self.from..));
        let name = name.unwrap_or_default();
        let fits = watch
            .checks
            .may_become(&open.set, &Unfinished::Name(&name, open.count));
        self.set = watch.checks.member(&open.set, &name);
        open.count += 1;
        fits
    }

    fn after(&mut self, watch: &Watch, text: &[u8], byte: u8) -> bool {
        if byte != b',' {
            return self.close(watch, text);
        }
        let Some(open) = self.open.last_mut() else {
            return true;
        };
        if !open.is_array {
            self.mode = Mode::Name;
            return true;
        }
        open.count += 1;
        open.constants = watch.checks.counts_constants(&open.set, open.count);
        self.set = watch.checks.element(&open.set, open.count);
        self.mode = Mode::Value;
        self.from = text.len();
        self.begun(watch, text)
    }

    /// The end of an array or object.
    fn close(&mut self, watch: &Watch, text: &[u8]) -> bool {
        let Some(open) = self.open.pop() else {
            return true;
        };
        self.from = open.from;
        self.set = open.set;
        self.finish(watch, text, text.len())
    }

    /// A value is whole; it ends before `end`.
    fn finish(&mut self, watch: &Watch, text: &[u8], end: usize) -> bool {
        self.mode = if self.open.is_empty() {
            Mode::Done
        } else {
            Mode::After
        };
        let checks = &watch.checks;
        let set = std::mem::take(&mut self.set);
        let value = text.get(self.from..end);
        if checks.asks(&set) && !parsed(value).is_some_and(|v: Value| checks.whole(&set, &v)) {
            return false;
        }
        match self.open.last() {
            Some(open) if open.is_array && checks.asks(&open.set) => {
                let items = elements(text.get(open.from..end));
                checks.may_become(&open.set, &Unfinished::Element(&items))
            }
            _ => true,
        }
    }

    /// A look at an element of which only the beginning is written.
    fn begun(&self, watch: &Watch, text: &[u8]) -> bool {
        let Some(open) = self.open.last().filter(|o| o.constants) else {
            return true;
        };
        let before = text.get(open.from..self.from).unwrap_or(&[]);
        let before = before.strip_suffix(b",").unwrap_or(before);
        let trimmed = before.trim_ascii_end();
        let items = elements(Some(trimmed.strip_suffix(b",").unwrap_or(trimmed)));
        let partial = text
            .get(self.from..)
            .and_then(|p| std::str::from_utf8(p).ok());
        let partial = partial.unwrap_or("");
        watch
            .checks
            .may_become(&open.set, &Unfinished::Begun(&items, partial))
    }
}

fn parsed<T: serde::de::DeserializeOwned>(text: Option<&[u8]>) -> Option<T> {
    serde_json::from_slice(text?).ok()
}

/// The elements of an array without its end.
fn elements(text: Option<&[u8]>) -> Vec<Value> {
    let mut whole = text.unwrap_or(&[]).to_vec();
    whole.push(b']');
    parsed(Some(&whole)).unwrap_or_default()
}

/// What the checks of a watch are about.
impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let checks: &Checks = &self.checks;
        f.debug_struct("Watch")
            .field("late", &checks.pointers())
            .field("marker", &self.marker)
            .finish()
    }
}
