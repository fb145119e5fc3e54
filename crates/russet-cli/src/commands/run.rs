//! `russet run MODEL PROMPT`.

use std::io::{self, Read};
use std::process::ExitCode;

use russet::StopReason;

use super::talk;
use crate::args::RunArgs;
use crate::failure::Failure;
use crate::interrupt;

/// Answers one prompt.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let prompt = prompt(&args.prompt)?;
    let model = talk::open(&args.model, &args.talk)?;
    let mut chat = talk::begin(&model, &args.talk)?;
    interrupt::listen(chat.cancel_flag());
    let options = talk::options(&args.talk);
    let reply = if args.no_template {
        let tokens = model.plain_prompt(&prompt)?;
        talk::stream(&mut chat, |chat, on_text| {
            chat.answer(&tokens, &options, on_text)
        })?
    } else {
        introduce(&mut chat, args.talk.system.as_deref());
        talk::stream(&mut chat, |chat, on_text| {
            chat.send(&prompt, &options, on_text)
        })?
    };
    if args.talk.verbose {
        talk::figures(&reply);
    }
    talk::keep(&chat, args.talk.session.as_deref())?;
    Ok(if reply.reason == StopReason::Cancelled {
        interrupt::EXIT_CODE.into()
    } else {
        ExitCode::SUCCESS
    })
}

/// Sets the instructions, if there are any.
pub(super) fn introduce(chat: &mut Session, system: Option<&str>) {
    if let Some(system) = system {
        chat.set_system(system);
    }
}

/// The prompt: the argument, or standard input for "-".
fn prompt(argument: &str) -> Result<String, Failure> {
    if argument != "-" {
        return Ok(argument.into());
    }
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    read.map_err(|source| Failure::Stream {
        action: "read the prompt from standard input",
        source,
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).into())
}
