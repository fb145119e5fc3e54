//! Multiple choice: which of several continuations a model finds likeliest.

use serde::{Deserialize, Serialize};

use super::{EvaluationError, Scorer, continuation};
use crate::open::Model;

/// A question with its choices.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Question {
    /// What comes before every choice.
    #[serde(alias = "context", alias = "prompt")]
    pub question: String,
    /// The continuations to choose from; each follows the question as it is, with its leading space where there is one.
    pub choices: Vec<String>,
    /// Which one is right, from 0.
    pub answer: usize,
}

/// A question answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChoiceResult {
    /// The log-probability of each choice.
    pub log_probabilities: Vec<f64>,
    /// The choice of the highest log-probability; the first of several.
    pub chosen: usize,
    /// The choice of the highest log-probability a byte of its text.
    pub chosen_by_length: usize,
    /// The right one.
    pub answer: usize,
}

/// All questions answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChoicesReport {
    /// Questions.
    pub questions: usize,
    /// The share of them where the likeliest choice is right.
    pub accuracy: f64,
    /// The same by log-probability a byte.
    pub accuracy_by_length: f64,
    /// Each question.
    pub results: Vec<ChoiceResult>,
}

/// Reads questions, one JSON object a line; `place` names the file in errors.
///
/// # Errors
/// [`EvaluationError::Questions`] with the line of the first that is none.
pub fn read_questions(text: &str, place: &str) -> Result<Vec<Question>, EvaluationError> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty());
    let questions = lines.map(|(at, line)| {
        let fail = |reason: String| EvaluationError::Questions {
            place: format!("{place}, line {}", at + 1),
            reason,
        };
        let question: Question = serde_json::from_str(line).map_err(|e| fail(e.to_string()))?;
        if question.answer >= question.choices.len() {
            return Err(fail(format!(
                "the answer is {}, and there are {} choices (counted from 0)",
                question.answer,
                question.choices.len()
            )));
        }
        Ok(question)
    });
    questions.collect()
}

/// Answers questions; `on_progress` hears of every one.
///
/// # Errors
/// Those of [`continuation`].
pub fn choices(
    model: &Model,
    scorer: &mut Scorer,
    questions: &[Question],
    on_progress: &mut dyn FnMut(usize),
) -> Result<ChoicesReport, EvaluationError> {
    let mut report = ChoicesReport {
        questions: questions.len(),
        ..ChoicesReport::default()
    };
    for question in questions {
        let scores = question.choices.iter().map(|choice| {
            let scored = continuation(model, scorer, &question.question, choice, 0)?;
            Ok(scored.log_probabilities.sum())
        });
        let scores = scores.collect::<Result<Vec<f64>, EvaluationError>>()?;
        let by_length = scores.iter().zip(&question.choices);
        let by_length = by_length.map(|(s, c)| s / c.len().max(1) as f64);
        report.results.push(ChoiceResult {
            chosen: largest(scores.iter().copied()),
            chosen_by_length: largest(by_length),
            answer: question.answer,
            log_probabilities: scores,
        });
        on_progress(report.results.len());
    }
    let share = |right: fn(&&ChoiceResult) -> bool| {
        report.results.iter().filter(right).count() as f64 / questions.len().max(1) as f64
    };
    report.accuracy = share(|r| r.chosen == r.answer);
    report.accuracy_by_length = share(|r| r.chosen_by_length == r.answer);
    Ok(report)
}

/// The first of the largest.
fn largest(values: impl Iterator<Item = f64>) -> usize {
    let better = |best: (usize, f64), this: (usize, f64)| if this.1 > best.1 { this } else { best };
    values.enumerate().fold((0, f64::NEG_INFINITY), better).0
}
