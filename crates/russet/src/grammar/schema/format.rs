//! Formats of strings. Those of the standard are enforced; others are annotations, as the standard has it.

use super::pattern::{Patterns, is_expression};

/// Who enforces a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The grammar knows it.
    Known,
    /// An expression says it.
    Pattern(&'static str),
    /// Only a check of the whole text does.
    Late,
}

/// A day of RFC 3339: months of 31 and 30 days, February, and its 29th in leap years.
macro_rules! date {
    () => {
        concat!(
            "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))",
            "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)",
        )
    };
}

/// A time of RFC 3339, but for leap seconds: which they are is not in the text.
macro_rules! time {
    () => {
        r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([zZ]|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])"
    };
}

/// The formats that are enforced. Expressions after RFC 3986, 3987, 6570 and 6901.
const FORMATS: [(&str, Format); 20] = [
    (
        "date-time",
        Format::Pattern(concat!("^", date!(), "[tT]", time!(), "$")),
    ),
    ("time", Format::Pattern(concat!("^", time!(), "$"))),
    ("date", Format::Pattern(concat!("^", date!(), "$"))),
    ("duration", Format::Known),
    ("email", Format::Known),
    ("hostname", Format::Known),
    ("ipv4", Format::Known),
    ("ipv6", Format::Known),
    ("uuid", Format::Known),
    ("uri", Format::Known),
    ("unknown", Format::Known),
    (
        "uri-reference",
        Format::Pattern(
            r"^([a-zA-Z][a-zA-Z0-9+.\-]*:[a-zA-Z0-9\-._~!$&'()*+,;=:@/?%\[\]]*|[a-zA-Z0-9\-._~!$&'()*+,;=@%]*([/?][a-zA-Z0-9\-._~!$&'()*+,;=:@/?%\[\]]*)?)(#[a-zA-Z0-9\-._~!$&'()*+,;=:@/?%]*)?$",
        ),
    ),
    (
        "iri",
        Format::Pattern(r#"^[a-zA-Z][a-zA-Z0-9+.\-]*:[^ \x00-\x20<>"{}|\\^`]+$"#),
    ),
    (
        "iri-reference",
        Format::Pattern(
            r#"^([a-zA-Z][a-zA-Z0-9+.\-]*:[^\x00-\x20<>"{}|\\^`]*|[^:/?#\x00-\x20<>"{}|\\^`]*([/?#][^\x00-\x20<>"{}|\\^`]*)?)$"#,
        ),
    ),
    (
        "uri-template",
        Format::Pattern(
            r#"^([^\x00-\x20"'%<>\\^`{|}]|%[0-9a-fA-F]{2}|\{[+#./;?&=,!@|]?[a-zA-Z0-9_.%]+(:[1-9][0-9]{0,3}|\*)?(,[a-zA-Z0-9_.%]+(:[1-9][0-9]{0,3}|\*)?)*\})*$"#,
        ),
    ),
    ("json-pointer", Format::Pattern(r"^(/([^~/]|~[01])*)*$")),
    (
        "relative-json-pointer",
        Format::Pattern(r"^(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)$"),
    ),
    ("idn-email", Format::Pattern(r"^[^@ ]+@[^@ ]+$")),
    (
        "idn-hostname",
        Format::Pattern(
            r"^[^ .\-/:@]([^ ./:@]{0,61}[^ .\-/:@])?(\.[^ .\-/:@]([^ ./:@]{0,61}[^ .\-/:@])?)*$",
        ),
    ),
    ("regex", Format::Late),
];

/// Who enforces a format, if anybody.
pub(super) fn format(name: &str) -> Option<Format> {
    FORMATS.iter().find(|f| f.0 == name).map(|f| f.1)
}

type Test = fn(&str) -> bool;

/// The formats that the grammar knows, for whole texts.
const TESTS: [(&str, Test); 7] = [
    ("duration", |t| {
        t.starts_with('P') && t.len() > 2 && t.ends_with(|c: char| "YMDWHS".contains(c))
    }),
    ("ipv4", |t| t.parse::<std::net::Ipv4Addr>().is_ok()),
    ("ipv6", |t| t.parse::<std::net::Ipv6Addr>().is_ok()),
    ("uuid", |t| {
        let lengths = t.split('-').map(str::len);
        lengths.eq([8, 4, 4, 4, 12]) && t.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
    }),
    ("email", |t| {
        t.rsplit_once('@')
            .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
    }),
    ("hostname", |t| t.split('.').all(is_label)),
    ("uri", |t| {
        let scheme = t.split_once(':').map_or("", |s| s.0);
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    }),
];

/// Whether a text has a format; true for one that is not enforced.
pub(super) fn has_format(text: &str, name: &str, patterns: &Patterns) -> bool {
    match format(name) {
        Some(Format::Pattern(pattern)) => patterns.matches(pattern, text),
        Some(Format::Late) => is_expression(text),
        Some(Format::Known) => TESTS.iter().find(|t| t.0 == name).is_none_or(|t| t.1(text)),
        None => true,
    }
}

fn is_label(part: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..64).contains(&part.len())
        && !part.starts_with('-')
        && !part.ends_with('-')
        && part.chars().all(inside)
}
