//! The machine: which devices there are, how near they are to each other, and the text that says so.

pub mod answers;
pub mod description;
pub mod matrix;
pub mod printed;
pub mod rocm;
pub mod text;
pub mod xml;

pub use description::Description;
