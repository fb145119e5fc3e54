//! Which operation of the graph each operation of the file is.

/// What of an operation is carried over beside its operands and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Nothing more. A body spells the operation out by simpler ones and is left out.
    Operands,
    /// Nothing more; the second operand is the mask of the result.
    Sparse,
    /// The mask of its first operand, as a further operand.
    Mask,
    /// The element kind of the result, as attribute `to`.
    ResultType,
    /// A first version without the shift after scaling: zeros, like the scale in operand 1, as operand 3. The kind of the
    /// result as attribute `to`.
    Unshifted,
    /// The operations of its block in its place: it only groups them.
    Inline,
    /// The types of its results, as attribute `to`, and its own name, as `kind`.
    Kernel,
    /// Its regions, as blocks.
    Blocks,
    /// Its elements.
    Constant,
    /// It ends a block: its operands are the block's results.
    Results,
    /// It is debug information.
    Nothing,
}

/// One row: a name of the file, the name in the graph, what is carried over, and properties that become attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) file: &'static str,
    pub(super) op: &'static str,
    pub(super) take: Take,
    pub(super) attributes: &'static [(&'static str, &'static str)],
}

macro_rules! rules {
    ($($file:literal $op:literal $take:ident $([$($property:literal $name:literal),*])?;)*) => {
        /// Every row.
        pub(super) const RULES: &[Rule] = &[$(
            Rule { file: $file, op: $op, take: Take::$take, attributes: &[$($(($property, $name)),*)?] },
        )*];
    };
}

/// The row of an operation.
pub(super) fn find(file: &str) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.file == file)
}

rules! {
    "all_v1" "all" Operands;
    "any_v1" "any" Operands;
    "argmax_v1" "argmax" Operands;
    "ax.copy_discarding_constraints_v1" "copy_discarding_constraints" Operands;
    "ax.copy_with_constraints_v1" "copy_with_constraints" Operands;
    "asymmetric_quantization_statistics_v1" "asymmetric_quantization_statistics" Operands;
    "broadcasting_add_v1" "broadcasting_add" Operands;
    "broadcasting_batch_matmul_v1" "broadcasting_batch_matmul" Operands;
    "broadcasting_bitwise_and_v1" "broadcasting_bitwise_and" Operands;
    "broadcasting_bitwise_or_v1" "broadcasting_bitwise_or" Operands;
    "broadcasting_bitwise_xor_v1" "broadcasting_bitwise_xor" Operands;
    "broadcasting_divide_v1" "broadcasting_divide" Operands;
    "broadcasting_equal_v1" "broadcasting_equal" Operands;
    "broadcasting_floor_divide_v1" "broadcasting_floor_divide" Operands;
    "broadcasting_greater_v1" "broadcasting_greater" Operands;
    "broadcasting_logical_and_v1" "broadcasting_and" Operands;
    "broadcasting_logical_or_v1" "broadcasting_or" Operands;
    "broadcasting_logical_xor_v1" "broadcasting_xor" Operands;
    "broadcasting_maximum_v1" "broadcasting_maximum" Operands;
    "broadcasting_minimum_v1" "broadcasting_minimum" Operands;
    "broadcasting_modulo_v1" "broadcasting_modulo" Operands;
    "broadcasting_mul_v1" "broadcasting_mul" Operands;
    "broadcasting_not_equal_v1" "broadcasting_not_equal" Operands;
    "broadcasting_pow_v1" "broadcasting_pow" Operands;
    "broadcasting_sub_v1" "broadcasting_sub" Operands;
    "broadcasting_where_v1" "broadcasting_where" Operands;
    "controlflow.condition_v1" "" Results;
    "controlflow.if_v1" "if" Blocks;
    "controlflow.while_v1" "while" Blocks;
    "dataflow.create_token_v1" "create_token" Operands;
    "dataflow.isolated_group_v1" "" Inline;
    "dataflow.invoke_v1" "invoke" Operands ["callee" "graph"];
    "dataflow.join_token_v1" "join_token" Operands;
    "dataflow.output_v1" "" Results;
    "dataflow.read_handle_v1" "read_handle" Operands;
    "dataflow.write_handle_v1" "write_handle" Operands;
    "dataflow.yield_v1" "" Results;
    "debuginfo.record_v1" "" Nothing;
    "debuginfo.value_v1" "" Nothing;
    "dequantize_v1" "dequantize" Unshifted;
    "dequantize_v2" "dequantize" ResultType;
    "execution.delegate_v1" "opaque_kernel" Kernel ["delegate_id" "name"];
    "execution.delegate_v2" "opaque_kernel" Kernel ["delegate_id" "name"];
    "metal.metal4_kernel_v1" "opaque_kernel" Kernel ["kernel_name" "name", "kernel_source" "source"];
    "primitive.abs_v1" "abs" Operands;
    "primitive.acos_v1" "acos" Operands;
    "primitive.acosh_v1" "acosh" Operands;
    "primitive.add_v1" "add" Operands;
    "primitive.argsort_v1" "argsort" Operands;
    "primitive.asin_v1" "asin" Operands;
    "primitive.asinh_v1" "asinh" Operands;
    "primitive.atan_v1" "atan" Operands;
    "primitive.atanh_v1" "atanh" Operands;
    "primitive.batch_matmul_v1" "batch_matmul" Operands;
    "primitive.bitwise_and_v1" "bitwise_and" Operands;
    "primitive.bitwise_or_v1" "bitwise_or" Operands;
    "primitive.bitwise_xor_v1" "bitwise_xor" Operands;
    "primitive.blockwise_shift_scale_v1" "blockwise_shift_scale" Unshifted;
    "primitive.blockwise_shift_scale_v2" "blockwise_shift_scale" Operands;
    "primitive.broadcast_in_dims_v1" "broadcast_in_dims" Operands;
    "primitive.broadcast_shapes_v1" "broadcast_shapes" Operands;
    "primitive.broadcast_to_v1" "broadcast_to" Operands;
    "primitive.build_sparse_with_bitmask_v1" "build_sparse_with_bitmask" Sparse;
    "primitive.cast_v1" "cast" ResultType;
    "primitive.concat_v1" "concat" Operands;
    "primitive.constant_v1" "constant" Constant;
    "primitive.conv2d_v1" "conv2d" Operands;
    "primitive.conv3d_v1" "conv3d" Operands;
    "primitive.conv_transpose2d_v1" "conv_transpose2d" Operands;
    "primitive.conv_transpose3d_v1" "conv_transpose3d" Operands;
    "primitive.cos_v1" "cos" Operands;
    "primitive.cosh_v1" "cosh" Operands;
    "primitive.create_complex_v1" "create_complex" Operands;
    "primitive.divide_v1" "divide" Operands;
    "primitive.equal_v1" "equal" Operands;
    "primitive.erf_v1" "erf" Operands;
    "primitive.exp_v1" "exp" Operands;
    "primitive.expand_dims_v1" "expand_dims" Operands;
    "primitive.floor_divide_v1" "floor_divide" Operands;
    "primitive.gather_along_axis_v1" "gather_along_axis" Operands;
    "primitive.gather_nd_v1" "gather_nd" Operands;
    "primitive.gelu_v1" "gelu" Operands ["approximate" "approximate"];
    "primitive.get_shape_v1" "get_shape" Operands;
    "primitive.get_shape_v2" "get_shape" Operands;
    "primitive.greater_v1" "greater" Operands;
    "primitive.image_to_tensor_v1" "image_to_tensor" Operands;
    "primitive.imaginary_part_v1" "imaginary_part" Operands;
    "primitive.interpolate_coordinates_v1" "interpolate_coordinates" Operands ["interpolation_mode" "interpolation_mode"];
    "primitive.interpolate_v1" "interpolate" Operands ["interpolation_mode" "interpolation_mode"];
    "primitive.log_v1" "log" Operands;
    "primitive.logical_and_v1" "and" Operands;
    "primitive.logical_or_v1" "or" Operands;
    "primitive.logical_xor_v1" "xor" Operands;
    "primitive.lut_to_dense_v1" "lut_to_dense" Operands;
    "primitive.lut_to_sparse_with_bitmask_v1" "lut_to_sparse_with_bitmask" Mask;
    "primitive.max_pool_2d_v1" "max_pool_2d" Operands;
    "primitive.max_pool_3d_v1" "max_pool_3d" Operands;
    "primitive.maximum_v1" "maximum" Operands;
    "primitive.minimum_v1" "minimum" Operands;
    "primitive.modulo_v1" "modulo" Operands;
    "primitive.mul_v1" "mul" Operands;
    "primitive.non_zero_v1" "non_zero" Operands;
    "primitive.not_equal_v1" "not_equal" Operands;
    "primitive.not_v1" "not" Operands;
    "primitive.pad_v1" "pad" Operands ["padding_mode" "padding_mode"];
    "primitive.pow_v1" "pow" Operands;
    "primitive.range_v1" "range" Operands;
    "primitive.real_part_v1" "real_part" Operands;
    "primitive.reduce_index_v1" "reduce_index" Blocks;
    "primitive.reduce_v1" "reduce" Blocks;
    "primitive.reshape_v1" "reshape" Operands;
    "primitive.reshape_v2" "reshape" Operands;
    "primitive.reverse_v1" "reverse" Operands;
    "primitive.round_v1" "round" Operands;
    "primitive.rsqrt_v1" "rsqrt" Operands;
    "primitive.scan_v1" "scan" Operands ["combiner" "combiner"];
    "primitive.scatter_along_axis_v1" "scatter_along_axis" Operands ["scatter_mode" "scatter_mode"];
    "primitive.scatter_nd_v1" "scatter_nd" Operands;
    "primitive.shrink_dims_v1" "shrink_dims" Operands;
    "primitive.sin_v1" "sin" Operands;
    "primitive.sinh_v1" "sinh" Operands;
    "primitive.slice_update_v1" "slice_update" Operands;
    "primitive.slice_v1" "slice" Operands;
    "primitive.sparse_with_bitmask_to_dense_v1" "sparse_with_bitmask_to_dense" Operands;
    "primitive.split_v1" "split" Operands;
    "primitive.sqrt_v1" "sqrt" Operands;
    "primitive.sub_v1" "sub" Operands;
    "primitive.sum_pool_2d_v1" "sum_pool_2d" Operands;
    "primitive.sum_pool_3d_v1" "sum_pool_3d" Operands;
    "primitive.tan_v1" "tan" Operands;
    "primitive.tanh_v1" "tanh" Operands;
    "primitive.tensor_to_image_v1" "tensor_to_image" Operands;
    "primitive.transpose_v1" "transpose" Operands;
    "primitive.where_v1" "where" Operands;
    "quantize_v1" "quantize" Unshifted;
    "quantize_v2" "quantize" ResultType;
    "reduce_max_v1" "reduce_max" Operands;
    "reduce_mean_v1" "reduce_mean" Operands;
    "reduce_min_v1" "reduce_min" Operands;
    "reduce_product_v1" "reduce_product" Operands;
    "reduce_sum_v1" "reduce_sum" Operands;
    "relu_v1" "relu" Operands;
    "sigmoid_v1" "sigmoid" Operands;
    "silu_v1" "silu" Operands;
    "softmax_v1" "softmax" Operands;
    "sort_v1" "sort" Operands;
    "symmetric_quantization_statistics_v1" "symmetric_quantization_statistics" Operands;
    "tile_v1" "tile" Operands;
    "tile_v2" "tile" Operands;
    "udml.call_v1" "invoke" Operands ["callee" "graph"];
    "udml.placeholder_v1" "opaque_kernel" Kernel ["opname" "name"];
    "udml.return_v1" "" Results;
}
