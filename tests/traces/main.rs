//! Traces hold what happened: of the simulator, and of real runs.

mod file;
mod simulated;
