//! What can be wrong with an environment.

use thiserror::Error;

use super::{KeyError, PmiError};

/// The environment does not say, or says two things about, who this process is. The launcher or
/// whoever set the variable is at fault; the message names the variable and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A variable holds something else than it should.
    #[error("{variable} is {value:?}, but must be {expected}")]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// One of two variables that belong together is not set.
    #[error("{present} is {value:?}, but {missing} is not set: {remedy}")]
    Incomplete {
        /// The variable that is set.
        present: &'static str,
        /// What it holds.
        value: String,
        /// The variable that is not.
        missing: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A number is too large for another.
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
        /// What must hold between them.
        rule: &'static str,
    },
    /// `MAYPOLE_WORLD` says another world than the launcher.
    #[error(
        "MAYPOLE_WORLD is {ours}, but {variable} is {theirs}: unset MAYPOLE_WORLD, or set MAYPOLE_RANK too \
         if the launcher is to be overruled"
    )]
    WorldsDiffer {
        /// What `MAYPOLE_WORLD` says.
        ours: usize,
        /// The launcher's variable.
        variable: &'static str,
        /// What it says.
        theirs: usize,
    },
    /// Nothing says where rank 0 is.
    #[error(
        "this is rank {rank} of {world}, but nothing says where rank 0 is: set MAYPOLE_ADDRESS to the name or address \
         of its host, the same on all ranks (or MAYPOLE_LOCAL_WORLD={world} if all ranks are on one host)"
    )]
    NoAddress {
        /// This rank.
        rank: usize,
        /// How many there are.
        world: usize,
    },
    /// The job key cannot be had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The process manager does not answer as it should.
    #[error(transparent)]
    Pmi(#[from] PmiError),
}
