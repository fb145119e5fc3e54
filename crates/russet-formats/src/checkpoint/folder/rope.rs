//! Rotary embedding as configs spell it: `rope_theta` with `rope_scaling`, or `rope_parameters`, where families with two kinds of
//! layers have one object for each. Frequencies are computed in f32 in the steps of transformers 5.5 (`modeling_rope_utils`).

use std::f64::consts::PI;
use std::sync::Arc;

use serde_json::Value;

use super::super::config::{Frequencies, Rope};
use super::super::{Architecture, Result};
use super::keys::Keys;

/// What one kind of layers is turned by.
pub(super) struct Spelling<'a> {
    /// The object with everything but, in the old spelling, the base.
    scaling: Option<Keys<'a>>,
    base: f64,
    /// The part of a head that is turned.
    partial: f64,
    /// The length that the model was trained for before it was stretched.
    original: usize,
    /// The length that it was stretched to.
    longest: usize,
}

/// Kinds of scaling by their names.
const KINDS: [(&str, Make); 8] = [
    ("default", default),
    ("linear", linear),
    // Equal to the default up to the length of the model, which no cache here exceeds.
    ("dynamic", default),
    ("llama3", llama3),
    ("yarn", yarn),
    ("longrope", longrope),
    ("su", longrope),
    ("proportional", proportional),
];

type Make = fn(&Spelling<'_>, Head) -> Result<Rope>;

/// The width of a head, and how much of it is turned.
#[derive(Clone, Copy)]
struct Head {
    width: usize,
    dims: usize,
}

/// Layers whose heads are turned alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Full,
    Window,
}

impl Kind {
    /// The name in `layer_types`.
    const fn name(self) -> &'static str {
        match self {
            Self::Full => "full_attention",
            Self::Window => "sliding_attention",
        }
    }
}

/// How layers of a kind turn heads of a width.
pub(super) fn rope(
    keys: &Keys<'_>,
    row: &Architecture,
    kind: Kind,
    width: usize,
) -> Result<Arc<Rope>> {
    let spelling = Spelling::of(keys, row, kind)?;
    let name = spelling.kind(row, kind)?;
    let known = KINDS.iter().find(|(n, _)| *n == name);
    let error = |why: String| match &spelling.scaling {
        Some(scaling) => scaling.error("rope_type", why),
        None => keys.error("rope_scaling", why),
    };
    let (_, make) = known.ok_or_else(|| error(format!("is {name:?}, which is not supported")))?;
    let partial = spelling.partial;
    if partial != 1.0 && !row.partial || !(0.0..=1.0).contains(&partial) {
        let why = format!("is {partial}: heads of this family are turned whole");
        return Err(keys.error("partial_rotary_factor", why));
    }
    let dims = if row.gemma4 {
        width
    } else {
        (width as f64 * partial) as usize
    };
    if dims < 2 || !dims.is_multiple_of(2) {
        let why = format!("leaves {dims} of {width} elements to turn, not an even number");
        return Err(keys.error("partial_rotary_factor", why));
    }
    let rope = make(&spelling, Head { width, dims })?;
    if !finite(&rope) {
        return Err(error(format!(
            "{name:?} gives frequencies that are no numbers"
        )));
    }
    if let Some(scaling) = &spelling.scaling {
        scaling.all_asked()?;
    }
    Ok(Arc::new(rope))
}

fn finite(rope: &Rope) -> bool {
    let all = |list: &[f32]| list.iter().all(|v| v.is_finite());
    rope.factor.is_finite()
        && match &rope.frequencies {
            Frequencies::Base { base, scale } => base.is_finite() && scale.is_finite(),
            Frequencies::Each(list) => all(list),
            Frequencies::ByLength { short, long, .. } => all(short) && all(long),
        }
}

impl<'a> Spelling<'a> {
    fn of(keys: &Keys<'a>, row: &Architecture, kind: Kind) -> Result<Self> {
        let theta = keys.positive("rope_theta")?;
        let local = keys.positive("rope_local_base_freq")?;
        let part = keys.float("partial_rotary_factor")?;
        let longest = length(keys, "max_position_embeddings")?;
        let top = optional_length(keys, "original_max_position_embeddings")?;
        let (old, new) = (
            keys.object("rope_scaling")?,
            keys.object("rope_parameters")?,
        );
        let two = row.name == "gemma3" || row.gemma4;
        let new = new.map(|new| chosen(new, kind)).transpose()?.flatten();
        let (scaling, base) = match (two, kind) {
            // The old spelling has no scaling for windows.
            (true, Kind::Window) => (new, local.unwrap_or(1e4)),
            (true, Kind::Full) => (old.or(new), theta.unwrap_or(1e6)),
            (false, _) => (old.or(new), theta.unwrap_or(1e4)),
        };
        let own = |name| scaling.as_ref().map_or(Ok(None), |s| s.positive(name));
        let base = own("rope_theta")?.unwrap_or(base);
        let partial = own("partial_rotary_factor")?.or(part).unwrap_or(1.0);
        let inner = scaling.as_ref().map_or(Ok(None), |s| {
            optional_length(s, "original_max_position_embeddings")
        })?;
        Ok(Self {
            scaling,
            base,
            partial,
            original: top.or(inner).unwrap_or(longest),
            longest,
        })
    }

    /// The name of the scaling.
    fn kind(&self, row: &Architecture, kind: Kind) -> Result<&'a str> {
        let Some(scaling) = &self.scaling else {
            return Ok(match row.gemma4 && kind == Kind::Full {
                true => "proportional",
                false => "default",
            });
        };
        let (new, old) = (scaling.text("rope_type")?, scaling.text("type")?);
        for harmless in ["mrope_section", "mrope_interleaved", "finetuned"] {
            scaling.get(harmless);
        }
        let name = new.or(old).unwrap_or("default");
        // Early releases of Phi 3 call it so.
        Ok(match name {
            "yarn" if row.fused => "longrope",
            name => name,
        })
    }

    fn number(&self, name: &str) -> Result<Option<f64>> {
        self.scaling.as_ref().map_or(Ok(None), |s| s.float(name))
    }

    fn required(&self, name: &str) -> Result<f64> {
        match (&self.scaling, self.number(name)?) {
            (_, Some(v)) if v > 0.0 => Ok(v),
            (Some(s), Some(v)) => Err(s.error(name, format!("is {v}"))),
            (Some(s), None) => Err(s.error(name, "is missing")),
            (None, _) => Ok(1.0),
        }
    }

    fn factors(&self, name: &str, pairs: usize) -> Result<Vec<f32>> {
        let Some(scaling) = &self.scaling else {
            return Ok(vec![1.0; pairs]);
        };
        let list = scaling.list(name)?.unwrap_or_default();
        let numbers: Option<Vec<f64>> = list.iter().map(Value::as_f64).collect();
        let numbers = numbers.filter(|n| n.len() == pairs && n.iter().all(|v| *v > 0.0));
        let why = || scaling.error(name, format!("is no list of {pairs} positive numbers"));
        Ok(numbers
            .ok_or_else(why)?
            .into_iter()
            .map(|v| v as f32)
            .collect())
    }
}

/// The object for a kind of layers, where there is one for each.
fn chosen<'a>(new: Keys<'a>, kind: Kind) -> Result<Option<Keys<'a>>> {
    let kinds = [Kind::Full, Kind::Window];
    let nested = {
        let mut names = new.names().peekable();
        names.peek().is_some()
            && names.all(|n| n == "linear_attention" || kinds.iter().any(|k| k.name() == n))
    };
    match nested {
        true => new.object(kind.name()),
        false => Ok(Some(new)),
    }
}

/// A length, which may be larger than any other number.
fn optional_length(keys: &Keys<'_>, name: &str) -> Result<Option<usize>> {
    let value = keys.positive(name)?;
    Ok(value.map(|v| v.min(f64::from(i32::MAX)) as usize))
}

fn length(keys: &Keys<'_>, name: &str) -> Result<usize> {
    let value = optional_length(keys, name)?;
    value
        .filter(|v| *v > 0)
        .ok_or_else(|| keys.error(name, "is missing"))
}

/// `base^(2i / dims)` for every pair.
fn wavelengths(base: f64, pairs: usize, dims: usize) -> Vec<f32> {
    let exponent = |i: usize| (2 * i) as f32 / dims as f32;
    (0..pairs)
        .map(|i| (base as f32).powf(exponent(i)))
        .collect()
}

fn each(dims: usize, list: Vec<f32>) -> Rope {
    Rope {
        dims,
        frequencies: Frequencies::Each(list),
        factor: 1.0,
    }
}

fn default(of: &Spelling<'_>, head: Head) -> Result<Rope> {
    // Dynamic scaling has a factor, which counts beyond the model's length only.
    of.number("factor")?;
    Ok(Rope {
        dims: head.dims,
        frequencies: Frequencies::Base {
            base: of.base,
            scale: 1.0,
        },
        factor: 1.0,
    })
}

fn linear(of: &Spelling<'_>, head: Head) -> Result<Rope> {
    let factor = of.required("factor")? as f32;
    let waves = wavelengths(of.base, head.dims / 2, head.dims);
    Ok(each(
        head.dims,
        waves.iter().map(|w| 1.0 / w / factor).collect(),
    ))
}

/// Gemma 4: a part of the pairs of a whole head is turned, the others stand still.
fn proportional(of: &Spelling<'_>, head: Head) -> Result<Rope> {
    let factor = of.number("factor")?.unwrap_or(1.0) as f32;
    let turned = ((of.partial * head.width as f64) / 2.0).floor() as usize;
    let pairs = head.width / 2;
    let waves = wavelengths(of.base, turned.min(pairs), head.width);
    let mut list: Vec<f32> = waves.iter().map(|w| 1.0 / w / factor).collect();
    list.resize(pairs, 0.0);
    Ok(each(head.width, list))
}

fn llama3(of: &Spelling<'_>, head: Head) -> Result<Rope> {
    let factor = of.required("factor")? as f32;
    let (low, high) = (
        of.required("low_freq_factor")?,
        of.required("high_freq_factor")?,
    );
    let original = of.original as f64;
    let (longest, shortest) = ((original / low) as f32, (original / high) as f32);
    let stretched = |w: &f32| {
        let frequency = 1.0 / w;
        let wave = 2.0 * PI as f32 / frequency;
        if wave < shortest {
            return frequency;
        }
        if wave > longest {
            return frequency / factor;
        }
        let smooth = (original as f32 / wave - low as f32) / (high - low) as f32;
        (1.0 - smooth) * frequency / factor + smooth * frequency
    };
    let waves = wavelengths(of.base, head.dims / 2, head.dims);
    Ok(each(head.dims, waves.iter().map(stretched).collect()))
}

/// Peng et al., "YaRN", arXiv 2309.00071.
fn yarn(of: &Spelling<'_>, head: Head) -> Result<Rope> {
    let original = of.original as f64;
    let given = of.number("factor")?;
    let factor = given.unwrap_or(of.longest as f64 / original);
    let (low, high) = yarn_range(of, head.dims, original)?;
    let pairs = head.dims / 2;
    let span = if low == high { 0.001 } else { high - low };
    let mixed = |(i, w): (usize, &f32)| {
        let (outer, inner) = (1.0 / w, 1.0 / (factor as f32 * w));
        let ramp = ((i as f32 - low as f32) / span as f32).clamp(0.0, 1.0);
        let kept = 1.0 - ramp;
        inner * (1.0 - kept) + outer * kept
    };
    let waves = wavelengths(of.base, pairs, head.dims);
    let list = waves.iter().enumerate().map(mixed).collect();
    Ok(Rope {
        factor: yarn_factor(of, factor)?,
        ..each(head.dims, list)
    })
}

/// The pairs between which frequencies go from those of training to stretched ones.
fn yarn_range(of: &Spelling<'_>, dims: usize, original: f64) -> Result<(f64, f64)> {
    let or = |v: Option<f64>, default: f64| v.filter(|v| *v != 0.0).unwrap_or(default);
    let fast = or(of.number("beta_fast")?, 32.0);
    let slow = or(of.number("beta_slow")?, 1.0);
    let truncate = of.scaling.as_ref().map(|s| s.truth("truncate"));
    let truncate = truncate.transpose()?.flatten().unwrap_or(true);
    let pair =
        |turns: f64| dims as f64 * (original / (turns * 2.0 * PI)).ln() / (2.0 * of.base.ln());
    let (mut low, mut high) = (pair(fast), pair(slow));
    if truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    Ok((low.max(0.0), high.min(dims as f64 - 1.0)))
}

/// What cosines and sines are multiplied by.
fn yarn_factor(of: &Spelling<'_>, factor: f64) -> Result<f64> {
    let scale = |by: f64| match factor <= 1.0 {
        true => 1.0,
        false => 0.1 * by * factor.ln() + 1.0,
    };
    let given = of.number("attention_factor")?;
    let (one, all) = (of.number("mscale")?, of.number("mscale_all_dim")?);
    let counts = |v: Option<f64>| v.filter(|v| *v != 0.0);
    Ok(match (given, counts(one), counts(all)) {
        (Some(given), _, _) => given,
        (None, Some(one), Some(all)) => scale(one) / scale(all),
        _ => scale(1.0),
    })
}

/// Ding et al., "LongRoPE", arXiv 2402.13753: one list of factors up to the length of training, another beyond.
fn longrope(of: &Spelling<'_>, head: Head) -> Result<Rope> {
    let pairs = head.dims / 2;
    let waves = wavelengths(of.base, pairs, head.dims);
    let list = |name| -> Result<Vec<f32>> {
        let factors = of.factors(name, pairs)?;
        let both = factors.iter().zip(&waves);
        Ok(both.map(|(f, w)| 1.0 / (f * w)).collect())
    };
    let original = of.original as f64;
    let given = of.number("factor")?;
    let factor = given.unwrap_or(of.longest as f64 / original);
    let default = match factor <= 1.0 {
        true => 1.0,
        false => (1.0 + factor.ln() / original.ln()).sqrt(),
    };
    Ok(Rope {
        dims: head.dims,
        frequencies: Frequencies::ByLength {
            short: list("short_factor")?,
            long: list("long_factor")?,
            limit: of.original,
        },
        factor: of.number("attention_factor")?.unwrap_or(default),
    })
}
