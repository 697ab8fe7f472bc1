//! Prices of calls: formulas, the simulator, measurements, and the choices that follow from them.

mod choices;
mod formulas;
mod large_worlds;
