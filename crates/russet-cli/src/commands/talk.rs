//! What `run` and `chat` share: opening a model, options, streaming an answer, figures.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use russet::{Error, GenerateOptions, Model, Reply, Sampling, StopReason};

use crate::args::{SamplingArgs, TalkArgs};
use crate::failure::Failure;
use crate::locate::locate;

/// Finds and opens a model; says what it is where that is wanted. Options that make no sense fail before anything is opened.
pub(super) fn open(name: &str, args: &TalkArgs) -> Result<Model, Failure> {
    sampling(&args.sampling).check()?;
    let options = args.engine.options()?;
    if let Some(file) = &args.session {
        russet::check_session(file)?;
    }
    let path = locate(name)?;
    let start = Instant::now();
    let model = Model::open(&path, &options).map_err(|source| Failure::Open {
        path: path.clone(),
        source: Box::new(source),
    })?;
    if args.verbose {
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

/// How to generate.
pub(super) fn options(args: &TalkArgs) -> GenerateOptions {
    let mut options = GenerateOptions::default();
    options.sampling = sampling(&args.sampling);
    options.max_tokens = args.max_tokens;
    options
}

fn sampling(args: &SamplingArgs) -> Sampling {
    let exact = |x: f32| x.to_string().parse().unwrap_or(f64::from(x));
    Sampling {
        temperature: exact(args.temperature),
        top_k: args.top_k,
        top_p: args.top_p.map(exact),
        min_p: args.min_p.map(exact),
        seed: args.seed,
    }
}

/// Lets a conversation answer and writes the pieces of the answer as they come. Text that cannot be written ends the answer.
pub(super) fn stream<'a>(
    chat: &mut Session,
    answer: impl FnOnce(&mut Session, &mut dyn FnMut(&str)) -> Result<Reply, Error>,
) -> Result<Reply, Failure> {
    let mut out = io::stdout();
    let mut written = Ok(());
    let cancel = chat.cancel_flag();
    let reply = answer(chat, &mut |text| {
        if written.is_ok() {
            written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            cancel.fetch_or(written.is_err(), Ordering::Relaxed);
        }
    })?;
    written
        .and_then(|()| writeln!(out))
        .map_err(Failure::write)?;
    Ok(reply)
}

/// A new conversation, or the saved one where there is one.
pub(super) fn begin<'a>(model: &'a Model, args: &TalkArgs) -> Result<Session, Failure> {
    let mut chat = model.session()?;
    let held = |f: &&Path| f.metadata().is_ok_and(|m| !m.is_file() || m.len() > 0);
    if let Some(file) = args.session.as_deref().filter(held) {
        chat.load(file)?;
        if args.verbose {
            eprintln!(
                "{} messages and {} tokens from {}",
                chat.messages().len(),
                chat.engine().history().len(),
                file.display()
            );
        }
    }
    Ok(chat)
}

/// Keeps a conversation where that is wanted.
pub(super) fn keep(chat: &Session, file: Option<&Path>) -> Result<(), Failure> {
    Ok(file.map_or(Ok(()), |file| chat.save(file))?)
}

/// Figures of an answer, on standard error.
pub(super) fn figures(reply: &Reply) {
    let reason = match reply.reason {
        StopReason::Stop(token) => format!("stop token {token}"),
        StopReason::MaxTokens => "as many tokens as asked for".into(),
        StopReason::ContextFull => "the context is full".into(),
        StopReason::Cancelled => "interrupted".into(),
        other => format!("{other:?}"),
    };
    eprintln!(
        "prompt: {} tokens ({} reused) in {:.3} s, {:.1} tokens/s; answer: {} tokens, {:.1} tokens/s; ended by: {reason}",
        reply.prompt_tokens,
        reply.reused_tokens,
        reply.prefill.as_secs_f64(),
        reply.prefill_rate(),
        reply.tokens.len(),
        reply.decode_rate(),
    );
}
