//! `train` as a user runs it.

mod clock;
mod growth;
mod printing;
mod processes;
mod refusals;
mod restarts;
mod usage;
