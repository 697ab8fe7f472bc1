//! Pictures: schedules as text and as SVG, and the frame of pages to step through.
//!
//! The command line uses them, and so can any program. A figure and a page are one file that loads
//! nothing: no script from elsewhere, no font, no image.
//!
//! | item | contents |
//! |---|---|
//! | [`draw`] | all ranks of a schedule as text, and the cells and messages of its picture |
//! | [`svg`] | all ranks of a schedule as one figure |
//! | [`writer`] | shapes and escaped text, as SVG |
//! | [`clocks`] | all ranks of a schedule on simulated clocks, in the units of the literature |
//! | [`rounds`] | message latencies before each step |
//! | [`text`] | a step as a line of text |
//! | [`file`](mod@file) | the schedules of all ranks, and their claimed collective, as a file |
//! | [`page`] | the frame of pages to step through by keys and buttons |
//! | [`timeline`] | the events of ranks in a simulation, as a trace |
//! | [`lanes`] | a trace for a terminal: a line for each lane, time from left to right |
#![forbid(unsafe_code)]

pub mod clocks;
pub mod draw;
pub mod file;
pub mod lanes;
pub mod page;
pub mod rounds;
mod schedule;
pub mod text;
pub mod timeline;
pub mod writer;

pub use schedule::svg;

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct PicturesReadme;
