//! Dates for templates that tell the model what day it is (`strftime_now`), in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// From the day of 1970-01-01 on.
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

/// The common fields of C's `strftime`, with `-` for numbers without padding; others stay as they are.
pub(super) fn strftime(format: &str, seconds: u64) -> String {
    let date = Date::new(seconds);
    let mut out = String::new();
    let mut rest = format;
    while let Some((text, tail)) = rest.split_once('%') {
        out += text;
        let (bare, tail) = tail.strip_prefix('-').map_or((false, tail), |t| (true, t));
        let mut chars = tail.chars();
        let field = chars.next();
        match field.and_then(|f| date.field(f)) {
            Some(value) if bare => {
                let short = value.strip_prefix('0').filter(|v| !v.is_empty());
                out += short.unwrap_or(&value);
            }
            Some(value) => out += &value,
            None => {
                out += if bare { "%-" } else { "%" };
                out.extend(field);
            }
        }
        rest = chars.as_str();
    }
    out + rest
}

/// A moment in the Gregorian calendar.
struct Date {
    year: u64,
    /// From 1.
    month: u64,
    /// From 1.
    day: u64,
    weekday: &'static str,
    /// Of the day.
    second: u64,
}

impl Date {
    /// The calendar by Howard Hinnant, "chrono-compatible low-level date algorithms": years begin in March, so that the leap day
    /// is the last one.
    fn new(seconds: u64) -> Self {
        let day = seconds / 86_400;
        let z = day + 719_468;
        let (era, doe) = (z / 146_097, z % 146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        Self {
            year: yoe + era * 400 + u64::from(month <= 2),
            month,
            day: doy - (153 * mp + 2) / 5 + 1,
            weekday: DAYS.get((day % 7) as usize).copied().unwrap_or_default(),
            second: seconds % 86_400,
        }
    }

    fn field(&self, name: char) -> Option<String> {
        let month = MONTHS
            .get(self.month as usize - 1)
            .copied()
            .unwrap_or_default();
        let (hour, two) = (self.second / 3600, |n: u64| format!("{n:02}"));
        let short = |name: &str| name.chars().take(3).collect();
        Some(match name {
            'Y' => self.year.to_string(),
            'y' => two(self.year % 100),
            'm' => two(self.month),
            'd' => two(self.day),
            'B' => month.to_owned(),
            'b' => short(month),
            'A' => self.weekday.to_owned(),
            'a' => short(self.weekday),
            'H' => two(hour),
            'I' => two((hour + 11) % 12 + 1),
            'p' => (if hour < 12 { "AM" } else { "PM" }).to_owned(),
            'M' => two(self.second / 60 % 60),
            'S' => two(self.second % 60),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn fields() {
        let cases = [
            (
                "%d %b %Y, %A %H:%M:%S %%",
                1_795_996_799,
                "29 Nov 2026, Sunday 23:59:59 %",
            ),
            ("%Y-%m-%d", 951_782_400, "2000-02-29"),
            (
                "%F %I %p %a %B %y",
                951_782_400,
                "2000-02-29 12 AM Tue February 00",
            ),
            ("%-d/%-m %-H h", 951_868_800 + 3600, "1/3 1 h"),
            ("100% %q %-q %", 0, "100% %q %-q %"),
        ];
        for (format, seconds, expected) in cases {
            assert_eq!(strftime(format, seconds), expected, "{format}");
        }
    }
}
