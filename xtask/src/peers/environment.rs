//! A Python environment of its own for the peers, and the script that drives them there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::tally::Failure;

/// What measures a peer, run by the environment's interpreter.
const DRIVER: &str = include_str!("driver.py");

/// A runtime that russet is compared with.
pub(crate) struct Peer {
    /// Its name here and in the driver.
    pub(crate) name: &'static str,
    /// What to give to `pip install`.
    install: &'static [&'static str],
    /// Environment of that installation.
    variables: &'static [(&'static str, &'static str)],
    /// Whether it is also measured on its own 4-bit format, made from the file.
    pub(crate) requantises: bool,
}

/// All of them. Those that are compiled are compiled for this machine.
pub(crate) const PEERS: [Peer; 2] = [
    Peer {
        name: "llama.cpp",
        install: &["--no-binary", "llama-cpp-python", "llama-cpp-python"],
        variables: &[("CMAKE_ARGS", "-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release")],
        requantises: true,
    },
    Peer {
        name: "openvino",
        install: &["openvino-genai"],
        variables: &[],
        requantises: false,
    },
];

/// A virtual environment, the driver in it, and the logs of installations.
pub(crate) struct Environment {
    folder: PathBuf,
}

/// What `driver.py version` prints.
#[derive(Deserialize)]
struct Version {
    version: String,
}

impl Environment {
    /// The environment in a folder, created if it is not there.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let this = Self {
            folder: fs::canonicalize(folder)?,
        };
        fs::write(this.driver(), DRIVER)?;
        if !this.python().exists() {
            let system = if cfg!(windows) { "python" } else { "python3" };
            let mut command = Command::new(system);
            command.args(["-m", "venv"]).arg(this.folder.join("env"));
            answer(command)?;
        }
        Ok(this)
    }

    /// Installs a peer unless it is there, and says which version is.
    pub(crate) fn install(&self, peer: &Peer) -> Result<String, Failure> {
        if let Ok(version) = self.version(peer) {
            return Ok(version);
        }
        let path = self.folder.join(format!("{}.log", peer.name));
        eprintln!("installing {} (log: {})", peer.name, path.display());
        let log = File::create(&path)?;
        let mut command = Command::new(self.python());
        command.args(["-m", "pip", "install"]).args(peer.install);
        command.envs(peer.variables.iter().copied());
        command.stdout(log.try_clone()?).stderr(log);
        if !command.status()?.success() {
            let said = fs::read_to_string(&path)?;
            let (reason, log) = (reason(&said), path.display());
            return Err(format!("not installed: {reason} ({log})").into());
        }
        self.version(peer)
    }

    /// A command that runs the driver.
    pub(crate) fn drive(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.python());
        command.arg(self.driver()).args(words);
        command
    }

    /// The file in 4-bit blocks of the peer's own, made once.
    pub(crate) fn requantised(&self, model: &Path) -> Result<PathBuf, Failure> {
        let stem = model.file_stem().unwrap_or_default().to_string_lossy();
        let target = self.folder.join(format!("{stem}.as-Q4_0.gguf"));
        if !target.exists() {
            let partial = target.with_extension("partial");
            let mut command = self.drive(&["requantise"]);
            answer({
                command.arg(model).arg(&partial);
                command
            })?;
            fs::rename(&partial, &target)?;
        }
        Ok(target)
    }

    fn version(&self, peer: &Peer) -> Result<String, Failure> {
        let told = answer(self.drive(&["version", peer.name]))?;
        let told: Version = serde_json::from_str(json(&told))?;
        Ok(told.version)
    }

    fn driver(&self) -> PathBuf {
        self.folder.join("driver.py")
    }

    fn python(&self) -> PathBuf {
        let inside = if cfg!(windows) {
            "Scripts/python.exe"
        } else {
            "bin/python"
        };
        self.folder.join("env").join(inside)
    }
}

/// What a command prints. An error tells the last thing it said instead.
pub(crate) fn answer(mut command: Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|e| format!("{name}: {e}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(match reason(&said) {
            "" => format!("{name}: {}", done.status).into(),
            line => line.to_owned().into(),
        });
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The object that ends an output: libraries print lines of their own before it.
pub(crate) fn json(output: &str) -> &str {
    let start = output.rfind("\n{").map_or(0, |at| at + 1);
    output[start..].trim()
}

/// The line of an output that says why something failed: the last that speaks of an error, else the last.
fn reason(output: &str) -> &str {
    let mut lines = output.lines().rev().map(str::trim);
    let tells = |line: &&str| {
        let line = line.to_lowercase();
        line.contains("error") && !line.contains("this error")
    };
    let told = lines.clone().find(tells);
    told.or_else(|| lines.find(|line| !line.is_empty()))
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_object_of_an_output_is_its_answer() {
        let cases = [
            ("{\"a\": 1}\n", "{\"a\": 1}"),
            ("loading\n{ not this\n\n{\"a\": 1}\n", "{\"a\": 1}"),
            (
                "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n",
                "{\n  \"a\": {\n    \"b\": 1\n  }\n}",
            ),
        ];
        for (output, object) in cases {
            assert_eq!(json(output), object);
        }
    }

    #[test]
    fn the_reason_of_a_failure_is_the_line_that_tells_it() {
        let cases = [
            (
                "Traceback:\n  File x\nRuntimeError: no such model\n",
                "RuntimeError: no such model",
            ),
            (
                "ERROR: no compiler\nnote: This error originates elsewhere\n",
                "ERROR: no compiler",
            ),
            ("first\nlast\n\n", "last"),
            ("", ""),
        ];
        for (output, line) in cases {
            assert_eq!(reason(output), line);
        }
    }

    #[test]
    fn the_driver_knows_every_peer() {
        for peer in PEERS {
            assert!(
                DRIVER.contains(&format!("    \"{}\": (", peer.name)),
                "{}",
                peer.name
            );
        }
    }
}
