//! The environment variables of a rank: its number, the address of rank 0, and where the job key
//! is.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use anyhow::{Context, anyhow};
use maypole::world::launch::{JobKey, free_port};
use maypole_transports::{descriptor, random};
use serde::{Deserialize, Serialize};

use crate::output;

const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The ports of rank 0's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobPorts {
    /// Where rank 0 listens for the other ranks.
    pub(super) join: u16,
    /// For the store of a program that uses torch and maypole.
    pub(super) store: u16,
}

impl JobPorts {
    /// Chooses ports that are free at `address`, and returns the listeners that keep them free. `join`
    /// may be given.
    pub(super) fn choose(
        address: IpAddr,
        join: Option<u16>,
    ) -> anyhow::Result<(JobPorts, Vec<TcpListener>)> {
        // Both listeners stay open, so that the ports differ.
        let first = match join {
            Some(port) => TcpListener::bind((address, port))
                .with_context(|| format!("cannot listen on --port {port}; name another port"))?,
            None => listen(address)?,
        };
        let listeners = vec![first, listen(address)?];
        let port = |nth: usize| listeners[nth].local_addr().map(|address| address.port());
        Ok((JobPorts { join: port(0)?, store: port(1)? }, listeners))
    }
}

/// The part of the environment that is equal for all ranks of a host.
pub(super) struct JobEnvironment {
    world: usize,
    /// The first rank of this host, and how many there are here.
    first: usize,
    local_world: usize,
    /// The address of rank 0.
    address: String,
    ports: JobPorts,
    name: String,
    /// A descriptor that holds the job key and that ranks inherit. The key itself is in no
    /// variable and in no file.
    key: OwnedFd,
}

impl JobEnvironment {
    /// The environment of a job whose ranks are all on this host.
    pub(super) fn new(world: usize, port: Option<u16>) -> anyhow::Result<JobEnvironment> {
        let (ports, _) = JobPorts::choose(ADDRESS.into(), port)?;
        let key = new_key()?;
        Self::of_host((world, 0, world), ADDRESS.to_string(), ports, (random_name()?, &key))
    }

    /// The environment of one host of a job: the ranks of the world, the first one here, and how many
    /// there are here; the address of rank 0, its ports, and the name and the key of the job.
    pub(super) fn of_host(
        (world, first, local_world): (usize, usize, usize),
        address: String,
        ports: JobPorts,
        (name, key): (String, &JobKey),
    ) -> anyhow::Result<JobEnvironment> {
        let key = descriptor::inheritable_segment("maypole-job-key", key.to_digits().as_bytes());
        let key = key.map_err(|error| {
            let remedy = output::remedy(&error);
            anyhow!("cannot make a descriptor for the job key: {error}{remedy}")
        })?;
        Ok(JobEnvironment { world, first, local_world, address, ports, name, key })
    }

    pub(super) fn set_variables(&self, command: &mut Command, rank: usize) {
        command
            // A key that this process inherited would contradict the key of the descriptor.
            .env_remove("MAYPOLE_JOB_KEY")
            .env_remove("MAYPOLE_JOB_KEY_FILE")
            .env("MAYPOLE_JOB_KEY_FD", self.key.as_raw_fd().to_string())
            .env("MAYPOLE_JOB", &self.name)
            .env("MAYPOLE_PORT", self.ports.join.to_string())
            .env("MASTER_PORT", self.ports.store.to_string());
        for (names, number) in [
            (["MAYPOLE_RANK", "RANK"], rank),
            (["MAYPOLE_LOCAL_RANK", "LOCAL_RANK"], rank - self.first),
            (["MAYPOLE_WORLD", "WORLD_SIZE"], self.world),
            (["MAYPOLE_LOCAL_WORLD", "LOCAL_WORLD_SIZE"], self.local_world),
        ] {
            for name in names {
                command.env(name, number.to_string());
            }
        }
        for name in ["MAYPOLE_ADDRESS", "MASTER_ADDR"] {
            command.env(name, &self.address);
        }
    }
}

/// A new secret for a job.
pub(super) fn new_key() -> anyhow::Result<JobKey> {
    JobKey::generate().context("cannot make a job key")
}

/// A new name for a job.
pub(super) fn random_name() -> anyhow::Result<String> {
    let mut bytes = [0; 8];
    random::fill(&mut bytes).context("cannot get random numbers from the system")?;
    Ok(format!("run-{:016x}", u64::from_ne_bytes(bytes)))
}

/// Listens on a free port, which rank 0 takes over.
fn listen(address: IpAddr) -> anyhow::Result<TcpListener> {
    free_port(address).context("no port from 20000 to 31999 is free; name a free one with --port")
}
