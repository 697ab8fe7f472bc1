//! Random programs: the operations of all ranks of a world, and each rank's expected result. They run in simulated
//! worlds, and over every real link.

use crate::case::{Case, cases};
use crate::common::SeededRng;
use maypole::{Communicator, Error, ReduceOp, Result, wait_all};

/// Most bytes of the longest buffer of a collective.
const LONGEST_CASE: usize = 12_000;

/// The actions of all ranks, one after the other.
#[derive(Clone, Debug)]
pub struct Program {
    pub world: usize,
    pub actions: Vec<Action>,
}

/// One thing that all ranks do together.
#[derive(Clone, Debug)]
pub enum Action {
    Collective(Case),
    /// Each rank sends to the rank `shift` after it and receives from the rank `shift` before it.
    Ring {
        shift: usize,
        count: usize,
        tag: u32,
    },
    /// Each rank sends to all others in one group.
    Everybody {
        counts: Vec<usize>,
    },
    /// All ranks send to one rank, which receives from any.
    ToAny {
        root: usize,
        count: usize,
    },
    /// All ranks post messages to all ranks without waiting, each end in an order of its own.
    Posts {
        seed: u64,
        counts: Vec<usize>,
    },
    /// Reductions that do not block, of these lengths.
    Requests {
        counts: Vec<usize>,
    },
    /// Reductions on parts of one vector that do not block.
    Scope {
        count: usize,
    },
    /// Values of unequal lengths.
    Values {
        longest: usize,
    },
    /// The ranks split by their number modulo `colors`, and each group runs its case.
    Split {
        colors: usize,
        cases: Vec<Case>,
    },
}

/// The error of one rank, with its culprit numbered as in the world.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub action: usize,
    pub culprit: Option<usize>,
    pub text: String,
}

impl Program {
    /// Draws a program for `world` ranks.
    pub fn draw(world: usize, rng: &mut SeededRng) -> Self {
        Self::draw_up_to(5000, world, rng)
    }

    /// The same, with messages of up to `longest` elements.
    pub fn draw_up_to(longest: usize, world: usize, rng: &mut SeededRng) -> Self {
        let count = 1 + rng.below(4);
        Self { world, actions: (0..count).map(|_| Action::draw(longest, world, rng)).collect() }
    }

    /// Draws a program of collectives alone, whose lengths are equal on all ranks.
    pub fn draw_collectives(world: usize, rng: &mut SeededRng) -> Self {
        let even = |case: &Case| !case.lengths.differ();
        let mut draw = || loop {
            let case = draw_case(world, rng);
            if even(&case) {
                return Action::Collective(case);
            }
        };
        Self { world, actions: (0..3).map(|_| draw()).collect() }
    }

    /// Runs all actions, and checks the results of those that succeed. Stops at the first error.
    pub fn run(&self, mut comm: Communicator) -> std::result::Result<(), Failure> {
        self.run_on(&mut comm)
    }

    /// The same, on a communicator that has other work, too.
    pub fn run_on(&self, comm: &mut Communicator) -> std::result::Result<(), Failure> {
        for (nth, action) in self.actions.iter().enumerate() {
            let done = action.run(nth as u64, comm);
            if let Err((error, members)) = done {
                let culprit = error.culprit().map(|rank| members.map_or(rank, |of| of[rank]));
                return Err(Failure { action: nth, culprit, text: error.to_string() });
            }
        }
        Ok(())
    }
}

/// An error, and the members of the group that reports it, unless that is the world.
type ActionError = (Error, Option<Vec<usize>>);

impl Action {
    fn draw(longest: usize, world: usize, rng: &mut SeededRng) -> Self {
        // Eager messages, and messages by rendezvous.
        let counts = [0, 1, 7, 300, 2047, 2048, 2049, 5000, 40_000];
        let able = counts.into_iter().filter(|count| *count <= longest).count();
        let mut count = || counts[rng.below(able)];
        let (first, second, third) = (count(), count(), count());
        match rng.below(16) {
            0 => Self::Ring { shift: 1 + rng.below(world), count: first, tag: rng.below(9) as u32 },
            1 => Self::Everybody { counts: vec![first, second, third] },
            2 => Self::ToAny { root: rng.below(world), count: first },
            3 => Self::Requests { counts: vec![first, second, third] },
            4 => Self::Scope { count: first },
            5 => Self::Values { longest: first / 10 },
            8 => Self::Posts { seed: rng.next_u64(), counts: vec![first, second, third] },
            6 | 7 => {
                let colors = 1 + rng.below(3);
                let size = |color| (color..world).step_by(colors).len();
                let cases = (0..colors.min(world)).map(|color| draw_case(size(color), rng));
                Self::Split { colors, cases: cases.collect() }
            }
            _ => Self::Collective(draw_case(world, rng)),
        }
    }

    fn run(&self, nth: u64, comm: &mut Communicator) -> std::result::Result<(), ActionError> {
        // The case before may have named an algorithm.
        comm.set_algorithm(None);
        let done = match self {
            Self::Collective(case) => case.try_run(comm).map(drop),
            Self::Ring { shift, count, tag } => ring(comm, *shift, *count, *tag),
            Self::Everybody { counts } => everybody(comm, counts, nth),
            Self::ToAny { root, count } => to_any(comm, *root, *count, nth),
            Self::Posts { seed, counts } => posts(comm, *seed, counts, nth),
            Self::Requests { counts } => requests(comm, counts),
            Self::Scope { count } => scope(comm, *count),
            Self::Values { longest } => values(comm, *longest),
            Self::Split { colors, cases } => return split(comm, *colors, cases),
        };
        done.map_err(|error| (error, None))
    }
}

fn draw_case(world: usize, rng: &mut SeededRng) -> Case {
    loop {
        let case = rng.sample(&cases(world));
        if case.lengths.total() * case.kind.size() <= LONGEST_CASE {
            return case;
        }
    }
}

/// The number that `from` sends to `to` at place `at`.
fn number(from: usize, to: usize, at: usize) -> u64 {
    (from as u64 * 1_000_003 + to as u64) * 1_000_003 + at as u64
}

fn numbers(from: usize, to: usize, count: usize) -> Vec<u64> {
    (0..count).map(|at| number(from, to, at)).collect()
}

fn ring(comm: &mut Communicator, shift: usize, count: usize, tag: u32) -> Result<()> {
    let world = comm.world();
    let me = comm.rank();
    let to = (me + shift) % world;
    let from = (me + world - shift % world) % world;
    let sent = numbers(me, to, count);
    let mut came = vec![0; count];
    comm.group(|group| {
        group.send(&sent, to, tag)?;
        group.recv(&mut came, from, tag)
    })?;
    assert_eq!(came, numbers(from, me, count), "from rank {from}");
    Ok(())
}

fn everybody(comm: &mut Communicator, counts: &[usize], nth: u64) -> Result<()> {
    let world = comm.world();
    let me = comm.rank();
    let count = |from: usize, to: usize| counts[(from * 3 + to + nth as usize) % counts.len()];
    let others = || (0..world).filter(|rank| *rank != me);
    let sent: Vec<_> = others().map(|to| (to, numbers(me, to, count(me, to)))).collect();
    let mut came: Vec<_> = others().map(|from| (from, vec![0; count(from, me)])).collect();
    comm.group(|group| {
        for (to, data) in &sent {
            group.send(data, *to, 3)?;
        }
        for (from, data) in &mut came {
            group.recv(data, *from, 3)?;
        }
        Ok(())
    })?;
    for (from, data) in came {
        assert_eq!(data, numbers(from, me, count(from, me)), "from rank {from}");
    }
    Ok(())
}

/// No other action has the tag of this one: a rank that has sent its message here continues, and
/// the root must not take its next message for that of a slower rank.
fn to_any(comm: &mut Communicator, root: usize, count: usize, nth: u64) -> Result<()> {
    let me = comm.rank();
    let tag = 9 + nth as u32;
    if me != root {
        return comm.send(&numbers(me, root, count), root, tag);
    }
    let mut seen = vec![false; comm.world()];
    for _ in 1..comm.world() {
        let mut came = vec![0; count + 1];
        let (from, len) = comm.recv_any(&mut came, tag)?;
        assert_eq!(came[..len], numbers(from, me, count), "from rank {from}");
        assert!(!std::mem::replace(&mut seen[from], true), "rank {from} sent once");
    }
    Ok(())
}

/// Each rank posts its sends and then its receives, which block or do not, in random orders. Two
/// messages of a pair differ in their tags.
fn posts(comm: &mut Communicator, seed: u64, counts: &[usize], nth: u64) -> Result<()> {
    const TAGS: usize = 4;
    let world = comm.world();
    let me = comm.rank();
    let mut rng = SeededRng::new(seed ^ me as u64);
    // One message of a pair may be long; over narrow links each takes thousands of turns.
    let count = |from: usize, to: usize, at: usize| match at {
        0 => counts[(from * 3 + to) % counts.len()],
        at => 7 * at,
    };
    let tag = |at: usize| 100 * (nth as u32 + 1) + at as u32;
    let mut order = || {
        let mut all: Vec<_> = (0..world * TAGS).map(|it| (it / TAGS, it % TAGS)).collect();
        (1..all.len()).for_each(|at| all.swap(at, rng.below(at + 1)));
        all
    };
    let mut sent = Vec::new();
    for (to, at) in order() {
        let data = numbers(me + at, to, count(me, to, at));
        sent.push(comm.start_send(data, to, tag(at)));
    }
    let mut open = Vec::new();
    for (from, at) in order() {
        let mut data = vec![0; count(from, me, at)];
        if (from + at + seed as usize).is_multiple_of(3) {
            comm.recv(&mut data, from, tag(at))?;
            assert_eq!(data, numbers(from + at, me, data.len()), "from rank {from}");
        } else {
            open.push((from, at, comm.start_recv(data, from, tag(at))));
        }
    }
    for (from, at, request) in open {
        let data = request.wait()?;
        assert_eq!(data, numbers(from + at, me, data.len()), "from rank {from}");
    }
    wait_all(sent).map(drop)
}

/// Element `at` of the sum over all ranks of `numbers(rank, 0, ..)`.
fn sum(world: usize, at: usize) -> u64 {
    (0..world).map(|rank| number(rank, 0, at)).sum()
}

fn requests(comm: &mut Communicator, counts: &[usize]) -> Result<()> {
    let me = comm.rank();
    let start = |count: &usize| comm.start_all_reduce(numbers(me, 0, *count), ReduceOp::Sum);
    let started: Vec<_> = counts.iter().map(start).collect();
    for reduced in wait_all(started)? {
        let whole: Vec<u64> = (0..reduced.len()).map(|at| sum(comm.world(), at)).collect();
        assert_eq!(reduced, whole);
    }
    Ok(())
}

fn scope(comm: &mut Communicator, count: usize) -> Result<()> {
    let world = comm.world();
    let mut flat = numbers(comm.rank(), 0, count);
    comm.scope(|scope| {
        let parts = flat.chunks_mut(count / 3 + 1);
        let started: Vec<_> =
            parts.map(|part| scope.start_all_reduce(part, ReduceOp::Sum)).collect();
        wait_all(started).map(drop)
    })?;
    assert!(flat.iter().enumerate().all(|(at, it)| *it == sum(world, at)));
    Ok(())
}

fn values(comm: &mut Communicator, longest: usize) -> Result<()> {
    let value = |rank: usize| "x".repeat(longest * (rank + 1) / comm.world());
    let expected: Vec<String> = (0..comm.world()).map(value).collect();
    let mine = expected[comm.rank()].clone();
    assert_eq!(comm.all_gather_values(&mine)?, expected);
    Ok(())
}

fn split(
    comm: &mut Communicator,
    colors: usize,
    cases: &[Case],
) -> std::result::Result<(), ActionError> {
    let color = comm.rank() % colors;
    let members: Vec<usize> = (color..comm.world()).step_by(colors).collect();
    let group = comm.split(Some(color as u64), 0).map_err(|error| (error, None))?;
    let mut group = group.expect("every rank has a colour");
    cases[color].try_run(&mut group).map_err(|error| (error, Some(members)))?;
    Ok(())
}
