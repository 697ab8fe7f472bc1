//! Ranks that are processes, with `MAYPOLE_ENCRYPT`.

use crate::spawn::{World, say};
use maypole::{Communicator, ReduceOp};

/// Elements of a vector of several records.
const COUNT: usize = 50_000;

pub(crate) fn rank_process(_: &str) {
    match Communicator::from_env() {
        Ok(mut comm) => everything(&mut comm),
        Err(error) => say("error", error),
    }
}

/// Vectors of several records, in the world and in a group of it.
fn everything(comm: &mut Communicator) {
    say("encrypted", comm.is_encrypted());
    let mut half = comm.split(Some(comm.rank() as u64 % 2), 0).unwrap().unwrap();
    assert_eq!(half.is_encrypted(), comm.is_encrypted());
    for comm in [comm, &mut half] {
        let request = comm.start_all_reduce(vec![2u64; COUNT], ReduceOp::Sum);
        assert_eq!(request.wait().unwrap(), vec![2 * comm.world() as u64; COUNT]);
    }
    say("done", "now");
}

#[test]
fn everything_works_encrypted_over_tcp_and_between_hosts() {
    let tcp = World::new("everything", 4).set("MAYPOLE_TRANSPORT", "tcp");
    let mixed = World::new("everything", 4).hosts(&[0, 0, 1, 1]);
    let shared = World::new("everything", 3);
    for world in [tcp, mixed, shared] {
        for rank in world.set("MAYPOLE_ENCRYPT", 1).start().succeed() {
            assert_eq!(rank.said("encrypted"), ["true"]);
            assert_eq!(rank.said("done").len(), 1);
        }
    }
    for rank in World::new("everything", 2).set("MAYPOLE_TRANSPORT", "tcp").start().succeed() {
        assert_eq!(rank.said("encrypted"), ["false"]);
    }
}

#[test]
fn ranks_that_disagree_about_encryption_do_not_join() {
    let world = World::new("everything", 2).set("MAYPOLE_TRANSPORT", "tcp");
    for rank in world.set_of(1, "MAYPOLE_ENCRYPT", 1).start().succeed() {
        let said = rank.said("error").concat();
        let expected = "MAYPOLE_ENCRYPT is '0' on rank 0 and '1' on rank 1; make them equal";
        assert!(said.contains(expected), "{said}");
    }
    // Not set and 0 are the same.
    let world = World::new("everything", 2).set_of(1, "MAYPOLE_ENCRYPT", 0);
    world.start().succeed().iter().for_each(|rank| assert_eq!(rank.said("done").len(), 1));
    let world = World::new("everything", 2).set("MAYPOLE_ENCRYPT", "yes");
    for rank in world.start().succeed() {
        let said = rank.said("error").concat();
        assert!(said.contains("MAYPOLE_ENCRYPT: 'yes' is neither 0 nor 1"), "{said}");
    }
}
