//! Who am I, and where is rank 0? What every launcher says in variables, read into one [`Launch`].
//!
//! Nothing has to be configured under the launchers that people have. The first of these that is
//! there wins:
//!
//! | launcher | rank, size, place on the host | rank 0's address |
//! |---|---|---|
//! | `maypole run`, or by hand | `MAYPOLE_RANK` `MAYPOLE_WORLD` `MAYPOLE_LOCAL_RANK` `MAYPOLE_LOCAL_WORLD` | `MAYPOLE_ADDRESS` |
//! | torchrun and its kin | `RANK` `WORLD_SIZE` `LOCAL_RANK` `LOCAL_WORLD_SIZE` | `MASTER_ADDR` |
//! | Open MPI | `OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK,LOCAL_SIZE}` | `MAYPOLE_ADDRESS`, unless all ranks share a host |
//! | MPICH, Intel MPI (hydra) | `PMI_RANK` `PMI_SIZE` `MPI_LOCALRANKID` `MPI_LOCALNRANKS` | exchanged over `PMI_FD` |
//! | Slurm | `SLURM_PROCID` `SLURM_STEP_NUM_TASKS` `SLURM_LOCALID` | first host of the step |
//! | Kubernetes indexed job | `JOB_COMPLETION_INDEX` `MAYPOLE_WORLD` | `MAYPOLE_ADDRESS` |
//! | nobody | rank 0 of 1 | not needed |
//!
//! `MAYPOLE_ADDRESS`, `MAYPOLE_PORT` and `MAYPOLE_JOB` are obeyed under every launcher. A variable
//! that is set to nothing counts as not set. What contradicts itself is an error that names the
//! variable: a wrong guess here is a job that hangs at its first operation. [`VARIABLES`] lists
//! every variable of maypole's own.
//!
//! Reading is in two halves: [`from_vars`] is pure, and [`LaunchDescription::open`] then opens what the
//! variables only name, the job key and the process manager's socket.

mod error;
mod hosts;
mod identity;
mod key;
mod pmi;
mod rendezvous;
mod variables;

use std::path::PathBuf;
use std::time::Duration;

pub use error::LaunchError;
pub use key::{JobKey, KeyError};
pub use pmi::{Pmi, PmiError};
pub use variables::{VARIABLES, Variable, variables_as_markdown};

use identity::Identity;
use variables::Environment;

/// What the environment says about this process.
///
/// It is consistent: `rank < world`, `local_rank < local_world <= world` where these are known, and
/// either `address` or `pmi` is there.
#[derive(Debug)]
#[non_exhaustive]
pub struct Launch {
    /// This process among all, from 0.
    pub rank: usize,
    /// How many processes there are, at least 1.
    pub world: usize,
    /// This process among those on its host, where the launcher says so.
    pub local_rank: Option<usize>,
    /// How many processes there are on its host, where the launcher says so.
    pub local_world: Option<usize>,
    /// Who said so.
    pub launcher: Launcher,
    /// The host of rank 0: a name or an address. `None` only where `pmi` is there to tell it.
    pub address: Option<String>,
    /// The ports that rank 0 tries to listen at, in this order; never empty.
    pub ports: Vec<u16>,
    /// What the job is called: the same on all ranks, another for another job, as well as the
    /// launcher can tell.
    pub job: String,
    /// The secret that all ranks share, if there is one.
    pub key: Option<JobKey>,
    /// The way to tell the others rank 0's address, under launchers that offer one.
    pub pmi: Option<Pmi>,
    /// How long joining and every operation may wait for others.
    pub timeout: Duration,
}

/// Whose variables a [`Launch`] was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `maypole run`, or `MAYPOLE_RANK` and `MAYPOLE_WORLD` set by hand.
    Maypole,
    /// torchrun, or anything else that sets `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's or Intel MPI's mpiexec (hydra), or another that sets `PMI_RANK`.
    Mpich,
    /// Slurm's srun.
    Slurm,
    /// An indexed job of Kubernetes.
    Kubernetes,
    /// None: the only process of its world.
    Alone,
}

/// The pure half of a [`Launch`]: what the variables say, before anything they name is opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct LaunchDescription {
    /// All that needs no opening. Its `key` and `pmi` are still `None`.
    pub launch: Launch,
    /// Where the job key is.
    pub key: KeySource,
    /// The number of the process manager's descriptor, where the address must be asked for there.
    pub pmi: Option<i32>,
    ports_follow_job: bool,
    job_is_given: bool,
}

/// Where the job key is to be found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum KeySource {
    /// Nowhere: only processes of this host are let in.
    None,
    /// Behind an inherited descriptor (`MAYPOLE_JOB_KEY_FD`).
    Descriptor(i32),
    /// In a file of mine (`MAYPOLE_JOB_KEY_FILE`).
    File(PathBuf),
    /// In the environment itself (`MAYPOLE_JOB_KEY`).
    Value(JobKey),
}

/// Reads this process's environment, opens the job key and, where it is needed, the process
/// manager's socket.
///
/// It can be called again in the same process, except under hydra, whose socket serves one process
/// once. For the same reason a program that also calls `MPI_Init` under hydra needs
/// `MAYPOLE_ADDRESS` set: then the socket is left alone.
///
/// # Errors
///
/// [`LaunchError`] names the variable that is wrong or missing, its value, and what to do.
///
/// # Examples
///
/// ```no_run
/// let launch = maypole::world::launch::from_env()?;
/// println!("rank {} of {}", launch.rank, launch.world);
/// # Ok::<(), maypole::world::launch::LaunchError>(())
/// ```
pub fn from_env() -> Result<Launch, LaunchError> {
    from_vars(&|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))?
        .open()
}

/// Reads what `vars` says and touches nothing else.
///
/// # Errors
///
/// [`LaunchError`] names the variable that is wrong or missing, its value, and what to do.
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
    let vars = Environment(vars);
    let identity = Identity::read(vars)?;
    let meeting = rendezvous::Rendezvous::read(vars, &identity)?;
    let Identity { rank, world, local_rank, local_world, launcher } = identity;
    Ok(LaunchDescription {
        key: key::source(vars)?,
        pmi: meeting.pmi,
        ports_follow_job: meeting.ports_follow_job,
        job_is_given: meeting.job_is_given,
        launch: Launch {
            rank,
            world,
            local_rank,
            local_world,
            launcher,
            address: meeting.address,
            ports: meeting.ports,
            job: meeting.job,
            key: None,
            pmi: None,
            timeout: variables::timeout(vars)?,
        },
    })
}

impl LaunchDescription {
    /// Opens what the variables name: the job key, and the process manager's socket. The latter
    /// also knows a better name for the job than any variable of its launcher.
    ///
    /// # Errors
    ///
    /// [`LaunchError::Key`] and [`LaunchError::Pmi`] say what could not be opened and what to do.
    pub fn open(self) -> Result<Launch, LaunchError> {
        let mut launch = self.launch;
        launch.key = self.key.open()?;
        if let Some(number) = self.pmi {
            let pmi = Pmi::inherit(number, launch.timeout)?;
            if !self.job_is_given {
                launch.job = pmi.job().to_owned();
            }
            if self.ports_follow_job {
                launch.ports = rendezvous::ports_of(&launch.job);
            }
            launch.pmi = Some(pmi);
        }
        Ok(launch)
    }
}

#[cfg(test)]
mod tests;
