//! JSON that is being written, as the value that it is so far.

use serde_json::Value;

/// The value of a JSON text of which only the beginning is there: what is open is closed, and a member without a value, or a word
/// or number that may go on, is left out. Nothing where that leaves nothing.
///
/// ```
/// # use russet::grammar::unfinished_json;
/// let value = unfinished_json(r#"{"name": "Par"#);
/// assert_eq!(value, Some(serde_json::json!({"name": "Par"})));
/// ```
pub fn unfinished_json(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let mut scan = Scan::default();
    text.char_indices().for_each(|(at, c)| scan.take(at, c));
    let in_value = scan.in_string && !scan.is_name;
    let end = if in_value { text.len() } else { scan.whole };
    let mut closed = text.get(..end)?.to_owned();
    if in_value {
        // A broken escape at the end is no character yet.
        let tail = closed.rfind('\\').filter(|at| {
            scan.escaped || closed.len() - at < 12 && closed.get(at + 1..at + 2) == Some("u")
        });
        let mut tries = [None, tail].into_iter();
        return tries.find_map(|cut| {
            let mut text = closed.clone();
            text.truncate(cut.unwrap_or(text.len()));
            text.push('"');
            text.extend(scan.open.iter().rev());
            serde_json::from_str(&text).ok()
        });
    }
    closed.extend(scan.open_at_whole.iter().rev());
    serde_json::from_str(&closed).ok()
}

/// Where the reading of a text stands.
#[derive(Default)]
struct Scan {
    in_string: bool,
    escaped: bool,
    /// The string is the name of a member.
    is_name: bool,
    /// A name may come next.
    expects_name: bool,
    /// The ends of what is open, the innermost last.
    open: Vec<char>,
    /// The end of the text up to which nothing is half there, and what is open there.
    whole: usize,
    open_at_whole: Vec<char>,
}

impl Scan {
    fn take(&mut self, at: usize, c: char) {
        if self.in_string {
            self.string(at, c);
            return;
        }
        match c {
            '"' => {
                self.in_string = true;
                self.is_name = self.expects_name;
            }
            '{' | '[' => {
                self.open.push(if c == '{' { '}' } else { ']' });
                self.expects_name = c == '{';
                self.mark(at + 1);
            }
            '}' | ']' => {
                self.open.pop();
                self.expects_name = false;
                self.mark(at + 1);
            }
            ',' => {
                self.mark(at);
                self.expects_name = self.open.last() == Some(&'}');
            }
            ':' => self.expects_name = false,
            _ => {}
        }
    }

    fn string(&mut self, at: usize, c: char) {
        match c {
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = true,
            '"' => {
                self.in_string = false;
                if !self.is_name {
                    self.mark(at + 1);
                }
            }
            _ => {}
        }
    }

    fn mark(&mut self, end: usize) {
        self.whole = end;
        self.open_at_whole.clone_from(&self.open);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_beginning_of_a_text_is_part_of_its_value() {
        let cases = [
            ("{\"a\": 1", Some(json!({}))),
            ("{\"a\": 1,", Some(json!({"a": 1}))),
            ("{\"a\": [1, \"x", Some(json!({"a": [1, "x"]}))),
            ("{\"a\": \"x\\", Some(json!({"a": "x"}))),
            ("{\"a\": \"x\\u00e", Some(json!({"a": "x"}))),
            (
                "{\"a\": {\"b\": null}, \"c",
                Some(json!({"a": {"b": null}})),
            ),
            ("[true, fal", Some(json!([true]))),
            ("tru", None),
            ("", None),
        ];
        for (text, value) in cases {
            assert_eq!(unfinished_json(text), value, "{text}");
        }
        let whole = r#"{"k": [1.5, "a\n\u00e4\"", {"x": {}}, []], "m": null, "é": "🦀"}"#;
        for (at, _) in whole.char_indices().skip(1) {
            assert!(unfinished_json(&whole[..at]).is_some(), "{}", &whole[..at]);
        }
    }
}
