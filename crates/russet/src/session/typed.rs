//! Answers that are values: the type says the schema, the schema guides the answer.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Event, Reply, Session};
use crate::generate::GenerateOptions;
use crate::grammar::{Constraint, GrammarError, JsonOptions, unfinished_json};
use crate::open::Error;

impl Session {
    /// Says something and waits for an answer that is a value of a type, under the JSON Schema of that type. `on_value` sees the
    /// value as far as it is written: members come in the order of the type's.
    ///
    /// ```no_run
    /// # use russet::{GenerateOptions, Model, OpenOptions};
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct City {
    ///     name: String,
    ///     inhabitants: u32,
    /// }
    ///
    /// let mut session = Model::open("model.gguf", &OpenOptions::default())?.session()?;
    /// let (city, _): (City, _) = session.respond_as("The largest city?", &GenerateOptions::default(), &mut |_| ())?;
    /// # Ok::<(), russet::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Session::respond`] and of [`Model::grammar`](crate::Model::grammar); [`GrammarError::Syntax`] where the answer was
    /// cut by its limit before it was whole, or is no value of the type for a reason that its schema does not know.
    pub fn respond_as<T: JsonSchema + DeserializeOwned>(
        &mut self,
        text: &str,
        options: &GenerateOptions,
        on_value: &mut dyn FnMut(&Value),
    ) -> Result<(T, Reply), Error> {
        let schema = schemars::schema_for!(T).to_value();
        let mut options = options.clone();
        // Readers of integers refuse `1.0`.
        let json = JsonOptions {
            other_forms: false,
            ..JsonOptions::default()
        };
        let constraint = Constraint::json_schema(schema).with_options(json);
        options.constraint = Some(self.model.grammar(&constraint)?);
        let mut written = String::new();
        let reply = self.respond(text, &options, &mut |event| {
            if let Event::Text(text) = event {
                written += text;
                if let Some(value) = unfinished_json(&written) {
                    on_value(&value);
                }
            }
        })?;
        let value = serde_json::from_str(&reply.text);
        let value = value.map_err(|e| GrammarError::Syntax {
            what: "answer",
            reason: e.to_string(),
        })?;
        Ok((value, reply))
    }
}
