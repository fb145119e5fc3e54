//! Once warm, a step allocates nothing: every small model of the fixtures, exact and fast, counted by the allocator.

mod common;

use std::sync::Mutex;

use common::bundles;
use russet::{Engine, Model, OpenOptions, Precision};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// Counting sees all threads, so the tests of this file take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Conversations after which a step that allocates does so for good.
const WARM_UP: usize = 30;

/// A prompt, which has more tokens than any kernel takes one by one, and some single tokens.
fn talk(engine: &mut dyn Engine) {
    let never = || false;
    engine.rewind(0).expect("to the start");
    let prompt: [u32; 45] = std::array::from_fn(|i| i as u32 + 30);
    engine.feed(&prompt, &never).expect("a prompt");
    for token in 12..30 {
        engine.feed(&[token], &never).expect("a token");
    }
}

fn check(precision: Precision) {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut allocating = Vec::new();
    for bundle in bundles() {
        let mut options = OpenOptions::default();
        options.precision = precision;
        let model = Model::open(&bundle, &options).expect("a model");
        let mut engine = model.engine().expect("an engine");
        // A worker's memory grows when it first meets a task, so how soon all is warm is a matter of chance.
        let mut counted = usize::MAX;
        for _ in 0..WARM_UP {
            let region = Region::new(ALLOCATOR);
            talk(&mut *engine);
            let stats = region.change();
            counted = stats.allocations + stats.reallocations;
            if counted == 0 {
                break;
            }
        }
        if counted > 0 {
            let name = bundle
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            allocating.push(format!("{name}: {counted}"));
        }
    }
    assert!(
        allocating.is_empty(),
        "allocations in a warm conversation: {allocating:?}"
    );
}

#[test]
fn exact_steps_allocate_nothing() {
    check(Precision::Exact);
}

#[test]
fn fast_steps_allocate_nothing() {
    check(Precision::Fast);
}
