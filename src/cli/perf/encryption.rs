//! Whether links are encrypted.

use crate::perf::communicators::PerfTransport;
use maypole::Communicator;
use maypole_transports::secure::CipherSuite;

/// True if the bytes of `comm` are encrypted: those over `transport` leave shared memory.
pub(crate) fn applies(comm: &Communicator, transport: PerfTransport) -> bool {
    comm.is_encrypted()
        && match transport {
            PerfTransport::Tcp | PerfTransport::Mixed => true,
            PerfTransport::Ib | PerfTransport::MixedIb => true,
            PerfTransport::Shm | PerfTransport::Board | PerfTransport::Mem => false,
            #[cfg(feature = "cuda")]
            PerfTransport::Cuda => false,
        }
}

/// The line above the table.
pub(crate) fn describe(is_encrypted: bool) -> String {
    let suite = CipherSuite::of_this_processor();
    match is_encrypted {
        true => format!("# tcp is encrypted with {suite}"),
        false => format!("# tcp is not encrypted; MAYPOLE_ENCRYPT=1 encrypts it with {suite}"),
    }
}
