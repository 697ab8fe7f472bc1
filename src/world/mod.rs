//! How processes become ranks of one world.
//!
//! [`launch`] reads from the environment which rank this process is, [`bootstrap`] brings the ranks together at one
//! port and keeps strangers out, and [`service`] is the control plane that they have from then on. None of them knows
//! a collective.

pub mod bootstrap;
pub mod launch;
mod peer;
pub mod service;
