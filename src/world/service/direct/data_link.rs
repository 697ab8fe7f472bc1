//! Connections for bulk data, and the streams over them.

use crate::world::service::ServiceError;
use maypole_transports::ib::VerbsStream;
use maypole_transports::secure::Channel;
use maypole_transports::{AnyStream, EncryptedStream, Tcp};
use std::net::TcpStream;

/// A fresh connection for bulk data, with the channel for its payload if
/// [`JoinConfig::encrypt`](crate::world::bootstrap::JoinConfig) is set. Both ends have proved the
/// job's key on it.
#[derive(Debug)]
pub(in crate::world::service) enum DataConnection {
    /// A socket. It sends small writes without delay, and fails when the other host is silent for
    /// [`JoinConfig::timeout`](crate::world::bootstrap::JoinConfig).
    Tcp(TcpStream, Option<Channel>),
    /// A reliable connection between two RDMA ports. In a box, because its state is larger.
    Verbs(Box<VerbsStream>, Option<Channel>),
}

/// The transport of a data connection. Both ranks request the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataPath {
    /// A socket.
    Tcp,
    /// A connection by verbs.
    Verbs,
}

/// The error of a data connection that cannot be made.
pub(super) fn failed(why: impl ToString) -> ServiceError {
    ServiceError::failed("a data connection", why)
}

impl DataConnection {
    /// The stream over the connection: plain, or encrypted if there is a channel.
    pub(super) fn open(self) -> std::io::Result<AnyStream> {
        let (stream, channel) = match self {
            Self::Tcp(socket, channel) => (AnyStream::Tcp(Tcp::new(socket)?), channel),
            Self::Verbs(stream, channel) => (AnyStream::Verbs(stream), channel),
        };
        Ok(match channel {
            Some(channel) => AnyStream::Encrypted(Box::new(EncryptedStream::new(stream, channel))),
            None => stream,
        })
    }
}
