//! What can go wrong with a constraint: while it is compiled, where the error names the place in the schema or the grammar, and
//! while it is followed, where it names the text that led there.

/// Why a constraint cannot be compiled or followed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// A keyword of a JSON Schema that is malformed, unsupported, or cannot be satisfied.
    #[error("the schema at {pointer:?}: {keyword}: {reason}")]
    Schema {
        /// JSON pointer of the schema that holds the keyword; empty for the whole.
        pointer: String,
        /// The keyword.
        keyword: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A grammar, an expression or a JSON text that does not parse.
    #[error("the {what}: {reason}")]
    Syntax {
        /// Which notation.
        what: &'static str,
        /// Where and what.
        reason: String,
    },
    /// A limit on memory or time was reached.
    #[error("the constraint is too large: {0}")]
    Limit(String),
    /// Nothing can be generated.
    #[error("nothing satisfies the constraint: {0}")]
    Unsatisfiable(String),
    /// No token can follow, and the text is not a whole one.
    #[error("the constraint allows nothing more after {after:?}")]
    DeadEnd {
        /// The last part of the text.
        after: String,
    },
    /// A token that the constraint does not allow.
    #[error("the constraint does not allow token {token} after {after:?}")]
    Rejected {
        /// The token.
        token: u32,
        /// The last part of the text.
        after: String,
    },
    /// More tokens to take back than there are.
    #[error("cannot take back {wanted} tokens of {held}")]
    Rollback {
        /// Tokens to take back.
        wanted: usize,
        /// Tokens accepted.
        held: usize,
    },
    /// A mask of another length than the logits need.
    #[error("a mask has {given} words, it must have {needed}")]
    MaskLength {
        /// Words given.
        given: usize,
        /// Words needed: one for each 32 logits.
        needed: usize,
    },
    /// A tokenizer whose tokens have no known bytes.
    #[error("the tokenizer's vocabulary: {0}")]
    Vocabulary(String),
}

impl GrammarError {
    /// An error of one keyword.
    pub(crate) fn schema(pointer: &str, keyword: &str, reason: impl Into<String>) -> Self {
        Self::Schema {
            pointer: pointer.to_owned(),
            keyword: keyword.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn syntax(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Syntax {
            what,
            reason: reason.into(),
        }
    }
}
