//! The programs of every algorithm on registered memory, without communicators: in windows of every
//! length, in place on some ranks, with the bits of the program on private memory.

use super::common::SeededRng;
use super::common::world::{Operation, World};
use super::skip;
use maypole::algorithms::Algorithm;
use maypole::execute::{Buffers, LinkError, NoObserver, PeerMemory, ProcessBuffers};
use maypole::lower::{LoweringInput, Program, lower_registered};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, ReachedMemory};
use maypole::schedule::{Layout, Placement};
use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, Region, SharedRegion, View, ViewMut};
use maypole_transports::process_memory::MemoryBeacon;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

/// An operation on registered memory, equal on all ranks.
struct RegisteredOperation {
    operation: Operation,
    access: ReachedMemory,
    programs: Vec<Program>,
    /// Ranks that call in place.
    in_place: Vec<bool>,
}

/// The memory of one rank: its input and then its output; in place, the whole.
struct RankMemory {
    region: SharedRegion,
    input: Range<usize>,
    output: Range<usize>,
}

impl RankMemory {
    /// The buffers, as every rank reaches them.
    fn buffers(&self) -> Buffers<'_> {
        // SAFETY: programs order the accesses of ranks, as those of registered memory.
        let view = unsafe { self.region.view() };
        let part = |range: &Range<usize>| view.slice(range.start, range.len());
        let (input, output) = (part(&self.input).as_view(), part(&self.output));
        Buffers { input, output, scratch: ViewMut::EMPTY }
    }

    /// The same, for ranks that copy them.
    fn process(&self, beacon: &MemoryBeacon) -> ProcessBuffers {
        let start = self.region.as_ptr().addr() as u64;
        let place = |range: &Range<usize>| (start + range.start as u64, range.len() as u64);
        let (input, output) = (place(&self.input), place(&self.output));
        ProcessBuffers { memory: beacon.memory(), input, output }
    }
}

impl RegisteredOperation {
    fn new(
        algorithm: Algorithm,
        collective: Collective,
        world: usize,
        access: ReachedMemory,
        rng: &mut SeededRng,
    ) -> Option<Self> {
        let schedules = algorithm.schedules(collective, world)?;
        let chunks = schedules[0].chunks;
        let each = [0, 1, 7, 100, 1000][rng.below(5)];
        let rest = if collective.is_blocked() { 0 } else { rng.below(chunks) };
        let layout = Layout::even(each * chunks + rest, chunks);
        let window = [4, 52, 400, 1 << 20][rng.below(4)];
        let operation = Operation { collective, schedules, layout, window, fingerprint: 3 };
        let input = LoweringInput {
            collective,
            schedules: &operation.schedules,
            layout: &operation.layout,
            element: 4,
            boards: &Boards::new(&vec![0; world]),
            window,
            fingerprint: 7,
        };
        let programs = (0..world).map(|me| lower_registered(&input, me, access));
        let programs: Vec<Program> = programs.collect::<Option<_>>()?;
        let may = programs[0].allows_in_place();
        assert!(programs.iter().all(|it| it.allows_in_place() == may));
        let in_place = (0..world).map(|_| may && rng.below(2) == 0).collect();
        Some(Self { operation, access, programs, in_place })
    }

    /// Runs it on threads and compares with the program on private memory.
    fn check(&self, name: &str) {
        let world = self.programs.len();
        let whole: Vec<Vec<f32>> = (0..world).map(|rank| self.numbers(rank)).collect();
        let expected = self.private(&whole);
        let memory = self.memory(&whole);
        let beacon = MemoryBeacon::new().unwrap();
        World { hosts: vec![0; world], capacity: 1 }
            .run(|me, executor| {
                let program = &self.programs[me];
                let scratch = Region::new(program.scratch);
                let own = Buffers { scratch: scratch.view(), ..memory[me].buffers() };
                let sum = BuiltInReducer::new(DataType::F32, BinaryOp::Sum).into();
                let peers = memory.iter().map(|of| match self.access {
                    ReachedMemory::Registered => PeerMemory::Mapped(of.buffers()),
                    ReachedMemory::Copied => PeerMemory::Process(of.process(&beacon)),
                });
                let peers: Vec<PeerMemory<'_>> = peers.collect();
                let ran = executor.run_registered(program, &sum, &own, &peers, NoObserver);
                ran.map_err(|failure| format!("{name}: {failure:?}"))?;
                let expected = View::of(&expected[me][..]).to_vec();
                let in_place = &self.in_place;
                assert!(
                    own.output.as_view().to_vec() == expected,
                    "{name}: rank {me} of {world}, in place {in_place:?}, windows of {} bytes",
                    self.operation.window
                );
                Ok(())
            })
            .unwrap();
    }

    /// The whole as a rank contributes to it.
    fn numbers(&self, rank: usize) -> Vec<f32> {
        let mut rng = SeededRng::new(rank as u64 + 100);
        (0..self.operation.layout.count()).map(|_| rng.below(1000) as f32 / 7.0).collect()
    }

    /// The buffers of all ranks, with their inputs.
    fn memory(&self, whole: &[Vec<f32>]) -> Vec<RankMemory> {
        let bytes = |range: Range<usize>| range.start * 4..range.end * 4;
        let of_rank = |(me, whole): (usize, &Vec<f32>)| {
            let (brings, holds) =
                (bytes(self.operation.brings(me)), bytes(self.operation.holds(me)));
            let whole: Vec<u8> = View::of(&whole[..]).to_vec();
            let (filled, input, output) = match self.in_place[me] {
                true => (whole, brings, holds),
                false => {
                    let (length, all) = (brings.len(), brings.len() + holds.len());
                    (whole[brings].to_vec(), 0..length, length..all)
                }
            };
            let region = SharedRegion::new(filled.len().max(output.end));
            // SAFETY: no other thread has the region yet.
            unsafe { region.view() }.slice(0, filled.len()).fill_from(&filled);
            RankMemory { region, input, output }
        };
        whole.iter().enumerate().map(of_rank).collect()
    }

    /// The outputs of the program on private memory.
    fn private(&self, whole: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let world = whole.len();
        let outputs = Mutex::new(vec![Vec::new(); world]);
        World { hosts: vec![0; world], capacity: 1 }
            .run(|me, executor| {
                let program = self.operation.lower::<f32>(&vec![0; world], me, Placement::Apart);
                let mut out = vec![0f32; self.operation.holds(me).len()];
                let input = &whole[me][self.operation.brings(me)];
                let ran = self.operation.apart(executor, &program, input, &mut out);
                ran.map_err(|failure| format!("{failure:?}"))?;
                outputs.lock().unwrap()[me] = out;
                Ok(())
            })
            .unwrap();
        outputs.into_inner().unwrap()
    }
}

/// Runs every algorithm by `access`; returns the collectives that some can, whether or not ranks may call in place.
fn able(access: ReachedMemory) -> BTreeSet<(&'static str, bool)> {
    let mut rng = SeededRng::new(5);
    let mut able = BTreeSet::new();
    for algorithm in Algorithm::ALL {
        for collective in algorithm.collectives() {
            for world in skip::every_nth(3, 3..=9).into_iter().chain([2]) {
                let collective = collective.with_root(rng.below(world));
                for _ in 0..4 {
                    let made =
                        RegisteredOperation::new(algorithm, collective, world, access, &mut rng);
                    let Some(operation) = made else { continue };
                    operation.check(&format!("{algorithm} {}", collective.name()));
                    able.insert((collective.name(), operation.programs[0].allows_in_place()));
                }
            }
        }
    }
    able
}

#[test]
fn copies_have_the_bits_of_programs_through_slots() {
    crate::skip::takes_turns!(2);
    let able = able(ReachedMemory::Copied);
    let one_way = ["all_gather", "all_to_all", "broadcast", "gather", "scatter"];
    // Between two ranks, an exclusive scan only moves bytes.
    let others = able.iter().filter(|(name, _)| *name != "exclusive_scan");
    assert!(others.map(|(name, _)| *name).collect::<BTreeSet<_>>().iter().eq(&one_way), "{able:?}");
    // Blocks that are exchanged in place would be overwritten before they are read.
    assert!(one_way.iter().all(|name| able.contains(&(name, *name != "all_to_all"))), "{able:?}");
}

/// Copying from a peer that has aborted is an error, and the call succeeds on no rank.
#[test]
fn what_a_peer_no_longer_holds_is_not_taken() {
    let mut rng = SeededRng::new(2);
    for (algorithm, collective) in [
        (Algorithm::Direct, Collective::AllGather),
        (Algorithm::Ring, Collective::Broadcast { root: 0 }),
    ] {
        let access = ReachedMemory::Copied;
        let operation =
            RegisteredOperation::new(algorithm, collective, 3, access, &mut rng).unwrap();
        let whole: Vec<Vec<f32>> = (0..3).map(|rank| operation.numbers(rank)).collect();
        let memory = operation.memory(&whole);
        let beacons = [0; 3].map(|_| MemoryBeacon::new().unwrap());
        beacons[0].close();
        let taken = Mutex::new(Vec::new());
        let ended = World { hosts: vec![0; 3], capacity: 1 }.run(|me, executor| {
            let program = &operation.programs[me];
            let own = memory[me].buffers();
            let peer = |(of, beacon): (&RankMemory, _)| PeerMemory::Process(of.process(beacon));
            let peers: Vec<_> = memory.iter().zip(&beacons).map(peer).collect();
            let copies = BuiltInReducer::new(DataType::F32, BinaryOp::Max).into();
            match executor.run_registered(program, &copies, &own, &peers, NoObserver) {
                Ok(()) => {
                    taken.lock().unwrap().push(me);
                    Ok(())
                }
                Err(failure) => match failure.error {
                    LinkError::Lost(_) => Err(format!("lost {}", failure.peer)),
                    error => Err(format!("{error:?}")),
                },
            }
        });
        assert_eq!(ended, Err("lost 0".to_owned()), "{algorithm}");
        let taken = taken.into_inner().unwrap();
        assert!(taken.is_empty(), "{algorithm}: ranks {taken:?} have taken the bytes of rank 0");
    }
}

#[test]
fn programs_have_the_bits_of_those_on_private_memory() {
    crate::skip::takes_turns!(2);
    let able = able(ReachedMemory::Registered);
    for collective in Collective::all(0).into_iter().filter(|it| *it != Collective::Barrier) {
        let may = (collective.name(), collective != Collective::AllToAll);
        assert!(able.contains(&may), "{may:?} is not among {able:?}");
    }
}

/// The programs of three ranks on registered memory.
fn registered(algorithm: Algorithm, collective: Collective) -> Vec<Program> {
    let mut rng = SeededRng::new(1);
    let access = ReachedMemory::Registered;
    RegisteredOperation::new(algorithm, collective, 3, access, &mut rng).unwrap().programs
}

/// A rank has the fewest waits: no message announces that an input is ready, the results are
/// pushed, and no rank waits for another at the end.
#[test]
fn a_reduction_in_two_shots_is_one_message_to_each_rank() {
    for program in &registered(Algorithm::TwoShot, Collective::AllReduce) {
        let access = program.registered.as_ref().unwrap();
        assert!(program.allows_in_place());
        assert_eq!(program.totals[..], [u64::from(program.windows); 3]);
        assert_eq!(access.pushes.len(), 2);
        assert!(access.awaited_at_end.is_empty() && program.flushes.is_empty());
    }
}

/// A rank waits for the peer that reads bytes that it is about to overwrite, and at the end for
/// peers that read its memory without a message.
#[test]
fn a_rank_waits_for_those_that_read_its_memory() {
    for (me, it) in registered(Algorithm::Ring, Collective::AllReduce).iter().enumerate() {
        let next = (me as u32 + 1) % 3;
        let waits = it.flushes.iter().map(|flush| (flush.peer, flush.nth, flush.stage));
        assert_eq!(waits.collect::<Vec<_>>(), [(next, 0, 0), (next, 1, 1)]);
        assert_eq!(it.registered.as_ref().unwrap().awaited_at_end[..], [next]);
    }
    let collective = Collective::Broadcast { root: 0 };
    for (me, it) in registered(Algorithm::Linear, collective).iter().enumerate() {
        let awaited: &[u32] = if me == 0 { &[1, 2] } else { &[] };
        assert_eq!(it.registered.as_ref().unwrap().awaited_at_end[..], *awaited);
    }
}
