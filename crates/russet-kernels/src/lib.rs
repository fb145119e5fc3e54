//! Slices in, slices out: the room for `unsafe`. SIMD kernels, aligned buffers, file maps, the thread pool.
pub mod convert;
pub mod elem;
mod gemm;
pub mod isa;
pub mod linear;
pub mod mem;
pub mod quant;
mod scratch;
pub mod simd;
#[cfg(test)]
mod testing;
pub mod threads;
