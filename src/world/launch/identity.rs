//! Reads which rank this process is, from the variables of each launcher.

use super::variables::VariableReader;
use super::{LaunchError, Launcher, hints, hosts};

/// A rank and its world, consistent in themselves.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) rank: usize,
    pub(super) world: usize,
    pub(super) local_rank: Option<usize>,
    pub(super) local_world: Option<usize>,
    pub(super) launcher: Launcher,
}

/// The names of one launcher's variables.
pub(super) struct LauncherVariables {
    pub(super) launcher: Launcher,
    pub(super) rank: &'static str,
    pub(super) world: &'static str,
    local_rank: &'static str,
    local_world: &'static str,
    /// The remedy when only one of `rank` and `world` is set.
    remedy: &'static str,
}

const fn names(
    launcher: Launcher,
    [rank, world]: [&'static str; 2],
    [local_rank, local_world]: [&'static str; 2],
    remedy: &'static str,
) -> LauncherVariables {
    LauncherVariables { launcher, rank, world, local_rank, local_world, remedy }
}

const OWN: LauncherVariables = names(
    Launcher::Maypole,
    ["MAYPOLE_RANK", "MAYPOLE_WORLD"],
    ["MAYPOLE_LOCAL_RANK", "MAYPOLE_LOCAL_WORLD"],
    "set both, or start the program with `maypole run`",
);
const TORCHRUN: LauncherVariables = names(
    Launcher::Torchrun,
    ["RANK", "WORLD_SIZE"],
    ["LOCAL_RANK", "LOCAL_WORLD_SIZE"],
    "set both RANK and WORLD_SIZE, or none of torchrun's variables",
);
const OPEN_MPI: LauncherVariables = names(
    Launcher::OpenMpi,
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    "mpirun sets both; unset the one that is left over",
);
const HYDRA: LauncherVariables = names(
    Launcher::Mpich,
    ["PMI_RANK", "PMI_SIZE"],
    ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
    "mpiexec sets both; unset the one that is left over, or set MAYPOLE_RANK and MAYPOLE_WORLD",
);
/// Slurm has one variable for the number of tasks on all nodes.
const SLURM: LauncherVariables = names(
    Launcher::Slurm,
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
    ["SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"],
    "srun sets both; start the program with srun",
);
const KUBERNETES: LauncherVariables = names(
    Launcher::Kubernetes,
    ["JOB_COMPLETION_INDEX", "MAYPOLE_WORLD"],
    ["MAYPOLE_LOCAL_RANK", "MAYPOLE_LOCAL_WORLD"],
    "an indexed job does not tell its pods how many there are; set MAYPOLE_WORLD to the job's \
     `completions`",
);
/// All launchers but maypole's own, those first that usually start processes within the others.
const OTHERS: [&LauncherVariables; 5] = [&TORCHRUN, &OPEN_MPI, &HYDRA, &SLURM, &KUBERNETES];

/// The complete set of one launcher's variables.
pub(super) struct LauncherSet {
    pub(super) names: &'static LauncherVariables,
    pub(super) identity: Identity,
    /// The variables belong to this process and not to a container around several processes.
    pub(super) is_per_process: bool,
}

impl LauncherSet {
    /// True if both name the same rank of a world of the same size.
    pub(super) fn agrees_with(&self, other: &LauncherSet) -> bool {
        (self.identity.rank, self.identity.world) == (other.identity.rank, other.identity.world)
    }

    /// `RANK is 0 and WORLD_SIZE is 1`.
    pub(super) fn words(&self) -> String {
        let LauncherVariables { rank, world, .. } = self.names;
        format!("{rank} is {} and {world} is {}", self.identity.rank, self.identity.world)
    }

    /// The variables of rank and world with their values.
    pub(super) fn values(&self, vars: VariableReader) -> Vec<(&'static str, String)> {
        let names = [self.names.rank, self.names.world];
        names.into_iter().filter_map(|name| Some((name, vars.text(name)?))).collect()
    }

    /// `MAYPOLE_WORLD`, `RANK` and `WORLD_SIZE` may be set alone, but must not contradict the
    /// launcher.
    pub(super) fn agrees_with_lone_variables(
        &self,
        vars: VariableReader,
    ) -> Result<(), LaunchError> {
        let Identity { rank, world, .. } = self.identity;
        if let Some(ours) = vars.number(OWN.world)?.filter(|ours| *ours != world) {
            return Err(LaunchError::new(format!(
                "MAYPOLE_WORLD is {ours}, but {} is {world}: unset MAYPOLE_WORLD, or set \
                 MAYPOLE_RANK too to overrule the launcher",
                self.names.world
            )));
        }
        if TORCHRUN.is_complete(vars) {
            return Ok(());
        }
        for (name, own) in [(TORCHRUN.rank, rank), (TORCHRUN.world, world)] {
            if let Some(other) = vars.number(name)?.filter(|other| *other != own) {
                let first = format!("{name} is {other}");
                return Err(LaunchError::contradiction(&first, &self.words()));
            }
        }
        Ok(())
    }
}

impl Identity {
    fn check(self, names: &LauncherVariables) -> Result<Identity, LaunchError> {
        let too_large = |variable: &str, value: usize, bound_variable: &str, bound: usize, rule| {
            Err(LaunchError::new(format!(
                "{variable} is {value}, but {bound_variable} is {bound}: {rule}"
            )))
        };
        if self.rank >= self.world {
            let rule = "ranks count from 0 to one less than the world";
            return too_large(names.rank, self.rank, names.world, self.world, rule);
        }
        let Some(local_world) = self.local_world else { return Ok(self) };
        if local_world > self.world {
            let rule = "a host cannot hold more ranks than the world";
            return too_large(names.local_world, local_world, names.world, self.world, rule);
        }
        match self.local_rank {
            Some(local_rank) if local_rank >= local_world => {
                let rule = "local ranks count from 0 to one less than that";
                too_large(names.local_rank, local_rank, names.local_world, local_world, rule)
            }
            _ => Ok(self),
        }
    }
}

/// Maypole's own set, if `MAYPOLE_RANK` is set.
pub(super) fn own(vars: VariableReader) -> Result<Option<LauncherSet>, LaunchError> {
    vars.text(OWN.rank).map(|_| OWN.set(vars)).transpose()
}

/// All complete sets but maypole's own, those first that usually start processes within the others.
pub(super) fn sets(vars: VariableReader) -> Result<Vec<LauncherSet>, LaunchError> {
    let complete = OTHERS.into_iter().filter(|names| names.is_complete(vars));
    let mut sets = complete.map(|names| names.set(vars)).collect::<Result<Vec<_>, _>>()?;
    sets.sort_by_key(|set| !set.is_per_process);
    Ok(sets)
}

impl LauncherVariables {
    fn is_complete(&self, vars: VariableReader) -> bool {
        vars.text(self.rank).is_some() && vars.text(self.world).is_some()
    }

    /// The variable that shows an incomplete set of this launcher, or of a substitute for it.
    fn lone_variable(&self, vars: VariableReader) -> Option<&'static str> {
        let is_set = |name: &&'static str| vars.text(name).is_some();
        match self.launcher {
            // A batch script is one process, although it has SLURM_PROCID, which is 0, and the size
            // of its allocation. Only a step that srun started has SLURM_STEP_NUM_TASKS.
            Launcher::Slurm => {
                let is_later = |name: &&str| vars.text(name).is_some_and(|value| value != "0");
                let numbers = [self.rank, self.local_rank, "SLURM_NODEID"];
                Some(self.world).filter(is_set).or_else(|| numbers.into_iter().find(is_later))
            }
            // MAYPOLE_WORLD is no variable of Kubernetes.
            Launcher::Kubernetes => Some(self.rank).filter(is_set),
            _ => {
                [self.rank, self.world, self.local_rank, self.local_world].into_iter().find(is_set)
            }
        }
    }

    fn set(&'static self, vars: VariableReader) -> Result<LauncherSet, LaunchError> {
        let identity = self.require(vars)?;
        let is_per_process = match self.launcher {
            // A pod has RANK and WORLD_SIZE, too. Launchers of processes also set these.
            Launcher::Torchrun => {
                let of_process = [self.local_rank, self.local_world];
                vars.text("TORCHELASTIC_RUN_ID").is_some()
                    || of_process.iter().all(|name| vars.text(name).is_some())
            }
            Launcher::Kubernetes => false,
            _ => true,
        };
        Ok(LauncherSet { names: self, identity, is_per_process })
    }

    fn require(&self, vars: VariableReader) -> Result<Identity, LaunchError> {
        let (rank, world) = match (vars.number(self.rank)?, vars.number(self.world)?) {
            (Some(rank), Some(world)) => (rank, world),
            (Some(_), None) => return Err(self.incomplete(vars, self.rank, self.world)),
            _ => return Err(self.incomplete(vars, self.world, self.rank)),
        };
        if world == 0 {
            return Err(LaunchError::malformed(self.world, "0", "the number of ranks, at least 1"));
        }
        let local_rank = vars.number(self.local_rank)?;
        let local_world = self.local_world(vars)?;
        Identity { rank, world, local_rank, local_world, launcher: self.launcher }.check(self)
    }

    fn incomplete(&self, vars: VariableReader, present: &str, missing: &str) -> LaunchError {
        let (value, remedy) = (vars.text(present).unwrap_or_default(), self.remedy);
        LaunchError::new(format!("{present} is {value:?}, but {missing} is not set: {remedy}"))
    }

    fn local_world(&self, vars: VariableReader) -> Result<Option<usize>, LaunchError> {
        if self.launcher == Launcher::Slurm {
            let node = vars.number("SLURM_NODEID")?;
            let counts = vars.text(self.local_world);
            return Ok(counts
                .zip(node)
                .and_then(|(counts, node)| hosts::tasks_of_node(&counts, node)));
        }
        let local_world = vars.number(self.local_world)?;
        if local_world == Some(0) {
            let expected = "the number of ranks here, at least 1";
            return Err(LaunchError::malformed(self.local_world, "0", expected));
        }
        Ok(local_world)
    }
}

/// Without a complete set: rank 0 of 1, unless a variable shows that there are other processes.
pub(super) fn alone(vars: VariableReader) -> Result<Identity, LaunchError> {
    for names in OTHERS {
        if let Some(present) = names.lone_variable(vars) {
            let has_rank = vars.text(names.rank).is_some();
            let missing = if has_rank { names.world } else { names.rank };
            return Err(names.incomplete(vars, present, missing));
        }
    }
    if vars.number(OWN.world)?.is_some_and(|world| world != 1) {
        return Err(OWN.incomplete(vars, OWN.world, OWN.rank));
    }
    hints::check(vars)?;
    Ok(Identity {
        rank: 0,
        world: 1,
        local_rank: Some(0),
        local_world: Some(1),
        launcher: Launcher::Alone,
    })
}
