//! A model of 135 million parameters, where its bundle lies beside the repository; it says so where it does not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use russet::{Event, GenerateOptions, Model, OpenOptions, Strategies, Strategy, Token, Tool};

fn bundle() -> Option<PathBuf> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/smollm2-135m-4bit");
    if path.is_dir() {
        return Some(path);
    }
    println!("NOT RUN: there is no bundle at {}", path.display());
    None
}

/// Says given answers, one after the other.
struct Script(Vec<Token>);

impl Strategy for Script {
    fn pick(&mut self, _: &[f32]) -> Option<Token> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    city: String,
}

#[test]
fn a_tool_is_called_by_a_real_model_under_a_fixed_transcript() {
    let Some(bundle) = bundle() else {
        return;
    };
    let model = Model::open(bundle, &OpenOptions::default()).expect("a model");
    let tokenizer = model.tokenizer().expect("a tokenizer");
    let turns = [
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call><|im_end|>",
        "It is 7 degrees in Oslo.<|im_end|>",
    ];
    let turns = turns.map(|t| tokenizer.encode(t, false).expect("tokens"));
    let next = Arc::new(AtomicUsize::new(0));
    let mut options = GenerateOptions::default();
    options.strategy = Some(Strategies::new(move || {
        Script(turns[next.fetch_add(1, Relaxed)].clone())
    }));
    let mut session = model.session().expect("a session");
    session.set_system("Use the tools.");
    session.add_tool(Tool::new(
        "weather",
        "The weather of a city",
        |place: Place| Ok(format!("{}: 7 degrees", place.city)),
    ));
    let mut heard = Vec::new();
    let reply = session.respond(
        "How warm is it in Oslo?",
        &options,
        &mut |event| match event {
            Event::Call(call) => heard.push(format!("{} {}", call.name, call.arguments["city"])),
            Event::Output(_, text) => heard.push(text.into()),
            _ => {}
        },
    );
    let reply = reply.expect("an answer");
    assert_eq!(reply.text, "It is 7 degrees in Oslo.");
    assert_eq!(heard, ["weather \"Oslo\"", "Oslo: 7 degrees"]);
    assert!(
        reply.usage.reused_tokens > 0,
        "the second prompt begins with the first"
    );
    // Left alone, it goes on by itself.
    options.strategy = None;
    options.max_tokens = Some(8);
    let reply = session
        .send("Thank you.", &options, &mut |_| ())
        .expect("an answer");
    assert!(!reply.tokens.is_empty());
}
