//! The environment variables of a rank: its number, the address of rank 0, and where the job key
//! is.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow};
use maypole::world::launch::{JobKey, free_port, from_vars};
use maypole_transports::{descriptor, random};

use crate::output;

const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// How long ranks wait for one another, as `MAYPOLE_TIMEOUT` says.
pub(super) fn timeout() -> Duration {
    const USUAL: Duration = Duration::from_secs(300);
    let alone = |name: &str| match name {
        "MAYPOLE_RANK" => Some("0".to_owned()),
        "MAYPOLE_WORLD" => Some("1".to_owned()),
        "MAYPOLE_TIMEOUT" => std::env::var(name).ok(),
        _ => None,
    };
    // The ranks say what is wrong with the value.
    from_vars(&alone).map_or(USUAL, |description| description.launch.timeout)
}

/// The part of the environment that is equal for all ranks.
pub(super) struct JobEnvironment {
    world: usize,
    /// The port on which rank 0 listens for the other ranks.
    port: u16,
    /// The port for the store of a program that uses torch beside maypole.
    store_port: u16,
    /// The port at which processes wait that replace ranks, if there are to be any.
    admission_port: Option<u16>,
    name: String,
    /// A descriptor that holds the job key and that ranks inherit. The key itself is in no
    /// variable and in no file.
    key: OwnedFd,
}

impl JobEnvironment {
    /// `replaces`: processes may replace ranks that have failed.
    pub(super) fn new(
        world: usize,
        port: Option<u16>,
        replaces: bool,
    ) -> anyhow::Result<JobEnvironment> {
        // All listeners stay open until all ports are chosen, so that the ports differ.
        let listener = match port {
            Some(port) => TcpListener::bind((ADDRESS, port))
                .with_context(|| format!("cannot listen on --port {port}; name another port"))?,
            None => listen()?,
        };
        let store = listen()?;
        let admission = replaces.then(listen).transpose()?;
        let admission_port = admission.as_ref().map(TcpListener::local_addr).transpose()?;
        let key = JobKey::generate().context("cannot make a job key")?;
        let key = descriptor::inheritable_segment("maypole-job-key", key.to_digits().as_bytes());
        Ok(JobEnvironment {
            world,
            port: listener.local_addr()?.port(),
            store_port: store.local_addr()?.port(),
            admission_port: admission_port.map(|address| address.port()),
            name: format!("run-{:016x}", random_number()?),
            key: key.map_err(|error| {
                let remedy = output::remedy(&error);
                anyhow!("cannot make a descriptor for the job key: {error}{remedy}")
            })?,
        })
    }

    /// Sets the variables of one rank.
    pub(super) fn set_variables(&self, command: &mut Command, rank: usize, is_newcomer: bool) {
        let rank = rank.to_string();
        let world = self.world.to_string();
        let address = ADDRESS.to_string();
        command
            // A key that this process inherited would contradict the key behind the descriptor.
            .env_remove("MAYPOLE_JOB_KEY")
            .env_remove("MAYPOLE_JOB_KEY_FILE")
            // A launcher may be started by a process that came in the place of a rank.
            .env_remove("MAYPOLE_ADMISSION_PORT")
            .env_remove("MAYPOLE_NEWCOMER")
            .env("MAYPOLE_JOB_KEY_FD", self.key.as_raw_fd().to_string())
            .env("MAYPOLE_JOB", &self.name)
            .env("MAYPOLE_PORT", self.port.to_string())
            .env("MASTER_PORT", self.store_port.to_string());
        if let Some(port) = self.admission_port {
            command.env("MAYPOLE_ADMISSION_PORT", port.to_string());
        }
        if is_newcomer {
            command.env("MAYPOLE_NEWCOMER", "1");
        }
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

/// Listens on a free port, which rank 0 takes over.
fn listen() -> anyhow::Result<TcpListener> {
    free_port(ADDRESS.into())
        .context("no port from 20000 to 31999 is free; name a free one with --port")
}

fn random_number() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    random::fill(&mut bytes).context("cannot get random numbers from the system")?;
    Ok(u64::from_ne_bytes(bytes))
}
