//! The blocks of kernels that groups of this process have reserved on each GPU.
//!
//! Blocks of one call wait for those of other ranks, so all of them must run at the same time. Two groups
//! of one GPU may have calls at the same time. If their blocks did not fit together, each rank could have
//! started the call that the other one waits to start.

use crate::lock;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

/// The name that a GPU has everywhere.
type Uuid = [u8; 16];

static RESERVED: LazyLock<Mutex<HashMap<Uuid, u32>>> = LazyLock::new(Mutex::default);

/// The blocks of one rank of a group, given back when this is dropped.
#[derive(Debug)]
pub struct ReservedBlocks {
    uuid: Uuid,
    blocks: u32,
}

impl ReservedBlocks {
    /// How many blocks groups of this process have reserved on a GPU.
    pub fn taken(uuid: Uuid) -> u32 {
        lock(&RESERVED).get(&uuid).copied().unwrap_or(0)
    }

    /// Reserves `blocks` blocks on a GPU on which `most` fit. `None` if fewer are left.
    pub fn new(uuid: Uuid, blocks: u32, most: u32) -> Option<Self> {
        let mut reserved = lock(&RESERVED);
        let taken = reserved.entry(uuid).or_default();
        if blocks > most.saturating_sub(*taken) {
            return None;
        }
        *taken += blocks;
        Some(Self { uuid, blocks })
    }
}

impl Drop for ReservedBlocks {
    fn drop(&mut self) {
        if let Some(taken) = lock(&RESERVED).get_mut(&self.uuid) {
            *taken -= self.blocks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_blocks_are_reserved_than_fit() {
        let (uuid, other) = ([0xab; 16], [0xac; 16]);
        let first = ReservedBlocks::new(uuid, 10, 16).unwrap();
        assert_eq!((ReservedBlocks::taken(uuid), ReservedBlocks::taken(other)), (10, 0));
        assert!(ReservedBlocks::new(uuid, 7, 16).is_none());
        let second = ReservedBlocks::new(uuid, 6, 16).unwrap();
        drop(first);
        assert_eq!(ReservedBlocks::taken(uuid), 6);
        drop(second);
        assert_eq!(ReservedBlocks::taken(uuid), 0);
    }
}
