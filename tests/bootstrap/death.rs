//! Processes that are killed or stopped.

use super::{WORLD, cause, everybody, job, read, soon, write};
use maypole::world::bootstrap::{JoinConfig, join};
use maypole::world::service::{Cause, CauseKind, Diagnosis};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A rank in a process of its own; as a test it does nothing. It prints a line when it has joined,
/// when it shares memory, and when it has learned that the world failed.
#[test]
fn child() {
    let Ok(line) = std::env::var("TEST_CHILD") else { return };
    let mut words = line.split(' ');
    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
    let rank = number();
    let world = number();
    let port = number();
    let config =
        JoinConfig { rank, world, ports: vec![port as u16], job: "child".to_owned(), ..job(world) };
    let service = join(JoinConfig { key: Some([1; 32]), ..config }).unwrap();
    println!("joined");
    let segment = service.share(WORLD, &everybody(&service), 4096, soon()).unwrap();
    write(&segment, rank, rank as u8 + 1);
    service.exchange(WORLD, &everybody(&service), vec![], soon()).unwrap();
    let bytes = read(&segment, 0, world);
    assert_eq!(bytes, (1..=world as u8).collect::<Vec<_>>());
    println!("shared");
    while !service.alarm().raised() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let cause = service.settle(cause(u64::MAX, CauseKind::Timeout, rank), Duration::from_secs(1));
    println!("cause {}", cause.text);
    assert_eq!(cause.kind, CauseKind::Death);
}

struct Rank(Child, std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Rank {
    fn start(line: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "death::child", "--nocapture"])
            .env("TEST_CHILD", line)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
    }

    /// The rest of the first line that contains `word`. It need not start with it, because libtest
    /// may have begun the line.
    fn says(&mut self, word: &str) -> String {
        for line in self.1.by_ref() {
            if let Some((_, rest)) = line.unwrap().split_once(word) {
                return rest.to_owned();
            }
        }
        panic!("the rank ended without saying '{word}'");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill_one_of_four(victim: usize) {
    let port = job(4).ports[0];
    let mut ranks: Vec<Rank> =
        (0..4).map(|rank| Rank::start(&format!("{rank} 4 {port}"))).collect();
    for rank in &mut ranks {
        rank.says("shared");
    }
    let start = Instant::now();
    ranks[victim].0.kill().unwrap();
    let expected = format!(" rank {victim} died: its connection ended without a goodbye");
    for (number, rank) in ranks.iter_mut().enumerate() {
        if number != victim {
            assert_eq!(rank.says("cause"), expected);
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(ranks[victim].0.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_stopped_process_is_silent_and_not_dead() {
    let config = job(2);
    let key = Some([1; 32]);
    let mut other = Rank::start(&format!("1 2 {}", config.ports[0]));
    let config = JoinConfig {
        job: "child".to_owned(),
        ports: vec![config.ports[0]],
        key,
        equal: job(2).equal,
        ..config
    };
    let service = join(config).unwrap();
    let segment = service.share(WORLD, &[0, 1], 4096, soon()).unwrap();
    write(&segment, 0, 1);
    service.exchange(WORLD, &[0, 1], vec![], soon()).unwrap();
    other.says("shared");
    assert!(matches!(service.ask_where(WORLD, 1), Diagnosis::Outside { rank: 1, .. }));
    let signal = |name: &str| {
        let done = Command::new("kill").args([name, &other.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    };
    signal("-STOP");
    // Waits until the signal has taken effect.
    while !matches!(service.ask_where(WORLD, 1), Diagnosis::Silent { rank: 1 }) {}
    assert!(service.cause().is_none() && !service.alarm().raised());
    signal("-CONT");
    while !matches!(service.ask_where(WORLD, 1), Diagnosis::Outside { rank: 1, .. }) {}
    let start = Instant::now();
    signal("-KILL");
    while !service.alarm().raised() {
        std::thread::yield_now();
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(matches!(service.cause(), Some(Cause { kind: CauseKind::Death, rank: 1, .. })));
}

#[test]
fn a_killed_rank_is_the_cause_on_all_ranks() {
    kill_one_of_four(2);
}

#[test]
fn a_killed_rank_0_is_the_cause_on_all_ranks() {
    kill_one_of_four(0);
}
