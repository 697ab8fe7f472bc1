//! A solution of each exercise.

pub mod averaging;
pub mod context;
pub mod data_parallel;
pub mod experts;
pub mod pipeline;
pub mod sequence;
pub mod tensor;
pub mod unequal;
pub mod zero;
