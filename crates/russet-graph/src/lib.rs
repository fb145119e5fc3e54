//! Meaning: types, graph, op table, passes, planner and executor.
#![forbid(unsafe_code)]
