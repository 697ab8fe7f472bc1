//! The name of a group that processes make without a launcher.

use super::comm::Comm;
use crate::comm::Communicator;
use crate::control::transport::Transport;
use crate::error::{Error, Result};
use crate::world::bootstrap::JoinConfig;
use cudarc::driver::CudaStream;
use maypole_transports::random;
use std::ffi::c_char;
use std::sync::Arc;

/// The name of a group: 128 bytes that one rank makes, and that the program passes to the others as
/// it likes. It contains where rank 0 listens, and a key, so it is passed on like a password.
#[derive(Clone, Copy)]
pub struct Id {
    internal: [c_char; 128],
}

/// Bytes of the key, of the job's name, and of the address.
const KEY: usize = 32;
const JOB: usize = 16;
const ADDRESS: usize = 128 - KEY - JOB;

impl std::fmt::Debug for Id {
    // A key is never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Id")
    }
}

impl Id {
    /// Makes a name for the ranks of this host.
    ///
    /// # Errors
    /// [`Error::Join`] if the system has no source of random numbers.
    pub fn new() -> Result<Self> {
        Self::at("127.0.0.1")
    }

    /// Makes a name for ranks that reach rank 0 at `address`: a host name or an address, of at most
    /// 80 bytes.
    ///
    /// # Errors
    /// [`Error::Join`] if the address is longer, or if the system has no source of random numbers.
    pub fn at(address: &str) -> Result<Self> {
        if address.len() > ADDRESS {
            let why = format!("the address '{address}' is longer than {ADDRESS} bytes");
            return Err(Error::wrong_setting(why));
        }
        let mut bytes = [0; 128];
        random::fill(&mut bytes[..KEY + JOB])
            .map_err(|error| Error::unjoined(format!("no random numbers for a key: {error}")))?;
        bytes[KEY + JOB..][..address.len()].copy_from_slice(address.as_bytes());
        Ok(Self { internal: bytes.map(|byte| byte as c_char) })
    }

    /// The name that these bytes are, as another rank has passed them on.
    pub fn uninit(internal: [c_char; 128]) -> Self {
        Self { internal }
    }

    /// The bytes to pass on.
    pub fn internal(&self) -> &[c_char; 128] {
        &self.internal
    }

    fn configuration(&self, rank: usize, world: usize) -> Result<JoinConfig> {
        let bytes = self.internal.map(|byte| byte as u8);
        let (secret, address) = bytes.split_at(KEY + JOB);
        let len = address.iter().position(|byte| *byte == 0).unwrap_or(ADDRESS);
        let address = std::str::from_utf8(&address[..len]).map_err(|_| {
            Error::wrong_setting("the id of the group is not one that Id::new made")
        })?;
        let (key, job) = secret.split_at(KEY);
        let job: String = job.iter().map(|byte| format!("{byte:02x}")).collect();
        let config = JoinConfig::new(rank, world, address).with_job(&job);
        Ok(JoinConfig { key: Some(key.try_into().expect("32 bytes")), ..config })
    }
}

impl Comm {
    /// Makes the membership of rank `rank` in the group of `world_size` ranks that `id` names, on
    /// the GPU of `stream`. Collective: returns once all ranks have called it.
    ///
    /// # Errors
    /// [`Error::Join`] if the ranks do not find one another; else as [`new`](Self::new).
    pub fn from_rank(
        stream: Arc<CudaStream>,
        rank: usize,
        world_size: usize,
        id: Id,
    ) -> Result<Self> {
        let config = id.configuration(rank, world_size)?;
        Self::of_world(Communicator::join(config, Transport::Auto)?, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_where_and_has_a_secret() {
        let id = Id::at("node7").unwrap();
        let copy = Id::uninit(*id.internal());
        let config = copy.configuration(1, 2).unwrap();
        assert_eq!((config.rank, config.world, config.address.as_deref()), (1, 2, Some("node7")));
        assert_ne!(config.key, Id::at("node7").unwrap().configuration(1, 2).unwrap().key);
        assert!(Id::at(&"x".repeat(81)).is_err());
        assert!(Id::uninit([-1; 128]).configuration(0, 1).is_err());
    }
}
