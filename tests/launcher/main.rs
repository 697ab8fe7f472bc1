//! `maypole run` and `maypole key`, with real processes. Every wait here is for an event, and
//! bounded.

#![cfg(feature = "cli")]

#[path = "../common/skip.rs"]
mod skip;

mod ending;
mod harness;
mod joining;
mod leftovers;
mod limits;
mod output;
mod replacing;
mod restarts;
