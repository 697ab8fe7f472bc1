//! Ranks die, and the others continue: no number is lost, and no loss is wrong.

#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../support/mod.rs"]
mod support;

mod kept;
mod kills;
mod mortal;
