//! How a world is made: its variables, the agreement of its ranks, and encrypted links.
#![cfg(target_os = "linux")]

#[path = "../common/proxy.rs"]
mod proxy;
#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

mod bootstrap;
mod encryption;
mod limits;
mod once;
mod variables;

use bootstrap::death;

spawn::rank_processes!(death, limits, once, variables);
