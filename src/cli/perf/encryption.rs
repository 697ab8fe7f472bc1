//! Whether links are encrypted, and the cost.

use crate::perf::communicators::PerfTransport;
use maypole::Communicator;
use maypole_transports::secure::{CipherSuite, EncryptionRate};

/// How fast this rank's core encrypts; `None` if the links of `comm` are plain.
pub(crate) fn rate(comm: &Communicator) -> Option<EncryptionRate> {
    comm.is_encrypted().then(EncryptionRate::measure)
}

/// True if bytes over `transport` leave shared memory, so that encryption applies to them.
pub(crate) fn applies(transport: PerfTransport) -> bool {
    match transport {
        PerfTransport::Tcp | PerfTransport::Mixed | PerfTransport::Ib | PerfTransport::MixedIb => {
            true
        }
        PerfTransport::Shm | PerfTransport::Board | PerfTransport::Mem => false,
        #[cfg(feature = "cuda")]
        PerfTransport::Cuda => false,
    }
}

/// The line above the table. 1 GB/s is 10^9 bytes a second.
pub(crate) fn describe(rate: Option<EncryptionRate>) -> String {
    let Some(EncryptionRate { suite, sealing, opening }) = rate else {
        let suite = CipherSuite::of_this_processor();
        return format!("# tcp is not encrypted; MAYPOLE_ENCRYPT=1 encrypts it with {suite}");
    };
    let sealing = sealing / 1e9;
    let opening = opening / 1e9;
    format!(
        "# tcp is encrypted with {suite}: one core of rank 0 encrypts {sealing:.2} GB/s and \
         decrypts {opening:.2} GB/s"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_told_in_bytes_a_second() {
        let suite = CipherSuite::ChaCha20Poly1305;
        let rate = EncryptionRate { suite, sealing: 1.5e9, opening: 0.75e9 };
        assert_eq!(
            describe(Some(rate)),
            "# tcp is encrypted with ChaCha20-Poly1305: one core of rank 0 encrypts 1.50 GB/s and \
             decrypts 0.75 GB/s"
        );
        assert!(describe(None).starts_with("# tcp is not encrypted; MAYPOLE_ENCRYPT=1 "));
    }
}
