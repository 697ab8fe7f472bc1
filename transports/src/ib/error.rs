//! Why verbs cannot be used, or do not work any more.

use super::abi::WC_REFUSED;
use super::adapter::VerbsAdapter;
use super::events::{PortTrouble, QueueTrouble};
use crate::stream::Fault;
use std::io;

/// Why this machine, a device or a queue pair of it cannot be used by verbs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The library is not installed.
    #[error("libibverbs.so.1 cannot be loaded ({0}); install libibverbs1 or rdma-core")]
    NoLibrary(String),
    /// The library is older than this crate can use.
    #[error("libibverbs.so.1 has no {symbol}; install rdma-core 32 or newer")]
    OldLibrary {
        /// The symbol that was looked for.
        symbol: &'static str,
    },
    /// The kernel has no RDMA support, or its modules are not loaded.
    #[error(
        "the kernel offers no RDMA devices ({0}); load ib_uverbs and the adapter's module, such as \
         mlx5_ib, or rdma_rxe for an Ethernet interface"
    )]
    NoKernel(io::Error),
    /// There is a kernel and a library, but no device.
    #[error("there are no RDMA devices; 'rdma link' shows those that the kernel knows")]
    NoDevice,
    /// No device has this name.
    #[error("there is no RDMA device called {name}; there are {found}")]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// The names of the devices of this machine.
        found: String,
    },
    /// The device has another protocol.
    #[error(
        "{device} is {protocol}, and verbs are used over InfiniBand and RoCE alone; \
         MAYPOLE_IB_DEVICE chooses another device"
    )]
    OtherProtocol {
        /// The device's name.
        device: String,
        /// Its kind, with an article.
        protocol: &'static str,
    },
    /// The device has no such port.
    #[error("{device} has no port {port}; its ports are 1 to {ports}")]
    UnknownPort {
        /// The device's name.
        device: String,
        /// The requested number.
        port: u8,
        /// The number of its ports.
        ports: usize,
    },
    /// The port is not up.
    #[error("port {port} of {device} is {state}, not active; see to its cable and to its link")]
    PortDown {
        /// The device's name.
        device: String,
        /// The port's number, from 1 on.
        port: u8,
        /// The state in words.
        state: &'static str,
    },
    /// The port has no address by which peers may reach it.
    #[error(
        "port {port} of {device} has no GID that can be used; give its network interface an address"
    )]
    NoGid {
        /// The device's name.
        device: String,
        /// The port's number, from 1 on.
        port: u8,
    },
    /// The port's table has no such GID.
    #[error("port {port} of {device} has no GID with index {index}; it has {found}")]
    UnknownGid {
        /// The device's name.
        device: String,
        /// The port's number, from 1 on.
        port: u8,
        /// The requested index.
        index: u32,
        /// The indices of the port.
        found: String,
    },
    /// The device does not register memory.
    #[error(
        "{bytes} bytes of memory cannot be registered ({source}); the limit of locked memory is \
         {limit}, which 'ulimit -l' or the service's LimitMEMLOCK raises"
    )]
    Memory {
        /// The length of the memory.
        bytes: usize,
        /// The limit of locked memory in words.
        limit: String,
        /// The error of the library.
        source: io::Error,
    },
    /// A call of the library failed.
    #[error("{call} failed on {device}: {source}")]
    Call {
        /// The call's name.
        call: &'static str,
        /// The device's name.
        device: String,
        /// The error of the library.
        source: io::Error,
    },
    /// A peer's bytes are no endpoint of this version.
    #[error("the peer's {bytes} bytes are no verbs endpoint of this version")]
    Endpoint {
        /// The number of bytes.
        bytes: usize,
    },
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
