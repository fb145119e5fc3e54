//! `broadcasting_floor_divide`: quotient rounded towards minus infinity, with broadcasting.

use super::family::{Align, binary_cases, plain_op};
use super::floor_divide::{KINDS, infer, reference};
use crate::tensor::Tensor;

plain_op! {
    /// Quotient rounded towards minus infinity, elementwise, after broadcasting (NumPy's rule); see
    /// [`FloorDivide`](super::floor_divide::FloorDivide).
    BroadcastingFloorDivide, "broadcasting_floor_divide", "quotient rounded towards minus infinity, with broadcasting", 2..=2,
    |operands| infer(operands, Align::Broadcast), |inputs: &[Tensor]| reference(inputs, Align::Broadcast),
    binary_cases(BroadcastingFloorDivide, Align::Broadcast, &KINDS)
}
