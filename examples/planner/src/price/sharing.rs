//! The effect of shared cores on a price: contention of the ranks of one host.

use super::StepPricing;
use crate::groups::{GroupShape, PricedCollective};
use maypole_trainer::ranks::mesh::MeshAxis;

impl StepPricing<'_> {
    /// Seconds of a pipeline's passes. `path`: seconds of its longest chain of passes that wait for one
    /// another; `own`: seconds of the passes of a rank.
    ///
    /// Where ranks share cores, others compute while a rank waits. A core idles only while fewer
    /// passes can run than there are cores, which the longest chain bounds: Graham's bound for lists.
    pub(super) fn pipeline(&self, path: f64, own: f64) -> f64 {
        let stages = self.strategy.mesh.size(MeshAxis::Pp);
        match self.sharing {
            Some(sharing) if stages > 1 && sharing.crowding() > 1.0 => {
                own + (1.0 - 1.0 / sharing.cores as f64) * path / sharing.crowding()
            }
            _ => path.max(own),
        }
    }

    pub(super) fn crowding(&self) -> f64 {
        self.sharing.map_or(1.0, |sharing| sharing.crowding())
    }

    /// Seconds of a collective in a group of `shape`: see [`GroupPrices::seconds`] for `bytes`.
    pub(super) fn collective(
        &self,
        shape: GroupShape,
        collective: PricedCollective,
        bytes: f64,
    ) -> Result<f64, String> {
        let Some(sharing) = self.sharing else {
            return self.prices.seconds(shape, collective, bytes);
        };
        let ranks = (shape.local * shape.hosts) as f64;
        if ranks == 1.0 || bytes <= 0.0 {
            return Ok(0.0);
        }
        let sent = match collective {
            PricedCollective::AllReduce => 2.0 * bytes * (ranks - 1.0) / ranks,
            PricedCollective::AllGather | PricedCollective::AllToAll => {
                bytes * (ranks - 1.0) / ranks
            }
            PricedCollective::Send => bytes,
        };
        Ok(sharing.seconds(sent))
    }

    /// Seconds of a rank's overhead in `calls` collectives, in addition to the time of their bytes.
    pub(super) fn calls(&self, calls: f64) -> f64 {
        self.sharing.map_or(0.0, |sharing| calls * sharing.call)
    }

    /// Seconds of a collective that do not overlap with passes of `behind` seconds. A core that moves
    /// bytes does not compute at the same time.
    pub(super) fn shown(&self, seconds: f64, behind: f64) -> f64 {
        if self.sharing.is_some() { seconds } else { (seconds - behind).max(0.0) }
    }
}
