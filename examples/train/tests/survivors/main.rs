//! Processes of `train` die, and the others continue: no loss is wrong, and none waits for long.

#[path = "../../../../tests/common/skip.rs"]
mod skip;

mod launched;
mod processes;
mod saved;
