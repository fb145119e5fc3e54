//! Any bytes as the choices that build a graph: its plan computes what the references compute, composites spelled out.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../xtask/src/graphs/mod.rs"]
mod graphs;

fuzz_target!(|data: &[u8]| {
    if let Err(difference) = graphs::check(&mut graphs::Choices(data)) {
        panic!("{difference}");
    }
});
