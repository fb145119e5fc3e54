//! Working memory of a thread: buffers that are kept between calls, so that a kernel allocates only while it warms up.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use crate::mem::AlignedBuf;

thread_local! {
    static SPARE: RefCell<Vec<AlignedBuf>> = const { RefCell::new(Vec::new()) };
}

/// Words borrowed from the thread, as [`Scratch`].
pub(crate) struct Words(Scratch);

/// `len` words of working memory, contents unspecified.
///
/// # Panics
/// As [`floats`].
pub(crate) fn words(len: usize) -> Words {
    Words(floats(len))
}

impl Deref for Words {
    type Target = [i32];

    fn deref(&self) -> &[i32] {
        &self.0.buf.as_slice()[..self.0.len]
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [i32] {
        let len = self.0.len;
        &mut self.0.buf.as_mut_slice()[..len]
    }
}

/// Floats borrowed from the thread; given back when dropped. A guard and not a closure: a kernel's body must stay
/// in the function compiled for its instruction set.
#[derive(Debug)]
pub struct Scratch {
    buf: AlignedBuf,
    len: usize,
}

/// `len` floats of working memory, contents unspecified.
///
/// # Panics
/// If the memory cannot be had: a kernel's need is a small multiple of operands already in memory.
pub fn floats(len: usize) -> Scratch {
    let mut buf = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if let Err(error) = buf.ensure::<f32>(len) {
        panic!("working memory: {error}");
    }
    Scratch { buf, len }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.buf.as_slice()[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.buf.as_mut_slice()[..self.len]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // While a thread ends its spare list may be gone: then the buffer goes too.
        let buf = std::mem::take(&mut self.buf);
        let _ = SPARE.try_with(|spare| spare.borrow_mut().push(buf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_nest() {
        let first = {
            let (mut a, b) = (floats(100), floats(3));
            a.fill(1.0);
            assert_eq!((a.len(), b.len()), (100, 3));
            a.as_ptr()
        };
        let (b, a) = (floats(2), floats(50));
        assert!(a.as_ptr() == first || b.as_ptr() == first);
    }
}
