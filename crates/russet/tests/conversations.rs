//! Conversations that append, edit, go back, are cancelled and take turns, against fresh runs over the same tokens: every small model of
//! the fixtures, every engine and cache strategy that may run it.

mod common;

use common::{all_bundles, talker, talkers};
use russet::bench::SplitMix;
use russet::engine::{Rewinding, resume};
use russet::{
    CacheKind, Engine, EngineVariant, KvCacheStrategy, Model, OpenOptions, Precision, Token,
};

const NEVER: &dyn Fn() -> bool = &|| false;

/// Numbers and tokens from a seed.
struct Dice(SplitMix);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(SplitMix(seed))
    }

    fn below(&mut self, n: usize) -> usize {
        (self.0.next() % n.max(1) as u64) as usize
    }

    fn tokens(&mut self, most: usize) -> Vec<Token> {
        (0..=self.below(most))
            .map(|_| self.below(300) as Token)
            .collect()
    }
}

/// The likeliest tokens after what an engine holds.
fn greedy(engine: &mut dyn Engine, count: usize) -> Vec<Token> {
    let mut tokens = Vec::new();
    for _ in 0..count {
        let token = engine.logits().argmax();
        tokens.push(token);
        engine.feed(&[token], NEVER).expect("a token");
    }
    tokens
}

fn open(bundle: &std::path::Path, change: impl FnOnce(&mut OpenOptions)) -> Model {
    let mut options = OpenOptions::default();
    options.threads = 2;
    change(&mut options);
    Model::open(bundle, &options).expect("a model")
}

/// One turn of a conversation: what is held is changed at a random place, or goes on; sometimes it is cancelled and asked again.
fn turn(engine: &mut dyn Engine, dice: &mut Dice) -> Vec<Token> {
    let mut prompt = engine.history().to_vec();
    match dice.below(4) {
        0 => prompt.truncate(dice.below(prompt.len() + 1)),
        1 if !prompt.is_empty() => {
            let at = dice.below(prompt.len());
            prompt[at] = dice.below(300) as Token;
        }
        _ => {}
    }
    prompt.extend(dice.tokens(40));
    if prompt.len() > 180 {
        prompt.drain(..100);
    }
    if dice.below(4) == 0 {
        let asked = std::cell::Cell::new(0);
        let patience = dice.below(3);
        let cancelled = || asked.replace(asked.get() + 1) >= patience;
        resume(engine, &prompt, &cancelled).expect("a cancelled prompt");
    }
    resume(engine, &prompt, NEVER).expect("a prompt");
    assert_eq!(engine.history(), prompt);
    prompt
}

/// What is called a tie where sums are made in another order: a part of the largest logit. Exact precision has none.
const TIE: f32 = 0.002;

/// Both engines go on with their likeliest tokens, which are the same, or as likely as makes no difference.
fn agree(engine: &mut dyn Engine, fresh: &mut dyn Engine, count: usize, tie: f32, name: &str) {
    for _ in 0..count {
        let (got, want) = (engine.logits().argmax(), fresh.logits().argmax());
        if got != want {
            let row = fresh.logits().to_vec();
            let largest = row.iter().fold(0.0_f32, |m, l| m.max(l.abs()));
            let apart = row[want as usize] - row[got as usize];
            assert!(
                apart <= tie * largest,
                "{name}: {got} for {want}, {apart} of {largest} apart"
            );
            return;
        }
        engine.feed(&[got], NEVER).expect("a token");
        fresh.feed(&[got], NEVER).expect("a token");
    }
}

/// Two sessions over one model take turns; after each turn the engine says what a fresh one says.
fn converse(model: &Model, seed: u64, turns: usize, tie: f32, name: &str) {
    let mut dice = Dice::new(seed);
    let mut sessions = [
        model.engine().expect("an engine"),
        model.engine().expect("an engine"),
    ];
    for turn_number in 0..turns {
        let engine = &mut *sessions[dice.below(2)];
        let prompt = turn(engine, &mut dice);
        let mut fresh = model.engine().expect("an engine");
        fresh.feed(&prompt, NEVER).expect("a prompt");
        let count = 1 + dice.below(4);
        let name = format!(
            "{name}, seed {seed}, turn {turn_number}: {} tokens",
            prompt.len()
        );
        agree(engine, &mut *fresh, count, tie, &name);
    }
}

#[test]
fn random_conversations_match_fresh_runs() {
    let mut conversations = 0;
    for bundle in talkers() {
        let name = bundle
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for (precision, tie) in [(Precision::Exact, 0.0), (Precision::Fast, TIE)] {
            let model = open(&bundle, |o| {
                o.precision = precision;
                o.chunk = Some(16);
            });
            for seed in 0..15 {
                converse(&model, seed, 6, tie, &format!("{name}, {precision:?}"));
                conversations += 1;
            }
        }
    }
    assert!(conversations >= 200, "{conversations}");
}

#[test]
fn growing_and_fixed_size_differ_only_in_memory() {
    let mut grew = 0;
    for bundle in [talkers(), all_bundles()].concat() {
        let with = |strategy| open(&bundle, |o| o.kv_cache = strategy);
        let fixed = with(KvCacheStrategy::FixedSize);
        let growing = with(KvCacheStrategy::Growing);
        let Ok(mut grown) = growing.engine() else {
            // Its caches are of fixed length, which the error says.
            let error = growing.engine().err().expect("an error").to_string();
            assert!(
                error.contains("growing") && error.contains("fixed_size"),
                "{error}"
            );
            continue;
        };
        let mut whole = fixed.engine().expect("an engine");
        let first = grown.state_bytes();
        assert!(first < whole.state_bytes(), "{}", bundle.display());
        let prompt: Vec<Token> = (0..400).map(|i| i % 300).collect();
        for engine in [&mut grown, &mut whole] {
            engine.feed(&prompt, NEVER).expect("a prompt");
        }
        assert!(grown.state_bytes() > first && grown.state_bytes() <= whole.state_bytes());
        assert_eq!(grown.logits().to_vec(), whole.logits().to_vec());
        assert_eq!(greedy(&mut *grown, 8), greedy(&mut *whole, 8));
        grew += 1;
    }
    assert_eq!(grew, 6);
}

#[test]
fn going_back_gives_what_a_fresh_run_gives() {
    for bundle in talkers() {
        let model = open(&bundle, |o| o.precision = Precision::Exact);
        let mut engine = model.engine().expect("an engine");
        let mut dice = Dice::new(3);
        for _ in 0..8 {
            let tokens = dice.tokens(60);
            engine.rewind(0).expect("to the start");
            engine.feed(&tokens, NEVER).expect("tokens");
            let to = dice.below(tokens.len());
            let kept = engine.trim_kv_cache(to);
            let rewinding = engine.capabilities().rewinding;
            if rewinding == Rewinding::ToTheStart && to > 0 {
                assert_eq!(kept, None, "{}", bundle.display());
                assert_eq!(engine.history(), tokens, "a refusal changes nothing");
                continue;
            }
            assert_eq!(kept, Some(to));
            assert_eq!(
                engine.trim_kv_cache(to + 100),
                Some(to),
                "no more than is held"
            );
            let rest = dice.tokens(10);
            engine.feed(&rest, NEVER).expect("the rest");
            let mut fresh = model.engine().expect("an engine");
            let all = [&tokens[..to], &rest].concat();
            fresh.feed(&all, NEVER).expect("all of it");
            assert_eq!(greedy(&mut *engine, 4), greedy(&mut *fresh, 4));
        }
    }
}

#[test]
fn every_engine_that_may_run_a_model_says_the_same() {
    for bundle in all_bundles() {
        let text = |variant| {
            let mut options = OpenOptions::default();
            options.variant = variant;
            let model = Model::open(&bundle, &options).ok()?;
            let mut chat = model.session().expect("a conversation");
            let prompt: Vec<Token> = (20..40).collect();
            let mut options = russet::GenerateOptions::default();
            options.max_tokens = Some(24);
            let mut streamed = String::new();
            let reply = chat
                .answer(&prompt, &options, &mut |t| streamed += t)
                .expect("an answer");
            assert_eq!(streamed, reply.text);
            Some((
                model.variant(),
                reply.tokens,
                reply.text,
                chat.engine().history().len(),
            ))
        };
        let default = text(None).expect("an answer");
        let variants = [
            EngineVariant::Sequential,
            EngineVariant::Pipelined,
            EngineVariant::StaticShape,
        ];
        let answers: Vec<_> = variants.iter().filter_map(|v| text(Some(*v))).collect();
        assert!(!answers.is_empty() && answers.iter().any(|a| a.0 == default.0));
        for answer in answers {
            assert_eq!(
                (&answer.1, &answer.2),
                (&default.1, &default.2),
                "{}",
                bundle.display()
            );
            assert_eq!(answer.3, default.3, "the engine holds the same");
        }
    }
}

#[test]
fn a_window_goes_on_without_end_in_bounded_memory() {
    for name in ["llama", "gemma3", "delta", "moe"] {
        let model = open(&talker(name), |o| {
            o.kv_cache = KvCacheStrategy::Chunked;
            o.max_context = Some(64);
        });
        let mut engine = model.engine().expect("an engine");
        assert!(engine.capabilities().unbounded);
        let mut dice = Dice::new(9);
        let mut most = 0;
        while engine.history().len() < 1000 {
            let tokens = dice.tokens(30);
            engine.feed(&tokens, NEVER).expect("tokens");
            most = most.max(engine.state_bytes());
        }
        let mut small = open(&talker(name), |o| o.max_context = Some(64))
            .engine()
            .expect("an engine");
        small
            .feed(&(0..64).collect::<Vec<_>>(), NEVER)
            .expect("tokens");
        assert!(most <= small.state_bytes(), "{name}: {most}");
    }
}

#[test]
fn a_window_holds_what_a_fresh_run_over_it_holds() {
    for name in ["llama", "qwen3-4bit", "gemma3", "delta"] {
        let model = open(&talker(name), |o| {
            o.kv_cache = KvCacheStrategy::Chunked;
            o.max_context = Some(48);
            o.precision = Precision::Exact;
        });
        for seed in 0..6 {
            converse(&model, seed, 10, 0.0, name);
        }
    }
}

#[test]
fn a_chunked_window_of_a_few_tokens_is_refused_with_its_sinks() {
    let model = open(&talker("llama"), |o| {
        o.kv_cache = KvCacheStrategy::Chunked;
        o.max_context = Some(5);
    });
    let error = model.engine().err().expect("an error").to_string();
    assert!(
        error.contains("4 attention sinks leave no room in a window of 5"),
        "{error}"
    );
}

#[test]
fn a_saved_session_goes_on_where_it_was() {
    let folder = std::env::temp_dir().join(format!("russet-sessions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for bundle in all_bundles() {
        let model = open(&bundle, |_| ());
        let path = folder.join("saved.safetensors");
        let mut options = russet::GenerateOptions::default();
        options.max_tokens = Some(6);
        let mut chat = model.session().expect("a conversation");
        let _ = chat
            .send("hello", &options, &mut |_| ())
            .expect("an answer");
        chat.save(&path).expect("a file");
        let mut other = model.session().expect("a conversation");
        other.load(&path).expect("a saved conversation");
        assert_eq!(other.messages(), chat.messages());
        assert_eq!(other.engine().history(), chat.engine().history());
        let say = |chat: &mut russet::Session| {
            chat.send("and on", &options, &mut |_| ())
                .expect("an answer")
        };
        let (a, b) = (say(&mut chat), say(&mut other));
        assert_eq!(
            (a.tokens, a.usage.reused_tokens),
            (b.tokens, b.usage.reused_tokens),
            "{}",
            bundle.display()
        );
    }
    std::fs::remove_dir_all(&folder).expect("the folder");
}

#[test]
fn sessions_of_other_models_and_damaged_ones_are_refused() {
    let folder = std::env::temp_dir().join(format!("russet-damaged-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("saved.safetensors");
    let (llama, qwen) = (
        open(&talker("llama"), |_| ()),
        open(&talker("qwen2"), |_| ()),
    );
    let mut chat = llama.session().expect("a conversation");
    let mut options = russet::GenerateOptions::default();
    options.max_tokens = Some(3);
    let _ = chat
        .send("hello", &options, &mut |_| ())
        .expect("an answer");
    chat.save(&path).expect("a file");
    let error = qwen
        .session()
        .expect("a conversation")
        .load(&path)
        .expect_err("an error");
    assert!(error.to_string().contains("is of \"llama"), "{error}");
    let whole = std::fs::read(&path).expect("the file");
    let before = (chat.messages().to_vec(), chat.engine().history().to_vec());
    let mut dice = Dice::new(1);
    for _ in 0..300 {
        let mut damaged = whole.clone();
        match dice.below(3) {
            0 => damaged.truncate(dice.below(whole.len())),
            1 => (0..4).for_each(|_| {
                let at = dice.below(whole.len().min(2000));
                damaged[at] = dice.below(256) as u8;
            }),
            _ => damaged.extend((0..dice.below(50)).map(|i| i as u8)),
        }
        std::fs::write(&path, &damaged).expect("a file");
        match chat.load(&path) {
            // What was damaged is some number, which is as good as another.
            Ok(()) => {
                std::fs::write(&path, &whole).expect("a file");
                chat.load(&path).expect("the whole file");
            }
            Err(_) => {
                assert_eq!(chat.messages(), before.0);
                assert_eq!(chat.engine().history(), before.1);
            }
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder");
}

/// What the weights give in float32 (`conformance/static_tokens.py`, `static_variant.py`).
#[test]
fn functions_of_fixed_shapes_say_what_their_weights_say() {
    for bundle in common::static_bundles() {
        says_what_its_weights_say(&bundle);
    }
}

fn says_what_its_weights_say(bundle: &std::path::Path) {
    let path = bundle.with_file_name("tokens.json");
    let text = std::fs::read(path).expect("the tokens");
    let recorded: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let numbers = |list: &serde_json::Value| -> Vec<f64> {
        let list = list.as_array().expect("a list").iter();
        list.map(|v| v.as_f64().expect("a number")).collect()
    };
    let tokens = |name: &str| -> Vec<Token> {
        numbers(&recorded[name])
            .iter()
            .map(|v| *v as Token)
            .collect()
    };
    let (prompt, answer, random) = (tokens("prompt"), tokens("answer"), tokens("tokens"));
    assert!(
        prompt.len() < 256 && prompt.len() + answer.len() > 256,
        "both contexts"
    );
    let places = recorded["logits"].as_object().expect("rows of logits");
    let mut places: Vec<(usize, Vec<f64>)> = places
        .iter()
        .map(|(n, row)| (n.parse().expect("a place"), numbers(row)))
        .collect();
    places.sort_by_key(|(n, _)| *n);
    for precision in [Precision::Exact, Precision::Fast] {
        let model = open(bundle, |o| o.precision = precision);
        assert_eq!(model.variant(), EngineVariant::StaticShape);
        let mut engine = model.engine().expect("an engine");
        let small = engine.state_bytes();
        engine.feed(&prompt, NEVER).expect("a prompt");
        assert_eq!(greedy(&mut *engine, answer.len()), answer, "{precision:?}");
        assert_eq!(
            engine.state_bytes(),
            2 * small,
            "the second context is twice as long"
        );
        engine.rewind(0).expect("to the start");
        for (n, want) in &places {
            let held = engine.history().len();
            engine.feed(&random[held..*n], NEVER).expect("tokens");
            let got = engine.logits().to_vec();
            let worst = got
                .iter()
                .zip(want)
                .map(|(a, b)| (f64::from(*a) - b).abs())
                .fold(0.0, f64::max);
            let largest = want.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
            assert!(
                worst <= 0.01 * largest,
                "{precision:?}, {n} tokens: {worst} of {largest}"
            );
        }
    }
}

#[test]
fn caches_of_eight_bits_say_nearly_the_same_in_half_the_memory() {
    let mut checked = 0;
    for bundle in talkers() {
        let given = open(&bundle, |o| o.kv_cache = KvCacheStrategy::FixedSize);
        let mut options = OpenOptions::default();
        options.kv_cache_kind = CacheKind::Int8;
        let Ok(model) = Model::open(&bundle, &options) else {
            continue;
        };
        let (mut whole, mut small) = (
            given.engine().expect("an engine"),
            model.engine().expect("an engine"),
        );
        let tokens: Vec<Token> = (0..100).map(|i| i * 29 % 300).collect();
        for engine in [&mut whole, &mut small] {
            engine.feed(&tokens[..90], NEVER).expect("a prompt");
            for token in &tokens[90..] {
                engine.feed(&[*token], NEVER).expect("a token");
            }
        }
        let (a, b) = (whole.logits().to_vec(), small.logits().to_vec());
        let dot =
            |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(x * y)).sum::<f64>();
        let cosine = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
        assert!(cosine > 0.9995 && a != b, "{}: {cosine}", bundle.display());
        checked += 1;
        for seed in 0..3 {
            converse(&model, seed, 5, TIE, "int8");
        }
    }
    assert!(checked >= 5, "{checked}");
}

#[test]
fn caches_of_eight_bits_are_refused_where_the_file_is_followed_exactly() {
    let mut options = OpenOptions::default();
    options.kv_cache_kind = CacheKind::Int8;
    options.precision = Precision::Exact;
    let error = Model::open(talker("llama"), &options).expect_err("an error");
    assert!(error.to_string().contains("fast precision"), "{error}");
}
