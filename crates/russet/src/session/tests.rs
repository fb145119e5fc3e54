//! Conversations over a small model whose words are put into its mouth.
#![allow(
    clippy::field_reassign_with_default,
    reason = "options are set as users of the crate set them"
)]

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::engine::{EngineError, EngineVariant};
use crate::grammar::Constraint;
use crate::open::OpenOptions;
use crate::strategy::{Strategies, Strategy};

fn model(change: impl FnOnce(&mut OpenOptions)) -> Model {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/turns/llama");
    let mut options = OpenOptions::default();
    change(&mut options);
    Model::open(bundle, &options).expect("a fixture")
}

/// Says given answers, one after the other, each with the token that ends it.
struct Script(Vec<Token>);

impl Strategy for Script {
    fn pick(&mut self, _: &[f32]) -> Option<Token> {
        Some(self.0.remove(0))
    }
}

fn script(model: &Model, answers: &[&str]) -> GenerateOptions {
    let encode = |text: &&str| {
        let tokenizer = model.tokenizer().expect("a tokenizer");
        tokenizer
            .encode(&format!("{text}<|im_end|>"), false)
            .expect("tokens")
    };
    let answers: Vec<Vec<Token>> = answers.iter().map(encode).collect();
    let next = AtomicUsize::new(0);
    let mut options = GenerateOptions::default();
    options.strategy = Some(Strategies::new(move || {
        Script(answers[next.fetch_add(1, Relaxed)].clone())
    }));
    options
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

fn adder() -> Tool {
    Tool::new("add", "Adds two numbers", |sum: Sum| {
        match sum.a.checked_add(sum.b) {
            Some(sum) => Ok(sum.to_string()),
            None => Err("too large".into()),
        }
    })
}

const ADD: &str = "<think>easy</think>I add.<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 3}}</tool_call>";

#[test]
fn a_tool_is_called_and_its_result_answered() {
    let model = model(|_| ());
    assert!(model.capabilities().tool_calling && model.capabilities().reasoning);
    let mut session = model.session().expect("a session");
    session.add_tool(adder());
    let options = script(&model, &[ADD, "It is 5."]);
    let mut heard = Vec::new();
    let reply = session.respond("2 and 3?", &options, &mut |event| {
        heard.push(match event {
            Event::Text(t) => format!("text {t}"),
            Event::Reasoning(t) => format!("reasoning {t}"),
            Event::Call(c) => format!("call {}", c.name),
            Event::Output(_, text) => format!("output {text}"),
            Event::Usage(u) => format!("usage {}", u.answer_tokens > 3),
        });
    });
    let reply = reply.expect("an answer");
    assert_eq!((&*reply.text, &*reply.reasoning), ("It is 5.", ""));
    assert!(reply.tool_calls.is_empty());
    // Pieces of text and reasoning are of any length.
    heard.dedup_by(|b, a| {
        let (kind, more) = b.split_once(' ').expect("a kind");
        let same = a.starts_with(kind) && ["text", "reasoning"].contains(&kind);
        if same {
            *a += more;
        }
        same
    });
    let expected = [
        "reasoning easy",
        "text I add.",
        "call add",
        "usage true",
        "output 5",
        "text It is 5.",
        "usage true",
    ];
    assert_eq!(heard, expected);
    let roles: Vec<&str> = session.messages().iter().map(|m| &*m.role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    let call =
        json!([{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}]);
    assert_eq!(session.messages()[1].extra["tool_calls"], call);
    assert_eq!(session.messages()[1].content, "I add.");
}

#[test]
fn calls_that_go_wrong_are_told_to_the_model() {
    let model = model(|_| ());
    let mut session = model.session().expect("a session");
    session.add_tool(adder());
    let wrong = [
        "<tool_call>{\"name\": \"minus\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"two\"}}</tool_call>",
        "sorry",
    ];
    let options = script(&model, &wrong);
    session
        .respond("2 and 3?", &options, &mut |_| ())
        .expect("an answer");
    let outputs = session.messages().iter().filter(|m| m.role == "tool");
    let outputs: Vec<&str> = outputs.map(|m| &*m.content).collect();
    assert_eq!(
        outputs[0],
        "error: there is no tool \"minus\"; there are add"
    );
    assert!(
        outputs[1].starts_with("error: invalid type"),
        "{}",
        outputs[1]
    );
}

#[test]
fn a_tool_that_nothing_runs_is_left_to_the_program() {
    let model = model(|_| ());
    let mut session = model.session().expect("a session");
    session.add_tool(Tool::declared("add", "Adds", json!({"type": "object"})));
    let options = script(&model, &[ADD, "Five."]);
    let reply = session
        .respond("2 and 3?", &options, &mut |_| ())
        .expect("a call");
    assert_eq!(reply.reasoning, "easy");
    let call = &reply.tool_calls[0];
    let reply = session.respond_to_call(call, "5", &options, &mut |_| ());
    assert_eq!(reply.expect("an answer").text, "Five.");
    assert_eq!(session.messages().len(), 4);
}

#[test]
fn calls_without_end_are_ended() {
    let model = model(|o| o.max_context = Some(2048));
    let mut session = model.session().expect("a session");
    session.add_tool(Tool::new("add", "", |_: Sum| Ok(String::new())));
    let short = "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1,\"b\":1}}</tool_call>";
    let options = script(&model, &[short; ROUNDS]);
    let reply = session
        .respond("go", &options, &mut |_| ())
        .expect("a last answer");
    assert_eq!(reply.tool_calls.len(), 1);
    assert_eq!(session.messages().len(), 2 * ROUNDS);
}

#[test]
fn what_is_known_is_processed_before_the_question() {
    let model = model(|_| ());
    let mut session = model.session().expect("a session");
    session.set_system("Be brief and kind.");
    let warm = session.prewarm().expect("tokens");
    assert!(warm > 10);
    assert_eq!(session.engine().history().len(), warm);
    let reply = session.send("Hi", &script(&model, &["Hello"]), &mut |_| ());
    assert_eq!(reply.expect("an answer").usage.reused_tokens, warm);
    assert!(session.prewarm().expect("tokens") > warm);
}

#[test]
fn a_conversation_that_no_longer_fits_slides_or_is_summarised() {
    let model = model(|o| o.max_context = Some(128));
    let words = "word ".repeat(2);
    let talk = |overflow: Overflow| {
        let mut session = model.session().expect("a session");
        session.set_system("Be brief.");
        session.set_overflow(overflow);
        for _ in 0..8 {
            session.send(&words, &script(&model, &["ok"]), &mut |_| ())?;
        }
        Ok::<_, Error>(session)
    };
    let error = talk(Overflow::Error).map(drop).expect_err("it is full");
    assert!(
        matches!(error, Error::Engine(EngineError::ContextFull { .. })),
        "{error}"
    );
    let session = talk(Overflow::Slide).expect("it goes on");
    assert_eq!(session.messages()[0].content, "Be brief.");
    assert_eq!(session.messages()[1].role, "user");
    assert!(session.messages().len() < 17);
    let seen = Arc::new(Mutex::new(0));
    let counter = seen.clone();
    let summary = move |messages: &[Message]| {
        let mut seen = counter.lock().expect("a number");
        let before = messages.iter().filter(|m| m.role == "system").count();
        assert_eq!(before, usize::from(*seen > 0), "the summary before is told");
        *seen += messages.len() - before;
        Ok(format!("{seen} gone"))
    };
    let session = talk(Overflow::Summarise(Box::new(summary))).expect("it goes on");
    let seen = *seen.lock().expect("a number");
    assert!(seen >= 4);
    assert_eq!(
        session.messages()[0].content,
        format!("Be brief.\n\n{seen} gone")
    );
    assert_eq!(seen + session.messages().len(), 17);
}

#[test]
fn a_summary_goes_with_the_conversation_it_is_of() {
    let model = model(|o| o.max_context = Some(128));
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = told.clone();
    let mut session = model.session().expect("a session");
    session.set_overflow(Overflow::Summarise(Box::new(move |messages| {
        let first = messages.first().map(|m| m.content.clone());
        seen.lock().expect("a list").extend(first);
        Ok("a secret".into())
    })));
    let talk = |session: &mut Session| {
        for _ in 0..8 {
            let said = session.send("word word", &script(&model, &["ok"]), &mut |_| ());
            said.expect("an answer");
        }
        std::mem::take(&mut *told.lock().expect("a list"))
    };
    let first = talk(&mut session);
    assert!(first.len() > 1 && first[0] == "word word" && first[1] == "a secret");
    session.clear();
    assert_eq!(
        talk(&mut session)[0],
        "word word",
        "the other conversation is forgotten"
    );
    // A turn that fails leaves the instructions with the summary that they end with.
    let before = session.messages().to_vec();
    let error = session.send(
        &"word ".repeat(60),
        &GenerateOptions::default(),
        &mut |_| (),
    );
    error.expect_err("it does not fit");
    assert_eq!(session.messages(), before);
    talk(&mut session);
    assert_eq!(session.messages()[0].content, "a secret");
}

#[test]
fn one_message_that_does_not_fit_is_an_error_under_every_policy() {
    let model = model(|o| o.max_context = Some(32));
    for overflow in [Overflow::Error, Overflow::Slide] {
        let mut session = model.session().expect("a session");
        session.set_overflow(overflow);
        let error = session.send(
            &"word ".repeat(40),
            &GenerateOptions::default(),
            &mut |_| (),
        );
        let error = error.expect_err("it does not fit");
        assert!(
            matches!(error, Error::Engine(EngineError::ContextFull { .. })),
            "{error}"
        );
        assert!(session.messages().is_empty());
    }
}

#[test]
fn a_stop_sequence_of_several_tokens_ends_the_answer_on_every_engine() {
    let mut answers = Vec::new();
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let model = model(|o| o.variant = Some(variant));
        let mut options = script(&model, &["one\ntwo\nthree and so on without an end"; 2]);
        options.stop_sequences = vec!["\nthree".into(), "never".into()];
        let mut session = model.session().expect("a session");
        let mut streamed = String::new();
        let reply = session
            .send("count", &options, &mut |t| streamed += t)
            .expect("an answer");
        assert_eq!((&*reply.text, &*streamed), ("one\ntwo", "one\ntwo"));
        assert_eq!(reply.reason, StopReason::Sequence("\nthree".into()));
        let again = session
            .send("count", &options, &mut |_| ())
            .expect("an answer");
        assert_eq!(again.text, "one\ntwo");
        // What a model that is ahead has made after the end is not held.
        assert!(session.engine().history().len() <= again.usage.prompt_tokens + again.tokens.len());
        answers.push((reply.tokens, again.usage.reused_tokens));
    }
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn cancelling_from_another_thread_ends_within_a_step_and_the_session_goes_on() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let model = model(|o| o.variant = Some(variant));
        let mut session = model.session().expect("a session");
        let mut options = GenerateOptions::default();
        options.max_tokens = None;
        let ask = Arc::new(AtomicBool::new(false));
        let (flag, asked) = (session.cancel_flag(), ask.clone());
        let steps = Arc::new(AtomicUsize::new(0));
        let counter = steps.clone();
        options.strategy = Some(Strategies::new(move || {
            Counting(counter.clone(), asked.clone())
        }));
        let at = std::thread::spawn(move || {
            while !ask.load(Relaxed) {
                std::thread::yield_now();
            }
            flag.store(true, Relaxed);
        });
        let reply = session
            .send("go on", &options, &mut |_| ())
            .expect("an answer");
        at.join().expect("a thread");
        assert_eq!(reply.reason, StopReason::Cancelled);
        let said = steps.load(Relaxed);
        // The third step lasts until the flag is up: no other begins after it.
        assert_eq!((said, reply.tokens.len()), (3, 3));
        let reply = session.send("again", &script(&model, &["yes"]), &mut |_| ());
        assert_eq!(reply.expect("an answer").text, "yes");
    }
}

/// Counts steps; the third asks for cancellation and waits a while.
struct Counting(Arc<AtomicUsize>, Arc<AtomicBool>);

impl Strategy for Counting {
    fn pick(&mut self, _: &[f32]) -> Option<Token> {
        if self.0.fetch_add(1, Relaxed) == 2 {
            self.1.store(true, Relaxed);
            std::thread::sleep(Duration::from_millis(200));
        }
        Some(60)
    }
}

#[test]
fn two_sessions_over_one_model_do_not_disturb_each_other() {
    let model = model(|_| ());
    let alone = |text: &str| {
        let mut session = model.session().expect("a session");
        let mut options = GenerateOptions::default();
        options.max_tokens = Some(6);
        let first = session
            .send(text, &options, &mut |_| ())
            .expect("an answer");
        let second = session
            .send("more", &options, &mut |_| ())
            .expect("an answer");
        (first.tokens, second.tokens)
    };
    let expected = ["a", "b"].map(alone);
    let together = std::thread::scope(|scope| {
        let threads = ["a", "b"].map(|text| scope.spawn(move || alone(text)));
        threads.map(|t| t.join().expect("a session"))
    });
    assert_eq!(together, expected);
    // Unloading takes nothing from a session that is there.
    let mut session = model.session().expect("a session");
    model.unload();
    session
        .send("a", &GenerateOptions::default(), &mut |_| ())
        .expect("an answer");
}

#[test]
fn forced_tokens_are_taken_and_their_logits_kept() {
    let model = model(|_| ());
    let mut session = model.session().expect("a session");
    let mut options = GenerateOptions::default();
    options.forced = vec![60, 2, 61];
    options.max_tokens = Some(3);
    options.record = crate::Record::Full;
    let reply = session
        .answer(&[40, 41], &options, &mut |_| ())
        .expect("an answer");
    assert_eq!(reply.tokens, [60, 2, 61]);
    let mut engine = model.engine().expect("an engine");
    engine.feed(&[40, 41], &|| false).expect("tokens");
    for (token, kept) in reply.tokens.iter().zip(&reply.logits) {
        let row = engine.logits().to_vec();
        assert_eq!((kept.token, kept.logit), (*token, row[*token as usize]));
        let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
        assert!((kept.log_probability - (f64::from(kept.logit) - sum.ln())).abs() < 1e-6);
        assert!(kept.all.iter().zip(&row).all(|(a, b)| a.to_f32() == *b));
        engine.feed(&[*token], &|| false).expect("a token");
    }
    options.forced = vec![1 << 20];
    let error = session
        .answer(&[40], &options, &mut |_| ())
        .expect_err("no such token");
    assert!(
        error
            .to_string()
            .contains("token 1048576 is beyond the vocabulary"),
        "{error}"
    );
}

/// Contract B §10.2, 4: stop tokens that are given are obeyed, and not only looked at.
#[test]
fn silent_failure_4_stop_tokens_are_obeyed() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let model = model(|o| o.variant = Some(variant));
        let mut options = script(&model, &["ab+cd"]);
        let plus = model
            .tokenizer()
            .expect("a tokenizer")
            .id("+")
            .expect("a token");
        options.stop_tokens = vec![plus];
        let mut session = model.session().expect("a session");
        let reply = session
            .send("go", &options, &mut |_| ())
            .expect("an answer");
        assert_eq!((&*reply.text, reply.reason), ("ab", StopReason::Stop(plus)));
    }
}

/// Contract B §10.2, 7: a stop sequence of several tokens ends an answer under a constraint too.
#[test]
fn silent_failure_7_stop_sequences_count_under_a_constraint() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let model = model(|o| o.variant = Some(variant));
        let mut options = script(&model, &["one\ntwo\nthree and so on"]);
        options.constraint = Some(
            model
                .grammar(&Constraint::regex("[a-z\\n ]+"))
                .expect("a grammar"),
        );
        options.stop_sequences = vec!["\nthree".into()];
        let mut session = model.session().expect("a session");
        let reply = session
            .send("count", &options, &mut |_| ())
            .expect("an answer");
        let (text, reason) = (&*reply.text, reply.reason);
        assert_eq!(
            (text, reason),
            ("one\ntwo", StopReason::Sequence("\nthree".into()))
        );
    }
}
