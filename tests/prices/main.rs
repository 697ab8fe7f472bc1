//! Prices of calls: formulas, the simulator, measurements, and the choices that follow from them.

#[path = "../common/samples.rs"]
mod samples;

mod choices;
mod formulas;
mod predictions;
mod rings;
