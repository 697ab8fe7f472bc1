//! Reads from the environment which rank this process is, and where rank 0 is. The variables of
//! every launcher become one [`Launch`].
//!
//! Under these launchers nothing has to be configured. The columns: the launcher; the variables of
//! the rank and the number of ranks, which together are its complete set; those of the rank on the
//! host and the number of ranks there; then the address of rank 0.
//!
//! | launcher | rank and world | on the host | address of rank 0 |
//! |---|---|---|---|
//! | `maypole run`, or by hand | `MAYPOLE_RANK`, `MAYPOLE_WORLD` | `MAYPOLE_LOCAL_RANK`, `MAYPOLE_LOCAL_WORLD` | `MAYPOLE_ADDRESS` |
//! | torchrun and compatible | `RANK`, `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | `MASTER_ADDR` |
//! | Open MPI | `OMPI_COMM_WORLD_RANK`, `.._SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK`, `.._LOCAL_SIZE` | `MAYPOLE_ADDRESS`, unless all ranks share a host |
//! | MPICH, Intel MPI (hydra) | `PMI_RANK`, `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` | exchanged over `PMI_FD` |
//! | Slurm's srun | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | `SLURM_LOCALID`, `SLURM_STEP_TASKS_PER_NODE` | the first host of the step |
//! | Kubernetes indexed job | `JOB_COMPLETION_INDEX`, `MAYPOLE_WORLD` | `MAYPOLE_LOCAL_RANK`, `MAYPOLE_LOCAL_WORLD` | `MAYPOLE_ADDRESS` |
//! | none | | | rank 0 of 1, which needs none |
//!
//! # Several launchers
//!
//! A process may have variables of several launchers: a pod has `RANK` and `WORLD_SIZE`, and mpirun
//! starts ranks in it. The closest complete set takes precedence: that of the launcher which
//! started this very process. The first matching row decides.
//!
//! | the variables | what counts |
//! |---|---|
//! | no complete set, and none but those of a batch script | a world of one |
//! | a part of a set, such as `WORLD_SIZE` or `LOCAL_RANK` alone | an error that names the missing variables |
//! | a hint of another launcher (PMIx, PALS, Flux, jsrun, MVAPICH, blaunch, pbsdsh ..) without a complete set | an error that names the variables to set |
//! | `MAYPOLE_RANK` and `MAYPOLE_WORLD` | these; an error if another launcher has started processes below the one that has set them |
//! | sets that agree | any of them |
//! | sets that differ, and the processes above this one show that one launcher is closer | that of the closer one |
//! | a set of one process and one of several | the one of several |
//! | torchrun's own variables and those of another launcher; those of Open MPI or hydra and of Slurm | torchrun's; not Slurm's, which are those of daemons |
//! | other sets that differ | an error that names both |
//!
//! `RANK`, `WORLD_SIZE` or `MAYPOLE_WORLD` alone, together with a complete set, must agree with it.
//! Rank 0 prints ignored sets on standard error, unless the launchers are nested as usual.
//!
//! `MAYPOLE_ADDRESS`, `MAYPOLE_PORT` and `MAYPOLE_JOB` apply under every launcher. An empty
//! variable counts as not set. Variables that contradict one another are an error that names them:
//! after a wrong guess the job would hang at its first operation. [`VARIABLES`] lists every
//! variable of maypole's own.
//!
//! Reading has two halves: [`from_vars`] is pure, and [`LaunchDescription::open`] then opens the
//! job key and the process manager's socket.

mod closest;
mod error;
mod hints;
mod hosts;
mod identity;
mod key;
mod pmi;
mod port;
mod rendezvous;
mod unknown;
mod variables;

use std::cell::LazyCell;
use std::path::PathBuf;
use std::time::Duration;

pub use error::LaunchError;
pub use key::JobKey;
pub use pmi::Pmi;
pub use port::free_port;
pub(crate) use rendezvous::{default_ports, split_port};
pub use unknown::unknown_variables;
pub(crate) use unknown::warn;
pub use variables::{VARIABLES, VARIABLES_AS_MARKDOWN, Variable};

use closest::Ancestors;
use identity::Identity;
use variables::VariableReader;

/// The launch of this process, read from the environment.
///
/// It is consistent: `rank < world`, `local_rank < local_world <= world` if these are set, and
/// `address` or `pmi` is set.
#[derive(Debug)]
#[non_exhaustive]
pub struct Launch {
    /// The rank of this process, from 0.
    pub rank: usize,
    /// The number of processes, at least 1.
    pub world: usize,
    /// The rank of this process among those on its host, if the launcher provides it.
    pub local_rank: Option<usize>,
    /// The number of processes on its host, if the launcher provides it.
    pub local_world: Option<usize>,
    /// The launcher whose variables were read.
    pub launcher: Launcher,
    /// The host of rank 0: a name or an address. `None` only if it is to be exchanged over `pmi`.
    pub address: Option<String>,
    /// The ports that rank 0 tries to listen at, in this order; never empty.
    pub ports: Vec<u16>,
    /// The name of the job: equal on all ranks, and different for different jobs if the launcher
    /// distinguishes them.
    pub job: String,
    /// The secret that all ranks share, if one is given.
    pub key: Option<JobKey>,
    /// The process manager at which ranks exchange the address of rank 0, if the launcher has one.
    pub pmi: Option<Pmi>,
    /// The timeout of joining, and of every operation that waits for other ranks.
    pub timeout: Duration,
    /// The contradicting variables of another launcher, as a sentence; `None` if there are none.
    pub overruled: Option<String>,
}

/// The launcher whose variables a [`Launch`] was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `maypole run`, or `MAYPOLE_RANK` and `MAYPOLE_WORLD` set by hand.
    Maypole,
    /// torchrun, or another launcher that sets `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's or Intel MPI's mpiexec (hydra), or another that sets `PMI_RANK`.
    Mpich,
    /// Slurm's srun.
    Slurm,
    /// An indexed job of Kubernetes.
    Kubernetes,
    /// No launcher: this is the only process of its world.
    Alone,
}

/// The pure half of a [`Launch`]: the values of the variables, before the key and the socket are
/// opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct LaunchDescription {
    /// All fields that need no opening; `key` and `pmi` are still `None`.
    pub launch: Launch,
    /// The place of the job key.
    pub key: KeySource,
    /// The process manager's descriptor, if the address is to be exchanged there.
    pub pmi: Option<i32>,
    /// No variable names a port, so the ports follow from the name of the job.
    ports_follow_job: bool,
    /// `MAYPOLE_JOB` names the job, so the process manager's name for it is ignored.
    job_is_given: bool,
}

/// The place of the job key.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum KeySource {
    /// There is no key: only processes of this host may join.
    None,
    /// At an inherited descriptor (`MAYPOLE_JOB_KEY_FD`).
    Descriptor(i32),
    /// In a file of this user (`MAYPOLE_JOB_KEY_FILE`).
    File(PathBuf),
    /// In the environment itself (`MAYPOLE_JOB_KEY`).
    Value(JobKey),
}

/// Reads this process's environment, opens the job key and, where it is needed, the process
/// manager's socket.
///
/// It can be called again in the same process, except under hydra, whose socket serves one process
/// once. For the same reason a program that also calls `MPI_Init` under hydra needs
/// `MAYPOLE_ADDRESS` set: then the socket is not used.
///
/// # Errors
///
/// [`LaunchError`] names the variable that is wrong or missing, its value, and the remedy.
///
/// # Examples
///
/// ```no_run
/// let launch = maypole::world::launch::from_env()?;
/// println!("rank {} of {}", launch.rank, launch.world);
/// # Ok::<(), maypole::world::launch::LaunchError>(())
/// ```
pub fn from_env() -> Result<Launch, LaunchError> {
    describe_env()?.open()
}

/// The first half of [`from_env`]: reads this process's environment and opens nothing. Where the
/// variables of several launchers differ, the environments of the processes above this one show
/// which launcher is the closest.
///
/// # Errors
///
/// [`LaunchError`] names the variable that is wrong or missing, its value, and the remedy.
///
/// # Examples
///
/// ```
/// let launch = maypole::world::launch::describe_env()?.launch;
/// assert!(launch.rank < launch.world);
/// # Ok::<(), maypole::world::launch::LaunchError>(())
/// ```
pub fn describe_env() -> Result<LaunchDescription, LaunchError> {
    let vars =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let ancestors = LazyCell::new(Ancestors::read);
    describe(&vars, &|values| ancestors.having(values))
}

/// Reads the variables `vars`, without other effects. Where the variables of several launchers
/// differ, the variables alone decide.
///
/// # Errors
///
/// [`LaunchError`] names the variable that is wrong or missing, its value, and the remedy.
///
/// # Examples
///
/// ```
/// use maypole::world::launch::{Launcher, from_vars};
/// let srun = |name: &str| Some(match name {
///     "SLURM_JOB_ID" => "7042",
///     "SLURM_PROCID" => "5",
///     "SLURM_STEP_NUM_TASKS" => "8",
///     "SLURM_STEP_NODELIST" => "node[003-004]",
///     _ => return None,
/// }.to_owned());
/// let launch = from_vars(&srun)?.launch;
/// assert_eq!((launch.rank, launch.world, launch.launcher), (5, 8, Launcher::Slurm));
/// assert_eq!(launch.address.as_deref(), Some("node003"));
/// # Ok::<(), maypole::world::launch::LaunchError>(())
/// ```
pub fn from_vars(vars: &impl Fn(&str) -> Option<String>) -> Result<LaunchDescription, LaunchError> {
    describe(vars, &|_| 0)
}

fn describe(
    vars: &dyn Fn(&str) -> Option<String>,
    distance: closest::Distance,
) -> Result<LaunchDescription, LaunchError> {
    let vars = VariableReader(vars);
    let (identity, overruled) = closest::identity(vars, distance)?;
    let (address, pmi) = rendezvous::address(vars, &identity, overruled.is_some())?;
    let named_ports = rendezvous::named_ports(vars)?;
    let Identity { rank, world, local_rank, local_world, launcher } = identity;
    let job = rendezvous::job(vars, launcher);
    Ok(LaunchDescription {
        key: key::source(vars)?,
        pmi,
        ports_follow_job: named_ports.is_none(),
        job_is_given: vars.text("MAYPOLE_JOB").is_some(),
        launch: Launch {
            rank,
            world,
            local_rank,
            local_world,
            launcher,
            address,
            ports: named_ports.unwrap_or_else(|| default_ports(&job)),
            job,
            key: None,
            pmi: None,
            timeout: variables::timeout(vars)?,
            overruled,
        },
    })
}

impl LaunchDescription {
    /// Opens the job key and the process manager's socket. The process manager's name for the job
    /// replaces that of the variables: it is unique.
    ///
    /// # Errors
    ///
    /// [`LaunchError`], with the failure and the remedy.
    pub fn open(self) -> Result<Launch, LaunchError> {
        let mut launch = self.launch;
        launch.key = self.key.open()?;
        if let Some(number) = self.pmi {
            let pmi = Pmi::inherit(number, launch.timeout)?;
            if !self.job_is_given {
                launch.job = pmi.job().to_owned();
            }
            if self.ports_follow_job {
                launch.ports = default_ports(&launch.job);
            }
            launch.pmi = Some(pmi);
        }
        Ok(launch)
    }
}

#[cfg(test)]
mod fuzz_tests;

#[cfg(test)]
mod tests;
