//! Slices in, slices out: the room for `unsafe`. SIMD kernels, aligned buffers, file maps, the thread pool.
//!
//! Nothing here knows shapes beyond a row's, or graphs at all. Every kernel is one body written against
//! [`simd::Simd`] and compiled for AVX-512, AVX2, NEON and plain Rust; [`isa::Isa::best`] picks at run time. Storage is
//! f32, f16 or bf16 ([`elem::Elem`]); arithmetic is f32, rounded where the operations' decomposed forms round.
//!
//! | module | what |
//! |---|---|
//! | [`isa`], [`simd`], [`machine`] | detection, the vector layer, elementary functions |
//! | [`mem`] | aligned buffers, file maps, shared bytes, checked casts |
//! | [`threads`], [`scratch`] | the pool, the working memory of its threads |
//! | [`elem`], [`convert`] | storage types, conversion and rounding |
//! | [`quant`] | weight rows in their stored formats |
//! | [`linear`] | activations times weight rows: one token or many |
//! | [`packed`] | the same with integers: weights of 4 or 8 bits, activations quantised on the way |
//! | [`sequential`] | the same, rounding at every step as Apple's CPU runtime does |
//! | [`matmul`] | products of two plain matrices |
//! | [`attention`], [`rope`], [`gated_delta`], [`triangular`] | sequence mixing |
//! | [`norm`], [`softmax`], [`elementwise`] | the rest of a layer |
//!
//! Panics mean that a caller broke a documented length; inputs from outside are checked before they get here.
#![allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::private_intra_doc_links,
    reason = "brackets in the text are indices and shapes"
)]

pub mod attention;
mod compiled;
pub mod convert;
pub mod elem;
pub mod elementwise;
pub mod gated_delta;
mod gemm;
pub mod isa;
pub mod linear;
pub mod machine;
pub mod matmul;
pub mod mem;
pub mod norm;
pub mod packed;
pub mod quant;
pub mod rope;
pub mod scratch;
pub mod sequential;
pub mod simd;
pub mod softmax;
#[cfg(test)]
mod testing;
pub mod threads;
pub mod triangular;
