//! Why verbs cannot be used, or do not work any more.

use super::abi::WC_REFUSED;
use super::adapter::VerbsAdapter;
use super::events::{PortTrouble, QueueTrouble};
use crate::stream::Fault;
use std::io;

/// Why verbs cannot be used: the message names the missing part and the remedy.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The library is not installed.
    #[error("libibverbs.so.1 cannot be loaded ({0}); install libibverbs1 or rdma-core")]
    NoLibrary(String),
    /// The library, the kernel, a device or its port cannot be used as the settings demand, or a
    /// call of the library failed.
    #[error("{0}")]
    Unusable(String),
}

impl VerbsError {
    pub(super) fn no_device() -> Self {
        let text = "there are no RDMA devices; 'rdma link' shows those that the kernel knows";
        Self::Unusable(text.to_owned())
    }

    /// A call of the library failed.
    pub(super) fn call(call: &str, device: &str, source: &io::Error) -> Self {
        Self::Unusable(format!("{call} failed on {device}: {source}"))
    }
}

/// Why the connection is lost.
#[derive(Clone, Copy, Debug)]
pub(super) enum VerbsFault {
    /// The peer's queue pair is gone or does not respond.
    Unanswered,
    /// A request failed with this status.
    Status(u32),
    /// A call of the driver failed with this `errno`.
    Call(i32),
    /// The port or its device does not work any more.
    Port(PortTrouble),
    /// The adapter has aborted the queue pair or its completion queue.
    Queue(QueueTrouble),
    /// The peer wrote what no peer of this version writes.
    Protocol,
}

/// What a user may do without direct writes.
const WITHOUT_WRITES: &str =
    "for ranks on GPUs, MAYPOLE_CUDA_COURIERS=stream does without direct writes";

impl VerbsFault {
    /// The fault that users of a stream on `adapter` see.
    pub(super) fn report(self, adapter: &VerbsAdapter) -> Fault {
        let (name, port) = (&adapter.device.name, adapter.port.number);
        match self {
            Self::Unanswered => Fault::Io(io::Error::other(
                "the peer's adapter does not answer: its process has ended, or a port or a cable on \
                 the way is down; 'rdma link' shows the state of this host's ports",
            )),
            Self::Port(PortTrouble::Down) => Fault::Io(io::Error::other(format!(
                "port {port} of {name} is down; see to its cable and to its link"
            ))),
            Self::Port(PortTrouble::DeviceGone) => Fault::Io(io::Error::other(format!(
                "the device {name} was removed or is broken; 'rdma link' shows those that work"
            ))),
            Self::Port(PortTrouble::AddressLost) => Fault::Io(io::Error::other(format!(
                "port {port} of {name} has lost its address, GID {}, by which its peers reach it; \
                 the network interface has to keep its addresses while ranks run",
                adapter.gid
            ))),
            Self::Queue(QueueTrouble::Access) => Fault::Io(io::Error::other(format!(
                "the device {name} has given up {}: its port {port} has refused a write of the \
                 peer; {WITHOUT_WRITES}",
                QueueTrouble::Access
            ))),
            Self::Queue(trouble) => Fault::Io(io::Error::other(format!(
                "the device {name} has given up {trouble}; 'dmesg' may say why"
            ))),
            Self::Status(WC_REFUSED) => Fault::Io(io::Error::other(format!(
                "the peer's adapter refused a write by port {port} of {name} \
                 (IBV_WC_REM_ACCESS_ERR): its memory is not registered by this key; \
                 {WITHOUT_WRITES}"
            ))),
            Self::Status(status) => Fault::Io(io::Error::other(format!(
                "a request on the queue pair ended with status {status} of enum ibv_wc_status"
            ))),
            Self::Call(code) => Fault::Io(io::Error::from_raw_os_error(code)),
            Self::Protocol => Fault::Io(io::Error::other("the peer breaks the protocol of rings")),
        }
    }
}
