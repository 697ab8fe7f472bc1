//! Each axis against one process, and axes together.

#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../support/mod.rs"]
mod support;

mod averaging;
mod combine;
mod context;
mod data_parallel;
mod experts;
mod hybrid;
mod llama;
mod local_sgd;
mod moving;
mod overlap;
mod pipeline;
mod tensor;
mod unequal;
