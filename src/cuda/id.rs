//! The name of a group that processes make without a launcher.

use super::comm::Comm;
use super::options::CommOptions;
use crate::comm::Communicator;
use crate::comm::join::environment::named;
use crate::control::transport::Transport;
use crate::error::{Error, Result};
use crate::world::bootstrap::interface::InterfaceSelector;
use crate::world::bootstrap::{JoinConfig, published_address};
use cudarc::driver::{CudaContext, CudaStream};
use maypole_transports::{interfaces, random};
use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

/// The name of a group: 128 bytes that one rank makes, and that the program passes to the others.
/// It contains the address of rank 0 and a key, so it is as secret as a password.
#[derive(Clone, Copy)]
pub struct Id {
    pub(super) bytes: [u8; 128],
}

/// Bytes of the key, of the job's name, and of the address.
const KEY: usize = 32;
const JOB: usize = 16;
const ADDRESS: usize = 128 - KEY - JOB;

maypole_transports::opaque!(Id, "Id");

impl Id {
    /// Makes a name for ranks of this host and of others. Rank 0, which is on this host, listens at the
    /// address of the interface that `MAYPOLE_INTERFACE` names, else at that of the default route, else at
    /// the first one that is no loopback, and at loopback without any.
    ///
    /// # Errors
    /// [`Error::Join`] if there is no such interface, or if the system has no source of random numbers.
    pub fn new() -> Result<Self> {
        let selector: Option<InterfaceSelector> = named("MAYPOLE_INTERFACE")?;
        Self::at(&published_address("127.0.0.1".to_owned(), selector.as_ref())?)
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
        Ok(Self { bytes })
    }

    /// Makes the name of a group of some ranks of this one: equal on all of them if they pass equal
    /// `words`, and another one for other words. Rank 0 of the new group listens on the host of this
    /// group's rank 0.
    ///
    /// ```
    /// use maypole::cuda::Id;
    /// let id = Id::new().unwrap();
    /// assert_eq!(id.derived(&[1]).internal(), id.derived(&[1]).internal());
    /// assert_ne!(id.derived(&[1]).internal(), id.derived(&[2]).internal());
    /// ```
    #[must_use]
    pub fn derived(&self, words: &[u64]) -> Self {
        let mut bytes = self.bytes;
        let said: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let said = [&bytes[KEY..KEY + JOB], &said].concat();
        for (word, part) in bytes[KEY..KEY + JOB].chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&hash(&said, word as u64).to_le_bytes());
        }
        Self { bytes }
    }

    /// Connects to the other ranks without GPUs, for exchanges if the GPUs cannot be used together.
    /// Collective.
    ///
    /// ```no_run
    /// let id = maypole::cuda::Id::new()?;
    /// // Rank 0 of 2.
    /// let mut ranks = id.meet(0, 2, std::time::Duration::from_secs(60))?;
    /// ranks.broadcast(&mut [7u8], 0)?;
    /// # Ok::<(), maypole::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Join`] if the ranks do not find one another within `timeout`.
    pub fn meet(&self, rank: usize, world: usize, timeout: Duration) -> Result<Communicator> {
        let options = CommOptions { timeout: Some(timeout), ..CommOptions::default() };
        self.join(rank, world, &options)
    }

    /// Joins the ranks of this group.
    fn join(&self, rank: usize, world: usize, options: &CommOptions) -> Result<Communicator> {
        let mut config = self.configuration(rank, world)?;
        config.interface = named("MAYPOLE_INTERFACE")?;
        let host = || std::env::var("MAYPOLE_HOST").ok();
        config.host = options.host.clone().or_else(host).filter(|host| !host.is_empty());
        config.timeout = options.timeout.unwrap_or(config.timeout);
        config.join_timeout = options.join_timeout.unwrap_or(config.timeout);
        let address = config.address.clone().unwrap_or_default();
        Communicator::join(config, Transport::Auto).map_err(|error| match error {
            Error::Join { why, retryable } => {
                Error::Join { why: why + &hint(rank, &address), retryable }
            }
            other => other,
        })
    }

    /// The name in these bytes, which another rank has passed on.
    pub fn uninit(internal: [c_char; 128]) -> Self {
        Self { bytes: bytemuck::cast(internal) }
    }

    /// The bytes to pass on.
    pub fn internal(&self) -> &[c_char; 128] {
        bytemuck::cast_ref(&self.bytes)
    }

    fn configuration(&self, rank: usize, world: usize) -> Result<JoinConfig> {
        let unknown = || Error::wrong_setting("the id of the group is not one that Id::new made");
        let address = address(&self.bytes).ok_or_else(unknown)?;
        let (key, job) = self.bytes[..KEY + JOB].split_at(KEY);
        let config = JoinConfig::new(rank, world, address).with_job(&hex::encode(job));
        Ok(JoinConfig { key: Some(key.try_into().expect("32 bytes")), ..config })
    }
}

/// The address in a name, if it is text.
fn address(bytes: &[u8; 128]) -> Option<&str> {
    let address = &bytes[KEY + JOB..];
    let len = address.iter().position(|byte| *byte == 0).unwrap_or(ADDRESS);
    str::from_utf8(&address[..len]).ok()
}

/// A supplement for errors of joining: ranks may be on several hosts, and the remedy.
fn hint(rank: usize, address: &str) -> String {
    let is_loopback = address == "localhost"
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_own = || {
        let all = interfaces::addresses().unwrap_or_default();
        all.iter().any(|interface| interface.address.to_string() == address)
    };
    match (rank, is_loopback) {
        (_, true) => format!(
            "; {address} is an address of each host alone: if the ranks are on several hosts, make the \
             id on the host of rank 0 with MAYPOLE_INTERFACE (or NCCL_SOCKET_IFNAME) naming an \
             interface that the other hosts reach"
        ),
        (0, false) if !is_own() && address.parse::<std::net::IpAddr>().is_ok() => format!(
            "; {address} is an address of another host than this one: make the id on the host of rank 0"
        ),
        (_, false) => format!(
            "; the id says that rank 0 is at {address}: ranks on another host must reach that address, \
             and MAYPOLE_INTERFACE (or NCCL_SOCKET_IFNAME) on the host of rank 0 chooses another one"
        ),
    }
}

/// A hash of `bytes`, another one for each `seed`: equal in every build on every host, which `std`'s
/// hashes do not guarantee.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let start = maypole_kernels::mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    bytes.iter().fold(start, |hash, byte| maypole_kernels::mix(hash ^ u64::from(*byte)))
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
        let options = CommOptions::default();
        Self::of_world(id.join(rank, world_size, &options)?, stream, &options)
    }

    /// [`from_rank`](Self::from_rank) with a stream of the group's own, and with options.
    ///
    /// ```no_run
    /// # fn rank(id: maypole::cuda::Id) -> Result<(), Box<dyn std::error::Error>> {
    /// use maypole::cuda::{Comm, CommOptions, driver};
    /// let mut options = CommOptions::default();
    /// options.most_lanes = Some(16);
    /// let comm = Comm::from_rank_with(&driver()?.context(0)?, 0, 2, id, &options)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`from_rank`](Self::from_rank).
    pub fn from_rank_with(
        context: &Arc<CudaContext>,
        rank: usize,
        world_size: usize,
        id: Id,
        options: &CommOptions,
    ) -> Result<Self> {
        let stream = context.new_stream();
        let stream = stream.map_err(|error| {
            Error::wrong_setting(format!("GPU {} makes no stream: {error:?}", context.ordinal()))
        })?;
        Self::of_world(id.join(rank, world_size, options)?, stream, options)
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
