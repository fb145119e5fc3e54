//! Numbers that a program can hold. JSON puts no bound on an exponent and so do grammars, but `6E78983` is refused by nearly every
//! reader of JSON: it is not written.

use super::vocabulary::Vocabulary;

/// Every number below ten to this power is an `f64`.
const DIGITS: u16 = 308;

/// Tokens have no more digits.
const LONGEST: u16 = 32;

/// Where in JSON a text stands, as far as numbers go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Between,
    Text {
        escaped: bool,
    },
    /// In a number, after so many digits before its point.
    Number {
        digits: u16,
        fraction: bool,
    },
    /// In an exponent of so much, which may be so much.
    Exponent {
        exponent: u16,
        most: u16,
    },
}

impl Place {
    /// After a byte; nothing where the number becomes too large.
    fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Text { escaped: true }, _) => Self::Text { escaped: false },
            (Self::Text { .. }, b'"') => Self::Between,
            (Self::Text { .. }, _) => Self::Text {
                escaped: byte == b'\\',
            },
            (Self::Number { .. } | Self::Exponent { .. }, _) => return self.in_number(byte),
            (_, b'0'..=b'9' | b'-') => Self::Number {
                digits: u16::from(byte != b'-'),
                fraction: false,
            },
            (_, b'"') => Self::Text { escaped: false },
            _ => Self::Between,
        })
    }

    fn in_number(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Number { digits, fraction }, b'0'..=b'9') => Self::Number {
                digits: Some(digits + u16::from(!fraction)).filter(|d| *d <= DIGITS)?,
                fraction,
            },
            (Self::Number { digits, .. }, b'.') => Self::Number {
                digits,
                fraction: true,
            },
            (Self::Number { digits, .. }, b'e' | b'E') => Self::Exponent {
                exponent: 0,
                most: DIGITS - digits,
            },
            (Self::Exponent { exponent, most }, b'0'..=b'9') => {
                let more = exponent * 10 + u16::from(byte - b'0');
                let exponent = Some(more).filter(|e| *e <= most)?;
                Self::Exponent { exponent, most }
            }
            (Self::Exponent { exponent, .. }, b'-') => Self::Exponent {
                exponent,
                most: DIGITS,
            },
            (Self::Exponent { .. }, b'+') => self,
            _ => Self::Between,
        })
    }

    /// Whether in a string, and not behind a backslash.
    pub(super) fn is_text(self) -> bool {
        self == Self::Text { escaped: false }
    }

    /// Whether in a number that has digits and nothing else.
    pub(super) fn is_integer(self) -> bool {
        matches!(
            self,
            Self::Number {
                digits: 1..,
                fraction: false
            }
        )
    }

    /// After some text; nothing where an exponent in it is too large.
    pub(super) fn after(self, text: &[u8]) -> Option<Self> {
        text.iter().try_fold(self, |place, byte| place.step(*byte))
    }

    /// Takes from a mask the tokens that make an exponent too large.
    pub(super) fn filter(self, mask: &mut [u32], vocabulary: &Vocabulary) {
        let in_number = match self {
            Self::Text { .. } => return,
            Self::Number { digits, .. } => digits > DIGITS - LONGEST,
            Self::Exponent { .. } => true,
            Self::Between => false,
        };
        if !in_number {
            let few = vocabulary.exponents();
            return few
                .iter()
                .for_each(|t| self.take_away(mask, *t, vocabulary));
        }
        for index in 0..mask.len() {
            let word = mask.get(index).copied().unwrap_or(0);
            for bit in super::word_bits(word) {
                self.take_away(mask, index as u32 * 32 + bit, vocabulary);
            }
        }
    }

    /// Takes one token from a mask where it makes a number too large.
    fn take_away(self, mask: &mut [u32], token: u32, vocabulary: &Vocabulary) {
        let bit = 1 << (token % 32);
        if let Some(word) = mask.get_mut(token as usize / 32)
            && *word & bit != 0
            && self.after(vocabulary.bytes(token)).is_none()
        {
            *word &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn numbers_stay_below_the_largest() {
        let long = "9".repeat(308);
        for (text, fits) in [
            ("[1e307, 6.5E+306, -12e306]", true),
            ("6E78983", false),
            ("12e307", false),
            ("1e-308", true),
            ("1e-309", false),
            (r#"{"e999": "1e999 \" 2e999", "b": 0}"#, true),
            (&long, true),
            (&format!("{long}9"), false),
            (&format!("0.{long}9e1"), true),
        ] {
            assert_eq!(
                Place::default().after(text.as_bytes()).is_some(),
                fits,
                "{text}"
            );
            if fits && !text.contains('{') {
                let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
                assert!(value.is_array() || value.is_number());
            }
        }
    }
}
