//! `russet bench MODEL`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use russet::bench::{Bench, BenchOptions, Percentiles, Spread, Trial, bench as measure};
use russet::{Model, OpenOptions};
use serde::Serialize;

use crate::args::{BenchArgs, cache_note};
use crate::failure::Failure;
use crate::locate::locate;

/// What is printed as JSON: the keys of `llm-benchmark`, and some more.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    prompt_tokens: usize,
    generation_tokens: usize,
    num_trials: usize,
    depth: usize,
    threads: usize,
    precision: &'a str,
    #[serde(flatten)]
    cold: Opening,
    warm_opening: Opening,
    trials: &'a [Trial],
    average_prompt_tps: f64,
    average_gen_tps: f64,
    median_prompt_tps: f64,
    median_gen_tps: f64,
    prompt_tps: Spread,
    gen_tps: Spread,
    token_seconds: Percentiles,
    /// Whether a compiled model was found; there is no such cache here.
    cache_hit: bool,
    /// The most memory the process has held, in bytes, where the system tells.
    peak_rss: Option<u64>,
    /// What it holds after the trials, in bytes, without pages of files, which the system can take back.
    footprint: Option<u64>,
}

/// How long a model takes to be ready: at first in a process that has not opened it before, then again. What the system holds of
/// the file it holds both times.
#[derive(Clone, Copy, Serialize)]
struct Opening {
    /// From the path to a model.
    prepare_seconds: f64,
    /// From there to the logits of a first token.
    warmup_seconds: f64,
    /// Both.
    first_token_seconds: f64,
}

/// Measures how fast a model reads and writes.
pub(crate) fn bench(args: &BenchArgs) -> Result<(), Failure> {
    cache_note(args.clear_coreai_cache)
        .iter()
        .for_each(|note| eprintln!("note: {note}"));
    match args.models()[..] {
        [first, second] => compare(first, second, args),
        [name, ..] => alone(name, args),
        [] => Ok(()),
    }
}

fn alone(name: &str, args: &BenchArgs) -> Result<(), Failure> {
    let path = locate(name)?;
    let open = args.engine.options()?;
    let (model, cold) = opened(&path, &open)?;
    let trials = trials(&model, args)?;
    let (peak_rss, footprint) = (memory("VmHWM:"), memory("RssAnon:"));
    let threads = model.threads();
    drop(model);
    let (_, warm_opening) = opened(&path, &open)?;
    let prompt = || trials.iter().map(|t| t.prompt_tps);
    let generation = || trials.iter().map(|t| t.gen_tps);
    let mean = |sum: f64| sum / (trials.len().max(1)) as f64;
    let (prompt_tps, gen_tps) = (Spread::of(prompt()), Spread::of(generation()));
    let report = Report {
        model: name,
        prompt_tokens: args.prompt_tokens,
        generation_tokens: args.generation_tokens,
        num_trials: args.num_trials as usize,
        depth: args.depth,
        threads,
        precision: args.engine.precision.name(),
        cold,
        warm_opening,
        trials: &trials,
        average_prompt_tps: mean(prompt().sum()),
        average_gen_tps: mean(generation().sum()),
        median_prompt_tps: prompt_tps.median,
        median_gen_tps: gen_tps.median,
        prompt_tps,
        gen_tps,
        token_seconds: Percentiles::of(trials.iter().flat_map(|t| t.token_seconds.iter().copied())),
        cache_hit: false,
        peak_rss,
        footprint,
    };
    write(&report, table(&report), args)
}

/// Opens a model and has it process one token.
fn opened(path: &Path, options: &OpenOptions) -> Result<(Model, Opening), Failure> {
    let start = Instant::now();
    let model = Model::open(path, options).map_err(|source| Failure::Open {
        path: path.into(),
        source: Box::new(source),
    })?;
    let prepare = start.elapsed();
    let fed = model.engine()?.feed(&[0], &|| false);
    fed.map_err(russet::Error::from)?;
    let whole = start.elapsed();
    let opening = Opening {
        prepare_seconds: prepare.as_secs_f64(),
        warmup_seconds: (whole - prepare).as_secs_f64(),
        first_token_seconds: whole.as_secs_f64(),
    };
    Ok((model, opening))
}

fn options(args: &BenchArgs) -> BenchOptions {
    let mut options = BenchOptions::default();
    options.prompt = args.prompt_tokens;
    options.generate = args.generation_tokens;
    options.trials = args.num_trials as usize;
    options.depth = args.depth;
    options.seed = args.seed;
    options
}

/// The trials that count, each told of on standard error as it ends.
fn trials(model: &Model, args: &BenchArgs) -> Result<Vec<Trial>, Failure> {
    let options = options(args);
    let mut count = 0;
    let trials = measure(model, &options, &mut |trial| {
        count += 1;
        eprintln!(
            "trial {count} of {}: prompt {:.1}, generation {:.1} tokens/s",
            options.trials, trial.prompt_tps, trial.gen_tps
        );
    })?;
    Ok(trials)
}

fn write(report: &impl Serialize, table: String, args: &BenchArgs) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(report).unwrap_or_default();
    if let Some(file) = &args.output_json {
        fs::write(file, &json).map_err(|source| Failure::Stream {
            action: "write the figures",
            source,
        })?;
    }
    let text = if args.json { json } else { table };
    writeln!(io::stdout(), "{text}").map_err(Failure::write)
}

fn table(r: &Report<'_>) -> String {
    let mib = |bytes: Option<u64>| bytes.map_or_else(|| "?".into(), |b| format!("{} MiB", b >> 20));
    let speed = |s: Spread| {
        let Spread { median, min, max } = s;
        format!("{median:>9.1} tokens/s  ({min:.1} to {max:.1}; ")
    };
    format!(
        "prompt      {}median of {}; {} tokens behind {})\n\
         generation  {}{} tokens)\n\
         a token     {:>9.2} ms        (half of them; nine in ten {:.2}, all but one in a hundred {:.2} ms)\n\
         opening     {:>9.3} s         (to the first token; {:.3} s again)\n\
         memory      {:>9}           (peak; {} held after the trials; {} threads, {} precision)",
        speed(r.prompt_tps),
        r.num_trials,
        r.prompt_tokens,
        r.depth,
        speed(r.gen_tps),
        r.generation_tokens,
        r.token_seconds.p50 * 1e3,
        r.token_seconds.p90 * 1e3,
        r.token_seconds.p99 * 1e3,
        r.cold.first_token_seconds,
        r.warm_opening.first_token_seconds,
        mib(r.peak_rss),
        mib(r.footprint),
        r.threads,
        r.precision,
    )
}

/// Two models, trial by trial in turn, so that what else the machine does meets both.
#[derive(Serialize)]
struct Pair<'a> {
    models: [&'a str; 2],
    prompt_tokens: usize,
    generation_tokens: usize,
    depth: usize,
    num_trials: usize,
    prompt_tps: [Spread; 2],
    gen_tps: [Spread; 2],
    /// How many times as fast the second is, trial by trial.
    prompt_ratio: Spread,
    gen_ratio: Spread,
}

fn compare(first: &str, second: &str, args: &BenchArgs) -> Result<(), Failure> {
    let open = args.engine.options()?;
    let models = [
        opened(&locate(first)?, &open)?.0,
        opened(&locate(second)?, &open)?.0,
    ];
    let options = options(args);
    let mut benches = [
        Bench::new(&models[0], &options)?,
        Bench::new(&models[1], &options)?,
    ];
    let mut trials: [Vec<Trial>; 2] = Default::default();
    for round in 0..=options.trials {
        for (bench, trials) in benches.iter_mut().zip(&mut trials) {
            let trial = bench.trial()?;
            if round > 0 {
                trials.push(trial);
            }
        }
        eprintln!("trial {round} of {}", options.trials);
    }
    let of = |speed: fn(&Trial) -> f64| {
        let ratios = trials[1].iter().zip(&trials[0]);
        let ratios = Spread::of(ratios.map(|(b, a)| speed(b) / speed(a).max(f64::MIN_POSITIVE)));
        (
            [0, 1].map(|i| Spread::of(trials[i].iter().map(speed))),
            ratios,
        )
    };
    let ((prompt_tps, prompt_ratio), (gen_tps, gen_ratio)) =
        (of(|t| t.prompt_tps), of(|t| t.gen_tps));
    let pair = Pair {
        models: [first, second],
        prompt_tokens: options.prompt,
        generation_tokens: options.generate,
        depth: options.depth,
        num_trials: options.trials,
        prompt_tps,
        gen_tps,
        prompt_ratio,
        gen_ratio,
    };
    let line = |what: &str, tps: [Spread; 2], ratio: Spread| {
        format!(
            "{what:<11} {:>9.1} and {:>9.1} tokens/s, the second {:.3} times as fast ({:.3} to {:.3})",
            tps[0].median, tps[1].median, ratio.median, ratio.min, ratio.max
        )
    };
    let table =
        line("prompt", prompt_tps, prompt_ratio) + "\n" + &line("generation", gen_tps, gen_ratio);
    write(&pair, table, args)
}

/// A size of this process from `/proc`, in bytes; `None` on systems without it.
fn memory(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
