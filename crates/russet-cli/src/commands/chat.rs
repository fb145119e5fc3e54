//! `russet chat MODEL`: a conversation, in a terminal or over pipes.

use std::io::{self, BufRead, IsTerminal, Lines, StdinLock};
use std::path::Path;

use russet::{GenerateOptions, Session, StopReason};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::talk::{self, Named, introduce};
use crate::args::ChatArgs;
use crate::failure::{Failure, chain};
use crate::interrupt;

const HELP: &str = "\
/clear   forget the conversation
/save FILE   keep the conversation in a file, to go on with it later
/load FILE   go on with a conversation that was kept
/system TEXT   set the instructions and forget the conversation
/help    this
/quit    leave (so does Ctrl-D, or Ctrl-C twice)
Ctrl-C interrupts an answer. Anything else is said to the model.";

/// Talks until the input ends.
pub(crate) fn chat(args: &ChatArgs, strategies: &Named) -> Result<(), Failure> {
    let model = talk::open(&args.model, &args.talk, &args.talk.engine.options()?)?;
    let mut talk = Conversation {
        chat: talk::begin(&model, &args.talk)?,
        options: talk::options(&args.talk, &model, strategies)?,
        system: args.talk.system.clone(),
        session: args.talk.session.as_deref(),
        verbose: args.talk.is_verbose(),
    };
    interrupt::listen(talk.chat.cancel_flag());
    introduce(&mut talk.chat, talk.system.as_deref());
    let mut input = Input::new()?;
    while let Some(line) = input.next()? {
        if !talk.take(line.trim())? {
            break;
        }
    }
    Ok(())
}

/// The conversation and how it is held.
struct Conversation<'a> {
    chat: Session,
    options: GenerateOptions,
    system: Option<String>,
    session: Option<&'a Path>,
    verbose: bool,
}

impl Conversation<'_> {
    /// Takes a line; says whether to go on.
    fn take(&mut self, line: &str) -> Result<bool, Failure> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("", _) => {}
            ("/quit" | "/exit", "") => return Ok(false),
            ("/help", "") => eprintln!("{HELP}"),
            ("/clear", "") => self.restart(),
            ("/save", file) if !file.is_empty() => {
                report(self.chat.save(Path::new(file.trim())), "kept");
            }
            ("/load", file) if !file.is_empty() => {
                report(self.chat.load(Path::new(file.trim())), "loaded");
            }
            ("/system", text) => {
                self.system = Some(text.trim().to_owned()).filter(|t| !t.is_empty());
                self.restart();
            }
            ("/save" | "/load", _) => eprintln!("say which file: {line} FILE"),
            (word, "") if word.starts_with('/') => {
                eprintln!("there is no command {word}; /help lists them");
            }
            _ => match self.say(line) {
                Err(error @ Failure::Stream { .. }) => return Err(error),
                // The conversation is as before, and goes on.
                Err(error) => eprintln!("{}", chain(&error)),
                Ok(()) => {}
            },
        }
        Ok(true)
    }

    fn restart(&mut self) {
        self.chat.clear();
        introduce(&mut self.chat, self.system.as_deref());
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        let options = &self.options;
        let reply = talk::stream(&mut self.chat, |chat, on_event| {
            chat.respond(line, options, on_event)
        })?;
        match reply.reason {
            StopReason::Cancelled => eprintln!("(interrupted)"),
            StopReason::ContextFull => eprintln!("(the context is full: /clear starts again)"),
            _ => {}
        }
        if self.verbose {
            talk::figures(&reply);
        }
        // After every answer, so that nothing is lost however it ends.
        talk::keep(&self.chat, self.session)
    }
}

/// Says what became of a command; one that fails does not end the conversation.
fn report(result: Result<(), russet::Error>, done: &str) {
    match result {
        Ok(()) => eprintln!("({done})"),
        Err(error) => eprintln!("{}", chain(&error)),
    }
}

/// Where lines come from.
enum Input {
    /// A terminal, with line editing and history.
    Terminal(Box<DefaultEditor>),
    /// Anything else.
    Pipe(Lines<StdinLock<'static>>),
}

impl Input {
    fn new() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Pipe(io::stdin().lock().lines()));
        }
        eprintln!("/help lists the commands");
        Ok(Self::Terminal(Box::new(DefaultEditor::new()?)))
    }

    /// The next line; `None` at the end of the input.
    fn next(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Self::Pipe(lines) => {
                let read = |source| Failure::Stream {
                    action: "read from standard input",
                    source,
                };
                lines.next().transpose().map_err(read)
            }
            Self::Terminal(editor) => ask(editor),
        }
    }
}

/// A line from the terminal. Ctrl-C empties the line, pressed twice it ends the conversation.
fn ask(editor: &mut DefaultEditor) -> Result<Option<String>, Failure> {
    let mut pressed = false;
    loop {
        match editor.readline("> ") {
            Ok(line) => {
                // Fails only for histories that refuse duplicates, which loses nothing.
                editor.add_history_entry(&line).ok();
                return Ok(Some(line));
            }
            Err(ReadlineError::Eof) => return Ok(None),
            Err(ReadlineError::Interrupted) if pressed => return Ok(None),
            Err(ReadlineError::Interrupted) => {
                pressed = true;
                eprintln!("(Ctrl-C again leaves)");
            }
            Err(other) => return Err(other.into()),
        }
    }
}
