//! What becomes of every operation: one row each.

use russet_graph::graph::ValueId;

use super::{
    Lowering, activations, attention, elementwise, gather, held, indices, matrix, moves, reduce,
    slices, state,
};
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
    ("argsort", One(indices::argsort)),
    ("asin", Unary("asin")),
    ("atan", Unary("atan")),
    ("atanh", Unary("atanh")),
    ("cast", One(elementwise::cast)),
    ("ceil", One(activations::ceil)),
    ("clamped_relu", One(activations::clamped_relu)),
    ("clip", One(activations::clip)),
    ("concat", One(moves::concat)),
    ("const", Held(held::constant)),
    ("constexpr_affine_dequantize", Held(held::affine)),
    ("constexpr_blockwise_shift_scale", Held(held::blockwise)),
    ("constexpr_lut_to_dense", Held(held::palette)),
    ("constexpr_sparse_to_dense", Held(held::sparse)),
    ("conv", One(matrix::conv)),
    ("cos", Unary("cos")),
    ("cosh", Unary("cosh")),
    ("cumsum", One(indices::cumsum)),
    ("elu", One(activations::elu)),
    ("equal", Binary("broadcasting_equal")),
    ("erf", Unary("erf")),
    ("exp", Unary("exp")),
    ("exp2", One(activations::exp2)),
    ("expand_dims", One(moves::expand_dims)),
    ("fill", One(moves::fill)),
    ("fill_like", One(moves::fill_like)),
    ("flatten2d", One(moves::flatten)),
    ("floor", One(activations::floor)),
    ("floor_div", Binary("broadcasting_floor_divide")),
    ("gather", One(gather::gather)),
    ("gather_along_axis", One(gather::gather_along_axis)),
    ("gather_nd", One(indices::gather_nd)),
    ("gelu", One(elementwise::gelu)),
    ("greater", Binary("broadcasting_greater")),
    ("greater_equal", One(elementwise::greater_equal)),
    ("identity", One(elementwise::identity)),
    ("inverse", One(activations::inverse)),
    ("l2_norm", One(reduce::l2_norm)),
    ("layer_norm", One(reduce::layer_norm)),
    ("leaky_relu", One(activations::leaky_relu)),
    ("less", One(elementwise::less)),
    ("less_equal", One(elementwise::less_equal)),
    ("linear", One(matrix::linear)),
    ("linear_activation", One(activations::linear)),
    ("log", One(elementwise::log)),
    ("logical_and", Binary("broadcasting_and")),
    ("logical_not", Unary("not")),
    ("logical_or", Binary("broadcasting_or")),
    ("logical_xor", Binary("broadcasting_xor")),
    ("matmul", One(matrix::matmul)),
    ("maximum", Binary("broadcasting_maximum")),
    ("minimum", Binary("broadcasting_minimum")),
    ("mod", One(activations::modulo)),
    ("mul", Binary("broadcasting_mul")),
    ("non_zero", Unary("non_zero")),
    ("not_equal", Binary("broadcasting_not_equal")),
    ("one_hot", One(indices::one_hot)),
    ("pad", One(moves::pad)),
    ("pow", Binary("broadcasting_pow")),
    ("prelu", One(activations::prelu)),
    ("range_1d", One(indices::range)),
    ("read_state", One(state::read)),
    ("real_div", One(activations::divide)),
    ("reduce_argmax", One(reduce::argmax)),
    ("reduce_argmin", One(indices::argmin)),
    ("reduce_l1_norm", One(reduce::l1)),
    ("reduce_l2_norm", One(reduce::l2)),
    ("reduce_log_sum", One(reduce::log_sum)),
    ("reduce_log_sum_exp", One(reduce::log_sum_exp)),
    ("reduce_max", One(reduce::max)),
    ("reduce_mean", One(reduce::mean)),
    ("reduce_min", One(reduce::min)),
    ("reduce_prod", One(reduce::product)),
    ("reduce_sum", One(reduce::sum)),
    ("reduce_sum_square", One(reduce::sum_square)),
    ("relu", Unary("relu")),
    ("relu6", One(activations::relu6)),
    ("reshape", One(moves::reshape)),
    ("reverse", One(indices::reverse)),
    ("round", Unary("round")),
    ("rsqrt", One(elementwise::rsqrt)),
    ("scaled_dot_product_attention", One(attention::attention)),
    ("scaled_tanh", One(activations::scaled_tanh)),
    ("scatter_along_axis", One(indices::scatter_along_axis)),
    ("scatter_nd", One(indices::scatter_nd)),
    ("select", One(elementwise::select)),
    ("shape", One(indices::shape)),
    ("sigmoid", Unary("sigmoid")),
    ("sigmoid_hard", One(activations::sigmoid_hard)),
    ("sign", One(activations::sign)),
    ("silu", Unary("silu")),
    ("sin", Unary("sin")),
    ("sinh", Unary("sinh")),
    ("slice_by_index", One(slices::slice_by_index)),
    ("slice_by_size", One(slices::slice_by_size)),
    ("slice_update", One(slices::slice_update)),
    ("softmax", One(reduce::softmax)),
    ("softplus", One(elementwise::softplus)),
    ("softsign", One(activations::softsign)),
    ("split", Many(moves::split)),
    ("sqrt", Unary("sqrt")),
    ("square", One(elementwise::square)),
    ("squeeze", One(moves::squeeze)),
    ("stack", One(moves::stack)),
    ("sub", Binary("broadcasting_sub")),
    ("tan", Unary("tan")),
    ("tanh", Unary("tanh")),
    ("threshold", One(activations::threshold)),
    ("thresholded_relu", One(activations::thresholded_relu)),
    ("tile", One(moves::tile)),
    ("topk", Many(indices::topk)),
    ("transpose", One(moves::transpose)),
    ("write_state", Many(state::write)),
];
