//! What a rank is told: who it is, where the others are, and the secret that they share.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use anyhow::Context;
use maypole::world::launch::JobKey;
use maypole_transports::{descriptor, random};

const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// What is the same for all ranks.
pub(super) struct Job {
    world: usize,
    /// Where rank 0 of maypole listens.
    port: u16,
    /// Where a program that uses torch beside maypole puts its store.
    store_port: u16,
    name: String,
    /// Holds the key, and is inherited by the ranks. It is in nobody's environment and in no file.
    key: OwnedFd,
}

impl Job {
    pub(super) fn new(world: usize, port: Option<u16>) -> anyhow::Result<Job> {
        // Both are held until both are chosen, so that they differ.
        let listener = match port {
            Some(port) => TcpListener::bind((ADDRESS, port))
                .with_context(|| format!("cannot use --port {port}"))?,
            None => free_port()?,
        };
        let store = free_port()?;
        let key = JobKey::generate().context("cannot make a job key")?;
        let key = descriptor::inheritable_segment("maypole-job-key", key.to_digits().as_bytes());
        Ok(Job {
            world,
            port: listener.local_addr()?.port(),
            store_port: store.local_addr()?.port(),
            name: format!("run-{:016x}", random_number()?),
            key: key.context("cannot make a descriptor for the job key")?,
        })
    }

    /// Sets the variables of one rank.
    pub(super) fn tell(&self, command: &mut Command, rank: usize) {
        let (rank, world, address) =
            (rank.to_string(), self.world.to_string(), ADDRESS.to_string());
        command
            // A key from outside would be another one than the descriptor's.
            .env_remove("MAYPOLE_JOB_KEY")
            .env_remove("MAYPOLE_JOB_KEY_FILE")
            .env("MAYPOLE_JOB_KEY_FD", self.key.as_raw_fd().to_string())
            .env("MAYPOLE_JOB", &self.name)
            .env("MAYPOLE_PORT", self.port.to_string())
            .env("MASTER_PORT", self.store_port.to_string());
        for name in ["MAYPOLE_RANK", "MAYPOLE_LOCAL_RANK", "RANK", "LOCAL_RANK"] {
            command.env(name, &rank);
        }
        for name in ["MAYPOLE_WORLD", "MAYPOLE_LOCAL_WORLD", "WORLD_SIZE", "LOCAL_WORLD_SIZE"] {
            command.env(name, &world);
        }
        for name in ["MAYPOLE_ADDRESS", "MASTER_ADDR"] {
            command.env(name, &address);
        }
    }
}

/// Listens at a port that is free now. It is left for rank 0 to take, so it is one that the system
/// does not give to outgoing connections meanwhile (those begin at 32768), and not the one that
/// another launcher tries first.
fn free_port() -> anyhow::Result<TcpListener> {
    let start = random_number()?;
    (0..1000_u64)
        .map(|step| 20_000 + (start.wrapping_add(step) % 12_000) as u16)
        .find_map(|port| TcpListener::bind((ADDRESS, port)).ok())
        .context("no port is free from 20000 to 31999: name one with --port")
}

fn random_number() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    random::fill(&mut bytes).context("the system gives no random numbers")?;
    Ok(u64::from_ne_bytes(bytes))
}
