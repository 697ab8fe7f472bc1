//! Schedules, lowered and executed on threads: they complete over every transport, and give the
//! bits that the order of the proof gives.

mod every_algorithm;
mod promises;
mod random;
mod running_ahead;

use crate::common::world::WINDOW;
