//! `cargo xtask conformance answer BUNDLE RECORD`: a recorded greedy answer, generated again.
//!
//! The recording holds the rendered prompt's tokens, the greedy tokens and the row of logits that each was chosen from. The
//! question goes through the bundle's own chat template and tokenizer, so those are checked too.

use std::fs;
use std::path::Path;

use russet::engine::{self, Engine};
use russet::{Message, Model, RenderOptions, Token};
use safetensors::SafeTensors;

use crate::compare::Distance;
use crate::record::{halves, numbers};
use crate::tally::{Failure, Tally};

/// The least cosine of a row of logits.
const COSINE: f64 = 0.9999;

/// A recorded answer.
struct Answer {
    prompt: Vec<Token>,
    greedy: Vec<Token>,
    logits: Vec<f32>,
}

/// Answers `question` with the bundle and compares with the recording.
pub(crate) fn replay(bundle: &Path, record: &Path, question: &str) -> Result<Tally, Failure> {
    let recorded = read(record)?;
    let model = Model::open(bundle, &crate::reference_options())?;
    let render = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let prompt = model.prompt(&[Message::new("user", question)], &render)?;
    let mut tally = Tally::default();
    report(
        &mut tally,
        "prompt tokens",
        prompt == recorded.prompt,
        prompt.len(),
    );
    let mut engine = model.engine()?;
    engine::resume(&mut *engine, &prompt, &|| false)?;
    let mut distance = Distance::NONE;
    let mut greedy = Vec::new();
    let vocab = recorded.logits.len() / recorded.greedy.len().max(1);
    for (row, &token) in recorded.logits.chunks(vocab.max(1)).zip(&recorded.greedy) {
        distance.row(&engine.logits().to_vec(), row);
        greedy.push(engine.logits().argmax());
        engine.feed(&[token], &|| false)?;
    }
    report(
        &mut tally,
        "greedy tokens",
        greedy == recorded.greedy,
        greedy.len(),
    );
    println!(
        "worst error {:.3e}, least cosine {:.7}",
        distance.error, distance.cosine
    );
    report(
        &mut tally,
        "rows of logits",
        distance.cosine >= COSINE,
        distance.rows,
    );
    Ok(tally)
}

fn report(tally: &mut Tally, what: &str, passed: bool, count: usize) {
    println!(
        "{what}: {count} {}",
        if passed { "equal" } else { "FAILED" }
    );
    tally.count(passed && count > 0);
}

fn read(path: &Path) -> Result<Answer, Failure> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let tensors = SafeTensors::deserialize(&bytes)?;
    let tokens = |name: &str| -> Result<Vec<Token>, Failure> {
        Ok(numbers(tensors.tensor(name)?.data(), u32::from_le_bytes))
    };
    Ok(Answer {
        prompt: tokens("prompt")?,
        greedy: tokens("greedy")?,
        logits: halves(tensors.tensor("logits")?.data()),
    })
}
