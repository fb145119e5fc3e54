//! Methods of [`Simd`](super::Simd) that are one line of intrinsics, whatever the instruction set: what may be unsafe about them
//! is said here once.

/// Methods that are one expression of intrinsics on registers.
macro_rules! on_registers {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) -> $out {
            // SAFETY: `self` exists only where its instructions were found; no memory is touched.
            unsafe { $body }
        }
    )*};
}

/// Loads: the first `$n` elements of `$x` through `$p`.
macro_rules! loads {
    ($n:literal; $($name:ident($type:ty, $p:ident) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, x: &[$type]) -> $out {
            let $p = x[..$n].as_ptr();
            // SAFETY: `self` exists only where its instructions were found; `$n` elements are readable at `$p`.
            unsafe { $body }
        }
    )*};
}

/// Stores: `$n` elements of register `$v` through `$p`.
macro_rules! stores {
    ($n:literal, $reg:ty; $($name:ident($type:ty, $v:ident, $p:ident) = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $v: $reg, out: &mut [$type]) {
            let $p = out[..$n].as_mut_ptr();
            // SAFETY: `self` exists only where its instructions were found; `$n` elements are writable at `$p`.
            unsafe { $body }
        }
    )*};
}

pub(super) use {loads, on_registers, stores};
