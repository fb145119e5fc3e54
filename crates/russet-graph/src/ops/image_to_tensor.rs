//! `image_to_tensor`: the bytes of an image.

use super::identity::identity_op;

identity_op! {
    /// An image is held as the tensor of its bytes: `[height, width, channels]`, or flat where its planes differ in size.
    ImageToTensor, "image_to_tensor", "the bytes of an image"
}
