//! Registered memory: programs that reach it have the bits of those that do not, calls may mix it
//! with private memory, and after a failure no rank reaches memory that was given back to user
//! code. Copies of private memory, which run by the same programs, are here as well.

#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

mod calls;
mod copies;
mod failures;
mod memory;
mod programs;

use maypole::Local;
use maypole::tuner::CostTable;
use maypole_tests::{case, common};

/// Costs by which every call of more than a few bytes exchanges places of registered memory: slots
/// are dear.
fn asking() -> CostTable {
    let mut costs = CostTable::BUILT_IN;
    costs.small.alpha = 50_000_000;
    costs.chunk.alpha = 50_000_000;
    costs
}

/// A world of threads in which most calls exchange places of registered memory.
fn local(world: usize) -> Local {
    Local::new(world).costs(asking())
}

spawn::rank_processes!(copies, failures);
