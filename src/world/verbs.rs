//! The RDMA port of this process, opened when the ranks first compare their ports.

use maypole_transports::ib::{
    UnconnectedVerbs, VerbsAdapter, VerbsCandidate, VerbsError, VerbsSettings,
};
use maypole_transports::lock;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, OnceLock};

/// Which of its ports a process opens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PortChoice {
    /// The port that is open already. Else one of the equally best ports, which the ranks of a host
    /// use in turn.
    Share,
    /// The port with this number, by how good ports are, or the last one if there are fewer.
    Nth(usize),
}

/// A rank's description of the port that it has opened.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct VerbsPortOffer {
    /// The kind of network that the port is of.
    pub(crate) network: String,
    /// The port in words.
    pub(crate) port: String,
    /// How many ports the rank may use.
    pub(crate) ports: usize,
    /// Of these, the number of the port that it has opened.
    pub(crate) number: usize,
}

/// The port by which this process makes connections, or why it has none. All later worlds of this
/// process use the same port.
#[derive(Debug, Default)]
pub(crate) struct VerbsAccess {
    settings: VerbsSettings,
    /// The ports that the settings allow, the best one first.
    candidates: OnceLock<Result<Vec<VerbsCandidate>, String>>,
    used: Mutex<Option<UsedPort>>,
}

#[derive(Debug)]
struct UsedPort {
    number: usize,
    adapter: Arc<VerbsAdapter>,
}

impl VerbsAccess {
    /// A port that is chosen by `settings` when it is first needed.
    pub(crate) fn new(settings: VerbsSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Opens the port of this `choice`, as the rank with the number `index` on its host. Allocates
    /// one end of a connection and drops it, so that a limit of locked memory is an error here,
    /// before any rank uses this port.
    ///
    /// # Errors
    /// A missing resource of this machine, and its remedy.
    pub(crate) fn open(
        &self,
        choice: PortChoice,
        index: usize,
    ) -> Result<(VerbsPortOffer, Arc<VerbsAdapter>), String> {
        let find = || VerbsCandidate::all(&self.settings).map_err(|error| error.to_string());
        let candidates = self.candidates.get_or_init(find).as_ref().map_err(Clone::clone)?;
        let mut used = lock(&self.used);
        let number = match (choice, &*used) {
            (PortChoice::Share, Some(used)) => used.number,
            (PortChoice::Share, None) => {
                let is_best = |port: &&VerbsCandidate| port.is_as_good_as(&candidates[0]);
                index % candidates.iter().take_while(is_best).count()
            }
            (PortChoice::Nth(number), _) => number.min(candidates.len() - 1),
        };
        let candidate = &candidates[number];
        let open = || {
            let adapter = VerbsAdapter::open_port(candidate.clone(), self.settings.clone())?;
            UnconnectedVerbs::new(&adapter).map(|_| adapter)
        };
        let adapter = match &*used {
            Some(used) if used.number == number => Arc::clone(&used.adapter),
            _ => open().map_err(|error: VerbsError| error.to_string())?,
        };
        *used = Some(UsedPort { number, adapter: Arc::clone(&adapter) });
        let network = adapter.network().to_owned();
        let port = candidate.to_string();
        Ok((VerbsPortOffer { network, port, ports: candidates.len(), number }, adapter))
    }

    /// The port, if a call has opened it.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn opened(&self) -> Result<Arc<VerbsAdapter>, String> {
        match (&*lock(&self.used), self.candidates.get()) {
            (Some(used), _) => Ok(Arc::clone(&used.adapter)),
            (None, Some(Err(why))) => Err(why.clone()),
            (None, _) => Err("this rank has not been asked to use verbs".to_owned()),
        }
    }
}
