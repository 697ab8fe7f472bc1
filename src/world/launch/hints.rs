//! Variables of launchers that this library does not support. A process that has one of them is one
//! of several, and must not become a world of one.

use super::LaunchError;
use super::variables::VariableReader;

/// A launcher; a variable that it sets for each process that it starts, to the rank or another number of
/// the process; and the variable of the number of processes, if there is one.
///
/// Batch scripts of Slurm, PBS, LSF and Grid Engine are one process each, so variables that these
/// have as well (`PBS_NODEFILE`, `LSB_JOBID`, `NSLOTS`) are no hints.
const HINTS: &[(&str, &str, &str)] = &[
    ("a launcher with PMIx", "PMIX_RANK", ""),
    ("a launcher with PMI", "PMI_ID", ""),
    ("a launcher with PMI", "PMI_FD", ""),
    ("PALS", "PALS_RANKID", ""),
    ("aprun", "ALPS_APP_PE", ""),
    ("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("MVAPICH's launcher", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("MVAPICH's launcher", "MPIRUN_RANK", "MPIRUN_NPROCS"),
    ("Platform MPI's mpirun", "MPI_RANKID", ""),
    ("poe", "MP_CHILD", "MP_PROCS"),
    ("LSF's blaunch", "LSF_PM_TASKID", ""),
    ("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"),
    ("a job of pods for torchrun", "PET_NODE_RANK", "PET_NNODES"),
    ("a job of pods for torchrun", "GROUP_RANK", "GROUP_WORLD_SIZE"),
];

/// Tasks of `pbsdsh`. A batch script of PBS or Torque has the same variables with these values.
const PBS: [(&str, &str); 3] = [("PBS_TASKNUM", "1"), ("PBS_NODENUM", "0"), ("PBS_VNODENUM", "0")];

/// Refuses an environment in which a launcher has left one of these variables.
pub(super) fn check(vars: VariableReader) -> Result<(), LaunchError> {
    let is_one = |count: &str| vars.text(count).is_some_and(|count| count == "1");
    let known = HINTS.iter().filter(|(_, _, count)| !is_one(count));
    let found = known.map(|(launcher, name, _)| (*launcher, *name, vars.text(name)));
    let of_pbs = PBS.iter().map(|(name, script)| {
        let value = vars.text(name).filter(|value| value != script);
        ("pbsdsh", *name, value)
    });
    let refused = |(launcher, variable, value): (_, _, Option<String>)| {
        let value = value?;
        Some(LaunchError::new(format!(
            "{variable} is {value:?}, so {launcher} has started this process, and no variable that \
             maypole reads says which rank of how many it is: set MAYPOLE_RANK and MAYPOLE_WORLD in \
             the command that it starts (and MAYPOLE_ADDRESS, for several hosts), or unset \
             {variable} for a world of one"
        )))
    };
    found.chain(of_pbs).find_map(refused).map_or(Ok(()), Err)
}
