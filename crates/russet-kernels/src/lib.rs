//! Slices in, slices out: the room for `unsafe`. SIMD kernels, aligned buffers, file maps, the thread pool.
pub mod convert;
pub mod elem;
pub mod isa;
pub mod mem;
pub mod simd;
pub mod threads;
