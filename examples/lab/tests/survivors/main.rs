//! Ranks die, and the others continue: no number is lost, and no loss is wrong.

#[path = "../support/mod.rs"]
mod support;

mod kept;
mod kills;
mod mortal;
