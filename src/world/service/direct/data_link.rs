//! Connections for bulk data, and what carries their bytes.

use maypole_transports::ib::VerbsStream;
use maypole_transports::secure::RecordKeys;
use std::net::TcpStream;

/// A connection for bulk data. Both ends have proved the job's key on it.
#[derive(Debug)]
pub struct DataConnection {
    /// What carries its bytes.
    pub link: DataLink,
    /// The keys for what follows on it; `None` if that is plain. The same at both ends, as
    /// [`JoinConfig::encrypt`](crate::world::bootstrap::JoinConfig) says.
    pub keys: Option<RecordKeys>,
}

/// What carries the bytes of a data connection.
#[derive(Debug)]
pub enum DataLink {
    /// A socket. It is non-blocking, sends small writes at once, and fails when the other host is
    /// silent for [`JoinConfig::timeout`](crate::world::bootstrap::JoinConfig).
    Tcp(TcpStream),
    /// A reliable connection between two RDMA ports. In a box, because its state is larger.
    Verbs(Box<VerbsStream>),
}

/// Which kind of [`DataLink`] is made. Both ranks ask for the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataPath {
    /// A socket.
    Tcp,
    /// A connection by verbs.
    Verbs,
}

impl DataConnection {
    pub(super) fn without_blocking(self) -> std::io::Result<Self> {
        if let DataLink::Tcp(socket) = &self.link {
            socket.set_nonblocking(true)?;
        }
        Ok(self)
    }
}
