//! Rails: more ports of a rank, for more connections to the same peers.

use super::adapter::VerbsAdapter;
use super::candidates::VerbsCandidate;
use super::error::VerbsError;
use std::sync::Arc;

impl VerbsAdapter {
    /// Opens the other ports of this rank, where `sharing` ranks of its host share the ports that are as good as
    /// this one: each `sharing`th from this one on, in the order of [`VerbsCandidate::all`]. Ranks that
    /// took ports in turn share none, if there are enough.
    ///
    /// ```no_run
    /// use maypole_transports::ib::{VerbsAdapter, VerbsSettings};
    /// let first = VerbsAdapter::open(VerbsSettings::default())?;
    /// println!("a rank alone may use {} ports", 1 + first.rails(1)?.len());
    /// # Ok::<(), maypole_transports::ib::VerbsError>(())
    /// ```
    ///
    /// # Errors
    /// [`VerbsError`] if a port cannot be opened.
    ///
    /// # Panics
    /// If `sharing` is 0.
    pub fn rails(&self, sharing: usize) -> Result<Vec<Arc<Self>>, VerbsError> {
        let all = VerbsCandidate::all(&self.settings)?;
        let best = all.iter().take_while(|port| port.is_as_good_as(&all[0])).count();
        let is_this = |it: &VerbsCandidate| {
            (&it.device, it.port.number) == (&self.device.name, self.port.number)
        };
        let Some(at) = all[..best].iter().position(is_this) else { return Ok(Vec::new()) };
        let others = (1..best / sharing).map(|rail| all[(at + rail * sharing) % best].clone());
        others.map(|port| Self::open_port(port, self.settings.clone())).collect()
    }
}
