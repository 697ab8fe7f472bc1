//! Processes of `train` die, and the others continue: no loss is wrong, and none waits for long.

mod launched;
mod processes;
mod saved;
