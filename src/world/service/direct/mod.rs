//! What two ranks do without the help of rank 0: connections for data, shared memory, questions
//! about progress, and the relay of a failure that rank 0 does not pass on.

mod callers;
mod data_connections;
mod questions;
mod relay;
mod segments;

pub(super) use callers::Callers;
pub use data_connections::DataConnection;
pub(crate) use questions::AskError;
pub(in crate::world) use questions::read_message;
pub(super) use questions::{PeerAnswer, PeerQuestion};
pub(super) use relay::relay;
