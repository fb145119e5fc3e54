//! `russet run MODEL PROMPT`.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use russet::evaluate::{Scorer, continuation, continuation_file, tokens_file};
use russet::{
    Event, GenerateOptions, Model, OpenOptions, Record, Reply, Session, StopReason, Token,
};
use serde::Serialize;

use super::talk::{self, Named};
use crate::args::RunArgs;
use crate::failure::Failure;
use crate::interrupt;

/// What is said to the model.
enum Prompt {
    Text(String),
    Tokens(Vec<Token>),
}

/// Answers one prompt, or judges a continuation of it.
pub(crate) fn run(args: &RunArgs, strategies: &Named) -> Result<ExitCode, Failure> {
    args.other
        .without_effect()
        .iter()
        .for_each(|note| eprintln!("note: {note}"));
    let prompt = prompt(args)?;
    check_continuation(args)?;
    let model = talk::open(args.model(), &args.talk, &open_options(args)?)?;
    if let Some(flag) = sight(args) {
        return Err(Failure::Wrong(format!(
            "{flag}: {} has no vision part",
            model.name()
        )));
    }
    if let Some(text) = &args.continuation {
        return judge(args, &model, &prompt, text);
    }
    let mut options = talk::options(&args.talk, &model, strategies)?;
    options.record = record(args);
    options.in_turns = args.other.synchronous_sampling;
    if let Some(tokens) = args
        .other
        .warmup_length
        .filter(|_| args.other.warmup == "exact")
    {
        warm_up(&model, tokens as usize)?;
    }
    let mut session = talk::begin(&model, &args.talk)?;
    interrupt::listen(session.cancel_flag());
    let reply = answer(args, &mut session, &prompt, &options)?;
    if args.talk.is_verbose() {
        talk::figures(&reply);
    }
    show(args, &model, &reply)?;
    talk::keep(&session, args.talk.session.as_deref())?;
    Ok(if reply.reason == StopReason::Cancelled {
        interrupt::EXIT_CODE.into()
    } else {
        ExitCode::SUCCESS
    })
}

/// The flag that asks the model to look at something.
fn sight(args: &RunArgs) -> Option<&'static str> {
    let image = args.other.image.as_ref().map(|_| "--image");
    image.or(args.other.video.as_ref().map(|_| "--video"))
}

fn open_options(args: &RunArgs) -> Result<OpenOptions, Failure> {
    let mut options = args.talk.engine.options()?;
    options.all_logits = args.continuation.is_some();
    Ok(options)
}

/// What a continuation needs besides (contract F 1.5).
fn check_continuation(args: &RunArgs) -> Result<(), Failure> {
    let Some(text) = &args.continuation else {
        return Ok(());
    };
    let wrong = |what: &str| Err(Failure::Wrong(format!("--continuation: {what}")));
    if !args.is_plain() {
        return wrong(
            "the prompt must be given as it is; add --no-template or --apply-chat-template false",
        );
    }
    if args.save_logits.is_none() && !args.print_logits {
        return wrong("say where the probabilities go; add --print-logits or --save-logits FILE");
    }
    if text.is_empty() {
        return wrong("the text is empty");
    }
    Ok(())
}

/// The prompt: an argument, standard input for "-", or a file.
fn prompt(args: &RunArgs) -> Result<Prompt, Failure> {
    let given = args.prompt().map_err(|e| Failure::Wrong(e.into()))?;
    if let Some(file) = &args.raw_tokens {
        return tokens(file).map(Prompt::Tokens);
    }
    let text = match (given, &args.prompt_file) {
        (Some("-"), _) => {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|source| Failure::Stream {
                action: "read the prompt from standard input",
                source,
            })?;
            text.trim_end_matches(['\r', '\n']).into()
        }
        (Some(text), _) => text.into(),
        (None, Some(file)) => Failure::reading(file, fs::read_to_string(file))?,
        (None, None) => String::new(),
    };
    Ok(Prompt::Text(text))
}

/// Tokens of a file `{"tokens": [...]}`.
fn tokens(file: &Path) -> Result<Vec<Token>, Failure> {
    #[derive(serde::Deserialize)]
    struct Tokens {
        tokens: Vec<Token>,
    }
    let text = Failure::reading(file, fs::read_to_string(file))?;
    let tokens: Tokens = serde_json::from_str(&text).map_err(|e| {
        Failure::Wrong(format!(
            "{} is not {{\"tokens\": [1, 2, 3]}}: {e}",
            file.display()
        ))
    })?;
    Ok(tokens.tokens)
}

fn record(args: &RunArgs) -> Record {
    match (&args.save_logits, args.print_logits) {
        (None, false) => Record::None,
        (None, true) => Record::Top(SHOWN),
        // What is printed is taken from what is kept.
        (Some(_), shown) => match args.save_logits_length {
            Record::Top(n) if shown => Record::Top(n.max(SHOWN)),
            other => other,
        },
    }
}

/// Tokens that `--print-logits` prints of every step.
const SHOWN: usize = 5;

fn answer(
    args: &RunArgs,
    session: &mut Session,
    prompt: &Prompt,
    options: &GenerateOptions,
) -> Result<Reply, Failure> {
    let tokens = match prompt {
        Prompt::Tokens(tokens) => {
            check_tokens(session.model(), tokens)?;
            tokens.clone()
        }
        Prompt::Text(text) if args.is_plain() => session.model().plain_prompt(text)?,
        Prompt::Text(text) => {
            talk::introduce(session, args.talk.system.as_deref());
            return talk::stream(session, |session, on_event| {
                session.respond(text, options, on_event)
            });
        }
    };
    talk::stream(session, |session, on_event| {
        session.answer(&tokens, options, &mut |text| on_event(Event::Text(text)))
    })
}

fn check_tokens(model: &Model, tokens: &[Token]) -> Result<(), Failure> {
    let limit = model.vocabulary();
    match tokens.iter().find(|t| **t as usize >= limit) {
        Some(token) => Err(Failure::Wrong(format!(
            "token {token} is beyond the vocabulary of {limit}"
        ))),
        None => Ok(()),
    }
}

/// Processes some tokens, so that memory is there and caches are warm.
fn warm_up(model: &Model, tokens: usize) -> Result<(), Failure> {
    let fed = model.engine()?.feed(&vec![0; tokens], &|| false);
    Ok(fed.map(drop)?)
}

/// Prints and writes what was kept of the logits.
fn show(args: &RunArgs, model: &Model, reply: &Reply) -> Result<(), Failure> {
    let tokenizer = model.tokenizer()?;
    if args.print_logits {
        for kept in &reply.logits {
            let top = kept.top.iter().take(SHOWN);
            let shown = top.map(|(token, logit)| {
                let text = tokenizer.decode(&[*token], false).unwrap_or_default();
                format!("{text:?} {:.4}", (f64::from(*logit) - kept.log_sum).exp())
            });
            let shown: Vec<String> = shown.collect();
            eprintln!("{:>7}  {}", kept.token, shown.join("  "));
        }
    }
    match &args.save_logits {
        Some(file) => {
            let kept = tokens_file(tokenizer, &reply.logits).map_err(russet::Error::from)?;
            write(file, &kept)
        }
        None => Ok(()),
    }
}

fn write(file: &Path, content: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(content).unwrap_or_default();
    fs::write(file, json + "\n").map_err(|source| Failure::Stream {
        action: "write the logits",
        source,
    })
}

/// Says how likely a text is after the prompt.
fn judge(args: &RunArgs, model: &Model, prompt: &Prompt, text: &str) -> Result<ExitCode, Failure> {
    let Prompt::Text(context) = prompt else {
        return Err(Failure::Wrong(
            "--continuation goes with a text, not with --raw-tokens".into(),
        ));
    };
    let top_k = match args.save_logits_length {
        Record::Top(n) => n,
        _ => SHOWN,
    };
    let judged = continuation(model, &mut Scorer::new(model)?, context, text, top_k)?;
    let tokenizer = model.tokenizer()?;
    if args.print_logits {
        super::eval::print_continuation(tokenizer, &judged)?;
    }
    if let Some(file) = &args.save_logits {
        let kept = continuation_file(tokenizer, (context, text), &judged);
        write(file, &kept.map_err(russet::Error::from)?)?;
    }
    Ok(ExitCode::SUCCESS)
}
