//! Repeated runs of steps: the layers of a model are the same steps again and again, and one of them says it all.

use std::collections::HashMap;
use std::hash::Hash;

/// `times` runs of `len` equal steps, the first of which begins at `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) times: usize,
}

impl Run {
    fn covered(&self) -> usize {
        self.len * self.times
    }

    /// Whether one of them, with a line before it and one after, is shorter than all.
    fn saves(&self) -> bool {
        self.times > 1 && self.covered() > self.len + 2
    }
}

/// The longest repeated run looked for, in steps.
const LONGEST: usize = 512;

/// The sequence as runs that follow each other. What is not repeated is a run of one step, once.
pub(super) fn fold<K: Eq + Hash>(keys: &[K]) -> Vec<Run> {
    let best = best_runs(&numbered(keys));
    let mut runs = Vec::new();
    let mut at = 0;
    while at < keys.len() {
        let here = best[at];
        // A short repetition does not hide the beginning of a much longer one.
        let hides = (at + 1..at + here.covered()).any(|i| best[i].covered() > 2 * here.covered());
        let run = if here.saves() && !hides {
            here
        } else {
            Run {
                start: at,
                len: 1,
                times: 1,
            }
        };
        at += run.covered();
        runs.push(run);
    }
    runs
}

/// Equal keys as equal numbers.
fn numbered<K: Eq + Hash>(keys: &[K]) -> Vec<usize> {
    let mut seen = HashMap::new();
    let mut number = |k| {
        let next = seen.len();
        *seen.entry(k).or_insert(next)
    };
    keys.iter().map(&mut number).collect()
}

/// For every place the repetition that covers most from there on; of several the one of the shortest run.
fn best_runs(keys: &[usize]) -> Vec<Run> {
    let one = |start| Run {
        start,
        len: 1,
        times: 1,
    };
    let mut best: Vec<Run> = (0..keys.len()).map(one).collect();
    for len in 1..=LONGEST.min(keys.len() / 2) {
        let mut equal = 0;
        for start in (0..keys.len() - len).rev() {
            equal = if keys[start] == keys[start + len] {
                equal + 1
            } else {
                0
            };
            let run = Run {
                start,
                len,
                times: 1 + equal / len,
            };
            if run.times > 1 && run.covered() > best[start].covered() {
                best[start] = run;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `start:len×times` of every run of a text's letters.
    fn folded(text: &str) -> String {
        let runs = fold(&text.chars().collect::<Vec<_>>());
        let one = |r: &Run| match r.times {
            1 => text[r.start..r.start + r.len].to_owned(),
            n => format!("{n}({})", &text[r.start..r.start + r.len]),
        };
        runs.iter().map(one).collect()
    }

    #[test]
    fn layers_are_found() {
        for (text, want) in [
            ("", ""),
            ("abc", "abc"),
            ("aaaa", "4(a)"),
            ("aa", "aa"),
            ("xabcabcabcy", "x3(abc)y"),
            ("eeabcdabcdabcdabcdh", "ee4(abcd)h"),
            ("aababababab", "a5(ab)"),
            ("sswssswssswsssz", "3(ssws)ssz"),
        ] {
            let found = folded(text);
            let spelled: usize = fold(&text.chars().collect::<Vec<_>>())
                .iter()
                .map(Run::covered)
                .sum();
            assert_eq!(spelled, text.len());
            assert_eq!(found, want, "{text}");
        }
    }
}
