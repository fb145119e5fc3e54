//! The dialect of Hugging Face's templates: Jinja2 in its sandbox, blocks trimmed, with loop controls, `tojson` as Python writes
//! JSON, `raise_exception`, `strftime_now` and `{% generation %}`.

use std::borrow::Cow;
use std::io::{self, Write};

use minijinja::value::{Kwargs, Value as Jinja, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use serde::Serialize;
use serde_json::ser::Formatter;

use super::date;

/// Marks an error that a template raised itself.
pub(super) const RAISED: &str = "raised by the template: ";

/// Steps a template may take: templates come with models from anywhere, and one must not run for ever. The largest published
/// ones take some thousands for a message.
const FUEL: u64 = 20_000_000;

/// The environment in which templates run.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_keep_trailing_newline(false);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function("raise_exception", |text: String| -> Result<String, Error> {
        Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("{RAISED}{text}"),
        ))
    });
    env.add_function("strftime_now", |format: &str| {
        date::strftime(format, date::now())
    });
    env.add_filter("tojson", |value: &Jinja, options: Kwargs| {
        tojson(value, &options)
    });
    env
}

/// The template with `{% generation %}` … `{% endgeneration %}`, which marks the assistant's words for training, made blocks that
/// always render. White-space marks and lines stay.
pub(super) fn without_generation(text: &str) -> Cow<'_, str> {
    const BLOCKS: [(&str, &str); 2] = [("generation", "if true"), ("endgeneration", "endif")];
    if !text.contains(BLOCKS[0].0) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split("{%");
    out.extend(parts.next());
    for part in parts {
        out += "{%";
        let tag = part.split_once("%}").map_or("", |(tag, _)| tag);
        let word = tag.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        match BLOCKS.iter().find(|(name, _)| *name == word) {
            Some((name, plain)) => out += &part.replacen(name, plain, 1),
            None => out += part,
        }
    }
    Cow::Owned(out)
}

/// `tojson` with the arguments of Python's `json.dumps`: no HTML escapes, by default all scripts as they are and `", "` and
/// `": "` between.
fn tojson(value: &Jinja, options: &Kwargs) -> Result<Jinja, Error> {
    let style = Python::from_arguments(options)?;
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let fail = |e: serde_json::Error| Error::new(ErrorKind::InvalidOperation, e.to_string());
    // Through a JSON value: keys become text there, and can be sorted. What is not defined becomes null.
    let mut json = serde_json::to_value(value).map_err(fail)?;
    if sorted {
        json.sort_all_objects();
    }
    let mut out = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut out, style);
    json.serialize(&mut writer).map_err(fail)?;
    Ok(Jinja::from(String::from_utf8_lossy(&out).into_owned()))
}

/// Writes JSON as Python's `json.dumps` does.
struct Python {
    /// What a level is indented by; `None` for one line.
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    depth: usize,
    /// Whether the innermost list or object has nothing in it yet.
    empty: bool,
}

impl Python {
    fn from_arguments(options: &Kwargs) -> Result<Self, Error> {
        let indent = match options.get::<Option<Jinja>>("indent")? {
            Some(n) if n.kind() == ValueKind::Number => {
                Some(" ".repeat(usize::try_from(n)?.min(64)))
            }
            Some(text) => text.as_str().map(str::to_owned),
            None => None,
        };
        let (item, key) = match options.get::<Option<Vec<String>>>("separators")?.as_deref() {
            Some([item, key]) => (item.clone(), key.clone()),
            _ if indent.is_some() => (",".to_owned(), ": ".to_owned()),
            _ => (", ".to_owned(), ": ".to_owned()),
        };
        let ascii = options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false);
        Ok(Self {
            indent,
            item,
            key,
            ascii,
            depth: 0,
            empty: true,
        })
    }

    fn open<W: ?Sized + Write>(&mut self, w: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.empty = true;
        w.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, w: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if !self.empty {
            self.line(w)?;
        }
        self.empty = false;
        w.write_all(bracket)
    }

    fn next<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if !first {
            w.write_all(self.item.as_bytes())?;
        }
        self.empty = false;
        self.line(w)
    }

    fn line<W: ?Sized + Write>(&self, w: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else {
            return Ok(());
        };
        w.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| w.write_all(indent.as_bytes()))
    }
}

impl Formatter for Python {
    fn begin_array<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.open(w, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.close(w, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        self.next(w, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.open(w, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.close(w, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        self.next(w, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(self.key.as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        w: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !self.ascii {
            return w.write_all(fragment.as_bytes());
        }
        let mut units = [0; 2];
        for c in fragment.chars() {
            if c.is_ascii() {
                write!(w, "{c}")?;
            } else {
                c.encode_utf16(&mut units)
                    .iter()
                    .try_for_each(|u| write!(w, "\\u{u:04x}"))?;
            }
        }
        Ok(())
    }
}
