//! The model: its tensors, its blocks, and the interfaces at which axes of parallelism enter it.
//!
//! The model is written once, for one process. An axis of parallelism replaces one of the four
//! parts in [`axes`] (region, attention, feed-forward part, vocabulary) or the [`store`] that holds
//! weights and gradients.
//!
//! | file | what is in it |
//! |---|---|
//! | [`config`], [`tensors`], [`layout`] | sizes; the tensors of a GPT and of a Llama; the offset of each, here and in the whole model |
//! | [`batch`] | rows of tokens with their targets |
//! | [`axes`] | the traits of the axes that communicate within a layer |
//! | [`norm`], [`queries`], [`feed_forward`], [`gated`] | the parts of a block: those of a GPT, and those of a Llama |
//! | [`block`], [`gpt`] | a block, the whole model |
//! | [`store`], [`mixed`] | a rank's weights and gradients; 16 bits with `f32` masters |

pub mod axes;
pub mod batch;
pub mod block;
pub mod config;
pub mod feed_forward;
pub mod gated;
pub mod gpt;
pub mod layout;
pub mod mixed;
mod norm;
mod queries;
pub mod store;
mod tensors;
