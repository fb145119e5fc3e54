//! Constraints followed token by token, on the small byte-level vocabulary of the fixtures and on a byte-fallback one.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tokenizer::Tokenizer;

mod bugs;
mod walks;

/// The tokenizer of the small bundles under `fixtures/lm`.
fn tiny() -> Tokenizer {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/lm/qwen3-4bit/tokenizer/tokenizer.json"
    );
    Tokenizer::from_json(&std::fs::read(path).expect("a committed fixture")).expect("a tokenizer")
}

/// A tokenizer in the manner of Llama 2: 256 byte tokens, words with `▁` for a space.
fn fallback() -> Tokenizer {
    let bytes = (0..256).map(|b| format!("<0x{b:02X}>"));
    let words = [
        "<s>", "▁", "▁a", "a", "b", "{", "}", "\"", ":", ",", "1", "2", "true", "</s>", "\":", "▁{",
    ];
    let words = words.into_iter().map(str::to_owned);
    let vocab: serde_json::Map<String, Value> = bytes
        .chain(words)
        .zip(0u32..)
        .map(|(t, id)| (t, id.into()))
        .collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let file = json!({
        "version": "1.0", "added_tokens": [special(256, "<s>"), special(269, "</s>")], "pre_tokenizer": null,
        "post_processor": null,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
                  "merges": [["▁", "a"], ["▁", "{"], ["\"", ":"]]},
    });
    Tokenizer::from_json(file.to_string().as_bytes()).expect("a tokenizer")
}

/// The tiny vocabulary with more logits than tokens, and its end tokens.
fn vocabulary() -> Arc<Vocabulary> {
    static ONCE: std::sync::OnceLock<Arc<Vocabulary>> = std::sync::OnceLock::new();
    let make = || {
        let tokenizer = tiny();
        let ends = ["<|im_end|>", "<|endoftext|>"].map(|t| tokenizer.id(t).expect("an end token"));
        Vocabulary::new(&tokenizer, &ends, tokenizer.largest_id() as usize + 20)
            .expect("byte-level")
    };
    ONCE.get_or_init(make).clone()
}

fn compiled(constraint: &Constraint) -> Grammar {
    Grammar::new(&vocabulary(), constraint).unwrap_or_else(|e| panic!("{e}"))
}

fn schema(schema: Value) -> Grammar {
    compiled(&Constraint::json_schema(schema))
}

/// Feeds a text, checking that each mask says what accepting does; whether all of it and its end are allowed.
fn takes(grammar: &Grammar, text: &str) -> bool {
    let vocabulary = grammar.vocabulary();
    let mut matcher = grammar.matcher();
    let mut mask = vec![0; vocabulary.mask_words()];
    // Special tokens in the text are themselves where the vocabulary has them.
    let mut tokens = vocabulary.tokens(text.as_bytes());
    if text.contains('<') {
        tokens = tiny().encode(text, false).expect("text");
    }
    for token in tokens {
        if matcher.fill_mask(&mut mask).is_err() || matcher.accept(token).is_err() {
            return false;
        }
    }
    matcher.can_finish()
}

fn allowed(mask: &[u32]) -> Vec<u32> {
    bits(mask).collect()
}

/// What grammars take and what they do not.
const LANGUAGES: [(&str, &str, &[&str], &[&str]); 9] = [
    (
        "regex",
        r"[a-c]+\d{2}",
        &["a12", "abc99"],
        &["a1", "d12", "a123"],
    ),
    (
        "choice",
        "yes|no|maybe \"so\"\n",
        &["yes", "no", "maybe \"so\"\n"],
        &["y", "yesno", ""],
    ),
    (
        "lark",
        "start: \"a\" b\nb: \"(\" b \")\" | \"x\"\n",
        &["ax", "a((x))"],
        &["a(x", "x"],
    ),
    (
        "gbnf",
        "root ::= \"a\" b # comment\nb ::= \"(\" b \")\"\n  | [x-z]\n",
        &["ax", "a((z))"],
        &["a(x", "aw"],
    ),
    (
        "gbnf",
        "root ::= item{2,3}\nitem ::= [0-9a-f] \"\\x2d\"?",
        &["a1", "a-b-c-"],
        &["a", "abcd", "g1"],
    ),
    (
        "gbnf",
        "root ::= \"\\\"\" [^\"\\\\\\x00-\\x1F]* \"\\\"\" .",
        &["\"abc é\"!", "\"\"\n"],
        &["\"a", "\"a\"\"b\""],
    ),
    (
        "gbnf",
        "root ::= list\nlist ::= \"[\" (value (\", \" value)*)? \"]\"\nvalue ::= [0-9]+ | list",
        &["[]", "[1, [22, []]]"],
        &["[1,]", "[1"],
    ),
    (
        "w3c",
        "Number ::= '-'? Digit+ ('.' Digit+)? /* done */\nDigit ::= [0-9]",
        &["-1.5", "22"],
        &["1.", "--1"],
    ),
    (
        "w3c",
        "Name ::= (Char - [#x61]) Char* \nChar ::= [a-z] | #x5F",
        &["b_a", "z"],
        &["abc", ""],
    ),
];

#[test]
fn notations_mean_their_languages() {
    for (notation, text, yes, no) in LANGUAGES {
        let constraint = match notation {
            "regex" => Constraint::regex(text),
            "choice" => Constraint::choice(text.split('|')),
            "lark" => Constraint::lark(text),
            _ => Constraint::ebnf(text).unwrap_or_else(|e| panic!("{text}: {e}")),
        };
        let grammar = compiled(&constraint);
        for t in yes {
            assert!(takes(&grammar, t), "{text} does not take {t:?}");
        }
        for t in no {
            assert!(!takes(&grammar, t), "{text} takes {t:?}");
        }
    }
}

#[test]
fn errors_of_grammars_name_the_line() {
    let cases = [
        ("root ::= \"a\"\nb ::= (\"x\"", "line 2"),
        ("root ::= missing", "missing"),
        ("root ::= [z-a]", "line 1"),
        ("root ::= \"a\"\nroot ::= \"b\"", "twice"),
        ("", "no rules"),
    ];
    for (text, word) in cases {
        let error = Constraint::ebnf(text).expect_err(text).to_string();
        assert!(error.contains(word), "{error}");
    }
    let deep = format!("root ::= {}", "(".repeat(10_000));
    assert!(Constraint::ebnf(&deep).is_err());
    for bad in [Constraint::regex("(a"), Constraint::lark("start: nowhere")] {
        assert!(Grammar::new(&vocabulary(), &bad).is_err());
    }
}

#[test]
fn masks_have_three_outcomes() {
    let grammar = compiled(&Constraint::regex("ab?"));
    let vocabulary = grammar.vocabulary().clone();
    let mut matcher = grammar.matcher();
    let mut mask = vec![0; vocabulary.mask_words()];
    let short = matcher.fill_mask(&mut mask[1..]);
    assert!(matches!(short, Err(GrammarError::MaskLength { .. })));
    assert_eq!(matcher.fill_mask(&mut mask), Ok(Mask::Constrained));
    // End tokens come only where the text is whole.
    assert!(
        allowed(&mask)
            .iter()
            .all(|t| !vocabulary.ends().contains(t))
    );
    let a = vocabulary.tokens(b"a")[0];
    assert_eq!(matcher.accept(a), Ok(false));
    assert_eq!(matcher.fill_mask(&mut mask), Ok(Mask::Constrained));
    assert!(vocabulary.ends().iter().all(|t| allowed(&mask).contains(t)));
    let b = vocabulary.tokens(b"b")[0];
    assert!(allowed(&mask).contains(&b));
    assert_eq!(matcher.accept(b), Ok(true));
    assert_eq!(matcher.fill_mask(&mut mask), Ok(Mask::Finished));
    assert!(allowed(&mask).is_empty());
    assert!(matches!(
        matcher.accept(b),
        Err(GrammarError::Rejected { .. })
    ));
    // Any end token ends it, and can be taken back.
    matcher.rollback(1).expect("two were accepted");
    for end in vocabulary.ends() {
        assert_eq!(matcher.accept(*end), Ok(true));
        assert!(matcher.is_finished());
        matcher.rollback(1).expect("an end token");
        assert!(!matcher.is_finished());
    }
    assert_eq!(
        matcher.rollback(2),
        Err(GrammarError::Rollback { wanted: 2, held: 1 })
    );
}

#[test]
fn free_text_allows_all_but_steering_tokens_and_gaps() {
    let grammar = compiled(&Constraint::regex("(?s:.*)"));
    let vocabulary = grammar.vocabulary().clone();
    let mut mask = vec![0; vocabulary.mask_words()];
    assert_eq!(
        grammar.matcher().fill_mask(&mut mask),
        Ok(Mask::Constrained)
    );
    for token in allowed(&mask) {
        let text = !vocabulary.bytes(token).is_empty();
        assert!(text || vocabulary.ends().contains(&token), "{token}");
    }
    assert!(allowed(&mask).len() > 200);
}

#[test]
fn fewer_logits_than_tokens_are_enough() {
    let vocabulary = Vocabulary::new(&tiny(), &[], 260).expect("byte-level");
    let grammar = Grammar::new(&vocabulary, &Constraint::json_object()).expect("a grammar");
    let mut mask = vec![0; vocabulary.mask_words()];
    assert_eq!(mask.len(), 9);
    grammar
        .matcher()
        .fill_mask(&mut mask)
        .expect("something may come");
    assert!(allowed(&mask).iter().all(|t| *t < 260));
    assert!(Vocabulary::new(&tiny(), &[], 0).is_err());
}

/// Contract B §10.2, 5: nobody says what kind a vocabulary is, so nobody says it wrongly.
#[test]
fn silent_failure_5_how_a_vocabulary_spells_bytes_the_tokenizer_tells() {
    let tokenizer = fallback();
    let vocabulary = Vocabulary::new(&tokenizer, &[269], 280).expect("byte-fallback");
    assert_eq!(vocabulary.bytes(0x41), b"A");
    assert_eq!(vocabulary.bytes(258), b" a");
    assert!(vocabulary.bytes(256).is_empty());
    // Text after other text gets no space in front.
    assert_eq!(vocabulary.tokens(b"{\""), [261, 263]);
    let constraint = Constraint::json_schema(
        json!({"type": "object", "properties": {"a": {"type": "boolean"}},
        "required": ["a"], "additionalProperties": false}),
    );
    let grammar = Grammar::new(&vocabulary, &constraint).expect("a grammar");
    assert!(takes(&grammar, "{\"a\": true}"));
    assert!(!takes(&grammar, "{\"b\": true}"));
    let mut matcher = grammar.matcher();
    assert!(
        vocabulary
            .tokens(b"{")
            .iter()
            .all(|t| matcher.accept(*t).is_ok())
    );
}

#[test]
fn text_that_must_come_is_known() {
    let rule = json!({"type": "object", "properties": {"temperature_in_celsius": {"type": "integer"}},
        "required": ["temperature_in_celsius"], "additionalProperties": false});
    let compact = JsonOptions {
        whitespace: 0,
        ..JsonOptions::default()
    };
    let grammar = compiled(&Constraint::json_schema(rule).with_options(compact));
    let mut matcher = grammar.matcher();
    let jump = matcher.jump_forward();
    assert_eq!(jump.text, "{\"temperature_in_celsius\":");
    let spelled: Vec<u8> = jump
        .tokens
        .iter()
        .flat_map(|t| grammar.vocabulary().bytes(*t).to_vec())
        .collect();
    assert!(!spelled.is_empty() && jump.text.as_bytes().starts_with(&spelled));
    // They are the tokens that the tokenizer makes of the text.
    assert!(
        grammar
            .vocabulary()
            .tokens(jump.text.as_bytes())
            .starts_with(&jump.tokens)
    );
    for token in jump.tokens {
        matcher.accept(token).expect("what must come may come");
    }
}

#[test]
fn constraints_are_compiled_once() {
    let constraint = Constraint::json_object();
    let (a, b) = (compiled(&constraint), compiled(&constraint));
    assert!(a.is_same(&b));
    // The order of members matters.
    let ab =
        schema(json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"], "type": "object"}));
    let ba =
        schema(json!({"properties": {"b": {}, "a": {}}, "required": ["a", "b"], "type": "object"}));
    assert!(!ab.is_same(&ba));
    assert!(takes(&ab, "{\"a\": 1, \"b\": 2}") && !takes(&ba, "{\"a\": 1, \"b\": 2}"));
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&a);
    shared(&a.matcher());
}

#[test]
fn text_then_json_and_tools() {
    let body = Constraint::json_schema(
        json!({"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"],
        "additionalProperties": false}),
    );
    let grammar = compiled(&Constraint::structural("ANSWER:", body));
    assert!(takes(&grammar, "I think so. ANSWER:{\"x\": 1}"));
    assert!(!takes(&grammar, "ANSWER:{\"x\": 2}") && !takes(&grammar, "no answer"));
    let tools = [(
        "add".to_owned(),
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
    )];
    let mut calls = ToolCalls::new(tools);
    let call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let wrong = "<tool_call>\n{\"name\": \"sub\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let auto = compiled(&Constraint::tool_calls(calls.clone()));
    assert!(takes(&auto, "plain text"));
    assert!(
        takes(&auto, call)
            && takes(&auto, &format!("let me see {call}\n{call}"))
            && !takes(&auto, wrong)
    );
    calls.required = true;
    calls.parallel = false;
    let one = compiled(&Constraint::tool_calls(calls));
    assert!(
        takes(&one, call) && !takes(&one, "plain text") && !takes(&one, &format!("{call}\n{call}"))
    );
}

#[test]
fn an_answer_that_would_be_cut_is_ended() {
    let rule = json!({"type": "object", "required": ["name", "tags"], "additionalProperties": false, "properties": {
        "name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string", "minLength": 2}}}});
    let grammar = schema(rule);
    let vocabulary = grammar.vocabulary().clone();
    let mut mask = vec![0; vocabulary.mask_words()];
    for limit in [40, 60, 100] {
        let mut matcher = grammar.matcher();
        let mut text = Vec::new();
        for left in (1..=limit).rev() {
            if matcher.fill_mask_within(&mut mask, left) == Ok(Mask::Finished) {
                break;
            }
            // The worst writer: goes on with a string as long as it may, then takes whatever is first.
            let mut all = allowed(&mask);
            all.sort_by_key(|t| vocabulary.bytes(*t) != b"x");
            let token = ending(&mut matcher, &mut mask, left, |all| all[0], all);
            text.extend_from_slice(vocabulary.bytes(token));
            if matcher.accept(token) == Ok(true) {
                break;
            }
        }
        let value: Value = serde_json::from_slice(&text)
            .unwrap_or_else(|e| panic!("{limit}: {e} in {}", String::from_utf8_lossy(&text)));
        assert!(value["tags"].is_array(), "{value}");
    }
}

/// A token that an end can still follow, as one picks among those that are left.
fn ending(
    matcher: &mut Matcher,
    mask: &mut [u32],
    left: usize,
    mut pick: impl FnMut(&[u32]) -> u32,
    mut all: Vec<u32>,
) -> u32 {
    for _ in 0..8 {
        let token = pick(&all);
        if matcher.can_end_after(token, left).expect("no limit") {
            return token;
        }
        all.retain(|t| *t != token);
        if all.is_empty() {
            break;
        }
    }
    matcher.fill_way_out(mask).expect("a way was found");
    allowed(mask)[0]
}

/// Schemas for the properties below.
fn some_schemas() -> [Grammar; 4] {
    [
        schema(
            json!({"type": "object", "properties": {"kind": {"enum": ["first", "second"]}, "n": {"type": "integer"},
            "list": {"type": "array", "items": {"type": ["string", "null"]}}}, "required": ["kind", "n"]}),
        ),
        schema(
            json!({"type": "array", "items": {"enum": ["ab", "abc", "b"]}, "uniqueItems": true, "minItems": 2}),
        ),
        schema(
            json!({"oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]}),
        ),
        compiled(&Constraint::regex("(foo|bar){1,9}[0-9]*")),
    ]
}

/// Walks so many steps, choosing by the numbers; all tokens.
fn walk(matcher: &mut Matcher, choices: &[u32]) -> Vec<u32> {
    let mut mask = vec![0; matcher.vocabulary().mask_words()];
    let mut tokens = Vec::new();
    for choice in choices {
        let (Ok(Mask::Constrained | Mask::Anything), false) =
            (matcher.fill_mask(&mut mask), matcher.is_finished())
        else {
            break;
        };
        let all = allowed(&mask);
        let token = all[*choice as usize % all.len()];
        assert!(
            matcher.accept(token).is_ok(),
            "a mask allows what is rejected"
        );
        tokens.push(token);
    }
    tokens
}

fn mask_of(matcher: &mut Matcher) -> Result<(Mask, Vec<u32>), GrammarError> {
    let mut mask = vec![0; matcher.vocabulary().mask_words()];
    matcher.fill_mask(&mut mask).map(|m| (m, mask))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A matcher that went on and back is as one that did not.
    #[test]
    fn going_back_is_as_never_having_gone(which in 0usize..4, choices in prop::collection::vec(any::<u32>(), 1..24), back in 0usize..24) {
        let grammar = &some_schemas()[which];
        let mut matcher = grammar.matcher();
        let tokens = walk(&mut matcher, &choices);
        let back = back.min(tokens.len());
        matcher.rollback(back).expect("that many were accepted");
        let mut fresh = grammar.matcher();
        for token in &tokens[..tokens.len() - back] {
            fresh.accept(*token).expect("it was accepted before");
        }
        prop_assert_eq!(matcher.tokens(), fresh.tokens());
        prop_assert!(mask_of(&mut matcher) == mask_of(&mut fresh));
        prop_assert_eq!(matcher.jump_forward(), fresh.jump_forward());
        prop_assert_eq!(matcher.can_finish(), fresh.can_finish());
    }

    /// What must come next is what every way on begins with.
    #[test]
    fn every_way_on_begins_with_what_must_come(which in 0usize..4, choices in prop::collection::vec(any::<u32>(), 1..24), more in prop::collection::vec(any::<u32>(), 8)) {
        let grammar = &some_schemas()[which];
        let mut matcher = grammar.matcher();
        walk(&mut matcher, &choices);
        let before = mask_of(&mut matcher);
        let jump = matcher.jump_forward();
        prop_assert!(before == mask_of(&mut matcher), "looking ahead changes nothing");
        if !jump.text.is_empty() {
            prop_assert!(!matcher.can_finish());
            let tokens = walk(&mut matcher, &more);
            let text: Vec<u8> = tokens.iter().flat_map(|t| grammar.vocabulary().bytes(*t).to_vec()).collect();
            let common = text.len().min(jump.text.len());
            prop_assert_eq!(&text[..common], &jump.text.as_bytes()[..common]);
        }
    }
}

#[test]
fn a_guide_makes_the_same_masks_beside_the_model_and_after_it() {
    let grammar = schema(json!({"type": "array", "items": {"type": "integer"}, "minItems": 2}));
    // A model without threads leaves a core, one with more threads than there are cores leaves none.
    let [mut beside, mut after] = [0, usize::MAX].map(|n| Guide::new(&grammar, n, false));
    let text = grammar.vocabulary().tokens(b"[1,23]");
    for token in text {
        let masks = [&mut beside, &mut after].map(|guide| {
            let ran = guide.prepare_during(Some(300), || Ok::<_, GrammarError>(7));
            assert_eq!(ran.expect("a mask"), 7);
            guide.mask().expect("more may follow").to_vec()
        });
        assert!(masks[0] == masks[1] && has(&masks[0], token));
        for guide in [&mut beside, &mut after] {
            guide.accept(token).expect("allowed");
        }
    }
}
