//! Working memory of a thread: buffers that are kept between calls, so that a kernel allocates only while it warms up.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::mem::{AlignedBuf, Pod};

thread_local! {
    static SPARE: RefCell<Vec<AlignedBuf>> = const { RefCell::new(Vec::new()) };
}

/// Elements borrowed from the thread; given back when dropped. A guard and not a closure: a kernel's body must stay
/// in the function compiled for its instruction set.
#[derive(Debug)]
pub struct Scratch<T: Pod = f32> {
    buf: AlignedBuf,
    len: usize,
    kind: PhantomData<T>,
}

/// `len` elements of working memory, contents unspecified.
///
/// # Panics
/// If the memory cannot be had: a kernel's need is a small multiple of operands already in memory.
pub fn of<T: Pod>(len: usize) -> Scratch<T> {
    let mut buf = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if let Err(error) = buf.ensure::<T>(len) {
        panic!("working memory: {error}");
    }
    Scratch {
        buf,
        len,
        kind: PhantomData,
    }
}

/// As [`of`], of f32.
pub fn floats(len: usize) -> Scratch {
    of(len)
}

/// As [`of`], of words of 32 bits.
pub(crate) fn words(len: usize) -> Scratch<i32> {
    of(len)
}

impl<T: Pod> Deref for Scratch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.buf.as_slice()[..self.len]
    }
}

impl<T: Pod> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.buf.as_mut_slice()[..self.len]
    }
}

impl<T: Pod> Drop for Scratch<T> {
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
