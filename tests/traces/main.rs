//! Traces of real runs show what happened.

#[path = "../common/spawn.rs"]
mod spawn;

mod broken;
mod file;
mod messages;
mod recorded;

use spawn::World;
use std::path::Path;

spawn::rank_processes!(broken, messages, recorded);

/// Calls `check` with the trace of processes over each transport.
#[track_caller]
fn over_processes(role: &str, ranks: usize, check: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    for transport in ["shm", "tcp"] {
        let path = folder.path().join(format!("{transport}.json"));
        let world = World::new(role, ranks).set("MAYPOLE_TRACE", path.display());
        world.set("MAYPOLE_TRANSPORT", transport).start().succeed();
        check(&path);
    }
}
