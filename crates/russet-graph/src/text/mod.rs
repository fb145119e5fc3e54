//! The text form: what `russet inspect --text` prints, and what parses back to the same module.
//!
//! ```text
//! module {
//!   graph @"main"(%0 "x": tensor<2x?xf32>) -> ("y": tensor<2x?xf32>) {
//!     %1 = constant blob(0) : tensor<1xi32>
//!     %2 = add(%0, %0) : tensor<2x?xf32>
//!     return %2
//!   }
//! }
//! ```
//! Constants up to 64 bytes are written in place as hexadecimal; larger ones are numbered blobs beside the text, so that a
//! text is small and no weight is copied.

mod parse;
mod print;

pub use parse::{ParseError, parse};
pub use print::print;
use russet_kernels::mem::SharedBytes;

/// A module as text and the large constants that the text refers to by number.
#[derive(Clone, Debug)]
pub struct Text {
    /// The text.
    pub text: String,
    /// `blob(i)` is `blobs[i]`.
    pub blobs: Vec<SharedBytes>,
}

/// `text` in quotes, with `"`, `\` and control characters escaped.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether `text` can stand without quotes as a name.
pub(crate) fn is_word(text: &str) -> bool {
    let mut chars = text.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}

#[cfg(test)]
mod tests;
