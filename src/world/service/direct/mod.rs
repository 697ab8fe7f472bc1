//! Exchanges between two ranks without rank 0: connections for data, shared memory, status
//! requests, and the relay of a failure that rank 0 does not pass on.

mod callers;
mod data_connections;
mod data_link;
mod questions;
mod relay;
mod segments;
mod verbs;

pub(super) use callers::{CallerEvent, Callers};
pub use data_connections::at_once;
pub(super) use data_link::DataConnection;
pub use data_link::DataPath;
pub(super) use questions::PeerQuestion;
pub(super) use relay::relay;
pub(super) use verbs::{ConnectionKey, VERBS_LANE, VerbsMeeting};
