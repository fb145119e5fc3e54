//! Who takes part: a runtime on some weights, as a command that measures it in a process of its own.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::PeersArgs;
use super::environment::{Environment, Peer, answer, json};
use crate::tally::{Failure, chain};

/// A runtime on some weights.
#[derive(Debug, Default)]
pub(crate) struct Contender {
    pub(crate) engine: String,
    pub(crate) version: String,
    pub(crate) weights: String,
    pub(crate) is_russet: bool,
    /// Program and arguments, to which the number that chooses the tokens is added.
    command: Vec<OsString>,
    /// One of each round.
    pub(crate) outcomes: Vec<Outcome>,
    /// Why it takes no further part.
    pub(crate) failure: Option<String>,
}

/// What `russet bench --json` and the driver print, as far as it is compared.
#[derive(Debug, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) trials: Vec<Trial>,
    /// Until the model is open.
    pub(crate) prepare_seconds: f64,
    /// From there to the logits of a first token.
    pub(crate) warmup_seconds: f64,
    /// In bytes.
    pub(crate) peak_rss: Option<u64>,
}

/// Tokens a second.
#[derive(Debug, Deserialize)]
pub(crate) struct Trial {
    pub(crate) prompt_tps: f64,
    pub(crate) gen_tps: f64,
}

impl Contender {
    /// russet on a model.
    pub(crate) fn russet(binary: &Path, model: &Path, args: &PeersArgs) -> Self {
        let mut command = vec![binary.into(), "bench".into(), model.into()];
        let numbers = [
            ("-p", args.prompt_tokens),
            ("-g", args.generation_tokens),
            ("--depth", args.depth),
            ("--threads", usize::from(args.threads)),
            ("-n", 1),
        ];
        for (flag, number) in numbers {
            command.extend([flag.into(), number.to_string().into()]);
        }
        command.extend(["--json", "--seed"].map(OsString::from));
        Self {
            engine: "russet".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            weights: label(model),
            is_russet: true,
            command,
            ..Self::default()
        }
    }

    /// A peer on a GGUF file.
    pub(crate) fn peer(home: &Environment, peer: &Peer, model: &Path, args: &PeersArgs) -> Self {
        let mut drive = home.drive(&["bench", peer.name]);
        let numbers = [
            usize::from(args.threads),
            args.prompt_tokens,
            args.generation_tokens,
            args.depth,
            1,
        ];
        drive.arg(model).args(numbers.map(|n| n.to_string()));
        let command = [drive.get_program()].into_iter().chain(drive.get_args());
        Self {
            engine: peer.name.into(),
            weights: label(model),
            command: command.map(OsString::from).collect(),
            ..Self::default()
        }
    }

    /// One that cannot take part.
    pub(crate) fn absent(engine: &str, weights: String, failure: &Failure) -> Self {
        Self {
            engine: engine.into(),
            weights,
            failure: Some(chain(&**failure)),
            ..Self::default()
        }
    }

    /// Measures once, with tokens of this number. One that fails is not asked again.
    pub(crate) fn take_turn(&mut self, seed: usize) {
        if self.failure.is_some() {
            return;
        }
        match self.measure(seed) {
            Ok(outcome) => self.outcomes.push(outcome),
            Err(failure) => self.failure = Some(chain(&*failure)),
        }
    }

    fn measure(&self, seed: usize) -> Result<Outcome, Failure> {
        let (program, arguments) = self.command.split_first().ok_or("there is no command")?;
        let mut command = Command::new(program);
        command.args(arguments).arg(seed.to_string());
        let output = answer(command)?;
        Ok(serde_json::from_str(json(&output))?)
    }
}

/// What a model is called in the table: its file name, without the extension that all have.
pub(crate) fn label(model: &Path) -> String {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".gguf").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        assert_eq!(label(Path::new("a/M-135M.Q4_1.gguf")), "M-135M.Q4_1");
        assert_eq!(label(Path::new("a/smollm2-135m-4bit")), "smollm2-135m-4bit");
    }

    #[test]
    fn who_has_failed_is_not_asked_again() {
        let mut one = Contender {
            command: vec!["no-such-program-anywhere".into()],
            ..Contender::default()
        };
        one.take_turn(0);
        let first = one.failure.clone().expect("a reason");
        assert!(first.contains("no-such-program-anywhere"), "{first}");
        one.command.clear();
        one.take_turn(1);
        assert_eq!(one.failure, Some(first));
    }

    #[test]
    fn what_russet_prints_is_understood() {
        let printed = r#"{"model": "m", "trials": [{"prompt_tps": 2.0, "gen_tps": 1.0}],
            "prepare_seconds": 0.5, "warmup_seconds": 0.25, "peak_rss": null}"#;
        let outcome: Outcome = serde_json::from_str(printed).expect("an outcome");
        assert_eq!(outcome.trials[0].prompt_tps, 2.0);
        assert_eq!(outcome.peak_rss, None);
    }
}
