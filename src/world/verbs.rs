//! The RDMA port of this process, opened when the ranks first ask whether all of them have one.

use maypole_transports::ib::{UnconnectedVerbs, VerbsAdapter, VerbsSettings};
use std::sync::{Arc, OnceLock};

/// The port by which this process makes connections, or why it has none. All worlds that this
/// process goes on in use the same port.
#[derive(Debug, Default)]
pub(crate) struct VerbsAccess {
    settings: VerbsSettings,
    port: OnceLock<Result<Arc<VerbsAdapter>, String>>,
}

impl VerbsAccess {
    /// A port that is chosen by `settings` when it is first needed.
    pub(crate) fn new(settings: VerbsSettings) -> Self {
        Self { settings, port: OnceLock::new() }
    }

    /// Opens the port, if no call has done so yet. The first call makes one end of a connection and
    /// drops it, so that a limit of locked memory is told before any rank relies on this one.
    ///
    /// # Errors
    /// What this machine lacks, and what mends it.
    pub(crate) fn open(&self) -> Result<&Arc<VerbsAdapter>, &str> {
        let port = self.port.get_or_init(|| {
            let tried = VerbsAdapter::open(self.settings.clone()).and_then(|adapter| {
                UnconnectedVerbs::new(&adapter)?;
                Ok(adapter)
            });
            tried.map_err(|error| error.to_string())
        });
        port.as_ref().map_err(String::as_str)
    }

    /// The port, if a call has opened it.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn opened(&self) -> Result<&Arc<VerbsAdapter>, &str> {
        match self.port.get() {
            Some(port) => port.as_ref().map_err(String::as_str),
            None => Err("this rank has not been asked to use verbs"),
        }
    }
}
