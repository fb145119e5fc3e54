//! What people ran into with other implementations of guided generation, one test each.

use super::*;

fn refused(schema: Value) -> GrammarError {
    Grammar::new(&vocabulary(), &Constraint::json_schema(schema)).expect_err("a refusal")
}

#[test]
fn white_space_is_bounded() {
    let grammar = schema(
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
    );
    assert!(takes(&grammar, "{\n  \"a\": 1\n}"));
    assert!(!takes(&grammar, "{\n\n\"a\": 1}") && !takes(&grammar, "{\"a\":  1}"));
    assert!(!takes(
        &grammar,
        &format!("{{{}\"a\": 1}}", "\n".repeat(60))
    ));
    assert!(!takes(&grammar, &format!("{{\"a\": 1}}{}", " ".repeat(4))));
}

#[test]
fn lengths_hold_beside_patterns_and_formats() {
    let grammar = schema(json!({"type": "string", "pattern": "^a+$", "maxLength": 2}));
    assert!(takes(&grammar, "\"aa\"") && !takes(&grammar, "\"aaa\""));
    let grammar = schema(json!({"type": "string", "format": "email", "maxLength": 6}));
    assert!(takes(&grammar, "\"a@b.c\"") && !takes(&grammar, "\"ab@cd.ef\""));
}

#[test]
fn escapes_count_as_one_character() {
    let grammar = schema(json!({"type": "string", "maxLength": 3}));
    assert!(takes(&grammar, r#""\n\"\\""#) && !takes(&grammar, r#""\n\n\n\n""#));
    assert!(takes(&grammar, r#""\u00e4éa""#));
    assert!(takes(
        &schema(json!({"type": "string", "maxLength": 8000})),
        r#""line\nline \"quoted\"""#
    ));
}

#[test]
fn huge_lengths_and_empty_tools_work() {
    let tools = [
        (
            "run".to_owned(),
            json!({"type": "object", "properties": {"script": {"type": "string", "maxLength": 524_288}}}),
        ),
        (
            "stop".to_owned(),
            json!({"type": "object", "properties": {}}),
        ),
    ];
    let grammar = compiled(&Constraint::tool_calls(ToolCalls::new(tools)));
    assert!(takes(
        &grammar,
        "<tool_call>{\"name\": \"run\", \"arguments\": {\"script\": \"ls -l\"}}</tool_call>"
    ));
    assert!(takes(
        &grammar,
        "<tool_call>{\"name\": \"stop\", \"arguments\": {}}</tool_call>"
    ));
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let cases = [
        (
            json!({"properties": {"a": {"pattern": "(a"}}}),
            "/properties/a",
            "pattern",
        ),
        (
            json!({"properties": {"foo": "bar"}}),
            "/properties/foo",
            "schema",
        ),
        (json!({"items": {"type": "text"}}), "/items", "type"),
        (json!({"$ref": "#/$defs/N"}), "", "$ref"),
        (
            json!({"allOf": [{"$ref": "https://example.com/other.json"}]}),
            "/allOf/0",
            "$ref",
        ),
        (json!({"required": true}), "", "required"),
        (json!({"minLength": -1}), "", "minLength"),
        (
            json!({"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}),
            "",
            "$ref",
        ),
    ];
    for (case, at, word) in cases {
        match refused(case.clone()) {
            GrammarError::Schema {
                pointer, keyword, ..
            } => {
                assert_eq!((pointer.as_str(), keyword.as_str()), (at, word), "{case}");
            }
            other => panic!("{case}: {other}"),
        }
    }
    assert!(matches!(
        refused(json!(false)),
        GrammarError::Unsatisfiable(_)
    ));
    assert!(matches!(
        refused(json!({"type": "string", "minLength": 3, "maxLength": 2})),
        GrammarError::Unsatisfiable(_)
    ));
}

#[test]
fn recursion_is_followed() {
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "additionalProperties": false}}});
    let grammar = schema(tree);
    assert!(takes(&grammar, "{\"children\": [{}, {\"children\": []}]}"));
    assert!(!takes(&grammar, "{\"children\": [1]}"));
    assert!(takes(
        &schema(json!({"type": "array", "items": {"$ref": "#"}})),
        "[[], [[]]]"
    ));
}

#[test]
fn hostile_schemas_are_bounded() {
    let mut deep = json!({"type": "string"});
    for _ in 0..300 {
        deep = json!({"oneOf": [{"type": "object", "properties": {"a": deep.clone()}, "required": ["a"]}, {"type": "null"}]});
    }
    assert!(matches!(
        Grammar::new(&vocabulary(), &Constraint::json_schema(deep)),
        Err(GrammarError::Limit(_))
    ));
    let mut chain = json!({"const": 0});
    for i in 1..40 {
        chain = json!({"if": {"properties": {"a": {"const": i}}}, "then": {"required": ["b"]}, "else": chain});
    }
    let wide: Vec<Value> = (0..12).map(|i| json!({"anyOf": [{"required": [format!("a{i}")]}, {"required": [format!("b{i}")]}]})).collect();
    let cases = [
        chain,
        json!({"allOf": wide}),
        json!({"type": "string", "pattern": "(a|b)*a(a|b){20}"}),
        json!({"type": "string", "pattern": "((a{0,100}){0,100}){0,100}"}),
        json!({"type": "string", "pattern": "^(?!x)(a|aa)*$"}),
        json!({"enum": (0..3000).map(|i| format!("value {i}")).collect::<Vec<_>>()}),
        json!({"type": "array", "maxItems": 1_000_000_000u64}),
        json!({"not": {"not": {"not": {"not": {"type": "string"}}}}}),
    ];
    for case in cases {
        let started = std::time::Instant::now();
        if let Ok(grammar) = Grammar::new(&vocabulary(), &Constraint::json_schema(case.clone())) {
            let mut matcher = grammar.matcher();
            walk(&mut matcher, &[1, 7, 3, 9, 11, 2, 5]);
        }
        let text = case.to_string();
        let took = started.elapsed();
        assert!(
            took.as_secs() < 20,
            "{took:?} for {}",
            text.get(..60).unwrap_or(&text)
        );
    }
}

#[test]
fn references_into_other_places_resolve() {
    let grammar = schema(
        json!({"type": "object", "additionalProperties": false, "properties": {
        "tree": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
        "same": {"$ref": "#/properties/tree/anyOf/1"}, "named": {"$ref": "other"}, "anchored": {"$ref": "#there"}},
        "$defs": {"a": {"$id": "other", "type": "boolean"}, "b": {"$anchor": "there", "const": "x"}}}),
    );
    assert!(takes(
        &grammar,
        "{\"same\": 1, \"named\": true, \"anchored\": \"x\"}"
    ));
    for wrong in [
        "{\"same\": null}",
        "{\"named\": 1}",
        "{\"anchored\": \"y\"}",
    ] {
        assert!(!takes(&grammar, wrong), "{wrong}");
    }
}

#[test]
fn keywords_hold_together() {
    let record = schema(
        json!({"type": "object", "propertyNames": {"type": "string", "pattern": "^[a-z]+$"},
        "additionalProperties": {"type": "integer"}}),
    );
    assert!(
        takes(&record, "{\"ab\": 1}")
            && !takes(&record, "{\"AB\": 1}")
            && !takes(&record, "{\"ab\": \"x\"}")
    );
    let both = schema(
        json!({"type": "object", "properties": {"score": {"type": "integer"}},
        "patternProperties": {"^score$": {"minimum": 5}}, "additionalProperties": false}),
    );
    assert!(takes(&both, "{\"score\": 7}") && !takes(&both, "{\"score\": 3}"));
    let needed = schema(json!({"type": "object", "required": ["a"]}));
    assert!(takes(&needed, "{\"a\": null}") && !takes(&needed, "{}"));
}

#[test]
fn thinking_is_free_and_what_follows_is_not() {
    let answer = Constraint::json_schema(
        json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}),
    );
    let grammar = compiled(&Constraint::structural("</think>", answer.clone()));
    assert!(takes(&grammar, "well { [ \"</think>{\"x\": \"y\"}"));
    assert!(!takes(&grammar, "well</think>and more"));
    // Without thinking, the answer is the answer.
    assert!(takes(&compiled(&answer), "{\"x\": \"y\"}"));
}

#[test]
fn a_grammar_of_letters_leaves_the_thinking_alone() {
    let letters = Constraint::ebnf("root ::= [a-z]+").expect("a grammar");
    let grammar = compiled(&Constraint::structural("</think>", letters));
    assert!(takes(&grammar, "42 + 1 = 43.\n</think>ok") && !takes(&grammar, "42</think>43"));
}

#[test]
fn rejected_drafts_leave_the_matcher_alone() {
    let grammar = schema(
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
    );
    let vocabulary = grammar.vocabulary().clone();
    let mut matcher = grammar.matcher();
    let mut fresh = grammar.matcher();
    for draft in ["```json", "{{", "[1]"] {
        let tokens = vocabulary.tokens(draft.as_bytes());
        let taken = tokens
            .iter()
            .take_while(|t| matcher.accept(**t).is_ok())
            .count();
        assert!(taken < tokens.len());
        matcher.rollback(taken).expect("as many as were taken");
        assert!(mask_of(&mut matcher) == mask_of(&mut fresh));
    }
}

#[test]
fn a_call_or_an_answer() {
    let answer = json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": false});
    let call = json!({"type": "object", "properties": {"name": {"const": "f"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"], "additionalProperties": false});
    let grammar = schema(json!({"anyOf": [call, answer]}));
    assert!(
        takes(&grammar, "{\"name\": \"f\", \"arguments\": {}}")
            && takes(&grammar, "{\"answer\": \"x\"}")
    );
    assert!(!takes(&grammar, "{\"name\": \"g\", \"arguments\": {}}"));
}

#[test]
fn every_end_token_ends_and_none_is_text() {
    let grammar = schema(json!({"type": "string"}));
    let vocabulary = grammar.vocabulary().clone();
    let mut matcher = grammar.matcher();
    let mut mask = vec![0; vocabulary.mask_words()];
    for token in vocabulary.tokens(b"\"a") {
        matcher.accept(token).expect("a string begins");
    }
    matcher.fill_mask(&mut mask).expect("it goes on");
    assert!(
        vocabulary
            .ends()
            .iter()
            .all(|e| !allowed(&mask).contains(e))
    );
    assert!(
        vocabulary
            .ends()
            .iter()
            .all(|e| matcher.accept(*e).is_err())
    );
    assert!(
        vocabulary
            .ends()
            .iter()
            .all(|e| vocabulary.bytes(*e).is_empty())
    );
}

#[test]
fn order_and_letters_beyond_ascii_are_kept() {
    let grammar = schema(
        json!({"type": "object", "properties": {"zürich": {"enum": ["grün", "\u{1F980}"]}, "a": {"type": "null"}},
        "required": ["zürich", "a"], "additionalProperties": false}),
    );
    assert!(takes(&grammar, "{\"zürich\": \"grün\", \"a\": null}"));
    assert!(!takes(&grammar, "{\"a\": null, \"zürich\": \"grün\"}"));
    assert!(takes(&grammar, "{\"zürich\": \"🦀\", \"a\": null}"));
}

#[test]
fn a_users_options_for_the_engine_are_ignored() {
    let grammar = schema(
        json!({"type": "object", "properties": {"a": {"type": "integer", "x-guidance": {}}}, "required": ["a"],
        "x-guidance": {"lenient": true, "whitespace_flexible": true, "key_separator": "="}}),
    );
    assert!(takes(&grammar, "{\"a\": 1}") && !takes(&grammar, "{\"a\"=1}"));
}

#[test]
fn numbers_of_every_length_fit_between_bounds_with_fractions() {
    let bounds = [0.0, 0.25, 0.5, 0.999, 1.0, 1.25, 1.3, 2.75, 10.05];
    let mut judged = [0, 0];
    for (i, low) in bounds.iter().enumerate() {
        for high in &bounds[i + 1..] {
            for sign in [1.0, -1.0] {
                let ends = if sign > 0.0 {
                    [*low, *high]
                } else {
                    [-high, -low]
                };
                for (min, max) in [
                    ("minimum", "maximum"),
                    ("exclusiveMinimum", "exclusiveMaximum"),
                ] {
                    let open = min == "exclusiveMinimum";
                    let grammar = schema(json!({"type": "number", min: ends[0], max: ends[1]}));
                    for steps in [1, 4, 10, 40] {
                        for n in 0..=(steps * 3).min(60) {
                            let number = sign * f64::from(n) / f64::from(steps);
                            let text = (number + 0.0).to_string();
                            let inside = ends[0] < number && number < ends[1]
                                || !open && ends.contains(&number);
                            let taken = takes(&grammar, &text);
                            assert_eq!(taken, inside, "{min} {ends:?}: {text}");
                            judged[usize::from(inside)] += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(judged[0] > 1_000 && judged[1] > 1_000, "{judged:?}");
}

#[test]
fn integers_may_have_a_fraction_of_zero() {
    let list = schema(
        json!({"type": "array", "items": {"type": "integer", "minimum": 10, "maximum": 300}}),
    );
    for text in ["[12.0]", "[12.0, 13,300.0 ]", "[ 100.0\n]"] {
        assert!(takes(&list, text), "{text}");
    }
    for text in [
        "[1.0]", "[12.]", "[12.1]", "[12.01]", "[12.00]", "[12.0e1]", "[400.0]", "[-12.0]",
        "[12.0.0]",
    ] {
        assert!(!takes(&list, text), "{text}");
    }
    let constants = schema(json!({"properties": {"a": {"enum": [1, 20, "3"]}}, "required": ["a"]}));
    assert!(takes(&constants, r#"{"a": 1.0}"#) && takes(&constants, r#"{"a": 20.0}"#));
    assert!(!takes(&constants, r#"{"a": 2.0}"#) && !takes(&constants, r#"{"a": "3.0"}"#));
    let unique =
        schema(json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true}));
    assert!(takes(&unique, "[1.0, 2]") && !takes(&unique, "[1, 1.0]"));
    // Not even its point, behind which there would be no way.
    let mut matcher = unique.matcher();
    let tokens = vocabulary().tokens(b"[1,1");
    tokens.iter().for_each(|t| drop(matcher.accept(*t)));
    let point = vocabulary().tokens(b".")[0];
    assert!(matcher.tokens().len() == tokens.len() && matcher.accept(point).is_err());
    // Draft 4 has no such integers.
    let old = schema(
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "items": {"type": "integer"}}),
    );
    assert!(takes(&old, "[1]") && !takes(&old, "[1.0]"));
    let number = schema(json!({"type": "array", "items": {"type": "number", "maximum": 2.5}}));
    assert!(takes(&number, "[1.25, 2.0]") && !takes(&number, "[2.75]"));
}

#[test]
fn slashes_may_be_escaped() {
    let text = schema(json!({"type": "array", "items": {"type": "string", "maxLength": 3}}));
    for accepted in [r#"["\/"]"#, r#"["a\/b"]"#, r#"["\/\/\/"]"#, r#"["\\/"]"#] {
        assert!(takes(&text, accepted), "{accepted}");
    }
    assert!(!takes(&text, r#"["\/\/\/\/"]"#) && !takes(&text, r#"[\/]"#));
    let fixed = schema(json!({"enum": ["a/b", "cd"]}));
    assert!(takes(&fixed, r#""a\/b""#) && !takes(&fixed, r#""c\/d""#));
    assert!(!takes(&fixed, r#""a\b""#) && !takes(&fixed, r#""a\""#));
    let pattern = schema(json!({"type": "string", "pattern": "^[a-c]/[0-9]$"}));
    assert!(takes(&pattern, r#""a\/1""#) && !takes(&pattern, r#""a\/\/1""#));
}

#[test]
fn other_forms_go_back_and_forth() {
    let grammar = schema(json!({"type": "array", "items": {"type": ["integer", "string"]}}));
    let vocabulary = vocabulary();
    let tokens: Vec<u32> = br#"["\/", 12.0, "a\n\/b", 7]"#
        .iter()
        .map(|b| {
            vocabulary
                .env
                .trie
                .token_id_at_bytes(&[*b])
                .expect("a byte")
        })
        .collect();
    let mut matcher = grammar.matcher();
    let mut masks: Vec<Vec<u32>> = Vec::new();
    let mut mask = vec![0; vocabulary.mask_words()];
    for token in &tokens {
        matcher.fill_mask(&mut mask).expect("a mask");
        assert!(
            mask[*token as usize / 32] >> (token % 32) & 1 == 1,
            "{token}"
        );
        masks.push(mask.clone());
        matcher.accept(*token).expect("an allowed token");
    }
    for back in 1..=tokens.len() {
        matcher.rollback(back).expect("so many are held");
        for (token, seen) in tokens.iter().zip(&masks).skip(tokens.len() - back) {
            matcher.fill_mask(&mut mask).expect("a mask");
            assert!(mask == *seen, "{back} back");
            matcher.accept(*token).expect("an allowed token");
        }
    }
}

#[test]
fn readers_of_integers_get_integers() {
    let options = JsonOptions {
        other_forms: false,
        ..JsonOptions::default()
    };
    let list = Constraint::json_schema(json!({"type": "array", "items": {"type": "integer"}}));
    let grammar = compiled(&list.with_options(options));
    assert!(takes(&grammar, "[1]") && !takes(&grammar, "[1.0]"));
}

#[test]
fn a_number_that_only_goes_on_to_another_of_the_list_is_not_begun() {
    let days = json!({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 30}, "uniqueItems": true});
    let options = JsonOptions {
        whitespace: 0,
        ..JsonOptions::default()
    };
    let days = compiled(&Constraint::json_schema(days).with_options(options));
    let begins = |text: &str, digit: &[u8]| {
        let mut matcher = days.matcher();
        for token in vocabulary().tokens(text.as_bytes()) {
            matcher.accept(token).expect("a valid beginning");
        }
        let mut mask = vec![0; days.vocabulary().mask_words()];
        matcher.fill_mask(&mut mask).expect("a mask");
        has(&mask, vocabulary().tokens(digit)[0])
    };
    // 3 is there, and so is all that it could become.
    assert!(!begins("[3,30,", b"3") && begins("[3,30,", b"2"));
    assert!(begins("[3,", b"3") && begins("[30,", b"3"));
}
