//! Reads which rank this process is, from the variables of the first launcher that sets any.

use super::variables::VariableReader;
use super::{LaunchError, Launcher, hosts};

/// A rank and its world, consistent in themselves.
pub(super) struct Identity {
    pub(super) rank: usize,
    pub(super) world: usize,
    pub(super) local_rank: Option<usize>,
    pub(super) local_world: Option<usize>,
    pub(super) launcher: Launcher,
}

/// The names of one launcher's variables.
struct LauncherVariables {
    launcher: Launcher,
    rank: &'static str,
    world: &'static str,
    local_rank: &'static str,
    local_world: &'static str,
    /// What to do when only one of `rank` and `world` is set.
    remedy: &'static str,
}

const OWN: LauncherVariables = LauncherVariables {
    launcher: Launcher::Maypole,
    rank: "MAYPOLE_RANK",
    world: "MAYPOLE_WORLD",
    local_rank: "MAYPOLE_LOCAL_RANK",
    local_world: "MAYPOLE_LOCAL_WORLD",
    remedy: "set both, or start the program with `maypole run`",
};
const TORCHRUN: LauncherVariables = LauncherVariables {
    launcher: Launcher::Torchrun,
    rank: "RANK",
    world: "WORLD_SIZE",
    local_rank: "LOCAL_RANK",
    local_world: "LOCAL_WORLD_SIZE",
    remedy: "set both, or neither",
};
const OPEN_MPI: LauncherVariables = LauncherVariables {
    launcher: Launcher::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    world: "OMPI_COMM_WORLD_SIZE",
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    local_world: "OMPI_COMM_WORLD_LOCAL_SIZE",
    remedy: "mpirun sets both; unset the one that something else has set",
};
const HYDRA: LauncherVariables = LauncherVariables {
    launcher: Launcher::Mpich,
    rank: "PMI_RANK",
    world: "PMI_SIZE",
    local_rank: "MPI_LOCALRANKID",
    local_world: "MPI_LOCALNRANKS",
    remedy: "mpiexec sets both; unset the one that something else has set",
};
const SLURM: LauncherVariables = LauncherVariables {
    launcher: Launcher::Slurm,
    rank: "SLURM_PROCID",
    world: "SLURM_STEP_NUM_TASKS",
    local_rank: "SLURM_LOCALID",
    local_world: "", // Slurm tells it for all nodes at once, in SLURM_STEP_TASKS_PER_NODE.
    remedy: "srun sets both; start the program with srun",
};
const KUBERNETES: LauncherVariables = LauncherVariables {
    launcher: Launcher::Kubernetes,
    rank: "JOB_COMPLETION_INDEX",
    world: "MAYPOLE_WORLD",
    local_rank: "MAYPOLE_LOCAL_RANK",
    local_world: "MAYPOLE_LOCAL_WORLD",
    remedy: "an indexed job does not tell its pods how many there are; set MAYPOLE_WORLD to the \
             job's `completions`",
};

impl Identity {
    /// Asks every launcher's variables in order.
    pub(super) fn read(vars: VariableReader) -> Result<Identity, LaunchError> {
        if vars.text(OWN.rank).is_some() {
            return OWN.require(vars);
        }
        for names in [&TORCHRUN, &OPEN_MPI, &HYDRA, &SLURM] {
            if names.are_set(vars) {
                let found = names.require(vars)?;
                found.agrees_with_own_world(vars, names)?;
                return Ok(found);
            }
        }
        if vars.text(KUBERNETES.rank).is_some() {
            return KUBERNETES.require(vars);
        }
        alone(vars)
    }

    /// `MAYPOLE_WORLD` may be set without `MAYPOLE_RANK`, but it must not contradict the launcher.
    fn agrees_with_own_world(
        &self,
        vars: VariableReader,
        names: &LauncherVariables,
    ) -> Result<(), LaunchError> {
        match vars.number(OWN.world)? {
            Some(ours) if ours != self.world => {
                Err(LaunchError::WorldsDiffer { ours, variable: names.world, theirs: self.world })
            }
            _ => Ok(()),
        }
    }

    fn check(self, names: &LauncherVariables) -> Result<Identity, LaunchError> {
        let too_large = |variable, value, bound_variable, bound, rule| {
            Err(LaunchError::TooLarge { variable, value, bound_variable, bound, rule })
        };
        if self.rank >= self.world {
            let rule = "ranks count from 0 to one less than the world";
            return too_large(names.rank, self.rank, names.world, self.world, rule);
        }
        let Some(local_world) = self.local_world else { return Ok(self) };
        let local_world_name = names.local_world_name();
        if local_world > self.world {
            return too_large(
                local_world_name,
                local_world,
                names.world,
                self.world,
                "a host cannot hold more ranks than the world",
            );
        }
        match self.local_rank {
            Some(local_rank) if local_rank >= local_world => {
                let rule = "local ranks count from 0 to one less than that";
                too_large(names.local_rank, local_rank, local_world_name, local_world, rule)
            }
            _ => Ok(self),
        }
    }
}

impl LauncherVariables {
    fn are_set(&self, vars: VariableReader) -> bool {
        match self.launcher {
            // A batch script is one process, although it has SLURM_PROCID and the size of its
            // allocation. Only a step that srun started has this variable, and all its tasks run.
            Launcher::Slurm => vars.text(self.world).is_some(),
            _ => vars.text(self.rank).is_some() || vars.text(self.world).is_some(),
        }
    }

    fn require(&self, vars: VariableReader) -> Result<Identity, LaunchError> {
        let (rank, world) = match (vars.number(self.rank)?, vars.number(self.world)?) {
            (Some(rank), Some(world)) => (rank, world),
            (Some(_), None) => return Err(self.incomplete(vars, self.rank, self.world)),
            _ => return Err(self.incomplete(vars, self.world, self.rank)),
        };
        if world == 0 {
            let value = "0".to_owned();
            let expected = "the number of ranks, at least 1";
            return Err(LaunchError::Malformed { variable: self.world, value, expected });
        }
        let local_rank = vars.number(self.local_rank)?;
        let local_world = self.local_world(vars)?;
        Identity { rank, world, local_rank, local_world, launcher: self.launcher }.check(self)
    }

    fn incomplete(
        &self,
        vars: VariableReader,
        present: &'static str,
        missing: &'static str,
    ) -> LaunchError {
        let value = vars.text(present).unwrap_or_default();
        LaunchError::Incomplete { present, value, missing, remedy: self.remedy }
    }

    fn local_world(&self, vars: VariableReader) -> Result<Option<usize>, LaunchError> {
        if self.launcher != Launcher::Slurm {
            let local_world = vars.number(self.local_world)?;
            if local_world == Some(0) {
                return Err(LaunchError::Malformed {
                    variable: self.local_world,
                    value: "0".to_owned(),
                    expected: "the number of ranks here, at least 1",
                });
            }
            return Ok(local_world);
        }
        let (Some(counts), Some(node)) =
            (vars.text(self.local_world_name()), vars.number("SLURM_NODEID")?)
        else {
            return Ok(None);
        };
        Ok(hosts::tasks_of_node(&counts, node))
    }

    fn local_world_name(&self) -> &'static str {
        if self.launcher == Launcher::Slurm {
            "SLURM_STEP_TASKS_PER_NODE"
        } else {
            self.local_world
        }
    }
}

fn alone(vars: VariableReader) -> Result<Identity, LaunchError> {
    match vars.number(OWN.world)? {
        None | Some(1) => Ok(Identity {
            rank: 0,
            world: 1,
            local_rank: Some(0),
            local_world: Some(1),
            launcher: Launcher::Alone,
        }),
        Some(_) => Err(OWN.incomplete(vars, OWN.world, OWN.rank)),
    }
}
