//! What a model that knows nothing writes under fifty schemas at temperature 1.5, judged by a validator of somebody else's.
//!
//! A run of the tests makes some hundred answers; `RUSSET_GENERATIONS=10000` asks for more, and prints what became of them.

mod common;

use common::talker;
use russet::grammar::{Constraint, Grammar, unfinished_json};
use russet::{GenerateOptions, Model, OpenOptions, Reply, Sampling, StopReason};
use serde_json::Value;

/// Tokens of an answer.
const MOST: usize = 96;

fn schemas() -> Vec<Value> {
    let text = include_str!("common/schemas.json");
    let schemas: Vec<Value> = serde_json::from_str(text).expect("schemas");
    assert_eq!(schemas.len(), 50);
    schemas
}

/// A validator that enforces formats, as grammars do.
fn validator(schema: &Value) -> jsonschema::Validator {
    let options = jsonschema::options().should_validate_formats(true);
    options.build(schema).expect("a schema")
}

fn answer(model: &Model, grammar: &Grammar, seed: u64) -> Reply {
    let mut options = GenerateOptions::default();
    options.constraint = Some(grammar.clone());
    options.max_tokens = Some(MOST);
    options.sampling = Sampling {
        temperature: 1.5,
        seed: Some(seed),
        ..Sampling::default()
    };
    let mut session = model.session().expect("a session");
    session
        .send("Write JSON.", &options, &mut |_| ())
        .expect("an answer")
}

/// Whether an answer that was cut is the beginning of JSON that the grammar allows.
fn is_prefix(grammar: &Grammar, reply: &Reply) -> bool {
    let mut matcher = grammar.matcher();
    let taken = reply.tokens.iter().all(|t| matcher.accept(*t).is_ok());
    taken && unfinished_json(&reply.text).is_some()
}

#[test]
fn answers_are_valid_for_an_independent_validator() {
    let wanted = std::env::var("RUSSET_GENERATIONS").ok();
    let wanted = wanted.map_or(200, |n| n.parse().expect("a number"));
    let mut open = OpenOptions::default();
    open.threads = 2;
    let model = Model::open(talker("qwen3-4bit"), &open).expect("a model");
    let schemas = schemas();
    let (mut whole, mut cut) = (0, 0);
    for (i, schema) in schemas.iter().enumerate() {
        let constraint = Constraint::json_schema(schema.clone());
        let grammar = model.grammar(&constraint).expect("a grammar");
        let validator = validator(schema);
        for seed in (i..wanted).step_by(schemas.len()) {
            let reply = answer(&model, &grammar, seed as u64);
            let value = serde_json::from_str::<Value>(&reply.text);
            let errors = match &value {
                Ok(value) => validator
                    .iter_errors(value)
                    .map(|e| e.to_string())
                    .collect(),
                Err(e) => vec![e.to_string()],
            };
            if reply.reason == StopReason::MaxTokens && !errors.is_empty() {
                assert!(is_prefix(&grammar, &reply), "{schema}: {:?}", reply.text);
                cut += 1;
                continue;
            }
            assert!(errors.is_empty(), "{errors:?}: {schema}: {:?}", reply.text);
            whole += 1;
        }
    }
    println!("{whole} answers whole and valid, {cut} cut by the limit and a valid beginning");
    assert_eq!(whole + cut, wanted);
    assert!(whole > wanted * 9 / 10, "{cut} of {wanted} were cut");
}
