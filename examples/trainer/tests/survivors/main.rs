//! Ranks die, and the others go on: no number is lost, no loss is wrong, and nobody waits.

#[path = "../support/mod.rs"]
mod support;

mod kept;
mod kills;
mod mortal;
mod processes;
mod replaced;
mod saved;
