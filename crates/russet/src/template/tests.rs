//! Templates in the manner of the published families.

use serde_json::json;

use super::*;
use crate::bundle::DirectorySource;

fn render(template: &str, messages: &[Message]) -> Result<String, TemplateError> {
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    ChatTemplate::new(template).render(messages, &options)
}

fn talk() -> Vec<Message> {
    vec![
        Message::new("user", " Hi & <you> "),
        Message::new("assistant", "Hello"),
        Message::new("user", "Bye"),
    ]
}

const CHATML: &str = "{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\nBe kind.<|im_end|>\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

#[test]
fn chatml() {
    let text = render(CHATML, &talk()[..1]).unwrap();
    assert_eq!(
        text,
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi & <you> <|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn alternating_turns_with_python_methods() {
    let template = "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\
        {{ raise_exception('roles must alternate') }}{% endif %}{% set role = 'model' if m.role == 'assistant' else m.role %}\
        <turn>{{ role.upper() }}: {{ m['content'].strip().split(' ')[0] | trim }}</turn>{% endfor %}";
    let mut t = ChatTemplate::new(template);
    t.set_token("bos_token", "<s>");
    let options = RenderOptions::default();
    assert_eq!(
        t.render(&talk(), &options).unwrap(),
        "<s><turn>USER: Hi</turn><turn>MODEL: Hello</turn><turn>USER: Bye</turn>"
    );
    let error = t.render(&talk()[1..], &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the chat template refuses the conversation: roles must alternate"
    );
}

#[test]
fn loop_control_namespaces_and_slices() {
    let template = "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% if m.role == 'assistant' %}{% break %}{% endif %}\
        {% set ns.last = loop.index0 %}{% endfor %}{{ ns.last }}{% for m in messages[1:] %}|{{ m.content }}{% endfor %}";
    assert_eq!(render(template, &talk()).unwrap(), "0|Hello|Bye");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let options = RenderOptions {
        tools: vec![json!({"name": "naïve", "a": [1, 2.5, null], "html": "<b>"})],
        ..RenderOptions::default()
    };
    let t = ChatTemplate::new(
        "{% for t in tools %}{{ t | tojson }}\n{{ t | tojson(indent=2) }}{% endfor %}",
    );
    let text = t.render(&talk(), &options).unwrap();
    assert!(
        text.starts_with(r#"{"name": "naïve", "a": [1, 2.5, null], "html": "<b>"}"#),
        "{text}"
    );
    assert!(text.contains("\n  \"a\": [\n    1,"), "{text}");
}

#[test]
fn named_templates_and_precedence() {
    let config = json!({"eos_token": {"content": "</s>"}, "chat_template": [
        {"name": "default", "template": "plain{{ eos_token }}"}, {"name": "tool_use", "template": "tools"}]});
    let t = ChatTemplate::find(None, Some(&config)).unwrap();
    let with = |tools: Vec<Value>| RenderOptions {
        tools,
        ..RenderOptions::default()
    };
    assert_eq!(t.render(&talk(), &with(vec![])).unwrap(), "plain</s>");
    assert_eq!(t.render(&talk(), &with(vec![json!({})])).unwrap(), "tools");
    let wanted = RenderOptions {
        template: Some("rag".into()),
        ..RenderOptions::default()
    };
    assert_eq!(
        t.render(&talk(), &wanted).unwrap_err().to_string(),
        "there is no chat template \"rag\" (there are: default, tool_use)"
    );
    let file = ChatTemplate::find(Some("file"), Some(&config)).unwrap();
    assert_eq!(file.render(&talk(), &with(vec![])).unwrap(), "file");
    assert!(ChatTemplate::find(None, Some(&json!({}))).is_none());
}

#[test]
fn broken_templates_say_the_line() {
    let error = render("line one\n{% if %}", &talk())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("chat template \"default\", line 2: syntax error"),
        "{error}"
    );
}

/// Turns as Llama 3 writes them, with the date and tools in the first.
const LLAMA3: &str = "{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\n' }}{%- endif %}
{{- 'Today Date: ' + date_string + '\n\n' + system_message + '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception('one call at a time') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{\"name\": \"' + call.name + '\", \"parameters\": ' }}{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}";

#[test]
fn llama3() {
    let mut t = ChatTemplate::new(LLAMA3);
    t.set_token("bos_token", "<|begin_of_text|>");
    let mut messages = vec![
        Message::new("system", " Be brief. "),
        Message::new("user", "Hi"),
    ];
    let mut call = Message::new("assistant", "");
    call.extra.insert(
        "tool_calls".into(),
        json!([{"type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": "ü"}}}]),
    );
    messages.push(call);
    let variables = [("date_string".to_owned(), json!("26 Jul 2024"))].into();
    let options = RenderOptions {
        add_generation_prompt: true,
        variables,
        ..RenderOptions::default()
    };
    let expected = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>\
        <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>{\"name\": \"f\", \"parameters\": {\"b\": 1, \"a\": \"ü\"}}<|eot_id|>\
        <|start_header_id|>assistant<|end_header_id|>\n\n";
    assert_eq!(t.render(&messages, &options).unwrap(), expected);
    let without = RenderOptions {
        variables: BTreeMap::new(),
        ..options
    };
    let today = date::strftime("%d %b %Y", date::now());
    assert!(
        t.render(&messages[..2], &without)
            .unwrap()
            .contains(&format!("Today Date: {today}"))
    );
}

/// Thinking and tools as Qwen 3 writes them.
const QWEN3: &str = "{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == 'user' and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- if loop.last or (not loop.last and loop.nextitem.role != 'tool') %}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}";

#[test]
fn qwen3() {
    let messages = [
        Message::new("user", "Hi"),
        Message::new("assistant", "<think>\nhm\n</think>\n\nHello"),
        Message::new("user", "Bye"),
    ];
    let variables = [("enable_thinking".to_owned(), json!(false))].into();
    let options = RenderOptions {
        add_generation_prompt: true,
        variables,
        tools: vec![json!({"z": 1, "a": []})],
        ..RenderOptions::default()
    };
    let expected = "<|im_start|>system\n# Tools\n<tools>\n{\"z\": 1, \"a\": []}\n</tools><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
        <|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(
        ChatTemplate::new(QWEN3)
            .render(&messages, &options)
            .unwrap(),
        expected
    );
}

#[test]
fn generation_blocks_render_what_is_in_them() {
    let template = "{% for m in messages %}
{% if m.role == 'assistant' %}
  {%- generation -%}
  [{{ m.content }}]
  {%- endgeneration %}
{% else %}
{{ m.content.strip() }}{{ ' generation ' }}
{%endif%}
{% endfor %}{% generation %}end{% endgeneration %}";
    assert_eq!(
        render(template, &talk()).unwrap(),
        "Hi & <you> generation \n[Hello]Bye generation \nend"
    );
    let error = render("{% generation %}\n\n{{ 1 + }}{% endgeneration %}", &talk())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("chat template \"default\", line 3"),
        "{error}"
    );
}

#[test]
fn variables_win_over_what_is_always_there() {
    let mut t = ChatTemplate::new(
        "{{ bos_token }}{{ documents is none }}{{ tools is none }}{{ add_generation_prompt }}",
    );
    t.set_token("bos_token", "<s>");
    let plain = RenderOptions::default();
    assert_eq!(t.render(&[], &plain).unwrap(), "<s>TrueTrueFalse");
    let variables = [
        ("bos_token".to_owned(), json!("B")),
        ("add_generation_prompt".to_owned(), json!("x")),
    ]
    .into();
    let options = RenderOptions {
        documents: vec![json!("d")],
        variables,
        ..plain
    };
    assert_eq!(t.render(&[], &options).unwrap(), "BFalseTruex");
}

#[test]
fn json_takes_the_arguments_of_python() {
    let value = json!({"b": [], "a": {}, "ü\n": ["🦀", true]});
    let cases = [
        ("tojson", r#"{"b": [], "a": {}, "ü\n": ["🦀", true]}"#),
        (
            "tojson(ensure_ascii=true)",
            r#"{"b": [], "a": {}, "\u00fc\n": ["\ud83e\udd80", true]}"#,
        ),
        (
            "tojson(sort_keys=true)",
            r#"{"a": {}, "b": [], "ü\n": ["🦀", true]}"#,
        ),
        (
            "tojson(separators=(',', ':'))",
            r#"{"b":[],"a":{},"ü\n":["🦀",true]}"#,
        ),
        (
            "tojson(indent=1)",
            "{\n \"b\": [],\n \"a\": {},\n \"ü\\n\": [\n  \"🦀\",\n  true\n ]\n}",
        ),
        (
            "tojson(indent=none)",
            r#"{"b": [], "a": {}, "ü\n": ["🦀", true]}"#,
        ),
    ];
    for (filter, expected) in cases {
        let options = RenderOptions {
            tools: vec![value.clone()],
            ..RenderOptions::default()
        };
        let text = ChatTemplate::new(format!("{{{{ tools[0] | {filter} }}}}"))
            .render(&[], &options)
            .unwrap();
        assert_eq!(text, expected, "{filter}");
    }
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let template = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    let error = render(template, &talk()).unwrap_err().to_string();
    assert!(error.contains("fuel"), "{error}");
}

#[test]
fn a_directory_of_templates() {
    let root = std::env::temp_dir().join(format!("russet-templates-{}", std::process::id()));
    let more = root.join("t/additional_chat_templates");
    std::fs::create_dir_all(&more).unwrap();
    let source = DirectorySource::new(&root);
    let config = json!({"chat_template": "config", "bos_token": "<s>"});
    let read = || {
        ChatTemplate::read(&source, "t", Some(&config))
            .unwrap()
            .unwrap()
    };
    assert_eq!(read().source("default"), Some("config"));
    std::fs::write(root.join("t/chat_template.jinja"), "file{{ bos_token }}").unwrap();
    std::fs::write(more.join("rag.jinja"), "rag").unwrap();
    std::fs::write(more.join("README"), "").unwrap();
    let t = read();
    assert_eq!(t.render(&[], &RenderOptions::default()).unwrap(), "file<s>");
    assert_eq!((t.source("rag"), t.source("README")), (Some("rag"), None));
    std::fs::write(more.join("bad.jinja"), [0xFF]).unwrap();
    let error = ChatTemplate::read(&source, "t", None)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("t/additional_chat_templates/bad.jinja is malformed"),
        "{error}"
    );
    std::fs::remove_dir_all(&root).unwrap();
}
