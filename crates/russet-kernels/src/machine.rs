//! What this machine offers, for people to read: the variants that kernels are compiled in, with the CPU features that each needs, and
//! how many CPUs the process may use. [`crate::isa`] is what chooses.

use std::thread;

use crate::isa::Isa;

/// Every kernel and what it does. Each is one body, compiled in every variant.
pub const KERNELS: [(&str, &str); 13] = [
    (
        "linear",
        "activations times rows of weights as they are stored: f32, f16, bf16, palettes, blocks of 1 to 8 bits, GGUF blocks",
    ),
    (
        "packed",
        "the same in integers: weights of 4 or 8 bits repacked, activations quantised on the way",
    ),
    (
        "sequential",
        "the same, rounding at every step in order (exact mode)",
    ),
    ("matmul", "products of two plain matrices"),
    (
        "attention",
        "one pass over a cache with an online softmax; windows, grouped heads",
    ),
    (
        "gated_delta",
        "the gated delta rule over a run of positions",
    ),
    ("triangular", "inverses of unit lower triangular matrices"),
    ("rope", "rotations of halves or of pairs"),
    ("norm", "root mean square norm"),
    ("softmax", "softmax of rows"),
    ("elementwise", "sums, products, activations, comparisons"),
    ("convert", "between f32, f16 and bf16; rounding"),
    ("quant", "rows of compressed weights, decoded"),
];

/// A feature of a CPU, and whether this one has it.
type Feature = (&'static str, fn() -> bool);

/// Features by name.
#[cfg(target_arch = "x86_64")]
macro_rules! features {
    ($($name:tt),*) => { &[$(($name, || is_x86_feature_detected!($name))),*] };
}
#[cfg(target_arch = "aarch64")]
macro_rules! features {
    ($($name:tt),*) => { &[$(($name, || std::arch::is_aarch64_feature_detected!($name))),*] };
}

/// A variant of the kernels: name, lanes of f32, features it needs.
type Compiled = (&'static str, usize, &'static [Feature]);

#[cfg(target_arch = "x86_64")]
const COMPILED: &[Compiled] = &[
    (
        "avx512",
        16,
        features!(
            "avx512f",
            "avx512bw",
            "avx512dq",
            "avx512vl",
            "avx512vnni",
            "avx2",
            "fma",
            "f16c"
        ),
    ),
    ("avx2", 8, features!("avx2", "fma", "f16c")),
    ("portable", 4, &[]),
];
#[cfg(target_arch = "aarch64")]
const COMPILED: &[Compiled] = &[
    ("neon-i8mm", 4, features!("neon", "dotprod", "i8mm")),
    ("neon-dotprod", 4, features!("neon", "dotprod")),
    ("neon", 4, features!("neon")),
    ("portable", 4, &[]),
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const COMPILED: &[Compiled] = &[("portable", 4, &[])];

/// Features that no variant uses, though they are for work of this kind.
#[cfg(target_arch = "x86_64")]
const MORE: &[Feature] = features!("avxvnni", "avx512vbmi", "avx512bf16", "avx512fp16");
#[cfg(target_arch = "aarch64")]
const MORE: &[Feature] = features!("fp16", "bf16", "sve", "sve2");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MORE: &[Feature] = &[];

/// A variant of the kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionSet {
    /// Its name, as [`Isa::name`] gives it.
    pub name: &'static str,
    /// Numbers of 32 bits in a register.
    pub lanes: usize,
    /// The CPU features it is compiled for.
    pub needs: Vec<&'static str>,
    /// Those that this machine lacks: it runs the variant where there are none.
    pub missing: Vec<&'static str>,
    /// Whether it is the one that kernels run in.
    pub chosen: bool,
}

/// The variants of this architecture, widest first.
pub fn instruction_sets() -> Vec<InstructionSet> {
    let set = |&(name, lanes, features): &Compiled| InstructionSet {
        name,
        lanes,
        needs: features.iter().map(|f| f.0).collect(),
        missing: features.iter().filter(|f| !f.1()).map(|f| f.0).collect(),
        chosen: name == Isa::best().name(),
    };
    COMPILED.iter().map(set).collect()
}

/// CPU features that are here and that no variant uses.
pub fn also_found() -> Vec<&'static str> {
    MORE.iter().filter(|f| f.1()).map(|f| f.0).collect()
}

/// CPUs that this process may use: those of its affinity, no more than its quota allows. A pool has as many threads unless it is
/// told otherwise.
pub fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variants_are_those_that_are_detected() {
        let runs = |s: &&InstructionSet| s.missing.is_empty();
        let sets = instruction_sets();
        let here: Vec<&str> = sets.iter().filter(runs).map(|s| s.name).collect();
        let detected: Vec<&str> = Isa::available().iter().map(|i| i.name()).collect();
        assert_eq!(here, detected);
        let chosen: Vec<&str> = sets.iter().filter(|s| s.chosen).map(|s| s.name).collect();
        assert_eq!(chosen, [Isa::best().name()]);
    }

    #[test]
    fn kernels_are_modules_of_this_crate() {
        let modules = include_str!("lib.rs");
        for (name, what) in KERNELS {
            assert!(modules.contains(&format!("pub mod {name};")), "{name}");
            assert!(!what.is_empty());
        }
    }
}
