//! Logits in JSON files: of generated tokens, and of a continuation that was judged (contract F 1.5).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use half::f16;
use serde::Serialize;

use super::Continuation;
use crate::choose::TokenLogits;
use crate::detokenize::Detokenizer;
use crate::engine::Token;
use crate::tokenizer::{Tokenizer, TokenizerError};

/// A file of generated tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogitsFile {
    tokens: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Entry {
    token_id: Token,
    /// The text that became certain with this token.
    incremental_text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_logits: Vec<Candidate>,
    /// All logits as little-endian f16.
    #[serde(skip_serializing_if = "Option::is_none")]
    logits_base64: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Candidate {
    token_id: Token,
    text: String,
    logit: f32,
    log_prob: f64,
}

/// What is kept of generated tokens: the likeliest tokens at each, or all logits, as [`crate::Record`] asked for.
///
/// # Errors
/// Those of the tokenizer.
pub fn tokens_file(
    tokenizer: &Tokenizer,
    logits: &[TokenLogits],
) -> Result<LogitsFile, TokenizerError> {
    let mut words = Detokenizer::new(tokenizer, false);
    let entry = |kept: &TokenLogits| {
        let top = kept.top.iter().map(|(token, logit)| {
            let log_prob = f64::from(*logit) - kept.log_sum;
            candidate(tokenizer, *token, *logit, log_prob)
        });
        Ok(Entry {
            token_id: kept.token,
            incremental_text: words.push(kept.token)?,
            top_logits: top.collect::<Result<_, _>>()?,
            logits_base64: (!kept.all.is_empty()).then(|| encoded(&kept.all)),
        })
    };
    let tokens = logits.iter().map(entry).collect::<Result<_, _>>()?;
    Ok(LogitsFile { tokens })
}

fn candidate(
    tokenizer: &Tokenizer,
    token: Token,
    logit: f32,
    log_prob: f64,
) -> Result<Candidate, TokenizerError> {
    Ok(Candidate {
        token_id: token,
        text: tokenizer.decode(&[token], false)?,
        logit,
        log_prob,
    })
}

fn encoded(row: &[f16]) -> String {
    let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

#[derive(Serialize)]
struct Judged<'a> {
    context: &'a str,
    continuation: &'a str,
    context_tokens: &'a [Token],
    continuation_tokens: &'a [Token],
    positions: Vec<Position>,
    total_log_probability: f64,
    average_log_probability: f64,
    perplexity: f64,
}

#[derive(Serialize)]
struct Position {
    index: usize,
    target_token: Token,
    target_text: String,
    target_probability: f64,
    target_log_prob: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_k: Vec<Likely>,
}

#[derive(Serialize)]
struct Likely {
    token_id: Token,
    text: String,
    probability: f64,
    log_prob: f64,
}

/// A continuation that was judged, place by place.
///
/// # Errors
/// Those of the tokenizer.
pub fn continuation_file(
    tokenizer: &Tokenizer,
    (context, continuation): (&str, &str),
    judged: &Continuation,
) -> Result<serde_json::Value, TokenizerError> {
    let scores = &judged.log_probabilities;
    let position = |(index, (token, score)): (usize, (&Token, &f64))| {
        let likely = |(token_id, log_prob): &(Token, f64)| {
            Ok(Likely {
                token_id: *token_id,
                text: tokenizer.decode(&[*token_id], false)?,
                probability: log_prob.exp(),
                log_prob: *log_prob,
            })
        };
        let top = scores.top.get(index).into_iter().flatten();
        Ok(Position {
            index,
            target_token: *token,
            target_text: tokenizer.decode(&[*token], false)?,
            target_probability: score.exp(),
            target_log_prob: *score,
            top_k: top.map(likely).collect::<Result<_, _>>()?,
        })
    };
    let places = judged.tokens.iter().zip(&scores.values).enumerate();
    let judged = Judged {
        context,
        continuation,
        context_tokens: &judged.context,
        continuation_tokens: &judged.tokens,
        positions: places
            .map(position)
            .collect::<Result<_, TokenizerError>>()?,
        total_log_probability: scores.sum(),
        average_log_probability: scores.mean(),
        perplexity: scores.perplexity(),
    };
    Ok(serde_json::to_value(judged).unwrap_or_default())
}
