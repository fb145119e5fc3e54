//! Slices in, slices out: the room for `unsafe`. SIMD kernels, aligned buffers, file maps, the thread pool.
pub mod attention;
pub mod convert;
pub mod elem;
pub mod elementwise;
mod gemm;
pub mod isa;
pub mod linear;
pub mod mem;
pub mod norm;
pub mod quant;
pub mod rope;
mod scratch;
pub mod simd;
pub mod softmax;
#[cfg(test)]
mod testing;
pub mod threads;
