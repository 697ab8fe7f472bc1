//! The rendezvous of the ranks: the address of rank 0, its ports, and the name that distinguishes
//! jobs.

use super::identity::Identity;
use super::variables::VariableReader;
use super::{LaunchError, Launcher, hosts};
use maypole_transports::secure::job_hash;

/// The address of rank 0, or the descriptor of the process manager that provides it.
/// `is_overruled`: the variables of another launcher contradict `identity`.
pub(super) fn address(
    vars: VariableReader,
    identity: &Identity,
    is_overruled: bool,
) -> Result<(Option<String>, Option<i32>), LaunchError> {
    let is_one_host = identity.local_world == Some(identity.world);
    let names = match is_overruled && is_one_host {
        // The address of another world, whose rank 0 may be elsewhere.
        true => &["MAYPOLE_ADDRESS"][..],
        false => &["MAYPOLE_ADDRESS", "MASTER_ADDR"],
    };
    if let Some(address) = names.iter().find_map(|name| vars.text(name)) {
        return Ok((Some(split_port(&address).0.to_owned()), None));
    }
    if identity.launcher == Launcher::Mpich
        && identity.world > 1
        && let Some(descriptor) = vars.descriptor("PMI_FD")?
    {
        return Ok((None, Some(descriptor)));
    }
    if is_of_slurm(vars, identity)
        && let Some(host) = first_slurm_host(vars)?
    {
        return Ok((Some(host), None));
    }
    if identity.world == 1 || is_one_host {
        return Ok((Some("127.0.0.1".to_owned()), None));
    }
    let Identity { rank, world, .. } = identity;
    Err(LaunchError::new(format!(
        "this is rank {rank} of {world}, but no variable says where rank 0 is: set MAYPOLE_ADDRESS \
         to the name or address of its host, the same on all ranks (or MAYPOLE_LOCAL_WORLD={world} \
         if all ranks are on one host)"
    )))
}

/// True if a step of Slurm has started the ranks, even if another launcher's variables name them
/// too.
fn is_of_slurm(vars: VariableReader, identity: &Identity) -> bool {
    let is = |name, number| vars.number(name).ok().flatten() == Some(number);
    is("SLURM_PROCID", identity.rank) && is("SLURM_STEP_NUM_TASKS", identity.world)
}

/// The host of `host`, `host:port`, `address:port` or `[address]:port`, and the port if there is
/// one. An IPv6 address without brackets has no port.
pub(crate) fn split_port(address: &str) -> (&str, Option<u16>) {
    let without_port = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(host) = without_port {
        return (host, None);
    }
    let split = address.rsplit_once(':').and_then(|(host, port)| {
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = bracketed.or((!host.contains(':')).then_some(host))?;
        Some((host, port.parse().ok()?))
    });
    split.map_or((address, None), |(host, port)| (host, Some(port)))
}

fn first_slurm_host(vars: VariableReader) -> Result<Option<String>, LaunchError> {
    for variable in ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"] {
        if let Some(value) = vars.text(variable) {
            let expected = "a list of hosts as Slurm writes it, like node[003-005,9],other";
            let first = hosts::first_host(&value);
            return first
                .map(Some)
                .ok_or_else(|| LaunchError::malformed(variable, value, expected));
        }
    }
    Ok(None)
}

/// The ports that a variable names. torchrun's own store listens at `MASTER_PORT`, so the eight
/// ports after it are tried.
pub(super) fn named_ports(vars: VariableReader) -> Result<Option<Vec<u16>>, LaunchError> {
    let with_address = vars.text("MAYPOLE_ADDRESS").and_then(|address| split_port(&address).1);
    match (vars.port("MAYPOLE_PORT")?, with_address) {
        (Some(port), Some(other)) if port != other => {
            let variable = "MAYPOLE_ADDRESS";
            let value = vars.text(variable).unwrap_or_default();
            let expected = "without a port, or with that of MAYPOLE_PORT";
            return Err(LaunchError::malformed(variable, value, expected));
        }
        (Some(port), _) | (None, Some(port)) => return Ok(Some(vec![port])),
        (None, None) => {}
    }
    let after = |port: u16| (1..=8).filter_map(|step| port.checked_add(step)).collect::<Vec<_>>();
    Ok(vars.port("MASTER_PORT")?.map(after).filter(|ports| !ports.is_empty()))
}

/// The default ports of a job. They are below the ports that the system allocates to outgoing
/// connections, and rarely coincide with those of another job.
pub(crate) fn default_ports(job: &str) -> Vec<u16> {
    let base = 20_000 + (job_hash(job) % 12_000) as u16;
    (0..16).map(|step| base + step).collect()
}

/// The launcher's name for this job: equal on all ranks, and another one after a restart if the
/// launcher distinguishes restarts.
pub(super) fn job(vars: VariableReader, launcher: Launcher) -> String {
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
    let given = parts.iter().filter_map(|part| vars.text(part));
    std::iter::once(prefix.to_owned()).chain(given).collect::<Vec<_>>().join("-")
}
