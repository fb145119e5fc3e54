//! Run language-model packages: bundles, tokenizer, engines, sampling.
#![forbid(unsafe_code)]
