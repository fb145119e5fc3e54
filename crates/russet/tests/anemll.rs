//! Folders of Core ML packages as models: prompts in batches and token by token, going back, snapshots, windows, chat.

use std::path::PathBuf;

use russet::engine::{Rewinding, resume};
use russet::{
    Engine, EngineVariant, GenerateOptions, KvCacheStrategy, Message, Model, ModelSource,
    OpenOptions, Precision, RenderOptions, Token,
};

const NEVER: &dyn Fn() -> bool = &|| false;

fn open(name: &str, change: impl FnOnce(&mut OpenOptions)) -> Model {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/coreml");
    let mut options = OpenOptions::default();
    options.threads = 2;
    options.precision = Precision::Exact;
    change(&mut options);
    Model::open(PathBuf::from(folder).join(name), &options).expect("a model")
}

fn tokens(count: usize) -> Vec<Token> {
    (0..count).map(|i| (i * 37 % 300 + 5) as Token).collect()
}

/// The logits after tokens that are fed in pieces of these sizes, the last as often as it takes.
fn after(engine: &mut dyn Engine, tokens: &[Token], pieces: &[usize]) -> Vec<u32> {
    let mut left = tokens;
    let mut sizes = pieces
        .iter()
        .chain(std::iter::repeat(pieces.last().expect("a size")));
    while !left.is_empty() {
        let size = sizes.next().copied().unwrap_or(1).min(left.len());
        assert_eq!(engine.feed(&left[..size], NEVER).expect("logits"), size);
        left = &left[size..];
    }
    engine
        .logits()
        .to_vec()
        .iter()
        .map(|x| x.to_bits())
        .collect()
}

/// Of a shifting window, a position's slot depends on its block alone, so that both ways read keys in one order (contract A).
#[test]
fn batches_and_single_tokens_agree_bit_for_bit() {
    for (name, batch) in [("gemma4", 16), ("qwen3-lut4", 16), ("monolithic", 8)] {
        let model = open(name, |_| {});
        for count in [16, 17, 48, 100].map(|n: usize| n.min(model.max_context() - 1)) {
            let vocabulary = model.vocabulary() as Token;
            let prompt: Vec<Token> = tokens(count).iter().map(|t| t % vocabulary).collect();
            let single = after(&mut model.anemll().unwrap(), &prompt, &[1]);
            for pieces in [&[count][..], &[5, batch], &[batch + 3, 1]] {
                let mut engine = model.anemll().unwrap();
                assert_eq!(engine.batch(), batch);
                let whole = after(&mut engine, &prompt, pieces);
                assert!(whole == single, "{name}, {count} tokens as {pieces:?}");
            }
        }
    }
}

#[test]
fn what_a_folder_is_and_holds() {
    let model = open("gemma4", |_| {});
    assert_eq!(
        (model.source(), model.variant()),
        (ModelSource::Anemll, EngineVariant::StaticShape)
    );
    assert_eq!((model.max_context(), model.vocabulary()), (160, 331));
    let functions: Vec<&str> = model.module().functions().map(|g| &*g.name).collect();
    assert_eq!(
        functions,
        [
            "embeddings.main",
            "chunk1.infer",
            "chunk1.prefill",
            "lm_head.main"
        ]
    );
    let short = open("qwen3-lut4", |o| o.max_context = Some(20));
    let error = short
        .engine()
        .unwrap()
        .feed(&tokens(21), NEVER)
        .unwrap_err();
    assert!(error.to_string().contains("the context is full"), "{error}");
}

#[test]
fn a_full_length_cache_goes_back_and_a_shifting_one_does_not() {
    let plain = open("qwen3-lut4", |_| {});
    let mut engine = plain.engine().unwrap();
    assert_eq!(engine.capabilities().rewinding, Rewinding::Anywhere);
    let (first, mut other) = (tokens(40), tokens(40));
    other[25] = 9;
    engine.feed(&first, NEVER).unwrap();
    assert_eq!(resume(&mut *engine, &other, NEVER).unwrap(), 25);
    let fresh = after(&mut *plain.engine().unwrap(), &other, &[40]);
    let held: Vec<u32> = engine
        .logits()
        .to_vec()
        .iter()
        .map(|x| x.to_bits())
        .collect();
    assert!(held == fresh);

    let shifting = open("gemma4", |_| {});
    let mut engine = shifting.engine().unwrap();
    assert_eq!(engine.capabilities().rewinding, Rewinding::ToTheStart);
    engine.feed(&first, NEVER).unwrap();
    assert!(engine.rewind(20).is_err());
    assert_eq!(resume(&mut *engine, &other, NEVER).unwrap(), 0);
    let fresh = after(&mut *shifting.engine().unwrap(), &other, &[40]);
    let held: Vec<u32> = engine
        .logits()
        .to_vec()
        .iter()
        .map(|x| x.to_bits())
        .collect();
    assert!(held == fresh);
}

#[test]
fn a_snapshot_goes_on_where_it_was_taken() {
    for name in ["gemma4", "qwen3-lut4"] {
        let model = open(name, |_| {});
        let (start, end) = (tokens(50), tokens(7));
        let mut engine = model.engine().unwrap();
        engine.feed(&start, NEVER).unwrap();
        let snapshot = engine.snapshot();
        let want = after(&mut *engine, &end, &[1]);
        engine.feed(&tokens(30), NEVER).unwrap();
        engine.restore(&snapshot).unwrap();
        assert_eq!(engine.history(), start);
        assert!(after(&mut *engine, &end, &[1]) == want, "{name}");
        let other = open(
            if name == "gemma4" {
                "qwen3-lut4"
            } else {
                "gemma4"
            },
            |_| {},
        );
        assert!(
            other.engine().unwrap().restore(&snapshot).is_err(),
            "{name}"
        );
    }
}

#[test]
fn a_window_makes_a_conversation_without_end() {
    let model = open("gemma4", |o| o.kv_cache = KvCacheStrategy::Chunked);
    let mut engine = model.engine().unwrap();
    for part in tokens(400).chunks(60) {
        engine.feed(part, NEVER).unwrap();
    }
    assert_eq!(engine.history().len(), 400);
    assert!(engine.logits().to_vec().iter().all(|x| x.is_finite()));
    let growing = open("gemma4", |o| o.kv_cache = KvCacheStrategy::Growing);
    assert!(growing.engine().is_err());
}

#[test]
fn it_chats() {
    let model = open("qwen3-lut4", |o| o.precision = Precision::Fast);
    let prompt = model.prompt(&[Message::new("user", "hello")], &RenderOptions::default());
    assert!(!prompt.unwrap().is_empty());
    let mut options = GenerateOptions::default();
    options.max_tokens = Some(5);
    let mut chat = model.session().unwrap();
    let reply = chat.send("hello", &options, &mut |_| {});
    reply.expect("a reply");
}

/// Heads that choose for themselves say of every part which entry is the largest: the largest of all is that of the whole logits.
#[test]
fn a_head_that_chooses_agrees_with_one_that_does_not() {
    let (whole, chosen) = (
        open("monolithic", |_| {}),
        open("monolithic-argmax", |_| {}),
    );
    let prompt = tokens(20).iter().map(|t| t % 203).collect::<Vec<_>>();
    let mut engines = [whole.engine().unwrap(), chosen.engine().unwrap()];
    for engine in &mut engines {
        engine.feed(&prompt, NEVER).unwrap();
    }
    for _ in 0..24 {
        let [all, one] = [0, 1].map(|i| engines[i].logits());
        assert_eq!((all.argmax(), one.to_vec().len()), (one.argmax(), 203));
        let next = all.argmax();
        for engine in &mut engines {
            engine.feed(&[next], NEVER).unwrap();
        }
    }
}

/// Behind the end of its window a cache rotates: in the functions for that, one by one or by batches, and not back.
#[test]
fn caches_rotate_behind_their_window() {
    let model = open("rotating", |_| {});
    let mut engine = model.engine().unwrap();
    assert_eq!(engine.capabilities().rewinding, Rewinding::Within(32));
    let prompt = tokens(60).iter().map(|t| t % 203).collect::<Vec<_>>();
    engine.feed(&prompt, NEVER).unwrap();
    assert!(engine.rewind(40).is_err());
    engine.rewind(0).unwrap();
    let again = after(&mut *engine, &prompt, &[60]);
    let fresh = after(&mut *model.engine().unwrap(), &prompt, &[60]);
    assert!(again == fresh);
}
