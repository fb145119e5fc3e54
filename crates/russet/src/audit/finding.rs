//! Findings: what an audit says, and the list of everything it can say.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The bundle does not do what it says, or does not run.
    Error,
    /// It runs, and something will surprise.
    Warning,
    /// Worth knowing.
    Note,
}

/// One kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its stable name.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub about: &'static str,
}

/// One thing that an audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The name of its rule, which does not change between versions.
    pub code: &'static str,
    /// The file, relative to the bundle.
    pub file: String,
    /// The field of the file, or the function of an asset.
    pub field: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub mend: String,
}

/// A file, and what in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    pub(super) file: &'a str,
    pub(super) field: Option<&'a str>,
}

impl<'a> At<'a> {
    pub(super) fn file(file: &'a str) -> Self {
        Self { file, field: None }
    }

    pub(super) fn field(file: &'a str, field: &'a str) -> Self {
        Self {
            file,
            field: Some(field),
        }
    }

    /// A field of `metadata.json`.
    pub(super) fn metadata(field: &'a str) -> Self {
        Self::field(crate::bundle::METADATA, field)
    }
}

/// Findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    /// Adds a finding, unless it was found already.
    pub(super) fn add(
        &mut self,
        rule: &Rule,
        at: At<'_>,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) {
        let finding = Finding {
            severity: rule.severity,
            code: rule.code,
            file: at.file.into(),
            field: at.field.map(Into::into),
            what: what.into(),
            mend: mend.into(),
        };
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }
}

macro_rules! rules {
    ($($name:ident $severity:ident $code:literal $about:literal;)*) => {
        $(pub(super) const $name: Rule = Rule { code: $code, severity: Severity::$severity, about: $about };)*

        /// Everything that an audit can find, by code.
        pub const RULES: &[Rule] = &[$($name),*];
    };
}

rules! {
    ASSET_BARE Note "asset-bare" "an asset without a bundle around it";
    ASSET_COMPILED Error "asset-compiled" "only a form compiled for one device is there";
    ASSET_INVALID Error "asset-invalid" "what is called .aimodel is none";
    ASSET_MISSING Error "asset-missing" "the metadata names an asset that is not there";
    ASSET_OUTSIDE Error "asset-outside" "the path of an asset leads outside the bundle";
    ASSET_UNREADABLE Error "asset-unreadable" "an asset is damaged or cut off";
    ASSET_UNUSED Warning "asset-unused" "an asset that the metadata does not name";
    COMPONENTS_MISSING Error "components-missing" "the parts of an image or speech model are not complete";
    COMPRESSION_FALSE Error "compression-false" "the weights are not compressed as declared";
    COMPRESSION_PARTLY Warning "compression-partly" "less than half of the weights are compressed as declared";
    COMPRESSION_UNCLEAR Note "compression-unclear" "the declared compression cannot be compared with the weights";
    COMPRESSION_UNNAMED Note "compression-unnamed" "the weights are compressed and the metadata does not say so";
    CONTEXT_CACHE Error "context-cache" "the caches hold fewer tokens than are declared";
    CONTEXT_FUNCTIONS Error "context-functions" "the functions do not reach the declared context";
    FIELD_MISSING Error "field-missing" "a required field is missing";
    FIELD_TYPE Error "field-type" "a field has another type than it must";
    FILE_EMPTY Error "file-empty" "a file is empty";
    FILE_LEFTOVER Warning "file-leftover" "a temporary file was left behind";
    FILE_POINTER Error "file-pointer" "a Git LFS pointer stands in place of a file";
    FILE_SPECIAL Error "file-special" "a pipe or a device, or a link that leads nowhere";
    FUNCTION_MAP_IGNORED Warning "function-map-ignored" "entries of function_map that nothing reads";
    FUNCTION_MISSING Error "function-missing" "a function that must be there is not";
    FUNCTION_NAME Warning "function-name" "a function whose name does not say its context and length";
    GATHER_MISSING Error "gather-missing" "no embeddings for a length that other functions take";
    HASH_MISSING Note "hash-missing" "an asset without a digest";
    HASH_WRONG Error "hash-wrong" "the digest of an asset is of another program";
    IO_DTYPE Error "io-dtype" "an input or output of an element type that engines cannot use";
    IO_INPUTS Error "io-inputs" "a function with other inputs than engines give";
    IO_NAMES Warning "io-names" "inputs or outputs with names that nobody knows";
    IO_ORDER Warning "io-order" "inputs or outputs in an order that engines by position get wrong";
    IO_OUTPUTS Error "io-outputs" "a function without logits";
    KERNEL_FOREIGN Error "kernel-foreign" "a kernel for other hardware";
    KIND_UNKNOWN Error "kind-unknown" "a kind of bundle that is not known";
    LOGITS_DTYPE Note "logits-dtype" "logits that Apple's engines do not read";
    METADATA_BARE Note "metadata-bare" "no metadata: the file names say what it is";
    METADATA_MALFORMED Error "metadata-malformed" "metadata.json is not JSON";
    METADATA_MISSING Error "metadata-missing" "there is no metadata.json";
    METADATA_VERSION Error "metadata-version" "metadata_version is not 0.2";
    OPERATION_UNKNOWN Error "operation-unknown" "an operation that has no definition here";
    PIPELINE_LEGACY Error "pipeline-legacy" "pipeline.json, which is no longer read";
    PREFILL_CONTRACT Error "prefill-contract" "a prefill function that does not go with main";
    PROGRAM_INCONSISTENT Error "program-inconsistent" "a program that breaks a rule";
    PROGRAM_UNPLANNED Error "program-unplanned" "a function that cannot be planned";
    SIZE_LIMIT Error "size-limit" "the bundle is larger than --max-bytes";
    STATE_KIND Error "state-kind" "language.states gives a kind that is not known";
    STATE_UNKNOWN Warning "state-unknown" "language.states names a state that is not there";
    STATES_COUNT Warning "states-count" "fewer than two or more than four states";
    STOP_NONE Warning "stop-none" "nothing says which token ends an answer";
    STOP_OUTSIDE Error "stop-outside" "a stop token outside the vocabulary";
    TEMPLATE_BROKEN Error "template-broken" "the chat template does not render";
    TEMPLATE_MISSING Warning "template-missing" "there is no chat template";
    TOKENIZER_BROKEN Error "tokenizer-broken" "a file of the tokenizer cannot be read";
    TOKENIZER_CONFIG Warning "tokenizer-config" "there is no tokenizer_config.json";
    TOKENIZER_ELSEWHERE Error "tokenizer-elsewhere" "embedded_tokenizer is false: it would be downloaded";
    TOKENIZER_MISSING Error "tokenizer-missing" "there is no tokenizer: it would be downloaded";
    VISION_CHANNELS Warning "vision-channels" "mean or deviation missing: those of CLIP are used";
    VISION_NESTED Error "vision-nested" "the vision part is inside language";
    VISION_PATCHES Warning "vision-patches" "patches do not tile the image";
    VISION_TOKEN Error "vision-token" "the image token is outside the vocabulary";
    VOCABULARY_LOGITS Error "vocabulary-logits" "vocab_size is not the width of the logits";
    VOCABULARY_SMALL Warning "vocabulary-small" "the tokenizer is much smaller than the vocabulary";
    VOCABULARY_TOKENIZER Error "vocabulary-tokenizer" "the tokenizer has tokens beyond the logits";
}
