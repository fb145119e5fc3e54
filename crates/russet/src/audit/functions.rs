//! Functions of a language model against what engines look for (contract B §5.3–5.5, F 1.3, 1.4, 3, 10).
//!
//! A *dynamic* model is one function of tokens and positions; a *chunked static* one has embeddings of its own, loaded by
//! `load_embeddings`, and a ladder of `extend_<context>_<length>` functions.

use russet_graph::graph::{Graph, Module, Port};
use russet_graph::types::{DType, TensorType, Type};

use super::finding::{self as rules, At, Findings};
use super::subject::Subject;
use crate::bundle::{BundleKind, STAGES};
use crate::engine::{LOGITS, MASK, ModelStructure, POSITIONS, Purpose, Rung, StateKind, TOKENS};

/// A second function that only fills the states (F 10).
const PREFILL: &str = "prefill";

/// What names of functions of a ladder begin with.
const LADDERS: [&str; 2] = ["extend", "prompt"];

/// Parts of the names of inputs that every function of a ladder takes.
const LADDER_INPUTS: [&str; 3] = ["transformer_input", "causal_mask", "step"];

/// Element types of logits and caches.
const FLOATS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

/// Whether functions make a chunked static model.
pub(super) fn is_static(module: &Module) -> bool {
    let names: Vec<&str> = module.functions().map(|g| &*g.name).collect();
    matches!(
        ModelStructure::of(&names, ""),
        ModelStructure::ChunkedStatic { .. }
    )
}

/// Functions of a ladder.
fn rungs(module: &Module) -> impl Iterator<Item = &Graph> {
    module
        .functions()
        .filter(|g| Rung::parse(&g.name).is_some())
}

/// What a function is that extends the caches and gives logits.
fn extends(graph: &Graph) -> Option<Rung> {
    Rung::parse(&graph.name).filter(|r| r.purpose == Purpose::Extend)
}

fn known(module: &Module) -> String {
    let names: Vec<&str> = module.functions().map(|g| &*g.name).collect();
    match names.is_empty() {
        true => "it has none".into(),
        false => format!("it has {}", names.join(", ")),
    }
}

/// Functions that must be there.
pub(super) fn present(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    if subject.model.as_ref()?.kind == BundleKind::Segmenter {
        return stages(subject, findings);
    }
    let (language, asset, module) = subject.language_model()?;
    let main = language.main_function();
    if is_static(module) {
        gathers(&asset.path, module, findings);
    } else if !module.functions().any(|g| &*g.name == main) {
        let first = module.functions().next().map_or("NAME", |g| &*g.name);
        findings.add(
            &rules::FUNCTION_MISSING,
            At::field(&asset.path, main),
            format!("the program has no function {main:?}: {}", known(module)),
            format!("name the one to run in language.function_map: {{\"main\": [{first:?}]}}"),
        );
    }
    for (role, names) in &language.function_map {
        if role != "main" || names.len() != 1 {
            findings.add(
                &rules::FUNCTION_MAP_IGNORED,
                At::metadata(&format!("language.function_map.{role}")),
                "only the first function of role main is ever looked at",
                "leave out the others, and name functions as engines expect them (extend_<context>_<length>, load_embeddings)",
            );
        }
    }
    Some(())
}

/// A segmenter in stages has all of them.
fn stages(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let (asset, module) = subject.program("main")?;
    let has = |stage: &&&str| module.functions().any(|g| *g.name == ***stage);
    let there = STAGES.iter().filter(has).count();
    let missing = STAGES.iter().filter(|s| !has(s));
    for stage in missing.filter(|_| there > 0) {
        findings.add(
            &rules::FUNCTION_MISSING,
            At::field(&asset.path, stage),
            format!("the program has no function {stage:?}: {}", known(module)),
            "export all three stages into one asset",
        );
    }
    Some(())
}

/// Names of a ladder that say nothing, and lengths for which nothing makes embeddings.
fn gathers(file: &str, module: &Module, findings: &mut Findings) {
    let laddered = |name: &str| LADDERS.iter().any(|l| name.starts_with(l));
    for graph in module.functions().filter(|g| laddered(&g.name)) {
        let at = At::field(file, &graph.name);
        let Some(Rung {
            queries: length, ..
        }) = Rung::parse(&graph.name)
        else {
            findings.add(
                &rules::FUNCTION_NAME,
                at,
                "the name does not say context and length, so that the function is never chosen",
                "export it as extend_<context>_<length> or prompt_opt_<context>_<length>",
            );
            continue;
        };
        let gather = format!("gather_embeddings_{length}");
        if !module.functions().any(|g| *g.name == *gather) {
            findings.add(
                &rules::GATHER_MISSING,
                at,
                format!(
                    "it takes {length} tokens, and there is no {gather} to make their embeddings"
                ),
                "export that function too",
            );
        }
    }
}

/// Inputs (or states) of a function with their types.
fn ports(graph: &Graph, states: bool) -> impl Iterator<Item = (&str, &TensorType)> {
    let port = move |p: &Port| matches!(p.ty, Type::Handle(_)) == states;
    graph
        .inputs
        .iter()
        .filter(move |p| port(p))
        .filter_map(named)
}

fn outputs(graph: &Graph) -> impl Iterator<Item = (&str, &TensorType)> {
    let tensors = graph
        .outputs
        .iter()
        .filter(|p| matches!(p.ty, Type::Tensor(_)));
    tensors.filter_map(named)
}

fn named(port: &Port) -> Option<(&str, &TensorType)> {
    match &port.ty {
        Type::Tensor(ty) | Type::Handle(ty) => Some((&*port.name, ty)),
        _ => None,
    }
}

fn names<'a>(ports: impl Iterator<Item = (&'a str, &'a TensorType)>) -> Vec<&'a str> {
    ports.map(|(name, _)| name).collect()
}

/// Inputs and outputs by name, order and element type.
pub(super) fn ports_of(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let (language, asset, module) = subject.language_model()?;
    if is_static(module) {
        for graph in rungs(module) {
            ladder_inputs(&asset.path, graph, findings);
        }
        return Some(());
    }
    let main = module.graph(language.main_function())?;
    let at = At::field(&asset.path, &main.name);
    if subject.takes_tokens() {
        inputs(at, main, findings);
    }
    logits(at, main, findings);
    if let Some(prefill) = module.graph(PREFILL).filter(|g| !g.private) {
        prefill_of(&asset.path, main, prefill, findings);
    }
    Some(())
}

/// Tokens and positions, in this order.
fn inputs(at: At<'_>, main: &Graph, findings: &mut Findings) {
    let all = names(ports(main, false));
    let plain: Vec<&str> = all.iter().copied().filter(|n| *n != MASK).collect();
    let [first, second] = plain[..] else {
        findings.add(
            &rules::IO_INPUTS,
            at,
            format!(
                "it takes {} inputs ({}), not tokens and positions",
                all.len(),
                all.join(", ")
            ),
            "export the model with inputs input_ids and position_ids alone (attn_mask may follow)",
        );
        return;
    };
    let reversed = POSITIONS.contains(&first) && TOKENS.contains(&second);
    if reversed || all.first() == Some(&MASK) {
        findings.add(
            &rules::IO_ORDER,
            at,
            format!("its inputs come in the order {}: engines that bind by position feed each the other's values, without an error", all.join(", ")),
            "export the model with input_ids first and position_ids second; russet binds by name and is not affected",
        );
    } else if !TOKENS.contains(&first) || !POSITIONS.contains(&second) {
        findings.add(
            &rules::IO_NAMES,
            at,
            format!(
                "its inputs are called {}: what they are for is only known by their order",
                all.join(", ")
            ),
            "export the model with inputs input_ids and position_ids",
        );
    }
    for (name, ty) in ports(main, false).filter(|(n, _)| *n != MASK) {
        if ty.dtype != DType::I32 || ty.rank() != 2 {
            findings.add(
                &rules::IO_DTYPE,
                at,
                format!("input {name:?} is {ty}: engines give 32-bit integers of two axes"),
                "export it as int32 [1, length]",
            );
        }
    }
}

/// Logits, first of the outputs.
fn logits(at: At<'_>, main: &Graph, findings: &mut Findings) {
    let all = names(outputs(main));
    let place = all.iter().position(|n| LOGITS.contains(n));
    let mend = "export the model so that logits are its first output";
    match (all.first(), place) {
        (None, _) => findings.add(
            &rules::IO_OUTPUTS,
            at,
            "it returns nothing",
            "export the model with an output logits",
        ),
        (Some(first), None) => findings.add(
            &rules::IO_NAMES,
            at,
            format!("no output is called logits; the first, {first:?}, is taken"),
            "export the model with an output logits",
        ),
        (Some(first), Some(1..)) => findings.add(
            &rules::IO_ORDER,
            at,
            format!("its first output is {first:?}: engines that bind by position take it for the logits, without an error"),
            mend,
        ),
        (Some(_), Some(0)) => {}
    }
    let Some((name, ty)) = outputs(main).nth(place.unwrap_or(0)) else {
        return;
    };
    if !FLOATS.contains(&ty.dtype) {
        findings.add(
            &rules::IO_DTYPE,
            at,
            format!("output {name:?} is {ty}, no logits"),
            mend,
        );
    } else if ty.dtype != DType::F16 {
        findings.add(
            &rules::LOGITS_DTYPE,
            at,
            format!(
                "the logits are {}: Apple's sequential engine reads f16 only",
                ty.dtype
            ),
            "none is needed for russet; export logits as float16 for Apple's engines",
        );
    }
}

/// A prefill function takes what main takes, and gives nothing back (F 10, #204).
fn prefill_of(file: &str, main: &Graph, prefill: &Graph, findings: &mut Findings) {
    let at = At::field(file, PREFILL);
    let mend = "export the model again: prefill has main's inputs and states, and no outputs";
    let given = names(outputs(prefill));
    if !given.is_empty() {
        let what = format!("prefill returns {}; it only fills states", given.join(", "));
        findings.add(&rules::PREFILL_CONTRACT, at, what, mend);
    }
    let states = |g| {
        let mut names = names(ports(g, true));
        names.sort_unstable();
        names
    };
    if names(ports(main, false)) != names(ports(prefill, false)) || states(main) != states(prefill)
    {
        let what = "its inputs or states are not those of main";
        findings.add(&rules::PREFILL_CONTRACT, at, what, mend);
    }
}

/// What a function of a ladder takes, by parts of names (F 1.4).
fn ladder_inputs(file: &str, graph: &Graph, findings: &mut Findings) {
    let at = At::field(file, &graph.name);
    let all = names(ports(graph, false));
    let lacks = |part: &&&str| !all.iter().any(|n| n.contains(**part));
    let missing: Vec<&str> = LADDER_INPUTS.iter().filter(lacks).copied().collect();
    let positions = all.iter().any(|n| n.contains("pos") || n.contains("rope_"));
    if !missing.is_empty() || !positions {
        let mut missing = missing;
        missing.extend((!positions).then_some("position_ids"));
        findings.add(
            &rules::IO_INPUTS,
            at,
            format!(
                "it has no input for {} (it takes {})",
                missing.join(", "),
                all.join(", ")
            ),
            "export it with transformer_input, position_ids, in_step and causal_mask",
        );
    }
    if extends(graph).is_some() && !names(outputs(graph)).contains(&"out_logits") {
        findings.add(
            &rules::IO_OUTPUTS,
            at,
            "it has no output out_logits",
            "export it with an output out_logits",
        );
    }
}

/// The states of the function that runs, and what the metadata says of them.
pub(super) fn states(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let (language, asset, module) = subject.language_model()?;
    let mut held: Vec<&str> = match is_static(module) {
        true => module
            .functions()
            .flat_map(|g| ports(g, true))
            .map(|(n, _)| n)
            .collect(),
        false => names(ports(subject.main_function()?, true)),
    };
    held.dedup();
    for (name, kind) in &language.states {
        let field = format!("language.states.{name}");
        let at = At::metadata(&field);
        if StateKind::parse(kind).is_none() {
            let what = format!("{kind:?} is no kind of state");
            let kinds = StateKind::NAMES.map(|(_, name)| name);
            let mend = format!("make it one of {}", kinds.join(", "));
            findings.add(&rules::STATE_KIND, at, what, mend);
        }
        if !held.contains(&&**name) {
            let what = format!("there is no such state; there are {}", held.join(", "));
            findings.add(
                &rules::STATE_UNKNOWN,
                at,
                what,
                "spell it as the asset does",
            );
        }
    }
    if !is_static(module) && !(2..=4).contains(&held.len()) {
        let main = language.main_function();
        findings.add(
            &rules::STATES_COUNT,
            At::field(&asset.path, main),
            format!(
                "it has {} states; engines keep two to four (keys, values and what else there is)",
                held.len()
            ),
            "export the model with its caches as states",
        );
    }
    Some(())
}

/// Ladder and caches against `max_context_length`.
pub(super) fn context(subject: &Subject<'_>, findings: &mut Findings) -> Option<()> {
    let (language, asset, module) = subject.language_model()?;
    let declared = language.max_context_length;
    if is_static(module) {
        let rungs = module.functions().filter_map(extends);
        let contexts: Vec<usize> = rungs.map(|r| r.context).collect();
        let largest = contexts.iter().copied().max().unwrap_or(0);
        if !contexts.contains(&declared) {
            findings.add(
                &rules::CONTEXT_FUNCTIONS,
                At::metadata("language.max_context_length"),
                format!("{declared} tokens are declared, and no function is called extend_{declared}_<length>; the largest context is {largest}"),
                format!("make it {largest}, or export the functions for {declared}"),
            );
        }
    }
    let graphs: Vec<&Graph> = match is_static(module) {
        true => rungs(module).collect(),
        false => vec![subject.main_function()?],
    };
    for graph in graphs {
        // Beside caches that grow, those of fixed length are rings (F 10).
        let grows =
            ports(graph, true).any(|(_, ty)| ty.shape.iter().any(|d| d.as_const().is_none()));
        let sliding = |name: &str| {
            let said = language.states.iter().find(|(n, _)| n == name);
            let guessed = grows || name.to_ascii_lowercase().contains("sliding");
            said.map_or(guessed, |(_, kind)| kind != "kv_cache")
        };
        let wanted = Rung::parse(&graph.name).map_or(declared, |r| r.context);
        for (name, held) in caches(graph).filter(|(n, _)| !sliding(n)) {
            if held < wanted {
                findings.add(
                    &rules::CONTEXT_CACHE,
                    At::field(&asset.path, &graph.name),
                    format!("state {name:?} holds {held} tokens, and {wanted} are promised"),
                    format!("make language.max_context_length {held}, or export the model with longer caches"),
                );
            }
        }
    }
    Some(())
}

/// Caches of fixed length: the axis of positions is the third of five or, where the heads are folded (F 3.2), the last.
fn caches(graph: &Graph) -> impl Iterator<Item = (&str, usize)> {
    let is_cache = |name: &str| name.to_ascii_lowercase().contains("cache");
    let axis = 3 + usize::from(Rung::parse(&graph.name).is_some());
    let states = ports(graph, true).filter(move |(n, t)| is_cache(n) && t.rank() == 5);
    states.filter_map(move |(name, ty)| {
        let extent = ty.shape.get(axis)?.as_const()?;
        Some((name, usize::try_from(extent).ok()?))
    })
}
