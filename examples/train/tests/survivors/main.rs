//! Processes of `train` die, and the others continue: no loss is wrong, and none waits for long.

mod processes;
mod replaced;
mod saved;
