//! Prices of calls: formulas, the simulator, measurements, and the choices that follow from them.

#[path = "../common/samples.rs"]
mod samples;
#[path = "../common/skip.rs"]
mod skip;

mod choices;
mod formulas;
mod large_worlds;
mod rings;
