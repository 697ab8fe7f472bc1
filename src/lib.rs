//! Maypole.
#![forbid(unsafe_code)]

pub mod algorithms;
pub mod bootstrap;
pub mod collective;
pub mod comm;
pub mod draw;
pub mod element;
pub mod error;
pub mod execute;
pub mod launch;
pub mod lower;
pub mod schedule;
pub mod service;
pub mod simulate;
pub mod tuned;
pub mod tuner;
pub mod verify;
pub mod walk;

pub use comm::{Communicator, Local, Transport};
pub use element::{DataType, Element, ReduceOp};
pub use error::{Error, Result};
