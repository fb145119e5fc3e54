//! An allocator for programs: tokenizers and grammars are made of millions of small pieces, at which mimalloc is much quicker than the
//! allocators of most systems. A library does not choose its program's allocator, so nothing here takes effect by itself.

use std::ffi::c_int;

use libmimalloc_sys::{mi_option_get, mi_option_set};

pub use mimalloc::MiMalloc as SmallPieces;

/// `mi_option_purge_delay` of mimalloc 2: the milliseconds after which memory that is free goes back to the system.
const PURGE_DELAY: c_int = 15;
/// What it is where nobody has set it.
const UNTOUCHED: std::ffi::c_long = 10;

/// From now on [`SmallPieces`] gives memory back as soon as a page of it is free. By default that waits for allocations which an
/// opened model does not make, and some tens of megabytes stay. To be called first thing in `main`; a delay that the environment
/// sets (`MIMALLOC_PURGE_DELAY`) stays.
pub fn give_back_at_once() {
    // SAFETY: reads and writes one number of the allocator's options, by an index inside its table. It is "not thread safe" in
    // that another thread may see either number, which only decides when it gives memory back.
    unsafe {
        if mi_option_get(PURGE_DELAY) == UNTOUCHED {
            mi_option_set(PURGE_DELAY, 0);
        }
    }
}
