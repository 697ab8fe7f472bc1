//! Why verbs cannot be used, or do not work any more.

use super::abi::{EVENT_CQ_ERR, EVENT_QP_ACCESS_ERR, EVENT_QP_FATAL, EVENT_QP_REQ_ERR, WC_REFUSED};
use super::adapter::VerbsAdapter;
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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum VerbsFault {
    /// The peer's queue pair is gone or does not respond.
    Unanswered,
    /// A request failed with this status.
    Status(u32),
    /// A call of the driver failed with this `errno`.
    Call(i32),
    PortDown,
    /// The device is broken or was removed.
    DeviceGone,
    /// The port has other addresses than that which connections use.
    AddressLost,
    /// The adapter has aborted the queue pair or its completion queue, with this event.
    Queue(u32),
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
        let why = match self {
            Self::Call(code) => return Fault::Io(io::Error::from_raw_os_error(code)),
            Self::Unanswered => {
                "the peer's adapter does not answer: its process has ended, or a port or a cable on \
                 the way is down; 'rdma link' shows the state of this host's ports"
                    .to_owned()
            }
            Self::PortDown => {
                format!("port {port} of {name} is down; see to its cable and to its link")
            }
            Self::DeviceGone => format!(
                "the device {name} was removed or is broken; 'rdma link' shows those that work"
            ),
            Self::AddressLost => format!(
                "port {port} of {name} has lost its address, GID {}, by which its peers reach it; \
                 the network interface has to keep its addresses while ranks run",
                adapter.gid
            ),
            Self::Queue(EVENT_QP_ACCESS_ERR) => format!(
                "the device {name} has given up {}: its port {port} has refused a write of the \
                 peer; {WITHOUT_WRITES}",
                queue(EVENT_QP_ACCESS_ERR)
            ),
            Self::Queue(event) => {
                format!("the device {name} has given up {}; 'dmesg' may say why", queue(event))
            }
            Self::Status(WC_REFUSED) => format!(
                "the peer's adapter refused a write by port {port} of {name} \
                 (IBV_WC_REM_ACCESS_ERR): its memory is not registered by this key; \
                 {WITHOUT_WRITES}"
            ),
            Self::Status(status) => format!(
                "a request on the queue pair ended with status {status} of enum ibv_wc_status"
            ),
            Self::Protocol => "the peer breaks the protocol of rings".to_owned(),
        };
        Fault::Io(io::Error::other(why))
    }
}

/// The queue that an adapter has aborted with this event.
fn queue(event: u32) -> &'static str {
    match event {
        EVENT_CQ_ERR => "the connection's completion queue (IBV_EVENT_CQ_ERR)",
        EVENT_QP_FATAL => "the connection's queue pair (IBV_EVENT_QP_FATAL)",
        EVENT_QP_REQ_ERR => "the connection's queue pair (IBV_EVENT_QP_REQ_ERR)",
        _ => "the connection's queue pair (IBV_EVENT_QP_ACCESS_ERR)",
    }
}
