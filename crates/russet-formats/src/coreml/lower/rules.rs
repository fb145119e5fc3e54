//! What becomes of every operation: one row each.

use russet_graph::graph::ValueId;

use super::{Lowering, elementwise, gather, held, matrix, moves, reduce, slices, state};
use crate::coreml::error::Outcome;
use crate::coreml::program::Operation;

/// Makes the value that the file holds for an operation.
type Hold = fn(&mut Lowering<'_>, &Operation) -> Outcome<held::Held>;
/// Makes the single result of an operation.
type Make = fn(&mut Lowering<'_>, &Operation) -> Outcome<ValueId>;
/// Makes the results of an operation.
type MakeAll = fn(&mut Lowering<'_>, &Operation) -> Outcome<Vec<ValueId>>;

/// How an operation is translated.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// It stays as the file holds it until somebody asks.
    Held(Hold),
    /// The operation of the graph with this name, of `x`.
    Unary(&'static str),
    /// The operation of the graph with this name, of `x` and `y`.
    Binary(&'static str),
    /// Operations of the graph with one result.
    One(Make),
    /// Operations of the graph with any number of results.
    Many(MakeAll),
}

use Rule::{Binary, Held, Many, One, Unary};

/// The row of an operation.
pub(super) fn find(kind: &str) -> Option<Rule> {
    let row = RULES.iter().find(|(name, _)| *name == kind);
    row.map(|(_, rule)| *rule)
}

/// Every row.
pub(super) const RULES: &[(&str, Rule)] = &[
    ("abs", Unary("abs")),
    ("acos", Unary("acos")),
    ("add", Binary("broadcasting_add")),
    ("asin", Unary("asin")),
    ("atan", Unary("atan")),
    ("atanh", Unary("atanh")),
    ("cast", One(elementwise::cast)),
    ("concat", One(moves::concat)),
    ("const", Held(held::constant)),
    ("constexpr_affine_dequantize", Held(held::affine)),
    ("constexpr_blockwise_shift_scale", Held(held::blockwise)),
    ("constexpr_lut_to_dense", Held(held::palette)),
    ("constexpr_sparse_to_dense", Held(held::sparse)),
    ("conv", One(matrix::conv)),
    ("cos", Unary("cos")),
    ("cosh", Unary("cosh")),
    ("equal", Binary("broadcasting_equal")),
    ("erf", Unary("erf")),
    ("exp", Unary("exp")),
    ("expand_dims", One(moves::expand_dims)),
    ("fill_like", One(moves::fill_like)),
    ("floor_div", Binary("broadcasting_floor_divide")),
    ("gather", One(gather::gather)),
    ("gather_along_axis", One(gather::gather_along_axis)),
    ("gelu", One(elementwise::gelu)),
    ("greater", Binary("broadcasting_greater")),
    ("greater_equal", One(elementwise::greater_equal)),
    ("identity", One(elementwise::identity)),
    ("layer_norm", One(reduce::layer_norm)),
    ("less", One(elementwise::less)),
    ("less_equal", One(elementwise::less_equal)),
    ("linear", One(matrix::linear)),
    ("log", One(elementwise::log)),
    ("logical_and", Binary("broadcasting_and")),
    ("logical_not", Unary("not")),
    ("logical_or", Binary("broadcasting_or")),
    ("logical_xor", Binary("broadcasting_xor")),
    ("matmul", One(matrix::matmul)),
    ("maximum", Binary("broadcasting_maximum")),
    ("minimum", Binary("broadcasting_minimum")),
    ("mod", Binary("broadcasting_modulo")),
    ("mul", Binary("broadcasting_mul")),
    ("not_equal", Binary("broadcasting_not_equal")),
    ("pow", Binary("broadcasting_pow")),
    ("read_state", One(state::read)),
    ("real_div", Binary("broadcasting_divide")),
    ("reduce_argmax", One(reduce::argmax)),
    ("reduce_max", One(reduce::max)),
    ("reduce_mean", One(reduce::mean)),
    ("reduce_min", One(reduce::min)),
    ("reduce_prod", One(reduce::product)),
    ("reduce_sum", One(reduce::sum)),
    ("relu", Unary("relu")),
    ("reshape", One(moves::reshape)),
    ("round", Unary("round")),
    ("rsqrt", One(elementwise::rsqrt)),
    ("select", One(elementwise::select)),
    ("sigmoid", Unary("sigmoid")),
    ("silu", Unary("silu")),
    ("sin", Unary("sin")),
    ("sinh", Unary("sinh")),
    ("slice_by_index", One(slices::slice_by_index)),
    ("slice_by_size", One(slices::slice_by_size)),
    ("slice_update", One(slices::slice_update)),
    ("softmax", One(reduce::softmax)),
    ("softplus", One(elementwise::softplus)),
    ("split", Many(moves::split)),
    ("sqrt", Unary("sqrt")),
    ("square", One(elementwise::square)),
    ("squeeze", One(moves::squeeze)),
    ("sub", Binary("broadcasting_sub")),
    ("tan", Unary("tan")),
    ("tanh", Unary("tanh")),
    ("tile", One(moves::tile)),
    ("transpose", One(moves::transpose)),
    ("write_state", Many(state::write)),
];
