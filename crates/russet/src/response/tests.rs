//! Every form, whole and cut anywhere, through three kinds of tokenizers.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::detokenize::Detokenizer;
use crate::tokenizer::tests::{fallback, metaspace, tiny};

const TAGGED: ReasoningFormat = ReasoningFormat::Tags("<think>", "</think>");

fn format(reasoning: ReasoningFormat) -> ResponseFormat {
    ResponseFormat {
        reasoning,
        tools: true,
        markers: vec![],
    }
}

/// Text, reasoning and calls of pieces that arrive one after the other; no piece may be empty.
fn parse<'t>(
    format: &ResponseFormat,
    prompt: &str,
    pieces: impl IntoIterator<Item = &'t str>,
) -> (String, String, Vec<ToolCall>) {
    let schema = json!({"properties": {"zip": {"type": "string"}}});
    let mut parser = ResponseParser::new(format, prompt, vec![("weather".into(), schema)]);
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    let mut take = |piece| match piece {
        Piece::Text(t) => {
            assert!(!t.is_empty());
            text += &t;
        }
        Piece::Reasoning(t) => {
            assert!(!t.is_empty());
            reasoning += &t;
        }
        Piece::Call(call) => calls.push(call),
    };
    pieces.into_iter().for_each(|p| parser.push(p, &mut take));
    parser.finish(&mut take);
    (text, reasoning, calls)
}

fn call(name: &str, arguments: Value) -> ToolCall {
    let Value::Object(arguments) = arguments else {
        panic!("no object")
    };
    ToolCall {
        name: name.into(),
        arguments,
    }
}

/// What a model may write, and what it means.
struct Case {
    reasoning: ReasoningFormat,
    written: &'static str,
    text: &'static str,
    thought: &'static str,
    calls: Vec<ToolCall>,
}

fn case(
    reasoning: ReasoningFormat,
    written: &'static str,
    text: &'static str,
    thought: &'static str,
    calls: Vec<ToolCall>,
) -> Case {
    Case {
        reasoning,
        written,
        text,
        thought,
        calls,
    }
}

fn oslo() -> Vec<ToolCall> {
    vec![call("weather", json!({"city": "Oslo"}))]
}

fn cases() -> Vec<Case> {
    [reasoning(), calls_in_json(), other_calls(), channels()]
        .into_iter()
        .flatten()
        .collect()
}

/// Text, and what the model says to itself.
fn reasoning() -> Vec<Case> {
    use ReasoningFormat::{None as No, Tags};
    vec![
        case(
            No,
            "just < text > with <tool",
            "just < text > with <tool",
            "",
            vec![],
        ),
        case(TAGGED, "<think>hm</think>Yes", "Yes", "hm", vec![]),
        case(TAGGED, "a<think>b</think>c<think>d", "ac", "bd", vec![]),
        case(
            Tags("<|reasoning_start|>", "<|reasoning_end|>"),
            "<|reasoning_start|>é<|reasoning_end|>ok",
            "ok",
            "é",
            vec![],
        ),
    ]
}

/// Calls whose block is JSON.
fn calls_in_json() -> Vec<Case> {
    use ReasoningFormat::None as No;
    let both = || vec![call("a", json!({"x": [1, "]"]})), call("b", json!({}))];
    vec![
        case(
            TAGGED,
            "<think>look</think><tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
            "",
            "look",
            oslo(),
        ),
        case(
            No,
            "<tool_call>{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": \\\"Oslo\\\"}\"}</tool_call> done",
            " done",
            "",
            oslo(),
        ),
        case(
            No,
            "<function_calls>[{\"name\":\"a\",\"arguments\":{\"x\":[1,\"]\"]}},{\"name\":\"b\"}]</function_calls>",
            "",
            "",
            both(),
        ),
        case(
            No,
            "[TOOL_CALLS] [{\"name\": \"a\",\n \"arguments\": {\"x\": [1, \"]\"]}},\n {\"name\": \"b\"}]\nAnd on",
            "\nAnd on",
            "",
            both(),
        ),
        case(
            No,
            "[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\"}",
            "",
            "",
            oslo(),
        ),
        case(
            No,
            "<|tool_call|>[{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}]<|/tool_call|>",
            "",
            "",
            oslo(),
        ),
    ]
}

/// Calls in other styles, and what is none: text, also where it was cut off. One that only lacks its end is a call.
fn other_calls() -> Vec<Case> {
    use ReasoningFormat::None as No;
    vec![
        case(
            No,
            "Let me see.\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n\
             </parameter>\n<parameter=zip>\n0150\n</parameter>\n</function>\n</tool_call>",
            "Let me see.\n",
            "",
            vec![call(
                "weather",
                json!({"city": "Oslo", "days": 3, "zip": "0150"}),
            )],
        ),
        case(
            No,
            "<atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">Oslo</atem:parameter>\n\
             <atem:parameter name=\"hours\">[1, 2]</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
            "",
            "",
            vec![call("weather", json!({"city": "Oslo", "hours": [1, 2]}))],
        ),
        case(
            No,
            "<tool_call>no call</tool_call>!",
            "<tool_call>no call</tool_call>!",
            "",
            vec![],
        ),
        case(
            No,
            "<tool_call>{\"name\": \"weath",
            "<tool_call>{\"name\": \"weath",
            "",
            vec![],
        ),
        case(
            No,
            "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}",
            "",
            "",
            oslo(),
        ),
    ]
}

/// Channels.
fn channels() -> Vec<Case> {
    use ReasoningFormat::Channels;
    vec![
        case(
            Channels,
            " to=self<|message|>I need to think.<|eom|><|start|>assistant to=user<|message|>It is 4.<|eot|>",
            "It is 4.",
            "I need to think.",
            vec![],
        ),
        case(
            Channels,
            "think<|eom|><|start|>assistant to=user<|message|>say",
            "say",
            "think",
            vec![],
        ),
        case(
            Channels,
            "<|eom|><|start|>assistant to=user<|message|>say",
            "say",
            "",
            vec![],
        ),
        case(
            Channels,
            " to=self<|message|>hm<|eom|><|start|>assistant to=weather<|message|><atem:function_calls><atem:invoke \
             name=\"weather\"><atem:parameter name=\"city\">Oslo</atem:parameter></atem:invoke></atem:function_calls>",
            "",
            "hm",
            oslo(),
        ),
    ]
}

fn meaning(case: &Case) -> (String, String, Vec<ToolCall>) {
    (case.text.into(), case.thought.into(), case.calls.clone())
}

#[test]
fn every_form_is_understood() {
    for case in cases() {
        let parsed = parse(&format(case.reasoning), "", [case.written]);
        assert_eq!(parsed, meaning(&case), "{:?}", case.written);
    }
}

#[test]
fn a_template_that_opens_the_reasoning_is_noticed() {
    let (text, thought, _) = parse(&format(TAGGED), "…assistant\n<think>\n", ["hm</think>so"]);
    assert_eq!((&*text, &*thought), ("so", "hm"));
    let (text, thought, _) = parse(&format(TAGGED), "<think>", ["<think>hm</think>so"]);
    assert_eq!((&*text, &*thought), ("so", "hm"));
}

#[test]
fn no_piece_shows_part_of_a_marker() {
    let mut parser = ResponseParser::new(&format(TAGGED), "", vec![]);
    for piece in ["Hi <", "thi", "nk", ">"] {
        parser.push(piece, &mut |p| assert_eq!(p, Piece::Text("Hi ".into())));
    }
    parser.push("x", &mut |p| assert_eq!(p, Piece::Reasoning("x".into())));
}

/// Cuts a text before some of its characters.
fn cut<'t>(text: &'t str, at: &[prop::sample::Index]) -> Vec<&'t str> {
    let mut ends: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
    ends.push(text.len());
    let mut ends: Vec<usize> = at.iter().map(|i| ends[i.index(ends.len())]).collect();
    ends.extend([0, text.len()]);
    ends.sort_unstable();
    ends.windows(2).map(|w| &text[w[0]..w[1]]).collect()
}

proptest! {
    #[test]
    fn cuts_change_nothing(which in 0..19_usize, at in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let cases = cases();
        let case = &cases[which % cases.len()];
        let pieces = cut(case.written, &at);
        prop_assert_eq!(parse(&format(case.reasoning), "", pieces), meaning(case));
    }

    #[test]
    fn stop_sequences_end_at_the_same_place_however_the_text_is_cut(
        text in "[ab\\né🦀]{0,40}",
        sequences in prop::collection::vec("[ab\\né🦀]{1,4}", 0..3),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let run = |pieces: &[&str]| {
            let mut stops = StopSequences::new(&sequences);
            let mut said = String::new();
            for piece in pieces {
                let (text, ended) = stops.push(piece);
                said += &text;
                if ended.is_some() {
                    return (said, ended);
                }
            }
            (said + &stops.finish(), None)
        };
        let whole = run(&[&text]);
        prop_assert_eq!(&run(&cut(&text, &at)), &whole);
        prop_assert!(sequences.iter().all(|s| !whole.0.contains(s.as_str())));
        let ends: usize = whole.0.len() + whole.1.as_ref().map_or(0, String::len);
        prop_assert!(text.starts_with(&whole.0) && (whole.1.is_some() || ends == text.len()));
    }
}

#[test]
fn tokens_of_any_tokenizer_are_told_apart() {
    for tokenizer in [tiny(), fallback(), metaspace()] {
        for case in cases() {
            let tokens = tokenizer.encode(case.written, false).unwrap();
            let visible: Vec<Token> = tokenizer.special_tokens().map(|(id, _)| id).collect();
            let mut words = Detokenizer::showing(&tokenizer, visible);
            let mut pieces: Vec<String> = tokens.iter().map(|t| words.push(*t).unwrap()).collect();
            pieces.push(words.finish().unwrap());
            // Some tokenizers have no token for a character, or put a space in front.
            let written = pieces.concat();
            let whole = parse(&format(case.reasoning), "", [&*written]);
            let parts = parse(&format(case.reasoning), "", pieces.iter().map(|p| &**p));
            assert_eq!(parts, whole, "{written:?}");
            if written.trim_start() == case.written.trim_start() {
                assert_eq!(whole.2, case.calls, "{written:?}");
            }
        }
    }
}

#[test]
fn a_vocabulary_tells_the_format() {
    let tokenizer = tiny();
    let format = ResponseFormat::of(&tokenizer, None);
    assert_eq!(format.reasoning, TAGGED);
    assert!(format.tools);
    let tokenizer = metaspace();
    assert_eq!(
        ResponseFormat::of(&tokenizer, None),
        ResponseFormat::default()
    );
    let template = ChatTemplate::new("{% if tools %}<tool_call>{% endif %}");
    assert!(ResponseFormat::of(&tokenizer, Some(&template)).tools);
}
