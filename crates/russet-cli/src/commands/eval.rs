//! `russet eval`: perplexity, continuations, multiple choice, comparison.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use russet::evaluate::{
    Continuation, Scorer, choices, compare, continuation, continuation_file, perplexity,
    read_questions,
};
use russet::{Model, Token, Tokenizer};
use serde_json::{Value, json};

use super::schemas::schemas;
use crate::args::{
    ChoicesArgs, CompareArgs, ContinuationArgs, EngineArgs, EvalCommand, PerplexityArgs,
    PrecisionArg, TextArgs,
};
use crate::failure::Failure;
use crate::locate::locate;

/// Judges a model.
pub(crate) fn eval(command: &EvalCommand) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        EvalCommand::Perplexity(args) => of_text(args).map(done),
        EvalCommand::Continuation(args) => of_continuation(args).map(done),
        EvalCommand::Choices(args) => of_questions(args).map(done),
        EvalCommand::Compare(args) => of_two(args),
        EvalCommand::Schemas(args) => schemas(args),
    }
}

/// Opens a model that gives the logits of every token.
fn open(
    name: &str,
    engine: &EngineArgs,
    precision: Option<PrecisionArg>,
) -> Result<Model, Failure> {
    let mut options = engine.options()?;
    options.all_logits = true;
    if let Some(precision) = precision {
        options.precision = precision.into();
    }
    let path = locate(name)?;
    Model::open(&path, &options).map_err(|source| Failure::Open {
        path,
        source: Box::new(source),
    })
}

/// The tokens of a text, and the bytes that they are of.
fn read(model: &Model, args: &TextArgs) -> Result<(Vec<Token>, usize), Failure> {
    let text = Failure::reading(&args.file, fs::read_to_string(&args.file))?;
    let mut tokens = model.plain_prompt(&text)?;
    let most = args.tokens.map_or(usize::MAX, |n| n as usize);
    if tokens.len() <= most {
        return Ok((tokens, text.len()));
    }
    tokens.truncate(most);
    let text = model.tokenizer()?.decode(&tokens, true);
    Ok((tokens, text.map_err(russet::Error::from)?.len()))
}

/// Progress on standard error, where somebody sees it.
pub(super) fn bar(length: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(what.to_owned())
}

pub(super) fn print(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(Failure::write)
}

pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn of_text(args: &PerplexityArgs) -> Result<(), Failure> {
    let model = open(&args.model, &args.engine, None)?;
    let (tokens, bytes) = read(&model, &args.text)?;
    let window = args.text.window as usize;
    let stride = args.stride.map_or(window, |n| n as usize);
    let bar = bar(tokens.len(), "tokens");
    let mut scorer = Scorer::new(&model)?;
    let judged = perplexity(&mut scorer, &tokens, bytes, (window, stride), &mut |n| {
        bar.set_position(n as u64);
    })?;
    bar.finish_and_clear();
    if args.json {
        let mut json = serde_json::to_value(judged).unwrap_or_default();
        json["perplexity"] = json!(judged.perplexity());
        json["bits_per_byte"] = json!(judged.bits_per_byte());
        json["window"] = json!(window);
        json["stride"] = json!(stride);
        return print(&pretty(&json));
    }
    let impossible = match judged.impossible {
        0 => String::new(),
        n => format!("\n{n} tokens had no probability at all and are left out"),
    };
    print(&format!(
        "perplexity     {:.4}\nbits per byte  {:.4}\ntokens         {}{impossible}",
        judged.perplexity(),
        judged.bits_per_byte(),
        judged.tokens
    ))
}

fn of_continuation(args: &ContinuationArgs) -> Result<(), Failure> {
    let model = open(&args.model, &args.engine, None)?;
    let mut scorer = Scorer::new(&model)?;
    let texts = (&*args.context, &*args.continuation);
    let judged = continuation(&model, &mut scorer, texts.0, texts.1, args.top_k.into())?;
    let tokenizer = model.tokenizer()?;
    if args.json {
        let json = continuation_file(tokenizer, texts, &judged).map_err(russet::Error::from)?;
        return print(&pretty(&json));
    }
    print_continuation(tokenizer, &judged)
}

/// A line for every token, and what they come to.
pub(super) fn print_continuation(
    tokenizer: &Tokenizer,
    judged: &Continuation,
) -> Result<(), Failure> {
    let scores = &judged.log_probabilities;
    let text = |token: Token| tokenizer.decode(&[token], false).unwrap_or_default();
    for (at, (token, score)) in judged.tokens.iter().zip(&scores.values).enumerate() {
        let top = scores.top.get(at).into_iter().flatten();
        let top: Vec<String> = top
            .map(|(t, p)| format!("{:?} {:.4}", text(*t), p.exp()))
            .collect();
        let shown = format!("{:?}", text(*token));
        print(&format!(
            "{shown:<16} {score:>9.4}  {:.4}   {}",
            score.exp(),
            top.join("  ")
        ))?;
    }
    print(&format!(
        "log-probability {:.4} in all, {:.4} a token; perplexity {:.4}; {}",
        scores.sum(),
        scores.mean(),
        scores.perplexity(),
        if judged.greedy {
            "the likeliest continuation"
        } else {
            "not the likeliest continuation"
        }
    ))
}

fn of_questions(args: &ChoicesArgs) -> Result<(), Failure> {
    let text = Failure::reading(&args.questions, fs::read_to_string(&args.questions))?;
    let questions = read_questions(&text, &args.questions.display().to_string())?;
    let model = open(&args.model, &args.engine, None)?;
    let bar = bar(questions.len(), "questions");
    let mut scorer = Scorer::new(&model)?;
    let report = choices(&model, &mut scorer, &questions, &mut |n| {
        bar.set_position(n as u64);
    })?;
    bar.finish_and_clear();
    if args.json {
        return print(&pretty(&serde_json::to_value(report).unwrap_or_default()));
    }
    print(&format!(
        "questions              {}\nright                  {:.2} %\nright by byte of text  {:.2} %",
        report.questions,
        100.0 * report.accuracy,
        100.0 * report.accuracy_by_length
    ))
}

fn of_two(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let first = open(&args.first, &args.engine, None)?;
    let second = open(&args.second, &args.engine, args.second_precision)?;
    let (tokens, _) = read(&first, &args.text)?;
    let bar = bar(tokens.len(), "tokens");
    let (mut a, mut b) = (Scorer::new(&first)?, Scorer::new(&second)?);
    let window = args.text.window as usize;
    let apart = compare(&mut a, &mut b, &tokens, window, &mut |n| {
        bar.set_position(n as u64);
    })?;
    bar.finish_and_clear();
    let too_far = args
        .max_divergence
        .is_some_and(|most| apart.mean_divergence.is_nan() || apart.mean_divergence > most);
    let too_few = args
        .min_same_top
        .is_some_and(|least| apart.same_top < least);
    let passed = !(too_far || too_few);
    if args.json {
        let mut json = serde_json::to_value(&apart).unwrap_or_default();
        json["passed"] = json!(passed);
        print(&pretty(&json))?;
    } else {
        let [p, q] = apart.perplexity;
        print(&format!(
            "places               {}\ndivergence           {:.6} nats in the mean, {:.4} at worst (token {})\n\
             same likeliest token {:.2} %\ncosine               {:.6}\n\
             perplexity           {p:.4} and {q:.4} ({:+.2} %)",
            apart.places,
            apart.mean_divergence,
            apart.worst_divergence,
            apart.worst_place,
            100.0 * apart.same_top,
            apart.mean_cosine,
            100.0 * (q / p - 1.0)
        ))?;
    }
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
