//! What a model writes, told apart as it arrives: text for the reader, reasoning, calls of tools (contract B §8.2, F 1.5 and 10).
//!
//! Models mark reasoning and calls in many ways; which one a model has, its vocabulary and its chat template tell. Text that may
//! yet turn out to be a marker is held back, so no piece ever shows half of one. A block that is no call after all is text: nothing
//! that a model wrote is lost.

mod calls;
mod markers;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::Token;
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use calls::{JsonEnd, calls};
pub(crate) use markers::StopSequences;
use markers::{first, safe_len};

/// A tool that the model wants called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

/// A piece of what a model wrote.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text for the reader.
    Text(String),
    /// What the model says to itself.
    Reasoning(String),
    /// A call of a tool, whole.
    Call(ToolCall),
}

/// How reasoning is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// Not at all.
    #[default]
    None,
    /// Between two tags.
    Tags(&'static str, &'static str),
    /// In channels of their own: `to=self<|message|>…<|eom|>`, where text is `to=user<|message|>…`.
    Channels,
}

/// Pairs of tags around reasoning.
const TAGS: [(&str, &str); 2] = [
    ("<think>", "</think>"),
    ("<|reasoning_start|>", "<|reasoning_end|>"),
];
/// Tokens of a model that speaks in channels.
const CHANNELS: [&str; 4] = [MESSAGE, "<|eom|>", "<|eot|>", "<|start|>"];
/// What ends the header of a channel.
const MESSAGE: &str = "<|message|>";

/// How calls of tools are marked: the opening, and the closing, or nothing where a JSON value ends by itself.
const CALLS: [(&str, Option<&str>); 5] = [
    ("<tool_call>", Some("</tool_call>")),
    ("<function_calls>", Some("</function_calls>")),
    ("<atem:function_calls>", Some("</atem:function_calls>")),
    ("<|tool_call|>", Some("<|/tool_call|>")),
    ("[TOOL_CALLS]", None),
];

/// How a model marks reasoning and calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseFormat {
    /// Reasoning.
    pub reasoning: ReasoningFormat,
    /// Whether calls of tools are looked for, in every form that is known.
    pub tools: bool,
    /// Tokens of markers that are special, so that no text would be made of them.
    pub markers: Vec<Token>,
}

impl ResponseFormat {
    /// What a model's vocabulary and template tell.
    pub fn of(tokenizer: &Tokenizer, template: Option<&ChatTemplate>) -> Self {
        let text = template.and_then(|t| t.source("default")).unwrap_or("");
        let knows = |m: &str| tokenizer.id(m).is_some() || text.contains(m);
        let in_channels = CHANNELS[..3].iter().all(|m| tokenizer.id(m).is_some());
        let tags = TAGS.iter().find(|(open, _)| knows(open));
        let reasoning = match tags {
            _ if in_channels => ReasoningFormat::Channels,
            Some((open, close)) => ReasoningFormat::Tags(open, close),
            None => ReasoningFormat::None,
        };
        let mut this = Self {
            reasoning,
            tools: CALLS.iter().any(|(open, _)| knows(open)),
            markers: Vec::new(),
        };
        let special = this.texts().into_iter().filter_map(|m| tokenizer.id(m));
        this.markers = special.filter(|id| tokenizer.is_special(*id)).collect();
        this
    }

    /// Every marker that may occur.
    fn texts(&self) -> Vec<&'static str> {
        let mut all: Vec<&str> = match self.reasoning {
            ReasoningFormat::None => vec![],
            ReasoningFormat::Tags(open, close) => vec![open, close],
            ReasoningFormat::Channels => CHANNELS.to_vec(),
        };
        if self.tools {
            all.extend(CALLS.iter().map(|(open, _)| open));
            all.extend(CALLS.iter().filter_map(|(_, close)| *close));
        }
        all
    }
}

/// Where the parser is.
#[derive(Clone, Debug)]
enum State {
    Text,
    Reasoning,
    /// Before the `<|message|>` of a channel; where none comes, what is there is `reasoning` or text.
    Header {
        reasoning: bool,
    },
    /// Inside a call: which form, and how far its end has been looked for.
    Call(usize, JsonEnd),
}

/// Tells apart what a model writes.
#[derive(Debug)]
pub struct ResponseParser {
    format: ResponseFormat,
    /// Names and parameters' JSON Schemas of the tools that may be called.
    tools: Vec<(String, Value)>,
    state: State,
    held: String,
}

impl ResponseParser {
    /// A parser for one answer. `prompt` is the text that the model goes on with: some templates open
    /// the reasoning themselves.
    pub fn new(format: &ResponseFormat, prompt: &str, tools: Vec<(String, Value)>) -> Self {
        let state = match format.reasoning {
            ReasoningFormat::Channels => State::Header { reasoning: true },
            ReasoningFormat::Tags(open, _) if prompt.trim_end().ends_with(open) => State::Reasoning,
            _ => State::Text,
        };
        Self {
            format: format.clone(),
            tools,
            state,
            held: String::new(),
        }
    }

    /// Takes some text; hands over what is certain now.
    pub fn push(&mut self, text: &str, on_piece: &mut dyn FnMut(Piece)) {
        self.held += text;
        while self.step(on_piece) {}
    }

    /// Nothing follows: what was held back is handed over. An open call is one where it is whole.
    pub fn finish(&mut self, on_piece: &mut dyn FnMut(Piece)) {
        let held = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.state, State::Text) {
            State::Call(which, _) => self.close(which, &held, "", on_piece),
            State::Reasoning | State::Header { reasoning: true } => {
                emit(Piece::Reasoning, &held, on_piece)
            }
            State::Text | State::Header { reasoning: false } => emit(Piece::Text, &held, on_piece),
        }
    }

    /// Handles one marker; says whether there may be another.
    fn step(&mut self, on_piece: &mut dyn FnMut(Piece)) -> bool {
        match self.state.clone() {
            State::Text => self.plain(Piece::Text, on_piece),
            State::Reasoning => self.plain(Piece::Reasoning, on_piece),
            State::Header { reasoning } => self.header(reasoning),
            State::Call(which, end) => self.call(which, end, on_piece),
        }
    }

    /// Text or reasoning up to the next marker.
    fn plain(&mut self, kind: fn(String) -> Piece, on_piece: &mut dyn FnMut(Piece)) -> bool {
        let transitions = self.transitions();
        let markers: Vec<&str> = transitions.iter().map(|(m, _)| *m).collect();
        if let Some((range, which)) = first(&self.held, &markers) {
            emit(kind, &self.held[..range.start], on_piece);
            self.held.drain(..range.end);
            self.state = transitions[which].1.clone();
            return true;
        }
        let rest = self.held.split_off(safe_len(&self.held, &markers));
        let safe = std::mem::replace(&mut self.held, rest);
        emit(kind, &safe, on_piece);
        false
    }

    /// Markers that count in the present state, and where each leads.
    fn transitions(&self) -> Vec<(&'static str, State)> {
        let in_text = matches!(self.state, State::Text);
        let mut all = match self.format.reasoning {
            ReasoningFormat::Tags(open, _) if in_text => vec![(open, State::Reasoning)],
            // Some models open what the template has opened.
            ReasoningFormat::Tags(open, close) => {
                vec![(close, State::Text), (open, State::Reasoning)]
            }
            ReasoningFormat::Channels => {
                let reasoning = !in_text;
                let header = CHANNELS[1..]
                    .iter()
                    .map(|m| (*m, State::Header { reasoning }));
                header.chain([(MESSAGE, self.state.clone())]).collect()
            }
            ReasoningFormat::None => vec![],
        };
        if self.format.tools && in_text {
            let call = |(which, form): (usize, &(&'static str, _))| {
                (form.0, State::Call(which, JsonEnd::default()))
            };
            all.extend(CALLS.iter().enumerate().map(call));
        }
        all
    }

    /// The header of a channel: who is spoken to. Tools are spoken to in text, as their blocks tell by themselves.
    fn header(&mut self, reasoning: bool) -> bool {
        let kind = |reasoning| {
            if reasoning {
                State::Reasoning
            } else {
                State::Text
            }
        };
        if let Some((before, after)) = self.held.split_once(MESSAGE)
            && let Some(recipient) = recipient(before)
        {
            self.state = kind(recipient == "self" || (recipient.is_empty() && reasoning));
            self.held = after.to_owned();
            return true;
        }
        if let Some((range, _)) = first(&self.held, &CHANNELS[1..])
            && recipient(&self.held[..range.start]).is_some()
        {
            self.held.drain(..range.end);
            return true;
        }
        let safe = safe_len(&self.held, &CHANNELS);
        if recipient(&self.held[..safe]).is_none() {
            self.state = kind(reasoning);
            return true;
        }
        false
    }

    /// A call up to its end.
    fn call(&mut self, which: usize, mut end: JsonEnd, on_piece: &mut dyn FnMut(Piece)) -> bool {
        let (body, close) = match CALLS[which].1 {
            Some(close) => (self.held.find(close), close),
            None => (end.find(&self.held), ""),
        };
        let Some(body) = body else {
            self.state = State::Call(which, end);
            return false;
        };
        let mut rest = self.held.split_off(body);
        rest.drain(..close.len());
        let body = std::mem::replace(&mut self.held, rest);
        self.state = State::Text;
        self.close(which, &body, close, on_piece);
        true
    }

    /// Hands over the calls of a block, or its text where it holds none.
    fn close(&self, which: usize, body: &str, close: &str, on_piece: &mut dyn FnMut(Piece)) {
        let schema = |name: &str| self.tools.iter().find(|(n, _)| n == name).map(|(_, s)| s);
        match calls(body, &schema) {
            Some(calls) => calls.into_iter().for_each(|c| on_piece(Piece::Call(c))),
            None => on_piece(Piece::Text(format!("{}{body}{close}", CALLS[which].0))),
        }
    }
}

fn emit(kind: fn(String) -> Piece, text: &str, on_piece: &mut dyn FnMut(Piece)) {
    if !text.is_empty() {
        on_piece(kind(text.into()));
    }
}

/// The recipient of a header, `[assistant] to=NAME`; "" where it names none, `None` where this is, or becomes, no header.
fn recipient(header: &str) -> Option<&str> {
    let text = header.trim_start();
    if "assistant".starts_with(text) {
        return Some("");
    }
    let text = text.strip_prefix("assistant").unwrap_or(text).trim_start();
    if "to=".starts_with(text) {
        return Some("");
    }
    let name = text.strip_prefix("to=")?;
    let whole = name.len() <= 128 && !name.contains(char::is_whitespace);
    whole.then_some(name)
}
