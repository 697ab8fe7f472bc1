//! Connections for bulk data, and the streams over them.

use crate::world::service::ServiceError;
use maypole_transports::ib::VerbsStream;
use maypole_transports::secure::RecordKeys;
use maypole_transports::{AnyStream, EncryptedStream, Tcp};
use std::net::TcpStream;

/// A fresh connection for bulk data, with the keys for its payload if
/// [`JoinConfig::encrypt`](crate::world::bootstrap::JoinConfig) is set. Both ends have proved the
/// job's key on it.
#[derive(Debug)]
pub(in crate::world::service) enum DataConnection {
    /// A socket. It sends small writes without delay, and fails when the other host is silent for
    /// [`JoinConfig::timeout`](crate::world::bootstrap::JoinConfig).
    Tcp(TcpStream, Option<RecordKeys>),
    /// A reliable connection between two RDMA ports. In a box, because its state is larger.
    Verbs(Box<VerbsStream>, Option<RecordKeys>),
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
    /// The stream over the connection: plain, or encrypted if there are keys.
    pub(super) fn open(self) -> std::io::Result<AnyStream> {
        let (stream, keys) = match self {
            Self::Tcp(socket, keys) => (AnyStream::Tcp(Tcp::new(socket)?), keys),
            Self::Verbs(stream, keys) => (AnyStream::Verbs(stream), keys),
        };
        Ok(match keys {
            Some(keys) => AnyStream::Encrypted(Box::new(EncryptedStream::new(stream, &keys))),
            None => stream,
        })
    }
}
