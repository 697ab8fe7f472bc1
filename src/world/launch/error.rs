//! Why the environment does not determine the rank of this process.

use thiserror::Error;

use super::{KeyError, PmiError};

/// The environment does not determine the rank of this process, or contradicts itself. The message
/// names the variable and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The value of a variable is malformed.
    #[error("{variable} is {value:?}, but must be {expected}")]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The expected form of the value.
        expected: &'static str,
    },
    /// One of two variables that belong together is not set.
    #[error("{present} is {value:?}, but {missing} is not set: {remedy}")]
    Incomplete {
        /// The variable that is set.
        present: &'static str,
        /// Its value.
        value: String,
        /// The variable that is not set.
        missing: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// A number must be smaller than another number, and is not.
    #[error("{variable} is {value}, but {bound_variable} is {bound}: {rule}")]
    TooLarge {
        /// The variable that is too large.
        variable: &'static str,
        /// Its value.
        value: usize,
        /// The variable that bounds it.
        bound_variable: &'static str,
        /// The bound.
        bound: usize,
        /// The rule between them.
        rule: &'static str,
    },
    /// Two launchers name different ranks, and it is unknown which one started this process.
    #[error(
        "{first}, but {second}: unset the variables that do not belong to the launcher of this \
         process, or set MAYPOLE_RANK and MAYPOLE_WORLD in the command that it starts, which \
         overrule both"
    )]
    Contradiction {
        /// The variables of one launcher, with their values.
        first: String,
        /// Those of the other one.
        second: String,
    },
    /// A launcher started this process whose variables this library does not read.
    #[error(
        "{variable} is {value:?}, so {launcher} has started this process, and no variable that \
         maypole reads says which rank of how many it is: set MAYPOLE_RANK and MAYPOLE_WORLD in \
         the command that it starts (and MAYPOLE_ADDRESS, for several hosts), or unset {variable} \
         for a world of one"
    )]
    UnknownLauncher {
        /// The launcher.
        launcher: &'static str,
        /// The variable that identifies it.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// `MAYPOLE_WORLD` and the launcher name different world sizes.
    #[error(
        "MAYPOLE_WORLD is {ours}, but {variable} is {theirs}: unset MAYPOLE_WORLD, or set \
         MAYPOLE_RANK too \
         to overrule the launcher"
    )]
    WorldsDiffer {
        /// The value of `MAYPOLE_WORLD`.
        ours: usize,
        /// The launcher's variable.
        variable: &'static str,
        /// The value of the launcher's variable.
        theirs: usize,
    },
    /// No variable names the address of rank 0.
    #[error(
        "this is rank {rank} of {world}, but no variable says where rank 0 is: set \
         MAYPOLE_ADDRESS to the name or address \
         of its host, the same on all ranks (or MAYPOLE_LOCAL_WORLD={world} if all ranks are on \
         one host)"
    )]
    NoAddress {
        /// This rank.
        rank: usize,
        /// The number of ranks.
        world: usize,
    },
    /// Two variables name a job key.
    #[error(
        "{first} and {second} are both set, and either may name the job key: unset the one that is \
         not meant"
    )]
    SeveralKeys {
        /// The variable of the more private place.
        first: &'static str,
        /// The other variable.
        second: &'static str,
    },
    /// The job key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The exchange with the process manager failed.
    #[error(transparent)]
    Pmi(#[from] PmiError),
}
