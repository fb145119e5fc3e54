//! Tests of vocabularies.
