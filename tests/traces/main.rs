//! Traces of the simulator and of real runs show what happened.

#[path = "../common/spawn.rs"]
mod spawn;

mod broken;
mod file;
mod messages;
mod recorded;
mod simulated;

/// What the rank processes of other tests run.
#[test]
#[ignore = "a part of other tests"]
fn a_rank_of_another_test() {
    match spawn::role().as_deref() {
        Some("everything") => recorded::everything(&mut maypole::Communicator::from_env().unwrap()),
        Some("messages") => messages::talk(&mut maypole::Communicator::from_env().unwrap()),
        Some("much") => broken::much(&mut maypole::Communicator::from_env().unwrap()),
        other => panic!("there is no role {other:?}"),
    }
}
