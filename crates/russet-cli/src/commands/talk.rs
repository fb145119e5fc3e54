//! What `run` and `chat` share: opening a model, options, streaming an answer, figures.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use russet::{
    Error, Event, FilterOrder, GenerateOptions, Model, OpenOptions, Overflow, Reply, Sampling,
    Session, StopReason, Strategies, Token,
};

use super::constraint::constraint;
use crate::args::{OrderArg, OverflowArg, SamplingArgs, TalkArgs};
use crate::failure::Failure;
use crate::locate::locate;

/// Ways of sampling by name.
#[derive(Debug, Default)]
pub(crate) struct Named(Vec<(String, Strategies)>);

impl Named {
    pub(crate) fn add(&mut self, name: String, strategy: Strategies) {
        self.0.retain(|(n, _)| *n != name);
        self.0.push((name, strategy));
    }
}

/// The sampling that always takes the likeliest token, and the one that goes by its numbers.
const GREEDY: &str = "greedy";
const BY_NUMBERS: &str = "temperature";

/// Finds and opens a model; says what it is where that is wanted. Options that make no sense fail before anything is opened.
pub(super) fn open(name: &str, args: &TalkArgs, options: &OpenOptions) -> Result<Model, Failure> {
    let sampling = sampling(&args.sampling);
    sampling.check()?;
    if args.is_verbose() {
        sampling
            .warnings()
            .iter()
            .for_each(|w| eprintln!("note: {w}"));
    }
    if let Some(file) = &args.session {
        russet::check_session(file)?;
    }
    let path = locate(name)?;
    let start = Instant::now();
    let model = Model::open(&path, options).map_err(|source| Failure::Open {
        path: path.clone(),
        source: Box::new(source),
    })?;
    if args.is_verbose() {
        let took = start.elapsed().as_secs_f64() * 1e3;
        eprintln!(
            "opened {} in {took:.0} ms, engine {}, context {} tokens",
            path.display(),
            model.variant(),
            model.max_context()
        );
    }
    Ok(model)
}

/// How to generate with a model.
pub(super) fn options(
    args: &TalkArgs,
    model: &Model,
    strategies: &Named,
) -> Result<GenerateOptions, Failure> {
    let mut options = GenerateOptions::default();
    options.max_tokens = args.max_tokens;
    options.sampling = sampling(&args.sampling);
    for (token, bias) in &args.sampling.logit_bias {
        options
            .sampling
            .logit_bias
            .push((token_of(model, token)?, *bias));
    }
    options.sampling.check()?;
    for text in &args.stop_tokens {
        // Special tokens have no text that could be found; any other text may be written in many tokens.
        let tokenizer = model.tokenizer()?;
        match tokenizer.id(text).filter(|t| tokenizer.is_special(*t)) {
            Some(token) => options.stop_tokens.push(token),
            None => options.stop_sequences.push(text.clone()),
        }
    }
    options.strategy = match &*args.sampling.sampling_strategy {
        GREEDY | BY_NUMBERS => None,
        name => Some(named(strategies, name)?),
    };
    let constraint = constraint(&args.constraint)?;
    options.constraint = constraint.map(|c| model.grammar(&c)).transpose()?;
    Ok(options)
}

fn named(strategies: &Named, name: &str) -> Result<Strategies, Failure> {
    let found = strategies.0.iter().find(|(n, _)| n == name);
    found.map(|(_, s)| s.clone()).ok_or_else(|| {
        let known = strategies.0.iter().map(|(n, _)| &**n);
        let known: Vec<&str> = [BY_NUMBERS, GREEDY].into_iter().chain(known).collect();
        let known = known.join(", ");
        Failure::Wrong(format!(
            "there is no sampling strategy {name:?}; there are {known}"
        ))
    })
}

/// A token by its number or its text.
fn token_of(model: &Model, text: &str) -> Result<Token, Failure> {
    let numbered = text
        .parse()
        .ok()
        .filter(|t: &Token| (*t as usize) < model.vocabulary());
    if let Some(token) = numbered {
        return Ok(token);
    }
    let tokenizer = model.tokenizer()?;
    let spelled = tokenizer.encode(text, false).map_err(Error::from)?;
    match (tokenizer.id(text), &spelled[..]) {
        (Some(token), _) => Ok(token),
        (None, [token]) => Ok(*token),
        (None, tokens) => Err(Failure::Wrong(format!(
            "{text:?} is {} tokens, not one: {tokens:?}",
            tokens.len()
        ))),
    }
}

fn sampling(args: &SamplingArgs) -> Sampling {
    let exact = |x: f32| x.to_string().parse().unwrap_or(f64::from(x));
    let mut sampling = Sampling {
        temperature: exact(args.temperature),
        top_k: args.top_k,
        top_p: args.top_p.map(exact),
        min_p: args.min_p.map(exact),
        seed: args.seed,
        ..Sampling::default()
    };
    if args.sampling_strategy == GREEDY {
        sampling.temperature = 0.0;
    }
    if args.sampling_order == OrderArg::LlamaCpp {
        sampling.order = FilterOrder::TopKFirst;
    }
    let penalties = &mut sampling.penalties;
    penalties.repetition = args.repetition_penalty.map_or(1.0, exact);
    penalties.frequency = args.frequency_penalty.map_or(0.0, exact);
    penalties.presence = args.presence_penalty.map_or(0.0, exact);
    penalties.window = args.repetition_penalty_window;
    penalties.prompt = args.penalize_prompt;
    sampling
}

/// Lets a conversation answer and writes the pieces of the answer as they come. Text that cannot be written ends the answer.
/// Reasoning and calls go to standard error.
pub(super) fn stream(
    session: &mut Session,
    answer: impl FnOnce(&mut Session, &mut dyn FnMut(Event<'_>)) -> Result<Reply, Error>,
) -> Result<Reply, Failure> {
    let mut out = io::stdout();
    let mut aside = Aside::default();
    let mut written = Ok(());
    let cancel = session.cancel_flag();
    let reply = answer(session, &mut |event| {
        let Event::Text(text) = event else {
            return aside.hear(&event);
        };
        aside.end();
        if written.is_ok() {
            written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            cancel.fetch_or(written.is_err(), Ordering::Relaxed);
        }
    })?;
    aside.end();
    written
        .and_then(|()| writeln!(out))
        .map_err(Failure::write)?;
    Ok(reply)
}

/// What a model says that is not for the reader, dimmed where that shows.
#[derive(Default)]
struct Aside {
    open: bool,
}

impl Aside {
    fn hear(&mut self, event: &Event<'_>) {
        let dim = io::stderr().is_terminal();
        match event {
            Event::Reasoning(text) => {
                let start = if dim && !self.open { "\u{1b}[2m" } else { "" };
                eprint!("{start}{text}");
                self.open = true;
            }
            Event::Call(call) => {
                self.end();
                let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
                eprintln!("(calls {} with {arguments})", call.name);
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.open) {
            eprintln!(
                "{}",
                if io::stderr().is_terminal() {
                    "\u{1b}[0m"
                } else {
                    ""
                }
            );
        }
    }
}

/// A new conversation, or the saved one where there is one.
pub(super) fn begin(model: &Model, args: &TalkArgs) -> Result<Session, Failure> {
    let mut session = model.session()?;
    if args.overflow == OverflowArg::Slide {
        session.set_overflow(Overflow::Slide);
    }
    for (name, value) in &args.variables {
        session.set_variable(name, value.clone());
    }
    let held = |f: &&Path| f.metadata().is_ok_and(|m| !m.is_file() || m.len() > 0);
    if let Some(file) = args.session.as_deref().filter(held) {
        session.load(file)?;
        if args.is_verbose() {
            eprintln!(
                "{} messages and {} tokens from {}",
                session.messages().len(),
                session.engine().history().len(),
                file.display()
            );
        }
    }
    Ok(session)
}

/// Sets the instructions, if there are any.
pub(super) fn introduce(session: &mut Session, system: Option<&str>) {
    if let Some(system) = system {
        session.set_system(system);
    }
}

/// Keeps a conversation where that is wanted.
pub(super) fn keep(session: &Session, file: Option<&Path>) -> Result<(), Failure> {
    Ok(file.map_or(Ok(()), |file| session.save(file))?)
}

/// Figures of an answer, on standard error.
pub(super) fn figures(reply: &Reply) {
    let reason = match &reply.reason {
        StopReason::Stop(token) => format!("stop token {token}"),
        StopReason::Sequence(text) => format!("stop sequence {text:?}"),
        StopReason::MaxTokens => "as many tokens as asked for".into(),
        StopReason::ContextFull => "the context is full".into(),
        StopReason::Complete => "the constraint allows nothing more".into(),
        StopReason::Cancelled => "interrupted".into(),
        other => format!("{other:?}"),
    };
    let usage = &reply.usage;
    eprintln!(
        "prompt: {} tokens ({} reused) in {:.3} s, {:.1} tokens/s; answer: {} tokens, {:.1} tokens/s; ended by: {reason}",
        usage.prompt_tokens,
        usage.reused_tokens,
        usage.prefill.as_secs_f64(),
        usage.prefill_rate(),
        usage.answer_tokens,
        usage.decode_rate(),
    );
}
