//! From which layer on a package is off: the residual stream of package and checkpoint, compared at the end of every layer.
//!
//! Both programs are run once more, a prompt in one call and then token by token, with the ends of their layers as further outputs. Where these are is seen
//! by structure ([`residual`](super::residual)): it takes a program whose layers all add equally often to one stream. Of a model in
//! parts, the parts for single tokens are looked at, one after another.

use std::collections::HashMap;

use russet_graph::graph::Module;
use serde::Serialize;

use super::residual::{add_outputs, additions, described, layer_ends};
use crate::engine::{Engine, Token};
use crate::evaluate::EvaluationError;
use crate::open::{DecoderSize, Model};

/// How far what a layer leaves is off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerDistance {
    /// The layer, from 0.
    pub layer: usize,
    /// The mean cosine of the residual stream over all tokens.
    pub mean_cosine: f64,
    /// The least, and the position of its token.
    pub worst_cosine: f64,
    /// Where that is.
    pub worst_place: usize,
}

/// Layers that could be compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layers {
    /// Layer by layer.
    pub compared: Vec<LayerDistance>,
    /// Layers of the checkpoint.
    pub layers: usize,
    /// Why no layer could be compared.
    pub reason: Option<String>,
}

impl Layers {
    /// The layers whose stream is furthest off, the worst first.
    pub fn worst(&self, count: usize) -> Vec<LayerDistance> {
        let mut all = self.compared.clone();
        all.sort_by(|a, b| a.mean_cosine.total_cmp(&b.mean_cosine));
        all.truncate(count);
        all
    }

    /// The layer that takes most of the cosine away that the one before has left.
    pub fn steepest(&self) -> Option<LayerDistance> {
        let before = self.compared.iter().map(|l| l.mean_cosine);
        let before = std::iter::once(1.0).chain(before);
        let drops = before
            .zip(&self.compared)
            .map(|(b, l)| (b - l.mean_cosine, *l));
        let largest = drops.reduce(|a, b| if b.0 > a.0 { b } else { a });
        largest.map(|(_, layer)| layer)
    }
}

/// Compares the residual streams over a prompt and the tokens after it, each of which is a call of its own.
///
/// # Errors
/// Those of the engines. A package whose layers are not seen is no error: [`Layers::reason`] says so.
pub fn layers(
    checkpoint: &Model,
    package: &Model,
    prompt: &[Token],
    after: &[Token],
) -> Result<Layers, EvaluationError> {
    let mut calls = vec![prompt];
    calls.extend(after.chunks(1));
    let size = checkpoint.decoder().unwrap_or_default();
    let mut this = Layers {
        layers: size.layers,
        ..Layers::default()
    };
    let reference = match streams(checkpoint, size, &calls)? {
        Ok(streams) => streams,
        Err(reason) => {
            this.reason = Some(format!("of the checkpoint, {reason}"));
            return Ok(this);
        }
    };
    match streams(package, size, &calls)? {
        Err(reason) => this.reason = Some(reason),
        Ok(judged) => {
            let pairs = reference.iter().zip(&judged).enumerate();
            this.compared = pairs
                .map(|(layer, (a, b))| distance(layer, size.hidden, a, b))
                .collect();
        }
    }
    Ok(this)
}

fn distance(layer: usize, hidden: usize, a: &[f32], b: &[f32]) -> LayerDistance {
    let rows = a.chunks(hidden.max(1)).zip(b.chunks(hidden.max(1)));
    let cosines: Vec<f64> = rows.map(|(a, b)| cosine(a, b)).collect();
    let worst = cosines.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
    let (worst_place, worst_cosine) = worst.map_or((0, 0.0), |(i, c)| (i, *c));
    LayerDistance {
        layer,
        mean_cosine: cosines.iter().sum::<f64>() / cosines.len().max(1) as f64,
        worst_cosine,
        worst_place,
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y));
        products.sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

/// The stream at the end of every layer, `[tokens, hidden]` each; or why it is not seen.
fn streams(
    model: &Model,
    size: DecoderSize,
    calls: &[&[Token]],
) -> Result<Result<Vec<Vec<f32>>, String>, EvaluationError> {
    let mut module = model.module().clone();
    let names = match mark(&mut module, &model.main_functions(), size) {
        Ok(names) => names,
        Err(reason) => return Ok(Err(reason)),
    };
    let probed = model.with_module(module);
    let streams = match probed.in_parts() {
        true => by_token(&probed, &names, &calls.concat())?,
        false => by_call(&probed, &names, calls)?,
    };
    let tokens: usize = calls.iter().map(|c| c.len()).sum();
    let right = |s: &Vec<f32>| s.len() == tokens * size.hidden;
    Ok(match streams.iter().all(right) {
        true => Ok(streams),
        false => Err("its layers give something else than a row for every token".into()),
    })
}

/// Makes the ends of layers outputs of some functions, which run one after another; why not, where they are not seen.
fn mark(
    module: &mut Module,
    functions: &[String],
    size: DecoderSize,
) -> Result<Vec<String>, String> {
    if functions.is_empty() {
        return Err("it has no function that takes any token".into());
    }
    let mut all = Vec::new();
    let mut counts = HashMap::new();
    for name in functions {
        let graph = module.graphs.iter().position(|g| *g.name == **name);
        let Some(graph) = graph else {
            continue;
        };
        let found = additions(&module.graphs[graph], size.hidden);
        counts.insert(name.clone(), found.len());
        all.extend(found.into_iter().map(|value| (graph, value)));
    }
    let places: Vec<usize> = (0..all.len()).collect();
    let Some(ends) = layer_ends(&places, size.layers) else {
        return Err(format!(
            "its {} layers are not seen by structure (additions to the residual stream: {})",
            size.layers,
            described(&counts)
        ));
    };
    let mut names = Vec::with_capacity(ends.len());
    for end in ends {
        let (graph, value) = all[end];
        let first = names.len();
        names.extend(add_outputs(&mut module.graphs[graph], &[value], first));
    }
    Ok(names)
}

/// Of one function.
fn by_call(
    model: &Model,
    names: &[String],
    calls: &[&[Token]],
) -> Result<Vec<Vec<f32>>, EvaluationError> {
    let mut engine = model.sequential()?;
    let mut streams = vec![Vec::new(); names.len()];
    for call in calls {
        engine.call(call)?;
        for (name, stream) in names.iter().zip(&mut streams) {
            stream.extend(engine.output(name).unwrap_or_default());
        }
    }
    Ok(streams)
}

/// Of a model in parts, token by token.
fn by_token(
    model: &Model,
    names: &[String],
    tokens: &[Token],
) -> Result<Vec<Vec<f32>>, EvaluationError> {
    let mut engine = model.anemll()?;
    let mut streams = vec![Vec::new(); names.len()];
    for token in tokens {
        engine.feed(&[*token], &|| false)?;
        for (name, stream) in names.iter().zip(&mut streams) {
            stream.extend(engine.output(name).unwrap_or_default());
        }
    }
    Ok(streams)
}
