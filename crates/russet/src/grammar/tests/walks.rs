//! Random texts under many schemas, judged by an independent validator.

use super::*;
use crate::sample::SplitMix64;

/// Schemas of every kind of keyword.
fn schemas() -> Vec<Value> {
    let text = include_str!("schemas.jsonl");
    text.lines()
        .map(|l| serde_json::from_str(l).expect("a schema"))
        .collect()
}

/// A text of at most so many tokens, steered to its end, as bytes; whether it is whole.
fn random_text(grammar: &Grammar, rng: &mut SplitMix64, limit: usize) -> (Vec<u8>, bool) {
    let vocabulary = grammar.vocabulary().clone();
    let mut matcher = grammar.matcher();
    let mut mask = vec![0; vocabulary.mask_words()];
    let mut text = Vec::new();
    for left in (1..=limit).rev() {
        match matcher.fill_mask_within(&mut mask, left) {
            Ok(Mask::Finished) => return (text, true),
            Ok(_) => {}
            Err(GrammarError::DeadEnd { .. }) => return (text, false),
            Err(other) => panic!("{other}"),
        }
        let all = allowed(&mask);
        let any = |all: &[u32]| all[(rng.next_u64() % all.len() as u64) as usize];
        let token = ending(&mut matcher, &mut mask, left, any, all);
        text.extend_from_slice(vocabulary.bytes(token));
        if matcher.accept(token).expect("the mask allows it") {
            return (text, true);
        }
    }
    (text, matcher.can_finish())
}

#[test]
fn random_texts_are_valid() {
    let mut rng = SplitMix64::new(13);
    let schemas = schemas();
    assert!(schemas.len() >= 50);
    let (mut whole, mut total) = (0, 0);
    for case in schemas {
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(&case)
            .expect("a valid schema");
        let grammar = schema(case.clone());
        for _ in 0..12 {
            let (text, ended) = random_text(&grammar, &mut rng, 48);
            total += 1;
            if ended {
                whole += 1;
                let shown = String::from_utf8_lossy(&text).into_owned();
                let value: Value = match serde_json::from_slice(&text) {
                    Ok(value) => value,
                    // JSON has numbers that no reader has.
                    Err(e) if e.to_string().contains("number out of range") => continue,
                    Err(e) => panic!("{case}: {e}: {shown}"),
                };
                assert!(validator.is_valid(&value), "{case} allows {value}");
            }
        }
    }
    assert!(
        whole * 10 >= total * 9,
        "only {whole} of {total} texts came to an end"
    );
}
