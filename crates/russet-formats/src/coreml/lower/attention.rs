//! `scaled_dot_product_attention`.

use russet_graph::graph::ValueId;
use russet_graph::types::DType;

use super::Lowering;
use crate::coreml::error::Outcome;
use crate::coreml::program::Operation;

/// `softmax(query · keyᵀ / √d + mask) · value`; a mask of truth values says what is seen.
pub(super) fn attention(l: &mut Lowering<'_>, op: &Operation) -> Outcome<ValueId> {
    let (query, key) = (l.value(op, "query")?, l.value(op, "key")?);
    let value = l.value(op, "value")?;
    let (rank, kind) = (l.rank_of(query)?, l.dtype_of(query)?);
    let width = l.extents_of(query)?.last().copied().unwrap_or(1);
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank.saturating_sub(2), rank.saturating_sub(1));
    let key = l.permuted(key, &order)?;
    let scores = l.op("broadcasting_batch_matmul", &[query, key])?;
    let scale = l.filled(kind, 1.0 / (width.max(1) as f64).sqrt())?;
    let mut scores = l.op("broadcasting_mul", &[scores, scale])?;
    if let Some(mask) = l.optional(op, "attn_mask")? {
        let added = if l.dtype_of(mask)? == DType::Bool {
            let (seen, hidden) = (l.filled(kind, 0.0)?, l.filled(kind, f64::NEG_INFINITY)?);
            l.op("broadcasting_where", &[mask, seen, hidden])?
        } else {
            mask
        };
        scores = l.op("broadcasting_add", &[scores, added])?;
    }
    let axis = l.scalar(-1)?;
    let shares = l.op("softmax", &[scores, axis])?;
    l.op("broadcasting_batch_matmul", &[shares, value])
}
