//! Memory: plain-old-data views, aligned growable buffers, read-only file maps, shared byte ranges.

mod aligned;
#[cfg(feature = "allocator")]
mod allocator;
mod map;
mod pod;
mod shared;

pub use aligned::{AlignedBuf, OutOfMemory};
#[cfg(feature = "allocator")]
pub use allocator::{SmallPieces, give_back_at_once};
pub use map::FileMap;
pub use pod::{Pod, bytes_of, bytes_of_mut, cast_slice, cast_slice_mut};
pub use shared::SharedBytes;
