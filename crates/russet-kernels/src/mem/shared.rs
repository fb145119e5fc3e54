//! A range of bytes that keeps its owner alive: what a tensor read from a file holds.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::FileMap;

/// Whatever holds the bytes.
type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A shared, read-only byte range. Cloning and slicing copy no bytes.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Owner,
    /// The owner, where it is a file map.
    map: Option<Arc<FileMap>>,
    range: Range<usize>,
}

impl SharedBytes {
    /// All the bytes of `owner`. The owner must give the same bytes each time it is asked.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let range = 0..(*owner).as_ref().len();
        let map = None;
        Self { owner, map, range }
    }

    /// Owns `bytes`.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self::new(Arc::new(bytes))
    }

    /// Shares a file map.
    pub fn from_map(map: FileMap) -> Self {
        let map = Arc::new(map);
        Self {
            map: Some(map.clone()),
            ..Self::new(map)
        }
    }

    /// Says that the bytes will hardly be used again: those of a file map need not stay in memory.
    pub fn unload(&self) {
        if let Some(map) = &self.map {
            map.unload(self.range.clone());
        }
    }

    /// The part `range` of this range; `None` if it does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start + range.start;
        Some(Self {
            owner: self.owner.clone(),
            map: self.map.clone(),
            range: start..start + range.len(),
        })
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.owner)
            .as_ref()
            .get(self.range.clone())
            .unwrap_or(&[])
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_and_stay_inside() {
        let all = SharedBytes::from_vec((0..10).collect());
        let part = all.slice(2..8).unwrap();
        drop(all);
        assert_eq!(&*part.slice(1..3).unwrap(), [3, 4]);
        assert_eq!(part.slice(6..6).unwrap().len(), 0);
        assert!(part.slice(0..7).is_none());
        assert!(part.slice(usize::MAX - 1..usize::MAX).is_none());
    }
}
