//! A small writer of GGUF files for the tests.

/// A file under construction. Values are written as the format says and not checked: tests write wrong ones too.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) pairs: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A value to write.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    U8(u8),
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    Array(Vec<Item>),
}

impl From<&str> for Item {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl Item {
    pub(crate) fn texts(texts: &[&str]) -> Self {
        Self::Array(texts.iter().map(|&t| t.into()).collect())
    }

    fn code(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Str(_) => 8,
            Self::Array(_) => 9,
            Self::U64(_) => 10,
            Self::F64(_) => 12,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(v) => out.push(*v),
            Self::U32(v) => out.extend(v.to_le_bytes()),
            Self::I32(v) => out.extend(v.to_le_bytes()),
            Self::F32(v) => out.extend(v.to_le_bytes()),
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::Str(v) => string(out, v),
            Self::Array(items) => {
                out.extend(items.first().map_or(0, Self::code).to_le_bytes());
                out.extend((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| item.write(out));
            }
            Self::U64(v) => out.extend(v.to_le_bytes()),
            Self::F64(v) => out.extend(v.to_le_bytes()),
        }
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self {
            version: 3,
            alignment: 32,
            pairs: Vec::new(),
            tensors: Vec::new(),
        }
    }

    pub(crate) fn pair(mut self, key: &str, value: impl Into<Item>) -> Self {
        let mut out = Vec::new();
        let value = value.into();
        string(&mut out, key);
        out.extend(value.code().to_le_bytes());
        value.write(&mut out);
        self.pairs.push(out);
        self
    }

    /// A tensor with extents outermost first, of this type.
    pub(crate) fn tensor(mut self, name: &str, shape: &[u64], kind: u32, data: Vec<u8>) -> Self {
        let mut out = Vec::new();
        string(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|d| out.extend(d.to_le_bytes()));
        out.extend(kind.to_le_bytes());
        self.tensors.push((out, data));
        self
    }

    pub(crate) fn floats(self, name: &str, shape: &[u64], values: &[f32]) -> Self {
        self.tensor(
            name,
            shape,
            0,
            values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        )
    }

    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        self.pairs.iter().for_each(|p| out.extend(p));
        let mut data = Vec::new();
        for (head, bytes) in &self.tensors {
            data.resize(data.len().next_multiple_of(self.alignment), 0);
            out.extend(head);
            out.extend((data.len() as u64).to_le_bytes());
            data.extend(bytes);
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(data);
        out
    }
}

/// A file with every kind of value, a tokenizer and a few tensors: what the tests cut and flip, and the fuzzer starts from.
pub(crate) fn sample() -> Writer {
    let (codes, types) = (
        [1, 1, 3, 6].map(Item::I32),
        [0.5, -1.0, 0.0, 2.0].map(Item::F32),
    );
    Writer::new()
        .pair("general.architecture", "llama")
        .pair("general.alignment", Item::U32(32))
        .pair("test.u8", Item::U8(200))
        .pair("test.i32", Item::I32(-5))
        .pair("test.u64", Item::U64(1 << 40))
        .pair("test.f32", Item::F32(0.5))
        .pair("test.f64", Item::F64(-0.25))
        .pair("test.bool", Item::Bool(true))
        .pair(
            "test.nested",
            Item::Array(vec![
                Item::texts(&["a", "b"]),
                Item::Array(vec![Item::U8(1)]),
            ]),
        )
        .pair("tokenizer.ggml.model", "gpt2")
        .pair("tokenizer.ggml.pre", "smollm")
        .pair(
            "tokenizer.ggml.tokens",
            Item::texts(&["a", "b", "<|end|>", "Ġab"]),
        )
        .pair("tokenizer.ggml.token_type", Item::Array(codes.to_vec()))
        .pair("tokenizer.ggml.scores", Item::Array(types.to_vec()))
        .pair("tokenizer.ggml.merges", Item::texts(&["a b", "Ġ ab"]))
        .pair("tokenizer.ggml.eos_token_id", Item::U32(2))
        .pair("tokenizer.ggml.eot_token_id", Item::U32(2))
        .pair("tokenizer.ggml.add_bos_token", Item::Bool(false))
        .pair("tokenizer.chat_template", "{{ messages }}")
        .pair("tokenizer.chat_template.tool_use", "{{ tools }}")
        .floats("norm", &[4], &[1.0, 2.0, 3.0, 4.0])
        .tensor("weight", &[2, 32], 3, (0..40).collect())
        .tensor("closed", &[256], 10, vec![7; 84])
}

/// A file the fuzzer starts from is what this writer writes. `RUSSET_WRITE_SEEDS=1` writes it anew.
pub(crate) fn assert_seed(name: &str, writer: &Writer) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/gguf");
    let path = folder.join(name);
    if std::env::var_os("RUSSET_WRITE_SEEDS").is_some() {
        std::fs::write(&path, writer.finish()).unwrap();
    }
    let kept = std::fs::read(&path).unwrap();
    assert!(kept == writer.finish(), "{}", path.display());
}
