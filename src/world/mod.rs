//! How processes become ranks of one world.
//!
//! [`launch`] reads from the environment which rank this process is. [`bootstrap`] joins the ranks
//! at one port of rank 0 and refuses every process that does not hold the job's key. [`service`]
//! is the control plane that the ranks have from then on. None of the three knows a collective.

pub mod bootstrap;
pub mod launch;
mod peer;
#[doc(hidden)]
pub mod service;
