//! The layers of a transformer on a GPU, forward and backward, by the kernels in `cuda/`.
//!
//! A [`Machine`] is a GPU's memory and its kernels: [`Gpu`] is one, and tests have another, which
//! runs the same kernels on the processor. A [`LayerCall`] gives slices of the host places in that
//! memory, copies them there, runs kernels and copies results back. The functions of the other
//! files check the shapes of a layer and launch its kernels. No kernel adds numbers in an order
//! that changes from run to run, so the same call gives the same bits on the same GPU.
//!
//! | file | contents |
//! |---|---|
//! | `machine` | the interface of a layer to a GPU: memory, copies, launches |
//! | `call` | slices of the host as places in a GPU's memory |
//! | `gpu` | a GPU by its driver |
//! | `product` | products of matrices with any strides |
//! | `elements`, `norm`, `attention`, `embed`, `loss` | the layers |

pub mod attention;
mod call;
pub mod elements;
pub mod embed;
mod gpu;
pub mod loss;
mod machine;
pub mod norm;
pub mod product;

use maypole_kernels::cuda::Modules;

pub use call::{DeviceSlice, LayerCall};
pub use gpu::Gpu;
pub use machine::{Float, Launch, LaunchWord, Machine};

/// The compiled kernels for both types of numbers, which `.ci/ptx` writes.
pub const MODULES: Modules = Modules::new(&[
    ("layers_f32", include_bytes!("../../cuda/ptx/layers_f32.ptx.gz")),
    ("layers_f64", include_bytes!("../../cuda/ptx/layers_f64.ptx.gz")),
]);
