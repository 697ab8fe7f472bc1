//! The code for GPUs over the fake driver of `tests/fake_gpu/driver/`, through unmodified cudarc.
//! Each test starts processes of its own, because a process loads the driver once. `kernel` runs
//! the kernel that walks programs alone. These tests show nothing of a real GPU's memory,
//! scheduling or speed.
#![cfg(all(feature = "cuda", target_os = "linux"))]

#[path = "../common/fake_gpu.rs"]
mod fake_gpu;
#[path = "../common/fake_verbs.rs"]
mod fake_verbs;
#[path = "../common/network.rs"]
mod network;
#[path = "../common/skip.rs"]
mod skip;
#[path = "../common/spawn.rs"]
mod spawn;

mod company;
mod endings;
mod failures;
mod far;
mod gpu_direct;
mod hosts;
mod kernel;
mod nvml;
mod order;
mod raw;
mod room;
mod unavailable;
mod walks;

use fake_gpu::FakeDriver;
use maypole_tests::common;
use spawn::{Ended, World};

/// The roles of a file, by the names of their functions. A test after `in` does the role in so many processes, with
/// each of the lists of variables.
macro_rules! roles {
    ($($role:ident $(in $processes:literal: $test:ident $(, $variables:expr)*)?;)*) => {
        pub(crate) const ROLES: &[(&str, crate::Role)] = &[$((stringify!($role), $role)),*];
        $($(
            #[test]
            fn $test() {
                crate::succeed_with_each(stringify!($role), $processes, &[$(&$variables),*]);
            }
        )?)*
    };
}
pub(crate) use roles;

/// The role of a process of a test. `expect` and `unwrap` in it fail the test.
type Role = fn();

/// The roles of all tests, by name.
const ROLES: &[&[(&str, Role)]] = &[
    unavailable::ROLES,
    company::ROLES,
    far::ROLES,
    gpu_direct::ROLES,
    hosts::ROLES,
    nvml::ROLES,
    order::ROLES,
    walks::ROLES,
    endings::ROLES,
    failures::ROLES,
    room::ROLES,
];

spawn::rank_processes!(self);

fn rank_process(role: &str) {
    let found = ROLES.iter().copied().flatten().find(|(name, _)| **name == *role);
    found.unwrap_or_else(|| panic!("there is a role '{role}'")).1();
}

/// Set: the tests run over the driver of the machine. For `tests/gpu.sh`, and the tests of `order`.
const REAL_DRIVER: &str = "TEST_REAL_DRIVER";

/// A process that does `role` over the whole fake driver. `None` if there is no compiler.
fn world(role: &str, processes: usize) -> Option<World> {
    if std::env::var_os(REAL_DRIVER).is_some() {
        return Some(World::new(role, processes));
    }
    let driver = FakeDriver::get()?;
    let world = World::new(role, processes).set("LD_LIBRARY_PATH", driver.library_path());
    // Independent of the machine's own GPUs.
    Some(world.set("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"))
}

/// Where the mailboxes of a test are: on GPUs that reach one another, and in memory of the host.
const PLACES: [(&str, &str); 2] =
    [("MAYPOLE_CUDA_MAILBOXES", "peer"), ("MAYPOLE_CUDA_MAILBOXES", "host")];

/// Runs `role` in so many processes with these variables. Asserts that all succeed, and that no memory was
/// freed while another process used it.
#[track_caller]
fn succeed(role: &str, processes: usize, variables: &[(&str, &str)]) -> Option<Vec<Ended>> {
    let set = |world: World, (name, value): &(&str, &str)| world.set(name, value);
    let world = variables.iter().fold(world(role, processes)?, set);
    let ended = world.start().succeed();
    for one in &ended {
        assert!(!one.lines.iter().any(|line| line.contains("freed while")), "{:?}", one.lines);
    }
    Some(ended)
}

/// [`succeed`] with each of these lists of variables, or with none if there is no list.
#[track_caller]
fn succeed_with_each(role: &str, processes: usize, variables: &[&[(&str, &str)]]) {
    let all = if variables.is_empty() { &[&[][..]] } else { variables };
    for variables in skip::every_nth(all.len().min(2), all) {
        succeed(role, processes, variables);
    }
}

/// Runs `role` in one process with these variables, and asserts that it succeeds.
#[track_caller]
fn check(role: &str, variables: &[(&str, &str)]) -> Option<Ended> {
    succeed(role, 1, variables)?.pop()
}
