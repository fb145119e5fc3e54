//! `russet check PACKAGE --hf CHECKPOINT`: how far a package is from the checkpoint it was made from.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use russet::bench::{BenchOptions, Spread, bench};
use russet::check::{Check, Layers, PROMPTS, check, layers};
use russet::{
    EvaluationError, Model, ModelSource, OpenOptions, PlanQuery, Planned, Token, planned,
};
use serde_json::{Value, json};

use super::eval::bar;
use super::inspect::plan::Shown;
use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::locate::locate;

/// Places and layers that are told.
const WORST: usize = 5;
/// Tokens after a prompt that layers are compared over.
const LAYER_TOKENS: usize = 32;
/// Calls that a plan is timed over.
const RUNS: usize = 8;

/// Judges a package; fails where it is outside the limits.
pub(crate) fn check_package(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let reference = open(&args.hf, &OpenOptions::default(), true)?;
    let package = open(&args.package, &args.engine.options()?, false)?;
    let texts = texts(args)?;
    let prompts = texts.iter().map(|text| reference.plain_prompt(text));
    let prompts: Vec<Vec<Token>> = prompts.collect::<Result<_, _>>()?;
    let bar = bar(prompts.len(), "prompts");
    let tokens = args.tokens as usize;
    let found = check(&reference, &package, &prompts, tokens, &mut |n| {
        bar.set_position(n as u64);
    })?;
    bar.finish_and_clear();
    let report = Report {
        args,
        reference: &reference,
        package: &package,
        other_words: other_words(&package, &texts, &prompts),
        layers: args
            .layers
            .then(|| compare_layers(&reference, &package, &found))
            .transpose()?,
        speed: args.bench.then(|| speed(&package)).transpose()?,
        plans: match args.plan {
            true => plans(&package, args)?,
            false => Vec::new(),
        },
        found,
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = match args.json {
        true => writeln!(out, "{}", report.json()),
        false => report.table(&mut out),
    };
    written.and_then(|()| out.flush()).map_err(Failure::write)?;
    Ok(match report.passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Opens a model; a checkpoint where that is what is asked for.
fn open(name: &str, options: &OpenOptions, checkpoint: bool) -> Result<Model, Failure> {
    let path = locate(name)?;
    if checkpoint && ModelSource::of(&path)? != ModelSource::Checkpoint {
        let why = "is no checkpoint: a folder with config.json and model.safetensors";
        return Err(Failure::Wrong(format!("{} {why}", path.display())));
    }
    Model::open(&path, options).map_err(|source| Failure::Open {
        path,
        source: Box::new(source),
    })
}

/// The prompts: those given, else the usual ones.
fn texts(args: &CheckArgs) -> Result<Vec<String>, Failure> {
    let mut texts = args.prompt.clone();
    if let Some(file) = &args.prompts {
        let all = Failure::reading(file, fs::read_to_string(file))?;
        let lines = all
            .lines()
            .enumerate()
            .filter(|(_, l)| !l.trim().is_empty());
        for (i, line) in lines {
            texts.push(line_text(file, i, line)?);
        }
    }
    Ok(match texts.is_empty() {
        true => PROMPTS.map(str::to_owned).to_vec(),
        false => texts,
    })
}

/// A line as it is, or what a JSON text in it says.
fn line_text(file: &Path, number: usize, line: &str) -> Result<String, Failure> {
    match line.trim_start().starts_with('"') {
        false => Ok(line.to_owned()),
        true => serde_json::from_str(line)
            .map_err(|e| Failure::Wrong(format!("{}, line {}: {e}", file.display(), number + 1))),
    }
}

/// Prompts that the package's own tokenizer cuts otherwise than the checkpoint's.
fn other_words(package: &Model, texts: &[String], prompts: &[Vec<Token>]) -> usize {
    if package.tokenizer().is_err() {
        return 0;
    }
    let same = |(text, tokens): &(&String, &Vec<Token>)| {
        package.plain_prompt(text).is_ok_and(|own| own == **tokens)
    };
    texts.iter().zip(prompts).filter(|pair| !same(pair)).count()
}

/// Compares layers over the start of the conversation with the worst token.
fn compare_layers(
    reference: &Model,
    package: &Model,
    found: &Check,
) -> Result<Layers, EvaluationError> {
    let at = found.worst(1).first().map_or(0, |(prompt, _)| *prompt);
    let (prompt, after) = match found.prompts.get(at) {
        Some(p) => (&p.prompt[..], &p.continuation[..]),
        None => (&[][..], &[][..]),
    };
    // The last token was not processed.
    let after = &after[..after.len().saturating_sub(1).min(LAYER_TOKENS)];
    layers(reference, package, prompt, after)
}

/// Tokens a second, of prompts and of generation.
struct Speed {
    prompt: Spread,
    generation: Spread,
}

fn speed(package: &Model) -> Result<Speed, Failure> {
    let mut options = BenchOptions::default();
    let room = package.engine()?.limit();
    options.prompt = options.prompt.min(room / 2);
    options.generate = options.generate.min(room / 4).max(1);
    options.trials = 3;
    let trials = bench(package, &options, &mut |_| {})?;
    Ok(Speed {
        prompt: Spread::of(trials.iter().map(|t| t.prompt_tps)),
        generation: Spread::of(trials.iter().map(|t| t.gen_tps)),
    })
}

/// The plans of the functions for single tokens, timed.
fn plans(package: &Model, args: &CheckArgs) -> Result<Vec<Planned>, Failure> {
    let mut query = PlanQuery::default();
    query.runs = RUNS;
    query.open = args.engine.options()?;
    query.depth = Some(0);
    let names = package.main_functions();
    let each = names
        .iter()
        .map(|name| planned(package.module(), name, &query));
    Ok(each.collect::<Result<_, _>>()?)
}

struct Report<'a> {
    args: &'a CheckArgs,
    reference: &'a Model,
    package: &'a Model,
    found: Check,
    other_words: usize,
    layers: Option<Layers>,
    speed: Option<Speed>,
    plans: Vec<Planned>,
}

impl Report<'_> {
    fn passed(&self) -> bool {
        self.args.limits().allow(&self.found.all)
    }

    fn json(&self) -> String {
        let text = |token: Token| self.text(token);
        let worst = self.found.worst(WORST).into_iter().map(|(prompt, place)| {
            let mut value = serde_json::to_value(place).unwrap_or_default();
            value["prompt"] = json!(prompt);
            value["text"] = json!(text(place.token));
            value
        });
        let plans = self.plans.iter().map(|plan| self.shown(plan).value());
        let all = json!({
            "package": self.args.package,
            "checkpoint": self.args.hf,
            "passed": self.passed(),
            "limits": self.args.limits(),
            "all": self.found.all,
            "prompts": self.found.prompts,
            "worst_places": worst.collect::<Vec<Value>>(),
            "prompts_cut_otherwise": self.other_words,
            "layers": self.layers,
            "prompt_tps": self.speed.as_ref().map(|s| s.prompt),
            "gen_tps": self.speed.as_ref().map(|s| s.generation),
            "plans": plans.collect::<Vec<Value>>(),
        });
        serde_json::to_string_pretty(&all).unwrap_or_default()
    }

    fn shown<'a>(&'a self, plan: &'a Planned) -> Shown<'a> {
        Shown::new(&self.args.package, self.args.engine.precision, plan)
    }

    /// A token as it is written.
    fn text(&self, token: Token) -> String {
        let tokenizer = self.reference.tokenizer();
        let text = tokenizer.map(|t| t.decode(&[token], false).unwrap_or_default());
        text.unwrap_or_default()
    }

    fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let (all, limits) = (&self.found.all, self.args.limits());
        let [of_checkpoint, of_package] = all.perplexity;
        writeln!(
            out,
            "{} ({} precision) beside {} (float32): {} tokens after {} prompts",
            self.package.name(),
            self.args.engine.precision.name(),
            self.reference.name(),
            all.places,
            self.found.prompts.len()
        )?;
        writeln!(
            out,
            "\n  cosine      {:>10.6}   at least {}\n  KL          {:>10.2e}   at most {}\n  \
             top-1       {:>8.2} %   at least {} %\n  perplexity  {of_checkpoint:>10.4}   \
             by the package {of_package:.4} ({:+.2} %)",
            all.mean_cosine,
            limits.min_cosine,
            all.mean_divergence,
            limits.max_kl,
            100.0 * all.same_top,
            100.0 * limits.min_top1,
            100.0 * (of_package / of_checkpoint - 1.0),
        )?;
        self.worst_places(out)?;
        self.worst_layers(out)?;
        if let Some(speed) = &self.speed {
            let (prompt, generation) = (speed.prompt.median, speed.generation.median);
            writeln!(
                out,
                "\n  prompt {prompt:.1} tokens/s, generation {generation:.1} tokens/s"
            )?;
        }
        if self.other_words > 0 {
            let n = self.other_words;
            writeln!(
                out,
                "\n  note: the package's own tokenizer cuts {n} of the prompts otherwise"
            )?;
        }
        for plan in &self.plans {
            writeln!(out)?;
            self.shown(plan).table(out)?;
        }
        let verdict = if self.passed() { "passed" } else { "FAILED" };
        writeln!(out, "\n  {verdict}")
    }

    fn worst_places(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "\n  worst tokens  prompt  place        KL     cosine  expected, got"
        )?;
        for (prompt, place) in self.found.worst(WORST) {
            let [expected, got] = place.top.map(|token| self.text(token));
            writeln!(
                out,
                "  {:>20}  {:>5}  {:>8.1e}  {:>9.6}  {expected:?}{}",
                prompt + 1,
                place.place,
                place.divergence,
                place.cosine,
                match place.same_top() {
                    true => String::new(),
                    false => format!(", {got:?}"),
                }
            )?;
        }
        Ok(())
    }

    fn worst_layers(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(layers) = &self.layers else {
            return Ok(());
        };
        if let Some(reason) = &layers.reason {
            return writeln!(out, "\n  layers cannot be compared: {reason}");
        }
        let count = layers.compared.len();
        writeln!(
            out,
            "\n  worst layers of {count}   mean cosine   worst (token)"
        )?;
        for layer in layers.worst(WORST) {
            writeln!(
                out,
                "  {:>14}   {:>14.6}   {:.6} ({})",
                layer.layer, layer.mean_cosine, layer.worst_cosine, layer.worst_place
            )?;
        }
        match layers.steepest() {
            Some(layer) => writeln!(out, "  most is lost in layer {}", layer.layer),
            None => Ok(()),
        }
    }
}
