//! What a program's functions, states and inputs tell the engine.

use std::path::{Path, PathBuf};

use super::*;
use crate::bundle::{DirectorySource, LanguageBundle};
use crate::engine::{Rewinding, Token};
use crate::open::open_module;

const NEVER: &dyn Fn() -> bool = &|| false;

fn asset(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/turns");
    folder.join(format!("{name}/{name}.aimodel"))
}

fn module(name: &str) -> Module {
    open_module(&asset(name)).unwrap()
}

fn main_of(module: &mut Module) -> &mut Graph {
    let found = module.graphs.iter_mut().find(|g| &*g.name == "main");
    found.unwrap()
}

fn runnable(module: Module) -> Result<Runnable, Error> {
    Runnable::new(module, "main", 512, &OpenOptions::default())
}

/// A module with a second function that fills the same states, which it names in another order.
fn with_prefill(name: &str) -> Module {
    let mut module = module(name);
    let mut prefill = module.graph("main").unwrap().clone();
    prefill.name = "prefill".into();
    let at = prefill
        .outputs
        .iter()
        .position(|o| &*o.name == "logits")
        .unwrap();
    prefill.outputs.remove(at);
    prefill.body.results.remove(at);
    let states = |p: &russet_graph::graph::Port| matches!(p.ty, Type::Handle(_));
    let places: Vec<usize> = (0..prefill.inputs.len())
        .filter(|i| states(&prefill.inputs[*i]))
        .collect();
    for (from, to) in places
        .iter()
        .zip(places.iter().rev())
        .take(places.len() / 2)
    {
        prefill.inputs.swap(*from, *to);
        prefill.body.args.swap(*from, *to);
    }
    module.graphs.push(prefill);
    module
}

#[test]
fn a_second_function_fills_the_states_of_a_prompt() {
    for name in ["llama", "delta"] {
        let (plain, filled) = (
            runnable(module(name)).unwrap(),
            runnable(with_prefill(name)).unwrap(),
        );
        let Functions::Dynamic {
            prefill: Some(_), ..
        } = filled.functions().unwrap()
        else {
            panic!("{name} has no second function");
        };
        let (mut a, mut b) = (plain.engine().unwrap(), filled.engine().unwrap());
        for tokens in [&[7, 8, 9, 10, 11][..], &[12], &[30, 40, 50]] {
            a.feed(tokens, NEVER).unwrap();
            b.feed(tokens, NEVER).unwrap();
            let (a, b) = (a.logits().to_vec(), b.logits().to_vec());
            let worst = a
                .iter()
                .zip(&b)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(worst < 0.01, "{name}: {worst}");
        }
        assert_eq!(a.history(), b.history());
    }
}

#[test]
fn a_second_function_that_returns_something_is_refused() {
    let mut module = module("llama");
    let mut prefill = module.graph("main").unwrap().clone();
    prefill.name = "prefill".into();
    module.graphs.push(prefill);
    let error = runnable(module)
        .unwrap()
        .engine()
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("logits") && error.contains("export the model again"),
        "{error}"
    );
}

/// A program that takes eight tokens at a time.
fn eight() -> Module {
    let mut module = module("llama");
    let main = main_of(&mut module);
    let ids = main.body.args[0].index();
    for ty in [&mut main.inputs[0].ty, &mut main.values[ids]] {
        let Type::Tensor(ty) = ty else {
            panic!("tokens")
        };
        ty.shape[1] = russet_graph::types::Dim::Const(8);
    }
    module
}

#[test]
fn functions_of_fixed_numbers_of_tokens_are_fed_so() {
    let free = runnable(module("llama")).unwrap();
    for (name, module) in [("one", module("one")), ("eight", eight())] {
        let fixed = runnable(module).unwrap();
        let mut engine = fixed.engine().unwrap();
        let mut again = fixed.engine().unwrap();
        let tokens: Vec<Token> = (0..21).map(|i| i * 13 % 300).collect();
        engine.feed(&tokens, NEVER).unwrap();
        for token in &tokens {
            again.feed(&[*token], NEVER).unwrap();
        }
        assert_eq!(engine.history(), tokens);
        assert_eq!(engine.logits().argmax(), again.logits().argmax(), "{name}");
        let worst = engine
            .logits()
            .to_vec()
            .iter()
            .zip(again.logits().to_vec())
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(worst < 0.01, "{name}: {worst}");
        assert_eq!(engine.logits().len(), free.vocabulary());
    }
}

/// `language.states` says what states are for, whatever they are called.
#[test]
fn states_are_what_the_bundle_says() {
    for (kind, want) in [
        ("kv_cache", Rewinding::Anywhere),
        ("fixed", Rewinding::ToTheStart),
        ("nonsense", Rewinding::Anywhere),
    ] {
        let mut runnable = runnable(module("llama")).unwrap();
        runnable.options.states = vec![("keyCache".into(), kind.into())];
        let engine = runnable.engine().unwrap();
        assert_eq!(engine.capabilities().rewinding, want, "{kind}");
    }
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lm/llama/llama.aimodel");
    let mut ring = runnable(open_module(&folder).unwrap()).unwrap();
    ring.options.states = vec![
        ("keyCache".into(), "sliding_cache".into()),
        ("valueCache".into(), "sliding_cache".into()),
    ];
    let engine = ring.engine().unwrap();
    assert_eq!(engine.capabilities().rewinding, Rewinding::Within(256));
}

#[test]
fn programs_have_digests_of_their_own() {
    let all = ["llama", "qwen2", "one", "moe"].map(|n| digest(&module(n)));
    for (i, a) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|b| a != b), "{all:?}");
    }
    assert_eq!(digest(&module("llama")), all[0]);
}

#[test]
fn a_function_that_is_no_language_model_says_why() {
    let mut renamed = module("llama");
    main_of(&mut renamed).name = "other".into();
    let error = runnable(renamed).err().unwrap().to_string();
    assert!(
        error.contains("no function \"main\"; it has other"),
        "{error}"
    );
    let mut module = module("llama");
    let main = main_of(&mut module);
    main.name = "image_encode".into();
    let (mut text, mut detect) = (main.clone(), main.clone());
    (text.name, detect.name) = ("text_encode".into(), "detect".into());
    module.graphs.extend([text, detect]);
    let error = runnable(module).err().unwrap().to_string();
    assert!(
        error.contains("incompatible with this model structure"),
        "{error}"
    );
}

/// Contract B §10.2, 3: what an engine says it can do is true before anything has run, and stays so.
#[test]
fn silent_failure_3_capabilities_are_the_same_before_and_after_a_step() {
    for name in ["llama", "delta", "one"] {
        let mut engine = runnable(module(name)).unwrap().engine().unwrap();
        let before = engine.capabilities();
        engine.feed(&[5, 6], NEVER).unwrap();
        assert_eq!(engine.capabilities(), before, "{name}");
        assert!(before.logits && !engine.logits().is_empty());
        let back = engine.trim_kv_cache(1).is_some();
        assert_eq!(back, before.rewinding == Rewinding::Anywhere, "{name}");
    }
}

/// Contract B §10.2, 8: inputs and outputs are found by name, so that their order does not matter.
#[test]
fn silent_failure_8_the_order_of_inputs_does_not_matter() {
    let mut swapped = module("llama");
    let main = main_of(&mut swapped);
    main.inputs.swap(0, 1);
    main.body.args.swap(0, 1);
    main.outputs.reverse();
    main.body.results.reverse();
    let [mut a, mut b] = [module("llama"), swapped].map(|m| runnable(m).unwrap().engine().unwrap());
    for engine in [&mut a, &mut b] {
        engine.feed(&[5, 6, 7], NEVER).unwrap();
        engine.feed(&[8], NEVER).unwrap();
    }
    assert_eq!(a.logits().to_vec(), b.logits().to_vec());
}

/// Names that nobody knows are taken by position, which the engine says.
#[test]
fn inputs_of_other_names_are_taken_by_position() {
    let mut other = module("llama");
    let main = main_of(&mut other);
    (main.inputs[0].name, main.inputs[1].name) = ("a".into(), "b".into());
    let runnable = runnable(other).unwrap();
    let mut engine = runnable.sequential().unwrap();
    assert_eq!(engine.io().by_position, ["a", "b"]);
    engine.feed(&[5, 6, 7], NEVER).unwrap();
}

#[test]
fn a_lazy_model_is_planned_when_it_is_needed_and_let_go_when_it_is_not() {
    let mut options = OpenOptions::default();
    options.lazy = true;
    let runnable = Runnable::new(module("llama"), "main", 64, &options).unwrap();
    let eager = self::runnable(module("llama")).unwrap();
    assert!(!runnable.is_loaded() && eager.is_loaded());
    assert_eq!(runnable.vocabulary(), eager.vocabulary());
    let mut engine = runnable.engine().unwrap();
    assert!(runnable.is_loaded());
    runnable.unload();
    assert!(!runnable.is_loaded());
    engine.feed(&[1, 2, 3], NEVER).unwrap();
    let mut again = runnable.engine().unwrap();
    again.feed(&[1, 2, 3], NEVER).unwrap();
    assert_eq!(engine.logits().argmax(), again.logits().argmax());
    // Many at once get one load.
    runnable.unload();
    let plans: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| runnable.plan().unwrap().unwrap()))
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(plans.iter().all(|p| Arc::ptr_eq(p, &plans[0])));
}

#[test]
fn a_load_that_fails_is_tried_again() {
    let mut options = OpenOptions::default();
    options.lazy = true;
    options.kv_cache_kind = CacheKind::Int8;
    options.precision = Precision::Exact;
    let runnable = Runnable::new(module("llama"), "main", 64, &options).unwrap();
    for _ in 0..2 {
        assert!(
            runnable
                .load()
                .unwrap_err()
                .to_string()
                .contains("exact precision")
        );
        assert!(!runnable.is_loaded());
    }
}

#[test]
fn chunks_are_what_the_caller_the_bundle_or_the_environment_says_in_this_order() {
    let chunks = |caller: (Option<usize>, Option<usize>), bundle: Option<usize>, environment| {
        let mut options = OpenOptions::default();
        (options.chunk, options.chunk_threshold) = caller;
        options.default_chunk_threshold = environment;
        let mut runnable = Runnable::new(module("llama"), "main", 512, &options).unwrap();
        let folder = DirectorySource::new(asset("llama").parent().unwrap());
        let mut language = LanguageBundle::read(&folder).unwrap().language;
        language.prefill_chunk_size = bundle;
        runnable.configure(&language, &options);
        (runnable.options.chunk, runnable.options.chunk_threshold)
    };
    let nobody = (None, None);
    assert_eq!(chunks(nobody, None, None), (512, 1024));
    assert_eq!(chunks(nobody, None, Some(100)), (100, 100));
    assert_eq!(chunks(nobody, None, Some(4000)), (512, 4000));
    assert_eq!(chunks(nobody, Some(64), Some(100)), (64, 128));
    assert_eq!(chunks((Some(32), None), Some(64), Some(100)), (32, 64));
    assert_eq!(chunks((None, Some(7)), Some(64), None), (512, 7));
}
