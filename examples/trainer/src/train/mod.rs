//! Training: a step, one rank of any mesh, and everything that a run reads and writes.
//!
//! | file | contents |
//! |---|---|
//! | [`parallelism`] | how a model is spread over a mesh, and whether that is possible |
//! | [`trainer`] | the step |
//! | [`parts`], [`stores`] | the parts of a step, made for a rank of any mesh |
//! | [`rows`] | the rows and positions of a rank |
//! | [`pipeline`] | all micro-batches of a step through the stages of a rank |
//! | [`optim`], [`schedule`], [`clip`] | the update, the learning rate, clipping by norm |
//! | [`watch`] | the measurements of a step |
//! | [`text`], [`bpe`] | rows of tokens by their number; byte-pair encoding |
//! | [`validation`], [`sample`] | the loss on text that was held out; text written by the model |
//! | [`settings`] | the settings outside the trainer that determine the result of a run |
//! | [`checkpoint`] | to disk and back; from any mesh to any other |

pub mod bpe;
pub mod checkpoint;
pub mod clip;
pub mod optim;
pub mod parallelism;
pub mod parts;
pub mod pipeline;
pub mod rows;
pub mod sample;
pub mod schedule;
pub mod settings;
pub mod stores;
pub mod text;
pub mod trainer;
pub mod validation;
pub mod watch;
