//! Distances between computed and recorded numbers, and what is accepted.

/// What a precision allows (float16 0.05, float32 1e-5, bfloat16 0.3; rows almost parallel).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    /// The largest `|d| / (1 + |x|)`.
    pub(crate) error: f64,
    /// The least cosine of a row.
    pub(crate) cosine: f64,
}

impl Tolerance {
    /// The tolerance of a precision by torch's name for it.
    pub(crate) fn of(precision: &str) -> Option<Self> {
        let table = [
            ("float16", 0.05, 0.99999),
            ("float32", 1e-5, 0.999_999_9),
            ("bfloat16", 0.3, 0.9998),
        ];
        table
            .iter()
            .find(|row| row.0 == precision)
            .map(|&(_, error, cosine)| Self { error, cosine })
    }
}

/// How far numbers are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Distance {
    /// The largest `|d| / (1 + |x|)`, `x` recorded. Infinite where one side is not a number.
    pub(crate) error: f64,
    /// The least cosine of a row.
    pub(crate) cosine: f64,
    /// Rows compared.
    pub(crate) rows: usize,
    /// Rows with another largest entry.
    pub(crate) other: usize,
    /// Of these, rows whose recorded two largest entries are further apart than the row's largest `|d|`.
    pub(crate) wrong: usize,
}

impl Distance {
    /// Nothing compared yet.
    pub(crate) const NONE: Self = Self {
        error: 0.0,
        cosine: 1.0,
        rows: 0,
        other: 0,
        wrong: 0,
    };

    /// Compares a row.
    pub(crate) fn row(&mut self, computed: &[f32], recorded: &[f32]) {
        self.error = self.error.max(error(computed, recorded));
        self.cosine = self.cosine.min(cosine(computed, recorded));
        self.rows += 1;
        if largest(computed).0 != largest(recorded).0 {
            self.other += 1;
            self.wrong += usize::from(is_decided(computed, recorded));
        }
    }

    /// Whether all rows are close enough.
    pub(crate) fn within(&self, tolerance: Tolerance) -> bool {
        self.error <= tolerance.error && self.cosine >= tolerance.cosine && self.wrong == 0
    }
}

/// The largest `|d| / (1 + |x|)`.
pub(crate) fn error(computed: &[f32], recorded: &[f32]) -> f64 {
    if computed.len() != recorded.len() {
        return f64::INFINITY;
    }
    let one = |(&a, &x): (&f32, &f32)| {
        let relative = (f64::from(a) - f64::from(x)).abs() / (1.0 + f64::from(x).abs());
        if a == x {
            0.0
        } else if relative.is_nan() {
            f64::INFINITY
        } else {
            relative
        }
    };
    computed.iter().zip(recorded).map(one).fold(0.0, f64::max)
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum::<f64>()
    };
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    if cosine.is_nan() { -1.0 } else { cosine }
}

/// The place of the largest entry, and how far it is ahead of the next.
pub(crate) fn largest(row: &[f32]) -> (usize, f32) {
    let (mut at, mut best, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (i, &x) in row.iter().enumerate() {
        if x > best {
            (at, best, second) = (i, x, best);
        } else if x > second {
            second = x;
        }
    }
    (at, best - second)
}

fn is_decided(computed: &[f32], recorded: &[f32]) -> bool {
    let apart = computed
        .iter()
        .zip(recorded)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    largest(recorded).1 > apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_are_at_no_distance() {
        let mut d = Distance::NONE;
        d.row(&[1.0, -2.0, 3.0], &[1.0, -2.0, 3.0]);
        assert!(
            d.error == 0.0 && (d.cosine - 1.0).abs() < 1e-12 && d.other == 0,
            "{d:?}"
        );
        assert!(d.within(Tolerance::of("float32").unwrap()));
    }

    #[test]
    fn another_largest_entry_counts_where_it_was_decided() {
        let mut near = Distance::NONE;
        near.row(&[1.0, 1.01, 0.0], &[1.0, 0.995, 0.0]);
        assert_eq!((near.other, near.wrong), (1, 0));
        let mut far = Distance::NONE;
        far.row(&[1.0, 1.04, 0.0], &[1.05, 1.0, 0.0]);
        assert_eq!((far.other, far.wrong), (1, 0));
        far.row(&[1.0, 3.0, 0.0], &[3.0, 2.95, 0.0]);
        assert_eq!((far.rows, far.other, far.wrong), (2, 2, 0));
        far.row(&[2.0, 2.1, 0.0], &[2.3, 2.0, 0.0]);
        assert_eq!((far.other, far.wrong), (3, 0));
        far.row(&[0.94, 0.95, 0.0], &[1.0, 0.9, 0.0]);
        assert_eq!((far.other, far.wrong), (4, 1));
        assert!(!far.within(Tolerance::of("float16").unwrap()));
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_far() {
        assert_eq!(error(&[f32::NAN], &[1.0]), f64::INFINITY);
        assert_eq!(error(&[1.0], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(error(&[f32::INFINITY], &[f32::INFINITY]), 0.0);
        let mut d = Distance::NONE;
        d.row(&[f32::NAN, 1.0], &[0.0, 1.0]);
        assert!(!d.within(Tolerance {
            error: 1e9,
            cosine: -0.5
        }));
    }

    #[test]
    fn errors_are_relative_to_one_more_than_the_recorded() {
        assert!((error(&[4.0], &[3.0]) - 0.25).abs() < 1e-12);
    }
}
