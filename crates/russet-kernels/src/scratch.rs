//! Working memory of a thread: buffers that are kept between calls, so that a kernel allocates only while it warms up.

use std::cell::RefCell;

use crate::mem::AlignedBuf;

thread_local! {
    static SPARE: RefCell<Vec<AlignedBuf>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `len` floats of working memory, contents unspecified. Calls may nest.
///
/// # Panics
/// If the memory cannot be had: a kernel's need is a small multiple of operands already in memory.
pub(crate) fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buf = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    let result = match buf.ensure::<f32>(len) {
        Ok(floats) => f(floats),
        Err(error) => panic!("working memory: {error}"),
    };
    SPARE.with_borrow_mut(|spare| spare.push(buf));
    result
}
