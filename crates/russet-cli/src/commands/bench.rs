//! `russet bench MODEL`.

use std::fs;
use std::io::{self, Write};
use std::time::Instant;

use russet::bench::{BenchOptions, Trial, bench as measure, median};
use russet::{Model, OpenOptions};
use serde::Serialize;

use crate::args::BenchArgs;
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
    /// From the path to a model that is ready, in a process that has not opened it before.
    prepare_seconds: f64,
    /// The same again.
    prepare_seconds_warm: f64,
    /// From a ready model to the logits of a first token.
    warmup_seconds: f64,
    trials: &'a [Trial],
    average_prompt_tps: f64,
    average_gen_tps: f64,
    median_prompt_tps: f64,
    median_gen_tps: f64,
    /// The most memory the process has held, in bytes, where the system tells.
    peak_rss: Option<u64>,
}

/// Measures how fast a model reads and writes.
pub(crate) fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let path = locate(&args.model)?;
    let mut open = OpenOptions::default();
    open.threads = args.threads.map_or(0, usize::from);
    open.precision = args.precision.into();
    let opened = || {
        let start = Instant::now();
        let model = Model::open(&path, &open).map_err(|source| Failure::Open {
            path: path.clone(),
            source: Box::new(source),
        })?;
        Ok::<_, Failure>((model, start.elapsed().as_secs_f64()))
    };
    let (model, prepare_seconds) = opened()?;
    let start = Instant::now();
    russet::Engine::feed(&mut model.engine()?, &[0], &|| false).map_err(russet::Error::from)?;
    let warmup_seconds = start.elapsed().as_secs_f64();
    let mut options = BenchOptions::default();
    options.prompt = args.prompt_tokens;
    options.generate = args.generation_tokens;
    options.trials = args.num_trials;
    options.depth = args.depth;
    options.seed = args.seed;
    let mut count = 0;
    let trials = measure(&model, &options, &mut |trial| {
        count += 1;
        eprintln!(
            "trial {count} of {}: prompt {:.1}, generation {:.1} tokens/s",
            options.trials, trial.prompt_tps, trial.gen_tps
        );
    })?;
    let peak_rss = peak_memory();
    let threads = model.threads();
    drop(model);
    let (_, prepare_seconds_warm) = opened()?;
    let prompt = || trials.iter().map(|t| t.prompt_tps);
    let generation = || trials.iter().map(|t| t.gen_tps);
    let mean = |sum: f64| sum / (trials.len().max(1)) as f64;
    let report = Report {
        model: &args.model,
        prompt_tokens: options.prompt,
        generation_tokens: options.generate,
        num_trials: options.trials,
        depth: options.depth,
        threads,
        precision: args.precision.name(),
        prepare_seconds,
        prepare_seconds_warm,
        warmup_seconds,
        trials: &trials,
        average_prompt_tps: mean(prompt().sum()),
        average_gen_tps: mean(generation().sum()),
        median_prompt_tps: median(prompt()),
        median_gen_tps: median(generation()),
        peak_rss,
    };
    write(&report, args)
}

fn write(report: &Report<'_>, args: &BenchArgs) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(report).unwrap_or_default();
    if let Some(file) = &args.output_json {
        fs::write(file, &json).map_err(|source| Failure::Stream {
            action: "write the figures",
            source,
        })?;
    }
    let text = if args.json { json } else { table(report) };
    writeln!(io::stdout(), "{text}").map_err(Failure::write)
}

fn table(r: &Report<'_>) -> String {
    let memory = r
        .peak_rss
        .map_or_else(|| "unknown".into(), |b| format!("{} MiB", b >> 20));
    format!(
        "prompt      {:>9.1} tokens/s  (median of {}; {} tokens behind {})\n\
         generation  {:>9.1} tokens/s  ({} tokens)\n\
         opening     {:>9.3} s         ({:.3} s again), first token {:.3} s after\n\
         memory      {memory:>9}           (peak; {} threads, {} precision)",
        r.median_prompt_tps,
        r.num_trials,
        r.prompt_tokens,
        r.depth,
        r.median_gen_tps,
        r.generation_tokens,
        r.prepare_seconds,
        r.prepare_seconds_warm,
        r.warmup_seconds,
        r.threads,
        r.precision,
    )
}

/// The peak resident set, from `/proc`; `None` on systems without it.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
