//! Training: a step, one rank of any mesh, and everything that a run reads and writes.
//!
//! | file | what is in it |
//! |---|---|
//! | [`setup`] | how a model is spread over a mesh, and whether that is possible |
//! | [`worker`], `assemble` | one rank of a mesh, and its parts |
//! | [`session`] | the model, weights and optimizer of a rank |
//! | [`passes`] | the training loop: all micro-batches of a step through the stages of a rank |
//! | [`optim`], [`schedule`], [`clip`] | the update, the learning rate, clipping by norm |
//! | [`plateau`] | the learning rate that adapts to losses |
//! | [`text`], [`bpe`] | rows of tokens by their number; byte-pair encoding |
//! | [`keeper`] | what each rank keeps of a step, so that it can go on without another rank |
//! | [`survivors`] | a rank dies, and the others go on without it |
//! | [`validation`], [`sample`] | the loss on text that was held out; text written by the model |
//! | [`settings`] | what decides the result of a run beside its session |
//! | [`checkpoint`] | to disk and back; from any mesh to any other |
//! | [`chart`] | pictures of a run |

mod assemble;
pub mod bpe;
pub mod chart;
pub mod checkpoint;
pub mod clip;
pub mod keeper;
pub mod optim;
pub mod passes;
pub mod plateau;
pub mod sample;
pub mod schedule;
pub mod session;
pub mod settings;
pub mod setup;
pub mod survivors;
pub mod text;
pub mod validation;
pub mod worker;
