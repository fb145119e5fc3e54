//! Symbolic dimensions in one normal form.
//!
//! A [`Dim`] is a constant, unknown, or a linear sum `c + Σ kᵢ·aᵢ` over distinct atoms, sorted. An atom is a symbol or a
//! non-linear term (product, floor division, remainder, minimum, maximum) of normal dims. Two dims that are equal after
//! ordinary linear algebra are therefore equal as values.

use std::fmt;
use std::sync::Arc;

/// The name of a length that is only known when a graph is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub Arc<str>);

impl Symbol {
    /// A symbol of this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }
}

/// A non-linear term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Term {
    /// Product.
    Mul,
    /// Division rounding towards minus infinity.
    Div,
    /// Remainder with the sign of the divisor.
    Mod,
    /// The smaller.
    Min,
    /// The larger.
    Max,
}

impl Term {
    /// Every term with its name in the text form.
    pub const NAMES: [(Term, &'static str); 5] = [
        (Term::Mul, "mul"),
        (Term::Div, "div"),
        (Term::Mod, "mod"),
        (Term::Min, "min"),
        (Term::Max, "max"),
    ];

    fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Self::Mul => a.checked_mul(b),
            Self::Div if b != 0 => {
                Some(a.checked_div_euclid(b)? - i64::from(b < 0 && a.rem_euclid(b) != 0))
            }
            Self::Mod if b != 0 => {
                let r = a.checked_rem(b)?;
                Some(if r != 0 && (r < 0) != (b < 0) {
                    r + b
                } else {
                    r
                })
            }
            Self::Div | Self::Mod => None,
            Self::Min => Some(a.min(b)),
            Self::Max => Some(a.max(b)),
        }
    }
}

/// One summand without its factor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// A symbol.
    Symbol(Symbol),
    /// A non-linear term of two dims.
    Term(Term, Dim, Dim),
}

/// The extent of one axis. See the module page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A known extent.
    Const(i64),
    /// `constant + Σ factor·atom`, at least one atom, factors not zero, atoms sorted.
    Sum(Arc<(i64, Vec<(Atom, i64)>)>),
    /// Not known (`?` in files).
    Unknown,
}

impl From<i64> for Dim {
    fn from(v: i64) -> Self {
        Self::Const(v)
    }
}

impl From<usize> for Dim {
    fn from(v: usize) -> Self {
        i64::try_from(v).map_or(Self::Unknown, Self::Const)
    }
}

impl Dim {
    /// A symbol of this name.
    pub fn symbol(name: &str) -> Self {
        Self::sum(0, vec![(Atom::Symbol(Symbol::new(name)), 1)])
    }

    /// The constant value, if it is one.
    pub fn as_const(&self) -> Option<i64> {
        if let Self::Const(c) = self {
            Some(*c)
        } else {
            None
        }
    }

    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Whether it prints as one word or number (no brackets needed in a shape).
    pub fn is_atom(&self) -> bool {
        matches!(self, Self::Const(0..) | Self::Unknown)
    }

    /// Whether it cannot be below zero, symbols being lengths, as far as its form tells.
    pub fn is_never_negative(&self) -> bool {
        let atom = |a: &Atom| match a {
            Atom::Symbol(_) => true,
            Atom::Term(Term::Max, a, b) => a.is_never_negative() || b.is_never_negative(),
            Atom::Term(Term::Mod, _, b) => b.is_never_negative(),
            Atom::Term(_, a, b) => a.is_never_negative() && b.is_never_negative(),
        };
        self.parts().is_some_and(|(constant, terms)| {
            constant >= 0 && terms.iter().all(|(a, factor)| *factor > 0 && atom(a))
        })
    }

    fn sum(constant: i64, terms: Vec<(Atom, i64)>) -> Self {
        if terms.is_empty() {
            Self::Const(constant)
        } else {
            Self::Sum(Arc::new((constant, terms)))
        }
    }

    fn parts(&self) -> Option<(i64, &[(Atom, i64)])> {
        match self {
            Self::Const(c) => Some((*c, &[])),
            Self::Sum(s) => Some((s.0, &s.1)),
            Self::Unknown => None,
        }
    }

    /// `self·a + other·b`; unknown when an operand is unknown or a factor overflows.
    fn combine(&self, a: i64, other: &Self, b: i64) -> Self {
        let (Some((c0, t0)), Some((c1, t1))) = (self.parts(), other.parts()) else {
            return Self::Unknown;
        };
        let scaled = |c: i64, f: i64| c.checked_mul(f);
        let (Some(c0), Some(c1)) = (scaled(c0, a), scaled(c1, b)) else {
            return Self::Unknown;
        };
        let Some(constant) = c0.checked_add(c1) else {
            return Self::Unknown;
        };
        let mut terms: Vec<(Atom, i64)> = Vec::with_capacity(t0.len() + t1.len());
        for (atom, factor, by) in t0
            .iter()
            .map(|(x, f)| (x, f, a))
            .chain(t1.iter().map(|(x, f)| (x, f, b)))
        {
            let Some(factor) = scaled(*factor, by) else {
                return Self::Unknown;
            };
            match terms.binary_search_by(|(x, _)| x.cmp(atom)) {
                Ok(i) => terms[i].1 = terms[i].1.wrapping_add(factor),
                Err(i) => terms.insert(i, (atom.clone(), factor)),
            }
        }
        terms.retain(|(_, f)| *f != 0);
        Self::sum(constant, terms)
    }

    fn term(kind: Term, a: &Self, b: &Self) -> Self {
        if a.is_unknown() || b.is_unknown() {
            return Self::Unknown;
        }
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const()) {
            return kind.apply(x, y).map_or(Self::Unknown, Self::Const);
        }
        let (a, b) = if matches!(kind, Term::Mul | Term::Min | Term::Max) && b < a {
            (b, a)
        } else {
            (a, b)
        };
        Self::sum(0, vec![(Atom::Term(kind, a.clone(), b.clone()), 1)])
    }

    /// Sum.
    pub fn add(&self, other: &Self) -> Self {
        self.combine(1, other, 1)
    }

    /// Difference.
    pub fn sub(&self, other: &Self) -> Self {
        self.combine(1, other, -1)
    }

    /// Product.
    pub fn mul(&self, other: &Self) -> Self {
        match (self.as_const(), other.as_const()) {
            (_, Some(f)) => self.combine(f, &Self::Const(0), 1),
            (Some(f), _) => other.combine(f, &Self::Const(0), 1),
            _ => Self::term(Term::Mul, self, other),
        }
    }

    /// Quotient rounded towards minus infinity. Exact when the divisor is a constant that divides every factor.
    pub fn div(&self, other: &Self) -> Self {
        if let (Some(d), Some((c, terms))) = (other.as_const(), self.parts())
            && d > 0
            && c % d == 0
            && terms.iter().all(|(_, f)| f % d == 0)
        {
            return Self::sum(
                c / d,
                terms.iter().map(|(a, f)| (a.clone(), f / d)).collect(),
            );
        }
        if self == other && !self.is_unknown() {
            return Self::Const(1);
        }
        if let Some(rest) = self.cancel(other) {
            return rest;
        }
        Self::term(Term::Div, self, other)
    }

    /// `self / other` where `self` is one product that has `other` as a factor.
    fn cancel(&self, other: &Self) -> Option<Self> {
        let (0, [(Atom::Term(Term::Mul, a, b), f)]) = self.parts()? else {
            let (0, [(atom, f)]) = self.parts()? else {
                return None;
            };
            let (0, [(by, g)]) = other.parts()? else {
                return None;
            };
            return (atom == by && f % g == 0).then(|| Self::Const(f / g));
        };
        let rest = if a == other {
            b
        } else if b == other {
            a
        } else {
            return None;
        };
        Some(rest.mul(&Self::Const(*f)))
    }

    /// Remainder with the sign of the divisor.
    pub fn rem(&self, other: &Self) -> Self {
        if let (Some(d), Some((c, terms))) = (other.as_const(), self.parts())
            && d > 0
            && c % d == 0
            && terms.iter().all(|(_, f)| f % d == 0)
        {
            return Self::Const(0);
        }
        Self::term(Term::Mod, self, other)
    }

    /// The smaller of two.
    pub fn smaller(&self, other: &Self) -> Self {
        if self.is_at_most(other) {
            self.clone()
        } else if other.is_at_most(self) {
            other.clone()
        } else {
            Self::term(Term::Min, self, other)
        }
    }

    /// The larger of two.
    pub fn larger(&self, other: &Self) -> Self {
        if self.is_at_most(other) {
            other.clone()
        } else if other.is_at_most(self) {
            self.clone()
        } else {
            Self::term(Term::Max, self, other)
        }
    }

    /// Whether this is plainly never more than `other`: the difference is a sum of extents, which are 0 or more.
    fn is_at_most(&self, other: &Self) -> bool {
        self == other
            || other.sub(self).parts().is_some_and(|(constant, terms)| {
                let extent =
                    |(atom, factor): &(Atom, i64)| matches!(atom, Atom::Symbol(_)) && *factor > 0;
                constant >= 0 && terms.iter().all(extent)
            })
    }

    /// The term `kind` of two dims, normalised.
    pub fn apply(kind: Term, a: &Self, b: &Self) -> Self {
        match kind {
            Term::Mul => a.mul(b),
            Term::Div => a.div(b),
            Term::Mod => a.rem(b),
            Term::Min => a.smaller(b),
            Term::Max => a.larger(b),
        }
    }

    /// The value under `lookup`; `None` where a symbol is not bound, an unknown is met or a number overflows.
    pub fn eval(&self, lookup: &dyn Fn(&Symbol) -> Option<i64>) -> Option<i64> {
        let (constant, terms) = self.parts()?;
        terms.iter().try_fold(constant, |sum, (atom, factor)| {
            let value = match atom {
                Atom::Symbol(s) => lookup(s)?,
                Atom::Term(kind, a, b) => kind.apply(a.eval(lookup)?, b.eval(lookup)?)?,
            };
            sum.checked_add(value.checked_mul(*factor)?)
        })
    }

    /// The same dim with symbols replaced.
    pub fn substitute(&self, replace: &dyn Fn(&Symbol) -> Option<Dim>) -> Self {
        let Some((constant, terms)) = self.parts() else {
            return Self::Unknown;
        };
        terms
            .iter()
            .fold(Self::Const(constant), |sum, (atom, factor)| {
                let value = match atom {
                    Atom::Symbol(s) => {
                        replace(s).unwrap_or_else(|| Self::sum(0, vec![(atom.clone(), 1)]))
                    }
                    Atom::Term(kind, a, b) => {
                        Self::apply(*kind, &a.substitute(replace), &b.substitute(replace))
                    }
                };
                sum.combine(1, &value, *factor)
            })
    }

    /// Calls `visit` with every symbol in the expression.
    pub fn symbols(&self, visit: &mut dyn FnMut(&Symbol)) {
        let Some((_, terms)) = self.parts() else {
            return;
        };
        for (atom, _) in terms {
            match atom {
                Atom::Symbol(s) => visit(s),
                Atom::Term(_, a, b) => {
                    a.symbols(visit);
                    b.symbols(visit);
                }
            }
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbol(s) => f.write_str(&s.0),
            Self::Term(kind, a, b) => {
                let name = Term::NAMES
                    .iter()
                    .find(|(k, _)| k == kind)
                    .map_or("", |(_, n)| n);
                write!(f, "{name}({a}, {b})")
            }
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((constant, terms)) = self.parts() else {
            return f.write_str("?");
        };
        if terms.is_empty() {
            return write!(f, "{constant}");
        }
        for (i, (atom, factor)) in terms.iter().enumerate() {
            let sign = if *factor < 0 { "-" } else { "+" };
            match (i, *factor < 0) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                _ => write!(f, " {sign} ")?,
            }
            match factor.unsigned_abs() {
                1 => write!(f, "{atom}")?,
                n => write!(f, "{n}*{atom}")?,
            }
        }
        match constant {
            0 => Ok(()),
            c if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            c => write!(f, " + {c}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(name: &str) -> Dim {
        Dim::symbol(name)
    }

    #[test]
    fn linear_algebra_is_normal() {
        let (q, t) = (s("q"), s("t"));
        assert_eq!(t.sub(&q).add(&q), t);
        assert_eq!(q.sub(&q), Dim::Const(0));
        assert_eq!(
            q.mul(&Dim::Const(6)).div(&Dim::Const(3)),
            q.mul(&Dim::Const(2))
        );
        assert_eq!(q.mul(&t).div(&t), q);
        assert_eq!(t.add(&q), q.add(&t));
        assert_eq!(t.mul(&q), q.mul(&t));
        assert_eq!(q.add(&Dim::Unknown), Dim::Unknown);
        assert_eq!(q.mul(&Dim::Const(576)).rem(&Dim::Const(64)), Dim::Const(0));
    }

    #[test]
    fn evaluation_follows_floor_rules() {
        let lookup = |x: &Symbol| (&*x.0 == "q").then_some(-7);
        let two = Dim::Const(2);
        assert_eq!(s("q").div(&two).eval(&lookup), Some(-4));
        assert_eq!(s("q").rem(&two).eval(&lookup), Some(1));
        assert_eq!(s("q").rem(&Dim::Const(-2)).eval(&lookup), Some(-1));
        assert_eq!(s("q").div(&Dim::Const(-2)).eval(&lookup), Some(3));
        assert_eq!(s("q").div(&Dim::Const(0)).eval(&lookup), None);
        assert_eq!(s("x").eval(&lookup), None);
        assert_eq!(s("q").mul(&s("q")).eval(&lookup), Some(49));
    }

    #[test]
    fn substitution_reaches_nested_terms() {
        let d = s("a").smaller(&s("b").mul(&s("a")));
        let d = d.substitute(&|x| (&*x.0 == "a").then_some(Dim::Const(3)));
        assert_eq!(d.eval(&|_| Some(0)), Some(0));
        assert_eq!(d.to_string(), "min(3, 3*b)");
    }
}
