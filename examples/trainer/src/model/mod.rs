//! The model: its tensors, its blocks, and the interfaces at which axes of parallelism enter it.
//!
//! The model is written once, for one process. An axis of parallelism replaces one of the four
//! parts in [`axes`] (region, attention, feed-forward part, vocabulary) or the [`store`] that holds
//! weights and gradients.
//!
//! | file | contents |
//! |---|---|
//! | [`config`] | the sizes, and the two architectures |
//! | `tensors`, [`layout`] | the tensors of each; the offset of each, here and in the whole model |
//! | [`batch`] | rows of tokens with their targets |
//! | [`axes`] | the traits of the axes that communicate within a layer |
//! | `norm`, `queries` | the norm before a part of a block; queries, keys and values |
//! | [`feed_forward`], [`gated`] | the feed-forward part of a GPT, and that of a Llama |
//! | [`block`], [`transformer`] | a block, the whole model |
//! | [`store`], [`mixed`] | a rank's weights and gradients; 16 bits with `f32` masters |

pub mod axes;
pub mod batch;
pub mod block;
pub mod config;
pub mod feed_forward;
pub mod gated;
pub mod layout;
pub mod mixed;
mod norm;
mod queries;
pub mod store;
mod tensors;
pub mod transformer;
