//! Variables of launchers whose rank or number of ranks this library does not read. A process that
//! has one of them is one of several, and must not become a world of one.

use super::LaunchError;
use super::variables::VariableReader;

/// A variable that a launcher sets for each process that it starts.
struct Hint {
    launcher: &'static str,
    /// It holds the rank, or another number of the process.
    variable: &'static str,
    /// The number of processes; empty if no variable has it.
    count: &'static str,
}

const fn hint(launcher: &'static str, variable: &'static str, count: &'static str) -> Hint {
    Hint { launcher, variable, count }
}

/// Batch scripts of Slurm, PBS, LSF and Grid Engine are one process each, so variables that these
/// have as well (`PBS_NODEFILE`, `LSB_JOBID`, `NSLOTS`) are no hints.
const HINTS: &[Hint] = &[
    hint("a launcher with PMIx", "PMIX_RANK", ""),
    hint("a launcher with PMI", "PMI_ID", ""),
    hint("a launcher with PMI", "PMI_FD", ""),
    hint("PALS", "PALS_RANKID", ""),
    hint("aprun", "ALPS_APP_PE", ""),
    hint("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    hint("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    hint("MVAPICH's launcher", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    hint("MVAPICH's launcher", "MPIRUN_RANK", "MPIRUN_NPROCS"),
    hint("Platform MPI's mpirun", "MPI_RANKID", ""),
    hint("poe", "MP_CHILD", "MP_PROCS"),
    hint("LSF's blaunch", "LSF_PM_TASKID", ""),
    hint("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"),
    hint("a job of pods for torchrun", "PET_NODE_RANK", "PET_NNODES"),
    hint("a job of pods for torchrun", "GROUP_RANK", "GROUP_WORLD_SIZE"),
];

/// Tasks of `pbsdsh`. A batch script of PBS or Torque has these variables, too, with the number
/// beside each as the value.
const PBS: [(&str, &str); 3] = [("PBS_TASKNUM", "1"), ("PBS_NODENUM", "0"), ("PBS_VNODENUM", "0")];

/// Refuses an environment in which a launcher has left one of these variables.
pub(super) fn check(vars: VariableReader) -> Result<(), LaunchError> {
    let is_one = |count: &str| vars.text(count).is_some_and(|count| count == "1");
    let known = HINTS.iter().filter(|hint| !is_one(hint.count));
    let known = known.map(|hint| (hint.launcher, hint.variable));
    let found = known.map(|(launcher, name)| (launcher, name, vars.text(name)));
    let of_pbs = PBS.iter().map(|(name, script)| {
        let value = vars.text(name).filter(|value| value != script);
        ("pbsdsh", *name, value)
    });
    match found.chain(of_pbs).find(|(_, _, value)| value.is_some()) {
        Some((launcher, variable, value)) => {
            let value = value.unwrap_or_default();
            Err(LaunchError::UnknownLauncher { launcher, variable, value })
        }
        None => Ok(()),
    }
}
