//! Numbers, matrix products and layers: the arithmetic of one process, forward and backward.
//!
//! These files use neither the model nor other ranks. Each layer is a file of two functions on
//! slices, `forward` and `backward`; [`device`] has the trait through which the model calls them.
//!
//! | file | contents |
//! |---|---|
//! | [`math`], [`matmul`] | number types, loops compiled for this processor, matrix products |
//! | [`linear`], [`norm`], [`gelu`], [`attention`], [`embed`], [`loss`] | the layers of a GPT |
//! | [`rms_norm`], [`swiglu`], [`rotary`], [`grouped`] | the layers of a Llama that differ |
//! | [`device`], [`precision`] | the layers of a device; the same in 16 bits, with loss scaling |
//! | [`packed`] | activations until their backward pass, in 16 bits where that loses nothing |
//! | [`random`] | random numbers by position, equal on every mesh |

pub mod attention;
pub mod device;
pub mod embed;
pub mod gelu;
pub mod grouped;
pub mod half_float;
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
