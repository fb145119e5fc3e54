//! Answers under constraints, by small models of the fixtures on every engine that runs them: what the constraint says, whether
//! tokens are sampled or certain, whether text and model take turns or not.

mod common;

use common::{static_bundle, talker};
use russet::grammar::{Constraint, GrammarError};
use russet::{
    EngineVariant, Error, GenerateOptions, Model, OpenOptions, Precision, Record, Reply, Sampling,
    StopReason, Strategies, Strategy, Token,
};
use serde_json::{Value, json};

fn model(variant: EngineVariant) -> Model {
    let mut options = OpenOptions::default();
    options.threads = 2;
    options.variant = Some(variant);
    // Where calls are cut must not matter.
    options.precision = Precision::Exact;
    Model::open(talker("qwen3-4bit"), &options).expect("a model")
}

fn person() -> Constraint {
    Constraint::json_schema(
        json!({"type": "object", "additionalProperties": false, "required": ["first_name", "age"], "properties": {
        "first_name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "colour": {"enum": ["red", "green"]}}}),
    )
}

fn options(model: &Model, constraint: &Constraint, seed: u64) -> GenerateOptions {
    let mut options = GenerateOptions::default();
    options.constraint = Some(model.grammar(constraint).expect("a grammar"));
    options.max_tokens = Some(64);
    options.sampling = Sampling {
        temperature: 1.5,
        seed: Some(seed),
        ..Sampling::default()
    };
    options
}

fn answer(model: &Model, options: &GenerateOptions) -> Reply {
    let mut session = model.session().expect("a session");
    session
        .send("Who is it?", options, &mut |_| ())
        .expect("an answer")
}

fn is_person(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text:?}"));
    // JSON Schema has 33.0 for an integer.
    let whole = |a: f64| a.fract() == 0.0 && (0.0..=150.0).contains(&a);
    let age = value["age"].as_f64().is_some_and(whole);
    let name = value["first_name"]
        .as_str()
        .is_some_and(|n| n.chars().count() <= 12);
    age && name && value.as_object().is_some_and(|o| o.len() <= 3)
}

#[test]
fn both_ways_of_taking_turns_give_the_same_valid_answers() {
    let (sequential, pipelined) = (
        model(EngineVariant::Sequential),
        model(EngineVariant::Pipelined),
    );
    for seed in 0..24 {
        let one = answer(&sequential, &options(&sequential, &person(), seed));
        let other = answer(&pipelined, &options(&pipelined, &person(), seed));
        assert_eq!(one.text, other.text);
        assert_eq!(one.tokens, other.tokens);
        assert!(is_person(&one.text), "{:?}", one.text);
    }
}

#[test]
fn certain_tokens_are_those_that_would_be_sampled() {
    let model = model(EngineVariant::Pipelined);
    for seed in 0..12 {
        let mut options = options(&model, &person(), seed);
        options.sampling = Sampling::greedy();
        let jumping = answer(&model, &options);
        // With logits to record, every token is sampled.
        options.record = Record::Top(1);
        let walking = answer(&model, &options);
        assert_eq!(jumping.tokens, walking.tokens);
        assert_eq!(walking.logits.len(), walking.tokens.len());
    }
}

#[test]
fn functions_of_fixed_shapes_are_guided_too() {
    let mut open = OpenOptions::default();
    open.threads = 2;
    let model = Model::open(static_bundle(), &open).expect("a model");
    for seed in 0..4 {
        assert!(is_person(
            &answer(&model, &options(&model, &person(), seed)).text
        ));
    }
}

#[test]
fn the_answer_ends_where_nothing_may_follow() {
    let model = model(EngineVariant::Pipelined);
    let choice = Constraint::choice(["yes", "no"]);
    let reply = answer(&model, &options(&model, &choice, 3));
    assert!(["yes", "no"].contains(&&*reply.text), "{}", reply.text);
    assert_eq!(reply.reason, StopReason::Complete);
    let regex = Constraint::regex("[ab]{3,5}");
    for seed in 0..8 {
        let reply = answer(&model, &options(&model, &regex, seed));
        let letters = reply.text.chars().all(|c| "ab".contains(c));
        assert!(
            letters && (3..=5).contains(&reply.text.len()),
            "{:?}",
            reply.text
        );
    }
}

#[test]
fn an_answer_at_its_limit_is_whole() {
    let model = model(EngineVariant::Pipelined);
    for most in [36, 40, 48] {
        for seed in 0..6 {
            let mut options = options(&model, &person(), seed);
            options.max_tokens = Some(most);
            let reply = answer(&model, &options);
            assert!(
                reply.tokens.len() <= most && is_person(&reply.text),
                "{most}: {:?}",
                reply.text
            );
        }
    }
}

/// Would have every answer be one token.
struct Stubborn(Token);

impl Strategy for Stubborn {
    fn adjust(&mut self, logits: &mut [f32]) {
        logits.fill(1.0);
    }

    fn pick(&mut self, _: &[f32]) -> Option<Token> {
        Some(self.0)
    }
}

#[test]
fn neither_strategies_nor_biases_leave_the_constraint() {
    let model = model(EngineVariant::Sequential);
    let x = model
        .tokenizer()
        .expect("a tokenizer")
        .id("x")
        .expect("a letter");
    let mut options = options(&model, &Constraint::regex("[0-9]{6}"), 1);
    options.strategy = Some(Strategies::new(move || Stubborn(x)));
    options.sampling.logit_bias.push((x, 100.0));
    let reply = answer(&model, &options);
    assert_eq!(reply.text.len(), 6);
    assert!(
        reply.text.bytes().all(|b| b.is_ascii_digit()),
        "{}",
        reply.text
    );
}

#[test]
fn what_is_held_of_one_answer_serves_the_next() {
    let model = model(EngineVariant::Pipelined);
    let mut session = model.session().expect("a session");
    let mut say = |text: &str, seed| {
        let options = options(&model, &person(), seed);
        session
            .send(text, &options, &mut |_| ())
            .expect("an answer")
    };
    let (first, next) = (say("Who is it?", 1), say("And who is that?", 2));
    // A constrained turn starts where the conversation stands: all of the turn before is still held.
    assert!(
        next.usage.reused_tokens >= first.usage.prompt_tokens,
        "{:?} then {:?}",
        first.usage,
        next.usage
    );
    assert!(is_person(&next.text));
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct City {
    name: Colour,
    inhabitants: u16,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
enum Colour {
    Blue,
    Green,
}

#[test]
fn an_answer_is_a_value_of_a_type() {
    let model = model(EngineVariant::Pipelined);
    let mut session = model.session().expect("a session");
    let mut seen = Vec::new();
    let mut options = GenerateOptions::default();
    options.max_tokens = Some(64);
    let (city, reply): (City, Reply) = session
        .respond_as("A city?", &options, &mut |value| seen.push(value.clone()))
        .expect("a city");
    assert!(matches!(city.name, Colour::Blue | Colour::Green));
    let last = seen.last().expect("a value");
    assert_eq!(last["inhabitants"], json!(city.inhabitants));
    assert!(seen.len() > 1 && reply.text.contains("inhabitants"));
}

#[test]
fn what_is_wrong_with_a_constraint_is_known_before_any_token() {
    let model = model(EngineVariant::Sequential);
    let constraint = Constraint::json_schema(json!({"properties": {"a": {"$ref": "#/nowhere"}}}));
    match model.grammar(&constraint) {
        Err(Error::Grammar(GrammarError::Schema {
            pointer, keyword, ..
        })) => {
            assert_eq!((&*pointer, &*keyword), ("/properties/a", "$ref"));
        }
        other => panic!("{other:?}"),
    }
}
