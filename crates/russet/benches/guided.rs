//! What a constraint costs: `cargo bench -p russet --bench guided [-- MODEL]`.
//!
//! First the parts on one thread: compiling a schema, making a mask, accepting a token, with the vocabulary of the model. Then whole
//! answers of the model (a bundle or GGUF file; by default a small one of the fixtures) with and without a constraint, in turn.
#![allow(clippy::disallowed_macros, reason = "it prints what it found")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use common::talker;
use russet::grammar::{Constraint, Coverage, Grammar, JsonOptions, SchemaCase, Tail};
use russet::{EngineVariant, GenerateOptions, Model, OpenOptions, Sampling, bench::median};
use serde_json::{Value, json};

/// Tokens of an answer.
const TOKENS: usize = 128;
/// Answers of each kind.
const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let named = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let path = named.map_or_else(|| talker("qwen3-4bit"), PathBuf::from);
    let mut options = OpenOptions::default();
    options.threads = 2;
    options.variant = Some(EngineVariant::Pipelined);
    let model = Model::open(&path, &options)?;
    println!("vocabulary of {} logits", model.vocabulary());
    parts(&model)?;
    tools(&model)?;
    answers(&model)
}

/// Microseconds of each step over the fifty schemas, each with an instance that it allows.
fn parts(model: &Model) -> Result<(), Box<dyn Error>> {
    let vocabulary = model.grammar_vocabulary()?;
    let mut coverage = Coverage::new(vocabulary, JsonOptions::default());
    for case in cases()? {
        black_box(coverage.judge(&case));
    }
    println!("{:<28}{:>9}{:>12}{:>12}", "", "times", "median", "99 %");
    let line = |name: &str, tail: Tail| {
        let [median, late] = [tail.p50, tail.p99].map(|s| 1e6 * s);
        println!("{name:<28}{:>9}{median:>9.1} µs{late:>9.1} µs", tail.count);
    };
    line("compile, with first mask", coverage.compile.tail());
    line("mask", coverage.mask_time.tail());
    line("accept", coverage.accept.tail());
    Ok(())
}

/// The schemas of the tests, with what allows many masks.
fn cases() -> Result<Vec<SchemaCase>, Box<dyn Error>> {
    let schemas: Vec<Value> = serde_json::from_str(include_str!("../tests/common/schemas.json"))?;
    let mut cases: Vec<SchemaCase> = Vec::new();
    for schema in schemas {
        let text = json!([{"schema": schema, "tests": []}]).to_string();
        cases.extend(SchemaCase::read(text.as_bytes())?);
    }
    let person = json!([{
        "schema": {"type": "object", "properties": {"name": {"type": "string"}, "born": {"type": "string", "format": "date"},
            "works": {"type": "array", "items": {"type": "object", "properties": {"title": {"type": "string"},
                "year": {"type": "integer", "minimum": 1, "maximum": 2100}}, "required": ["title"]}}}, "required": ["name"]},
        "tests": [{"valid": true, "data": {"name": "Johann Wolfgang von Goethe", "born": "1749-08-28", "works": [
            {"title": "Die Leiden des jungen Werther", "year": 1774}, {"title": "Faust. Der Tragödie erster Teil", "year": 1808}]}}],
    }]);
    cases.extend(SchemaCase::read(person.to_string().as_bytes())?);
    Ok(cases)
}

/// Compiling 128 tools of twelve arguments.
fn tools(model: &Model) -> Result<(), Box<dyn Error>> {
    let arguments = |tool: usize| {
        let one = |i: usize| {
            let schema = match i % 3 {
                0 => json!({"type": "string", "description": "a text"}),
                1 => json!({"type": "integer", "minimum": i, "maximum": 1000 + tool}),
                _ => json!({"enum": ["low", "middle", "high"]}),
            };
            (format!("argument_{i}"), schema)
        };
        let properties: serde_json::Map<String, Value> = (0..12).map(one).collect();
        json!({"type": "object", "properties": properties, "required": ["argument_0", "argument_1"], "additionalProperties": false})
    };
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let tools = (0..128).map(|t| (format!("tool_{round}_{t}"), arguments(t)));
        let constraint = Constraint::tool_calls(russet::grammar::ToolCalls::new(tools));
        let start = Instant::now();
        black_box(model.grammar(&constraint)?);
        times.push(start.elapsed().as_secs_f64());
    }
    let ms = 1e3 * median(times.into_iter());
    println!("128 tools compile in {ms:.1} ms");
    Ok(())
}

/// A way to answer: free, or under a grammar.
struct Way {
    name: &'static str,
    grammar: Option<Grammar>,
    rates: Vec<[f64; 2]>,
}

/// What answers are held to.
fn schemas() -> [(&'static str, Value); 4] {
    let station = |i| format!("the_measured_temperature_of_station_number_{i}");
    let names: Vec<String> = (0..12).map(station).collect();
    let degrees = json!({"type": "integer", "minimum": 0, "maximum": 99});
    let member = |name: &String| (name.clone(), degrees.clone());
    let properties: serde_json::Map<String, Value> = names.iter().map(member).collect();
    let list = |items: Value| json!({"type": "array", "items": items, "minItems": 400});
    [
        (
            "one long text",
            json!({"type": "string", "minLength": 4000}),
        ),
        ("a list of numbers", list(json!({"type": "number"}))),
        (
            "a list of texts",
            list(json!({"type": "string", "maxLength": 40})),
        ),
        (
            "long names",
            json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false}),
        ),
    ]
}

/// Tokens and characters a second, answers of all kinds in turn.
fn answers(model: &Model) -> Result<(), Box<dyn Error>> {
    let way = |name, grammar| Way {
        name,
        grammar,
        rates: Vec::new(),
    };
    let mut ways = vec![way("free", None)];
    for (name, schema) in schemas() {
        let grammar = model.grammar(&Constraint::json_schema(schema))?;
        ways.push(way(name, Some(grammar)));
    }
    for way in &mut ways {
        answer(model, way.grammar.clone())?;
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.rates.push(answer(model, way.grammar.clone())?);
        }
    }
    table(&ways);
    Ok(())
}

/// The medians; percentages are medians too, of what each answer had of the free one beside it.
fn table(ways: &[Way]) {
    let [name, tokens, characters] = ["", "tokens/s", "characters/s"];
    println!("\n{name:<20}{tokens:>12}{:>8}{characters:>16}", "");
    for way in ways {
        let middle = |i: usize| median(way.rates.iter().map(|r| r[i]));
        let beside = |i: usize| {
            let pairs = way.rates.iter().zip(&ways[0].rates);
            100.0 * median(pairs.map(|(a, b)| a[i] / b[i]))
        };
        let (t, c) = (beside(0), beside(1));
        let [tokens, characters] = [0, 1].map(middle);
        let name = way.name;
        println!("{name:<20}{tokens:>12.1}{t:>6.1} %{characters:>16.0}{c:>6.0} %");
    }
}

/// Tokens and characters a second of one answer.
fn answer(model: &Model, grammar: Option<Grammar>) -> Result<[f64; 2], Box<dyn Error>> {
    let mut options = GenerateOptions::default();
    options.max_tokens = Some(TOKENS);
    options.constraint = grammar;
    options.sampling = Sampling::greedy();
    // No answer shall end by itself.
    let never = model.stop_tokens().iter().map(|t| (*t, -1e9));
    options.sampling.logit_bias.extend(never);
    let mut session = model.session()?;
    let reply = session.send(
        "Describe at length what a weather station measures.",
        &options,
        &mut |_| (),
    )?;
    let time = reply.usage.decode.as_secs_f64();
    let tokens = reply.tokens.len();
    Ok([
        tokens as f64 / time,
        reply.text.chars().count() as f64 / time,
    ])
}
