//! Fault x operation x link: a rank is killed, is stopped or leaves, and every other rank soon gets
//! an error that names it, for every operation and every kind of link.

use crate::report::{SOON, report};
use crate::skip;
use crate::spawn::{Ended, Running, World, say};
use maypole::{Communicator, Error, ReduceOp, Result};
use std::time::{Duration, Instant};

/// The operation of ranks until it fails. Prints `ready` once it works, and returns all errors.
type Endless = fn(&mut Communicator) -> Vec<Error>;

const OPERATIONS: [(&str, Endless); 8] = [
    ("small sums", small_sums),
    ("large sums", |comm| for_ever(comm, |comm| sum(comm, 1 << 17))),
    ("broadcasts", |comm| for_ever(comm, |comm| comm.broadcast(&mut [7u8; 5000], 0))),
    ("long messages", |comm| for_ever(comm, around_the_ring)),
    ("a receive", |comm| await_rank_1(comm, |comm| one(comm.recv(&mut [0u8; 9], 1, 0)))),
    ("a receive from any", |comm| {
        await_rank_1(comm, |comm| one(comm.recv_any(&mut [0u8; 9], 0).map(drop)))
    }),
    ("requests", |comm| await_rank_1(comm, queue_requests)),
    ("posted messages", |comm| await_rank_1(comm, post_messages)),
];

/// Ranks that share memory, joined by TCP, by encrypted TCP, and on two hosts.
const LINKS: [&str; 4] = ["shm", "tcp", "encrypted", "hosts"];

/// Bytes of a message that is sent by rendezvous.
const LONG: usize = 5 << 20;

fn sum(comm: &mut Communicator, count: usize) -> Result<()> {
    comm.all_reduce(&mut vec![1u64; count], ReduceOp::Sum)
}

fn small_sums(comm: &mut Communicator) -> Vec<Error> {
    for_ever(comm, |comm| sum(comm, 100).and_then(|()| comm.barrier()))
}

fn around_the_ring(comm: &mut Communicator) -> Result<()> {
    let world = comm.world();
    let to = (comm.rank() + 1) % world;
    let from = (comm.rank() + world - 1) % world;
    comm.exchange(&vec![1u8; LONG], to, &mut vec![0; LONG], from, 0)
}

fn one(result: Result<()>) -> Vec<Error> {
    result.err().into_iter().collect()
}

fn for_ever(comm: &mut Communicator, call: impl Fn(&mut Communicator) -> Result<()>) -> Vec<Error> {
    let ready = call(comm).map(|()| say("ready", "now"));
    one(ready.and_then(|()| {
        loop {
            call(comm)?;
        }
    }))
}

/// Rank 1 does nothing more, and the others `wait` for it.
fn await_rank_1(
    comm: &mut Communicator,
    wait: impl Fn(&mut Communicator) -> Vec<Error>,
) -> Vec<Error> {
    if std::env::var_os("TEST_WARM").is_none() {
        comm.barrier().unwrap();
    }
    say("ready", "now");
    match comm.rank() {
        1 => loop {
            std::thread::park();
        },
        _ => wait(comm),
    }
}

/// The first request has the cause, and the later ones that the communicator has failed.
fn queue_requests(comm: &mut Communicator) -> Vec<Error> {
    let start = |_| comm.start_all_reduce(vec![1u64; 100_000], ReduceOp::Sum);
    let requests: Vec<_> = (0..5).map(start).collect();
    let errors: Vec<_> = requests.into_iter().map(|it| it.wait().unwrap_err()).collect();
    for later in &errors[1..] {
        let first = errors[0].to_string();
        assert!(matches!(later, Error::Failed { first: it, .. } if it.text == first), "{later}");
        assert_eq!(later.is_retryable(), errors[0].is_retryable(), "{later}");
    }
    let next = comm.start((), |comm, ()| comm.barrier()).wait();
    assert!(matches!(next, Err(Error::Failed { .. })), "{next:?}");
    errors
}

/// Several tags are posted both ways. The first error in the result is the one that the
/// communicator keeps. If the messages alone have ended, the call after them names the dead rank
/// itself.
fn post_messages(comm: &mut Communicator) -> Vec<Error> {
    let sends: Vec<_> = (0..3).map(|tag| comm.start_send(vec![1u8; LONG], 1, tag)).collect();
    let receives: Vec<_> = (0..3).map(|tag| comm.start_recv(vec![0u8; 9], 1, tag)).collect();
    let ends = sends.into_iter().chain(receives).map(|it| it.wait().unwrap_err());
    let mut errors: Vec<_> = ends.collect();
    let later = comm.barrier().unwrap_err();
    match &later {
        Error::Failed { first, .. } => errors.sort_by_key(|error| error.to_string() != first.text),
        _ => errors.insert(0, later),
    }
    errors
}

pub(crate) fn rank_process(role: &str) {
    let mut comm = Communicator::from_env().unwrap();
    if std::env::var("TEST_WARM").is_ok() {
        comm.barrier().unwrap();
    }
    if role == "leave" {
        return comm.close().unwrap();
    }
    let since = Instant::now();
    let (_, operation) = OPERATIONS.iter().find(|(name, _)| *name == role).unwrap();
    let errors = operation(&mut comm);
    errors.iter().for_each(|error| say("each", error));
    report(comm, &errors[0], since);
}

fn world(operation: &str, ranks: usize, link: &str) -> World {
    let world = World::new(operation, ranks);
    match link {
        "hosts" => world.hosts(&[0, 0, 1, 1][..ranks]),
        "encrypted" => world.set("MAYPOLE_TRANSPORT", "tcp").set("MAYPOLE_ENCRYPT", 1),
        transport => world.set("MAYPOLE_TRANSPORT", transport),
    }
}

/// The ranks of a world of which some have failed, and the world's operation.
struct Survivors {
    case: String,
    ended: Vec<Ended>,
    others: Vec<usize>,
}

impl Survivors {
    fn new(case: String, ended: Vec<Ended>, victims: &[usize]) -> Self {
        let others = (0..ended.len()).filter(|rank| !victims.contains(rank)).collect();
        Self { case, ended, others }
    }

    /// Asserts that each survivor ends well, that its error is of one of these kinds and names one
    /// of `victims`, and that each error has one of the texts that `told` makes of its culprit.
    fn all_name<const N: usize>(
        &self,
        victims: &[usize],
        kinds: &[&str],
        told: impl Fn(&str) -> [String; N],
    ) {
        for rank in &self.others {
            let rank = &self.ended[*rank];
            let case = format!("{}: {rank:#?}", self.case);
            assert_eq!(rank.code, Some(0), "{case}");
            let [kind] = rank.said("kind")[..] else { panic!("{case}") };
            assert!(kinds.contains(&kind), "{case}");
            let [culprit] = rank.said("culprit")[..] else { panic!("{case}") };
            assert!(victims.iter().any(|victim| victim.to_string() == culprit), "{case}");
            for error in rank.said("each") {
                assert!(told(culprit).iter().any(|text| error.contains(text)), "{case}");
                // Encryption takes no fault for an attack.
                assert!(!error.contains("altered"), "{case}");
            }
        }
    }
}

#[test]
fn a_killed_rank_is_named_whatever_the_others_do() {
    let cases = (0..OPERATIONS.len()).flat_map(|nth| (0..LINKS.len()).map(move |at| (nth, at)));
    // Of every operation and of every link, some.
    for (nth, at) in skip::every_nth(3, cases) {
        let (operation, link) = (OPERATIONS[nth].0, LINKS[at]);
        let victim = if nth < 4 { (nth + at) % 3 } else { 1 };
        let mut running = world(operation, 3, link).start();
        running.wait_for("ready", &[0, 1, 2]);
        running.signal(victim, "KILL");
        let killed = Instant::now();
        let case = format!("{operation} over {link}, rank {victim} is killed");
        let survivors = Survivors::new(case, running.end(), &[victim]);
        survivors.all_name(&[victim], &["lost", "aborted"], |culprit| {
            [format!("lost rank {culprit} in "), format!("rank {culprit} died")]
        });
        assert!(killed.elapsed() < 2 * SOON, "{}: {:?}", survivors.case, killed.elapsed());
    }
}

/// Stops `victims` of four ranks, and continues them when the others have failed. They get an
/// error, too; its words are not checked.
fn stop(victims: &[usize], link: &str) {
    let mut running: Running = world("small sums", 4, link).set("MAYPOLE_TIMEOUT", 3).start();
    running.wait_for("ready", &[0, 1, 2, 3]);
    victims.iter().for_each(|victim| running.signal(*victim, "STOP"));
    let others: Vec<usize> = (0..4).filter(|rank| !victims.contains(rank)).collect();
    running.wait_for("culprit", &others);
    victims.iter().for_each(|victim| running.signal(*victim, "CONT"));
    let case = format!("{victims:?} are stopped over {link}");
    let survivors = Survivors::new(case, running.end(), victims);
    survivors.all_name(victims, &["timed out", "aborted"], |culprit| {
        let text = "does not answer: its process is stopped or has no processor, or its host";
        [format!("rank {culprit} {text}")]
    });
    for rank in survivors.others {
        let error = survivors.ended[rank].said("error")[0];
        for text in ["waited 3 s for rank ", "whom it awaits is not known"] {
            assert!(error.contains(text), "{}, rank {rank}: {error}", survivors.case);
        }
    }
}

#[test]
fn a_stopped_rank_is_named_and_no_other() {
    let victims = [&[0][..], &[1], &[2], &[0, 2]];
    let cases = victims.into_iter().flat_map(|victims| ["shm", "tcp"].map(|link| (victims, link)));
    skip::every_nth(4, cases).into_iter().for_each(|(victims, link)| stop(victims, link));
}

/// The link to the rank that leaves was used before, or not.
#[test]
fn a_rank_leaves_while_others_go_on() {
    let waits = ["broadcasts", "long messages", "a receive", "a receive from any", "requests"];
    let calls = waits.into_iter().map(|call| (call, true));
    let calls: Vec<_> = calls.chain([("small sums", true), ("small sums", false)]).collect();
    let cases = LINKS.into_iter().flat_map(|link| calls.iter().map(move |call| (link, *call)));
    for (link, (operation, warm)) in skip::every_nth(9, cases) {
        // A receive from any rank waits for those that are left.
        let ranks = if operation == "a receive from any" { 2 } else { 3 };
        let world = world(operation, ranks, link).set("MAYPOLE_TIMEOUT", 30);
        let world = world.set_of(1, "TEST_ROLE", "leave");
        let world = if warm { world.set("TEST_WARM", 1) } else { world };
        let case = format!("{operation} over {link}, warm {warm}, rank 1 leaves");
        let survivors = Survivors::new(case, world.start().succeed(), &[1]);
        survivors.all_name(&[1], &["lost", "aborted", "connect"], |culprit| {
            [format!("lost rank {culprit} in "), format!("rank {culprit} has left")]
        });
        for rank in survivors.others.iter().copied() {
            let took = survivors.ended[rank].said("took")[0].parse().unwrap();
            assert!(Duration::from_millis(took) < SOON, "{}: {took} ms", survivors.case);
        }
    }
}
