//! Rows of a key/value cache, kept in eight bits.

use russet_kernels::attention::cache_row;

use super::{Cx, Kernel};
use crate::error::OpError;
use crate::exec::view::typed;

/// Rows of floats as rows of codes with a scale behind each. Input: rows without gaps; output: as many rows of bytes.
#[derive(Debug)]
pub(crate) struct CacheRows;

impl Kernel for CacheRows {
    fn run(&self, cx: &mut Cx<'_, '_, '_>) -> Result<(), OpError> {
        let rows = cx.inputs[0];
        let (width, _, count) = rows.geometry.rows();
        let bytes = rows
            .contiguous()
            .ok_or(OpError::Unknown("rows without gaps"))?;
        let out = &mut cx.outputs[0];
        let (long, step, places) = out.geometry.rows();
        if places != count || step != 1 {
            let shapes = [rows.shape(), out.geometry.shape()];
            return Err(OpError::shapes("there is a place for every row", &shapes));
        }
        by_kind!(rows.dtype, T => {
            for (i, row) in typed::<T>(bytes).chunks_exact(width.max(1)).enumerate() {
                let at = out.geometry.row_offset(i);
                cache_row(row, &mut out.data[at..at + long]);
            }
        });
        Ok(())
    }
}
