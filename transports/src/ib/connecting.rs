//! The ends of a connection before both are connected.

use super::adapter::{VerbsAdapter, VerbsMemory};
use super::endpoint::VerbsEndpoint;
use super::error::VerbsError;
use super::flow::{OTHERS, RING, WRITES};
use super::queue_pair::QueuePair;
use super::stream::VerbsStream;
use crate::random;
use std::sync::Arc;

/// An end without a peer yet.
pub struct UnconnectedVerbs {
    pair: QueuePair,
    rings: VerbsMemory,
    adapter: Arc<VerbsAdapter>,
}

opaque!(UnconnectedVerbs, "UnconnectedVerbs");

impl UnconnectedVerbs {
    /// Bytes that each end registers.
    pub const REGISTERED: usize = 2 * RING;

    /// Makes an end on `adapter`.
    ///
    /// # Errors
    /// [`VerbsError`] names the limit of memory, or the call that failed.
    pub fn new(adapter: &Arc<VerbsAdapter>) -> Result<Self, VerbsError> {
        // Random, so that packets of an earlier connection with the same numbers are not accepted.
        let first_packet = random::bytes().map(u32::from_le_bytes).unwrap_or(0);
        let receives = WRITES + OTHERS;
        // First, because its error names the limit of locked memory.
        let rings = VerbsMemory::new(adapter, Self::REGISTERED)?;
        let mut pair = QueuePair::new(adapter, WRITES + OTHERS, receives, first_packet)?;
        for _ in 0..receives {
            pair.post_receive()
                .map_err(|error| VerbsError::call("ibv_post_recv", &adapter.device.name, &error))?;
        }
        Ok(Self { pair, rings, adapter: Arc::clone(adapter) })
    }

    /// The address of this end, for the peer.
    pub fn endpoint(&self) -> VerbsEndpoint {
        let (ring, key) = (self.rings.kind.address(), self.rings.remote_key());
        VerbsEndpoint { ring, key, pair: self.pair.address() }
    }

    /// Connects to the end at `peer`, which connects to this one. Neither may send before both
    /// have connected.
    ///
    /// # Errors
    /// [`VerbsError`] names the call that failed.
    pub fn connect(mut self, peer: &VerbsEndpoint) -> Result<ConnectedVerbs, VerbsError> {
        self.pair.connect(&peer.pair)?;
        Ok(ConnectedVerbs { end: self, peer: *peer })
    }
}

/// An end that is connected, and whose peer may not be. Dropping it sends nothing to the peer.
#[derive(Debug)]
pub struct ConnectedVerbs {
    end: UnconnectedVerbs,
    peer: VerbsEndpoint,
}

impl ConnectedVerbs {
    /// The stream, once the peer has connected, too.
    pub fn open(self) -> VerbsStream {
        let UnconnectedVerbs { pair, rings, adapter } = self.end;
        VerbsStream::new(pair, rings, self.peer, adapter)
    }
}
