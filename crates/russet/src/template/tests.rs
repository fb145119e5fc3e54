//! Templates in the manner of the published families.

use serde_json::json;

use super::*;

fn render(template: &str, messages: &[Message]) -> Result<String, TemplateError> {
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    ChatTemplate::new(template).render(messages, &options)
}

fn talk() -> Vec<Message> {
    vec![Message::new("user", " Hi & <you> "), Message::new("assistant", "Hello"), Message::new("user", "Bye")]
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
    assert_eq!(text, "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi & <you> <|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn alternating_turns_with_python_methods() {
    let template = "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\
        {{ raise_exception('roles must alternate') }}{% endif %}{% set role = 'model' if m.role == 'assistant' else m.role %}\
        <turn>{{ role.upper() }}: {{ m['content'].strip().split(' ')[0] | trim }}</turn>{% endfor %}";
    let mut t = ChatTemplate::new(template);
    t.set_token("bos_token", "<s>");
    let options = RenderOptions::default();
    assert_eq!(t.render(&talk(), &options).unwrap(), "<s><turn>USER: Hi</turn><turn>MODEL: Hello</turn><turn>USER: Bye</turn>");
    let error = t.render(&talk()[1..], &options).unwrap_err();
    assert_eq!(error.to_string(), "the chat template refuses the conversation: roles must alternate");
}

#[test]
fn loop_control_namespaces_and_slices() {
    let template = "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% if m.role == 'assistant' %}{% break %}{% endif %}\
        {% set ns.last = loop.index0 %}{% endfor %}{{ ns.last }}{% for m in messages[1:] %}|{{ m.content }}{% endfor %}";
    assert_eq!(render(template, &talk()).unwrap(), "0|Hello|Bye");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let options = RenderOptions { tools: vec![json!({"name": "naïve", "a": [1, 2.5, null], "html": "<b>"})], ..RenderOptions::default() };
    let t = ChatTemplate::new("{% for t in tools %}{{ t | tojson }}\n{{ t | tojson(indent=2) }}{% endfor %}");
    let text = t.render(&talk(), &options).unwrap();
    assert!(text.starts_with(r#"{"name": "naïve", "a": [1, 2.5, null], "html": "<b>"}"#), "{text}");
    assert!(text.contains("\n  \"a\": [\n    1,"), "{text}");
}

#[test]
fn named_templates_and_precedence() {
    let config = json!({"eos_token": {"content": "</s>"}, "chat_template": [
        {"name": "default", "template": "plain{{ eos_token }}"}, {"name": "tool_use", "template": "tools"}]});
    let t = ChatTemplate::find(None, Some(&config)).unwrap();
    let with = |tools: Vec<Value>| RenderOptions { tools, ..RenderOptions::default() };
    assert_eq!(t.render(&talk(), &with(vec![])).unwrap(), "plain</s>");
    assert_eq!(t.render(&talk(), &with(vec![json!({})])).unwrap(), "tools");
    let wanted = RenderOptions { template: Some("rag".into()), ..RenderOptions::default() };
    assert_eq!(t.render(&talk(), &wanted).unwrap_err().to_string(), "there is no chat template \"rag\" (there are: default, tool_use)");
    let file = ChatTemplate::find(Some("file"), Some(&config)).unwrap();
    assert_eq!(file.render(&talk(), &with(vec![])).unwrap(), "file");
    assert!(ChatTemplate::find(None, Some(&json!({}))).is_none());
}

#[test]
fn broken_templates_say_the_line() {
    let error = render("line one\n{% if %}", &talk()).unwrap_err().to_string();
    assert!(error.starts_with("chat template \"default\", line 2: syntax error"), "{error}");
}

#[test]
fn dates() {
    assert_eq!(strftime("%d %b %Y, %A %H:%M:%S %%", 1_795_996_799), "29 Nov 2026, Sunday 23:59:59 %");
    assert_eq!(strftime("%Y-%m-%d", 951_782_400), "2000-02-29");
}
