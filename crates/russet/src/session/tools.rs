//! Tools: what a model may call, declared by a type and run by a function.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::response::ToolCall;
use crate::template::Message;

/// Runs a tool: the arguments in, what the model shall read out. An error is told to the model as well.
type Run = Box<dyn FnMut(Map<String, Value>) -> Result<String, String> + Send>;

/// A tool that a model may call.
pub struct Tool {
    name: String,
    description: String,
    parameters: Value,
    run: Option<Run>,
}

impl Tool {
    /// A tool that the program runs itself, when a reply tells of a call: name, what it is for, and the JSON Schema of its arguments.
    pub fn declared(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Value,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            run: None,
        }
    }

    /// A tool whose arguments are a type, run by a function. Arguments that are not of the type are told to the model as an error.
    pub fn new<T: JsonSchema + DeserializeOwned>(
        name: impl Into<String>,
        description: impl Into<String>,
        mut run: impl FnMut(T) -> Result<String, String> + Send + 'static,
    ) -> Self {
        let schema = schemars::schema_for!(T).to_value();
        let mut this = Self::declared(name, description, schema);
        this.run = Some(Box::new(move |arguments| {
            let arguments = serde_json::from_value(Value::Object(arguments));
            run(arguments.map_err(|e| e.to_string())?)
        }));
        this
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The JSON Schema of its arguments.
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }

    /// Whether a function runs it.
    pub fn runs(&self) -> bool {
        self.run.is_some()
    }

    /// How chat templates see it.
    pub(super) fn declaration(&self) -> Value {
        json!({"type": "function", "function": {
            "name": self.name, "description": self.description, "parameters": self.parameters,
        }})
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Runs a call; what cannot be run is told as an error.
pub(super) fn run(tools: &mut [Tool], call: &ToolCall) -> String {
    let names = tools.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    let tool = tools.iter_mut().find(|t| t.name == call.name);
    let result = match tool.and_then(|t| t.run.as_mut()) {
        Some(run) => run(call.arguments.clone()),
        None => Err(format!(
            "there is no tool {:?}; there are {}",
            call.name,
            names.join(", ")
        )),
    };
    result.unwrap_or_else(|error| format!("error: {error}"))
}

/// What a tool gave, as a message.
pub(super) fn output(name: &str, text: &str) -> Message {
    let mut message = Message::new("tool", text);
    message.extra.insert("name".into(), name.into());
    message
}

/// What the model said, as a message: text and calls.
pub(super) fn answer(text: &str, calls: &[ToolCall]) -> Message {
    let mut message = Message::new("assistant", text);
    if !calls.is_empty() {
        let call = |c: &ToolCall| json!({"type": "function", "function": c});
        message
            .extra
            .insert("tool_calls".into(), calls.iter().map(call).collect());
    }
    message
}
