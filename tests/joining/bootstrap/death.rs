//! Processes that are killed or stopped.

use super::{WORLD, everybody, job, read, soon, write};
use crate::spawn::{World, ranks, say};
use maypole::world::bootstrap::{JoinConfig, join};
use maypole::world::service::{Cause, Diagnosis, FailureKind};
use std::time::{Duration, Instant};

/// The configuration of a rank of the world whose rank 0 listens at this port.
fn config(rank: usize, world: usize, port: u16) -> JoinConfig {
    let job = JoinConfig { job: "child".to_owned(), key: Some([1; 32]), ..job(world) };
    JoinConfig { rank, ports: vec![port], ..job }
}

/// A rank process of a test of this file. It reports when it shares memory, and its error when the
/// world has failed.
pub(crate) fn rank_process(_: &str) {
    let number = |name| std::env::var(name).unwrap().parse::<u16>().unwrap();
    let rank = ranks()[0];
    let world = usize::from(number("MAYPOLE_WORLD"));
    let service = join(config(rank, world, number("TEST_PORT"))).unwrap();
    let segment = service.share(WORLD, &everybody(&service), 4096, soon()).unwrap();
    write(&segment, rank, rank as u8 + 1);
    service.exchange(WORLD, &everybody(&service), vec![], soon()).unwrap();
    let bytes = read(&segment, 0, world);
    assert_eq!(bytes, (1..=world as u8).collect::<Vec<_>>());
    say("shared", "now");
    while !service.alarm().raised() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stopped_process_is_silent_and_not_dead() {
    let port = job(2).ports[0];
    let world = World::new("serve", 2).processes(&[&[1]]);
    let mut other = world.set("TEST_PORT", port).start();
    let service = join(config(0, 2, port)).unwrap();
    let segment = service.share(WORLD, &[0, 1], 4096, soon()).unwrap();
    write(&segment, 0, 1);
    service.exchange(WORLD, &[0, 1], vec![], soon()).unwrap();
    other.wait_for("shared", &[0]);
    assert!(matches!(service.ask_where(WORLD, 1), Diagnosis::Outside { rank: 1, .. }));
    other.signal(0, "STOP");
    // Waits until the signal has taken effect.
    while !matches!(service.ask_where(WORLD, 1), Diagnosis::Silent { rank: 1 }) {}
    assert!(service.cause().is_none() && !service.alarm().raised());
    other.signal(0, "CONT");
    while !matches!(service.ask_where(WORLD, 1), Diagnosis::Outside { rank: 1, .. }) {}
    let start = Instant::now();
    other.signal(0, "KILL");
    while !service.alarm().raised() {
        std::thread::yield_now();
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(matches!(service.cause(), Some(Cause { kind: FailureKind::Death, rank: 1, .. })));
}
