//! Tests of the converters.
