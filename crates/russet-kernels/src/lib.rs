//! Slices in, slices out: the room for `unsafe`. SIMD kernels, aligned buffers, file maps, the thread pool.
