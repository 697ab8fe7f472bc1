//! Where the ranks meet: rank 0's address, its ports, and the name that tells one job from another.

use super::identity::Identity;
use super::variables::Environment;
use super::{LaunchError, Launcher, hosts};

/// What the variables say about the meeting place.
pub(super) struct Rendezvous {
    pub(super) address: Option<String>,
    pub(super) ports: Vec<u16>,
    /// No variable names a port, so that the name of the job decides.
    pub(super) ports_follow_job: bool,
    pub(super) job: String,
    /// `MAYPOLE_JOB` names the job, so that nothing else may.
    pub(super) job_is_given: bool,
    /// The process manager's descriptor, where it must be asked.
    pub(super) pmi: Option<i32>,
}

impl Rendezvous {
    pub(super) fn read(vars: Environment, identity: &Identity) -> Result<Rendezvous, LaunchError> {
        let (address, pmi) = address(vars, identity)?;
        let job = job(vars, identity.launcher);
        let named = named_ports(vars)?;
        Ok(Rendezvous {
            address,
            pmi,
            ports_follow_job: named.is_none(),
            ports: named.unwrap_or_else(|| ports_of(&job)),
            job,
            job_is_given: vars.text("MAYPOLE_JOB").is_some(),
        })
    }
}

/// Rank 0's address, or the descriptor where to ask for it.
fn address(
    vars: Environment,
    identity: &Identity,
) -> Result<(Option<String>, Option<i32>), LaunchError> {
    if let Some(address) = vars.first(&["MAYPOLE_ADDRESS", "MASTER_ADDR"]) {
        return Ok((Some(address), None));
    }
    if identity.launcher == Launcher::Mpich
        && identity.world > 1
        && let Some(descriptor) = vars.descriptor("PMI_FD")?
    {
        return Ok((None, Some(descriptor)));
    }
    if identity.launcher == Launcher::Slurm
        && let Some(host) = first_slurm_host(vars)?
    {
        return Ok((Some(host), None));
    }
    if identity.world == 1 || identity.local_world == Some(identity.world) {
        return Ok((Some("127.0.0.1".to_owned()), None));
    }
    Err(LaunchError::NoAddress { rank: identity.rank, world: identity.world })
}

fn first_slurm_host(vars: Environment) -> Result<Option<String>, LaunchError> {
    for variable in ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"] {
        if let Some(value) = vars.text(variable) {
            let expected = "a list of hosts as Slurm writes it, like node[003-005,9],other";
            let first = hosts::first_host(&value);
            return first.map(Some).ok_or(LaunchError::Malformed { variable, value, expected });
        }
    }
    Ok(None)
}

/// The ports that a variable names. `MASTER_PORT` itself is where torchrun's own store listens, so
/// those after it.
fn named_ports(vars: Environment) -> Result<Option<Vec<u16>>, LaunchError> {
    if let Some(port) = vars.port("MAYPOLE_PORT")? {
        return Ok(Some(vec![port]));
    }
    let after = |port: u16| (1..=8).filter_map(|step| port.checked_add(step)).collect::<Vec<_>>();
    Ok(vars.port("MASTER_PORT")?.map(after).filter(|ports| !ports.is_empty()))
}

/// The ports that ranks of a job try when no variable names one: below those that the system gives
/// to outgoing connections, and rarely those of another job.
pub(super) fn ports_of(job: &str) -> Vec<u16> {
    let base = 20_000 + (fnv1a(job) % 12_000) as u16;
    (0..16).map(|step| base + step).collect()
}

/// A hash that is the same in every build on every host, which `std`'s does not promise.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What the launcher calls this job: equal on all ranks, and another after a restart where that can
/// be told.
fn job(vars: Environment, launcher: Launcher) -> String {
    if let Some(job) = vars.text("MAYPOLE_JOB") {
        return job;
    }
    let (prefix, parts): (&str, &[&str]) = match launcher {
        Launcher::Torchrun => {
            ("torchrun", &["TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"])
        }
        Launcher::OpenMpi => ("openmpi", &["PMIX_NAMESPACE"]),
        Launcher::Mpich => ("mpich", &["PMI_JOBID"]),
        Launcher::Slurm => ("slurm", &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"]),
        Launcher::Kubernetes => ("kubernetes", &["JOBSET_NAME", "JOB_NAME"]),
        Launcher::Maypole | Launcher::Alone => ("maypole", &[]),
    };
    let told = parts.iter().filter_map(|part| vars.text(part));
    std::iter::once(prefix.to_owned()).chain(told).collect::<Vec<_>>().join("-")
}
