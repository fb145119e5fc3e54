//! `tensor_to_image`: an image from its bytes.

use super::identity::identity_op;

identity_op! {
    /// The inverse of [`image_to_tensor`](mod@super::image_to_tensor).
    TensorToImage, "tensor_to_image", "an image from its bytes"
}
