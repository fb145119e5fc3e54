//! Finding markers in a text that arrives in pieces: a piece may end inside one.

use std::ops::Range;

/// The marker that ends first, by where it is and which it is; of those that end together the longest.
pub(super) fn first<M: AsRef<str>>(text: &str, markers: &[M]) -> Option<(Range<usize>, usize)> {
    let found = markers.iter().enumerate().filter_map(|(which, m)| {
        let m = m.as_ref();
        let at = text.find(m).filter(|_| !m.is_empty())?;
        Some((at..at + m.len(), which))
    });
    found.min_by_key(|(range, _)| (range.end, range.start))
}

/// How much of a text can belong to no marker, whatever follows: all but the longest end that begins one.
pub(super) fn safe_len<M: AsRef<str>>(text: &str, markers: &[M]) -> usize {
    let held = markers.iter().map(|m| held(text, m.as_ref())).max();
    text.len() - held.unwrap_or(0)
}

/// Bytes at the end of a text that begin a marker and do not finish it.
fn held(text: &str, marker: &str) -> usize {
    let longest = text.len().min(marker.len().saturating_sub(1));
    let begins = |n: &usize| text.as_bytes().ends_with(&marker.as_bytes()[..*n]);
    // A byte of a marker's middle never stands at the start of a character, so neither does the cut.
    (1..=longest).rev().find(begins).unwrap_or(0)
}

/// Holds back text until no stop sequence can begin in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSequences {
    sequences: Vec<String>,
    held: String,
}

impl StopSequences {
    /// Texts that end an answer; empty ones are none.
    pub(crate) fn new(sequences: &[String]) -> Self {
        let some = sequences.iter().filter(|s| !s.is_empty());
        Self {
            sequences: some.cloned().collect(),
            held: String::new(),
        }
    }

    /// Takes a piece; gives the text that is certain now, and the sequence that has ended it.
    pub(crate) fn push(&mut self, piece: &str) -> (String, Option<String>) {
        self.held += piece;
        if let Some((range, which)) = first(&self.held, &self.sequences) {
            let text = self.held[..range.start].to_owned();
            self.held.clear();
            return (text, Some(self.sequences[which].clone()));
        }
        let rest = self.held.split_off(safe_len(&self.held, &self.sequences));
        (std::mem::replace(&mut self.held, rest), None)
    }

    /// What was held back: nothing follows it.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_end_is_found() {
        let markers = ["stop", "top", "abc"];
        assert_eq!(first("a stop abc", &markers), Some((2..6, 0)));
        assert_eq!(first("a top", &markers), Some((2..5, 1)));
        assert_eq!(first("nothing", &markers), None);
        assert_eq!(first("nothing", &[""]), None);
    }

    #[test]
    fn what_may_begin_a_marker_is_held() {
        assert_eq!(safe_len("text <to", &["<tool>"]), 5);
        assert_eq!(safe_len("text <to ", &["<tool>"]), 9);
        assert_eq!(safe_len("aaa", &["aab"]), 1);
        assert_eq!(safe_len("é", &["é!"]), 0);
        assert_eq!(safe_len("日", &["本"]), 3);
        assert_eq!(safe_len("x", &[] as &[&str]), 1);
    }

    #[test]
    fn a_stop_sequence_over_pieces_ends_the_text() {
        let mut stops = StopSequences::new(&["\n\nUser:".into(), String::new()]);
        assert_eq!(stops.push("Hi\n"), ("Hi".into(), None));
        assert_eq!(stops.push("\nUs"), (String::new(), None));
        assert_eq!(
            stops.push("er: more"),
            (String::new(), Some("\n\nUser:".into()))
        );
        let mut stops = StopSequences::new(&["END".into()]);
        assert_eq!(stops.push("the E"), ("the ".into(), None));
        assert_eq!(stops.push("nd"), ("End".into(), None));
        assert_eq!(stops.push("EN").0, "");
        assert_eq!(stops.finish(), "EN");
    }
}
