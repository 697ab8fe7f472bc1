//! Numbers, matrix products and layers: the arithmetic of one process, forward and backward.
//!
//! Nothing here knows the model or other ranks. Each layer is a file of two functions, `forward`
//! and `backward`, on slices; [`device`] is the trait through which the model calls them.
//!
//! | file | what is in it |
//! |---|---|
//! | [`math`], [`matmul`] | number types, loops compiled for this processor, matrix products |
//! | [`linear`], [`norm`], [`gelu`], [`attention`], [`embed`], [`loss`] | the layers of a GPT |
//! | [`rms_norm`], [`swiglu`], [`rotary`], [`grouped`] | those that a Llama has instead or besides |
//! | [`device`], [`precision`] | what a device computes; the same in 16 bits, with loss scaling |
//! | [`packed`] | activations that wait, in 16 bits where that loses nothing |
//! | [`random`] | random numbers by position, equal on every mesh |

pub mod attention;
pub mod device;
pub mod embed;
pub mod gelu;
pub mod grouped;
pub mod linear;
pub mod loss;
pub mod math;
pub mod matmul;
pub mod norm;
pub mod packed;
pub mod precision;
pub mod random;
pub mod rms_norm;
pub mod rotary;
pub mod swiglu;
