//! Scores against definitions, recordings of the reference, and a model that knows nothing.

use std::path::Path;
use std::sync::Arc;

use half::f16;
use russet_graph::graph::{Block, ConstantData, Storage};
use russet_graph::ops::Op;
use russet_graph::ops::constant::Constant;
use russet_kernels::mem::SharedBytes;

use super::*;
use crate::choose::{Record, TokenLogits};
use crate::engine::{Logits, Token};
use crate::open::{Model, OpenOptions, open_module};
use crate::{EngineVariant, GenerateOptions, Precision, tensors};

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

fn model(name: &str, all_logits: bool) -> Model {
    let mut options = OpenOptions::default();
    options.all_logits = all_logits;
    options.precision = Precision::Exact;
    Model::open(fixture(name), &options).expect("a fixture")
}

fn score(model: &Model, tokens: &[Token], from: usize) -> Vec<(Token, Vec<f32>)> {
    let mut scorer = Scorer::new(model).expect("a scorer");
    let mut all = Vec::new();
    scorer
        .score(tokens, from, &mut |token, row| {
            all.push((token, row.to_vec()))
        })
        .expect("scores");
    all
}

/// A model whose weights are all 0: to it every token is as likely as any other.
fn knows_nothing() -> Model {
    let bundle = fixture("turns/llama");
    let mut module = open_module(&bundle.join("llama.aimodel")).expect("a fixture");
    for graph in &mut module.graphs {
        blank(&mut graph.body);
    }
    let options = OpenOptions {
        all_logits: true,
        ..OpenOptions::default()
    };
    Model::of_module(module, 256, &options).expect("a model")
}

fn blank(block: &mut Block) {
    for node in &mut block.nodes {
        node.blocks.iter_mut().for_each(blank);
        if let Op::Constant(constant) = &node.op
            && constant.0.ty.dtype.is_float()
            && constant.0.ty.rank() > 1
        {
            let zeros = vec![0; constant.0.storage.bytes().len()];
            let data = ConstantData {
                ty: constant.0.ty.clone(),
                storage: Storage::Dense(SharedBytes::from_vec(zeros)),
            };
            node.op = Op::Constant(Constant(Arc::new(data)));
        }
    }
}

#[test]
fn to_a_model_that_knows_nothing_perplexity_is_the_vocabulary() {
    let model = knows_nothing();
    let vocabulary = model.vocabulary() as f64;
    assert!(vocabulary > 300.0);
    let mut scorer = Scorer::new(&model).expect("a scorer");
    let tokens: Vec<Token> = (0..200).map(|i| (i * 37) % 300).collect();
    for windows in [(64, 32), (200, 200), (7, 1)] {
        let judged = perplexity(&mut scorer, &tokens, 400, windows, &mut |_| ()).expect("a score");
        assert_eq!(judged.tokens, 199);
        assert!(
            (judged.perplexity() / vocabulary - 1.0).abs() < 1e-5,
            "{judged:?}"
        );
        let bits = 199.0 * vocabulary.log2() / 400.0;
        assert!((judged.bits_per_byte() / bits - 1.0).abs() < 1e-5);
    }
}

#[test]
fn scores_are_those_of_the_recorded_logits() {
    for name in ["qwen3-f32", "llama", "gemma3", "delta"] {
        let record = tensors::read(&fixture(&format!("lm/{name}.safetensors"))).expect("a record");
        let tensor = |wanted: &str| &record.iter().find(|(n, _)| n == wanted).expect(wanted).1;
        let tokens: Vec<Token> = tensor("call0.input_ids")
            .ints()
            .iter()
            .map(|t| *t as Token)
            .collect();
        let logits: Vec<f32> = tensor("call0.logits")
            .floats()
            .iter()
            .map(|l| *l as f32)
            .collect();
        let vocabulary = logits.len() / tokens.len();
        let rows: Vec<&[f32]> = logits.chunks(vocabulary).take(tokens.len() - 1).collect();
        let wanted = LogProbabilities::compute(&rows, &tokens[1..], 3).expect("scores");
        let scored = score(&model(&format!("lm/{name}"), true), &tokens, 1);
        let scored: Vec<&[f32]> = scored.iter().map(|(_, row)| &row[..]).collect();
        let found = LogProbabilities::compute(&scored, &tokens[1..], 3).expect("scores");
        let worst = wanted
            .values
            .iter()
            .zip(&found.values)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(
            worst < if name == "qwen3-f32" { 1e-5 } else { 0.02 },
            "{name}: {worst}"
        );
    }
}

#[test]
fn many_tokens_at_once_score_as_one_after_the_other() {
    let tokens: Vec<Token> = (0..150).map(|i| (i * 53 + 7) % 300).collect();
    for name in ["turns/llama", "turns/delta", "turns/one"] {
        let (many, one) = (model(name, true), model(name, false));
        for from in [1, 2, 70, 149] {
            let (a, b) = (score(&many, &tokens, from), score(&one, &tokens, from));
            assert_eq!((a.len(), b.len()), (150 - from, 150 - from));
            for (a, b) in a.iter().zip(&b) {
                assert_eq!(a.0, b.0);
                let apart =
                    a.1.iter()
                        .zip(&b.1)
                        .map(|(x, y)| (x - y).abs())
                        .fold(0.0, f32::max);
                assert!(apart < 0.03, "{name} {from}: {apart}");
            }
        }
    }
}

#[test]
fn a_shared_context_is_processed_once() {
    let model = model("turns/llama", true);
    let mut scorer = Scorer::new(&model).expect("a scorer");
    let mut both = |tokens: &[Token]| {
        let mut rows = Vec::new();
        scorer
            .score(tokens, 4, &mut |_, row| rows.push(row.to_vec()))
            .expect("scores");
        rows
    };
    let (a, b) = (both(&[5, 6, 7, 8, 9, 10]), both(&[5, 6, 7, 8, 50, 60]));
    assert_eq!(a[0], b[0], "what predicts the fifth token is the same");
    assert_ne!(a[1], b[1]);
    let fresh: Vec<Vec<f32>> = score(&model, &[5, 6, 7, 8, 50, 60], 4)
        .into_iter()
        .map(|s| s.1)
        .collect();
    let apart = fresh[1]
        .iter()
        .zip(&b[1])
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, f32::max);
    assert!(apart < 0.03, "{apart}");
}

#[test]
fn a_continuation_begins_where_the_context_alone_reads_otherwise() {
    let model = model("turns/llama", true);
    let mut scorer = Scorer::new(&model).expect("a scorer");
    let tokenizer = model.tokenizer().expect("a tokenizer");
    // Words that the tokenizer joins over the seam.
    let (context, rest) = ("the quick brow", "n fox");
    let alone = model.plain_prompt(context).expect("tokens");
    let judged = continuation(&model, &mut scorer, context, rest, 2).expect("a score");
    let whole: Vec<Token> = judged
        .context
        .iter()
        .chain(&judged.tokens)
        .copied()
        .collect();
    assert_eq!(
        tokenizer.decode(&whole, true).expect("text"),
        "the quick brown fox"
    );
    assert_eq!(alone[..judged.context.len()], judged.context);
    assert_ne!(alone.get(judged.context.len()), judged.tokens.first());
    let rows = score(&model, &whole, judged.context.len());
    let rows: Vec<&[f32]> = rows.iter().map(|(_, row)| &row[..]).collect();
    let wanted = LogProbabilities::compute(&rows, &judged.tokens, 2).expect("scores");
    assert!((wanted.sum() - judged.log_probabilities.sum()).abs() < 0.05);
    let errors = [("a", ""), ("", "a")].map(|(a, b)| continuation(&model, &mut scorer, a, b, 0));
    let errors = errors.map(|e| e.expect_err("nothing to score").to_string());
    assert!(
        errors[0].contains("the continuation is empty")
            && errors[1].contains("the context is empty")
    );
}

#[test]
fn log_probabilities_are_safe_at_the_edges() {
    let inf = f32::INFINITY;
    let rows: [&[f32]; 5] = [
        &[0.0, 0.0],
        &[inf, 1.0],
        &[-inf, -inf],
        &[f32::NAN, 0.0],
        &[1.0, -inf],
    ];
    let all = LogProbabilities::compute(&rows, &[0, 0, 1, 1, 1], 0).expect("scores");
    let half = -std::f64::consts::LN_2;
    assert_eq!(
        all.values,
        [half, 0.0, f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY]
    );
    assert!((all.mean() - half / 3.0).abs() < 1e-12);
    assert!((all.perplexity() - 2_f64.powf(1.0 / 3.0)).abs() < 1e-12);
    let beyond = LogProbabilities::compute(&rows[..1], &[7], 1).expect("scores");
    assert_eq!(beyond.values, [f64::NEG_INFINITY]);
    assert_eq!(beyond.top, [vec![(0, half)]]);
    assert!(LogProbabilities::compute(&rows[..1], &[1, 2], 0).is_err());
    assert!(LogProbabilities::compute(&[&[1.0], &[1.0, 2.0]], &[0, 0], 0).is_err());
    assert_eq!(LogProbabilities::default().perplexity(), 1.0);
}

/// Questions that anybody could make up by the hundred.
fn questions(count: usize) -> Vec<Question> {
    let words = [
        "the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog",
    ];
    let word = |i: usize| words[i % words.len()];
    let question = |i: usize| Question {
        question: format!("{} {} {}", word(i), word(i * 3 + 1), word(i * 5 + 2)),
        choices: (0..2 + i % 3)
            .map(|c| format!(" {} {}", word(i + c), word(c * i)))
            .collect(),
        answer: i % 2,
    };
    (0..count).map(question).collect()
}

#[test]
fn choices_are_those_of_a_script_over_exported_logits() {
    let model = model("turns/llama", true);
    let questions = questions(200);
    let lines: Vec<String> = questions
        .iter()
        .map(|q| serde_json::to_string(q).expect("JSON"))
        .collect();
    let read = read_questions(&lines.join("\n"), "questions").expect("questions");
    assert_eq!(read, questions);
    let mut scorer = Scorer::new(&model).expect("a scorer");
    let report = choices(&model, &mut scorer, &questions, &mut |_| ()).expect("answers");
    // The same by forcing the tokens through generation and adding up what its logits say.
    let mut session = model.session().expect("a session");
    let mut right = 0;
    for (question, result) in questions.iter().zip(&report.results) {
        let mut best = (f64::NEG_INFINITY, 0);
        for (at, choice) in question.choices.iter().enumerate() {
            let before = model.plain_prompt(&question.question).expect("tokens");
            let all = model
                .plain_prompt(&(question.question.clone() + choice))
                .expect("tokens");
            assert_eq!(all[..before.len()], before);
            let mut options = GenerateOptions::default();
            options.forced = all[before.len()..].to_vec();
            options.max_tokens = Some(options.forced.len());
            options.record = Record::Full;
            let reply = session
                .answer(&before, &options, &mut |_| ())
                .expect("an answer");
            let sum: f64 = reply.logits.iter().map(by_hand).sum();
            assert!((sum - result.log_probabilities[at]).abs() < 0.05);
            if sum > best.0 + 1e-9 {
                best = (sum, at);
            }
        }
        assert_eq!(best.1, result.chosen, "{question:?}");
        right += usize::from(best.1 == question.answer);
    }
    assert_eq!(report.accuracy, right as f64 / 200.0);
}

/// The log-probability of a token from its exported row.
fn by_hand(kept: &TokenLogits) -> f64 {
    let exp = |l: &f16| f64::from(l.to_f32()).exp();
    let sum: f64 = kept.all.iter().map(exp).sum();
    (exp(&kept.all[kept.token as usize]) / sum).ln()
}

#[test]
fn questions_that_are_none_name_their_line() {
    let error = |text: &str| {
        read_questions(text, "q.jsonl")
            .expect_err("no questions")
            .to_string()
    };
    assert!(error("\n{\"question\": 1}").starts_with("q.jsonl, line 2: "));
    let three = error("{\"question\": \"a\", \"choices\": [\"b\"], \"answer\": 3}");
    assert!(
        three.contains("the answer is 3, and there are 1 choices"),
        "{three}"
    );
}

#[test]
fn a_model_is_no_distance_from_itself_and_some_from_another() {
    let (exact, delta) = (model("turns/llama", true), model("turns/qwen2", true));
    let fast = Model::open(fixture("turns/llama"), &OpenOptions::default()).expect("a fixture");
    let tokens: Vec<Token> = (0..100).map(|i| (i * 29) % 300).collect();
    let apart = |other: &Model| {
        let (mut a, mut b) = (
            Scorer::new(&exact).expect("a"),
            Scorer::new(other).expect("b"),
        );
        compare(&mut a, &mut b, &tokens, 40, &mut |_| ()).expect("a comparison")
    };
    let (same, near, far) = (apart(&exact), apart(&fast), apart(&delta));
    assert_eq!(
        (same.places, same.mean_divergence, same.same_top),
        (97, 0.0, 1.0)
    );
    assert!((same.mean_cosine - 1.0).abs() < 1e-9 && same.perplexity[0] == same.perplexity[1]);
    assert!(
        near.mean_divergence < 0.01 && near.mean_divergence > 0.0,
        "{near:?}"
    );
    assert!(
        far.mean_divergence > near.worst_divergence && far.same_top < 1.0,
        "{far:?}"
    );
}

#[test]
fn logits_are_written_as_the_tools_read_them() {
    let model = model("turns/llama", false);
    let tokenizer = model.tokenizer().expect("a tokenizer");
    let file = |record| {
        let mut options = GenerateOptions::default();
        options.max_tokens = Some(3);
        options.record = record;
        let mut session = model.session().expect("a session");
        let reply = session
            .answer(&[40, 50], &options, &mut |_| ())
            .expect("an answer");
        let file = tokens_file(tokenizer, &reply.logits).expect("a file");
        (reply, serde_json::to_value(file).expect("JSON"))
    };
    let (reply, json) = file(Record::Top(5));
    for (entry, token) in json["tokens"]
        .as_array()
        .expect("tokens")
        .iter()
        .zip(&reply.tokens)
    {
        assert_eq!(entry["token_id"], *token);
        let top = entry["top_logits"].as_array().expect("logits");
        assert_eq!((top.len(), &top[0]["token_id"]), (5, &entry["token_id"]));
        assert!(top[0]["logit"].as_f64() >= top[1]["logit"].as_f64());
    }
    let (reply, json) = file(Record::Full);
    let text = json["tokens"][0]["logits_base64"].as_str().expect("base64");
    let bytes =
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).expect("bytes");
    let row: Vec<f32> = bytes
        .chunks(2)
        .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
        .collect();
    assert_eq!(Logits::F32(&row).argmax(), reply.tokens[0]);
}

#[test]
fn every_engine_can_be_scored() {
    let mut options = OpenOptions::default();
    options.all_logits = true;
    let model = Model::open(fixture("static/static"), &options).expect("a fixture");
    assert_eq!(model.variant(), EngineVariant::StaticShape);
    let rows = score(&model, &[3, 4, 5, 6], 1);
    assert_eq!(rows.len(), 3);
    let mut scorer = Scorer::new(&model).expect("a scorer");
    let error = scorer
        .score(&[1], 1, &mut |_, _| ())
        .expect_err("nothing to predict");
    assert!(error.to_string().contains("it takes two"));
}
