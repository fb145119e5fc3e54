//! The table of a plan's dims: every distinct expression once, evaluated once a run.

use std::collections::HashMap;

use crate::types::{Dim, Symbol};

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DimRef(pub(crate) u32);

/// Every distinct dim of a plan.
#[derive(Debug, Default)]
pub(crate) struct DimTable {
    dims: Vec<Dim>,
    index: HashMap<Dim, DimRef>,
}

impl DimTable {
    /// The place of a dim, added where it is new.
    pub(crate) fn add(&mut self, dim: &Dim) -> DimRef {
        if let Some(&at) = self.index.get(dim) {
            return at;
        }
        let at = DimRef(u32::try_from(self.dims.len()).unwrap_or(u32::MAX));
        self.dims.push(dim.clone());
        self.index.insert(dim.clone(), at);
        at
    }

    /// The places of several dims.
    pub(crate) fn add_all(&mut self, dims: &[Dim]) -> Vec<DimRef> {
        dims.iter().map(|d| self.add(d)).collect()
    }

    /// The expression at a place.
    pub(crate) fn name(&self, at: DimRef) -> String {
        let dim = self.dims.get(at.0 as usize);
        dim.map(ToString::to_string).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.dims.len()
    }

    /// Evaluates every dim into `out` (same length as the table). The first dim that has no value is returned.
    pub(crate) fn evaluate<'a>(
        &'a self,
        lookup: &dyn Fn(&Symbol) -> Option<i64>,
        out: &mut [i64],
    ) -> Result<(), &'a Dim> {
        for (dim, value) in self.dims.iter().zip(out) {
            *value = dim.eval(lookup).ok_or(dim)?;
        }
        Ok(())
    }
}
