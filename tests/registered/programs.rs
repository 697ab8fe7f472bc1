//! The programs of every algorithm on registered memory, without communicators: in windows of every
//! length, in place on some ranks, with the bits of the program on private memory.

use super::common::SeededRng;
use super::common::world::{Operation, World};
use maypole::algorithms::Algorithm;
use maypole::execute::{Buffers, LinkError, NoObserver, PeerBuffers, PeerMemory, ProcessBuffers};
use maypole::lower::{LoweringInput, RegisteredProgram, lower_registered};
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, ReachedMemory};
use maypole::schedule::{Layout, Placement};
use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, Region, View, ViewMut};
use maypole_transports::process_memory::MemoryBeacon;
use maypole_transports::registered::{RegisteredBuffer, Registration, Ticket};
use maypole_transports::shm::Segment;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

/// Bytes of each rank's arena.
const ARENA: usize = 1 << 18;

/// An operation on registered memory, equal on all ranks.
struct RegisteredOperation {
    operation: Operation,
    access: ReachedMemory,
    programs: Vec<RegisteredProgram>,
    /// Ranks that call in place.
    in_place: Vec<bool>,
}

/// The memory of one rank.
struct RankMemory {
    registration: Registration,
    /// The input and the output; in place, the whole.
    buffers: Vec<RegisteredBuffer<f32>>,
    input: Option<Ticket>,
    output: Option<Ticket>,
    /// Address and length of the input, and of the output.
    places: [(u64, u64); 2],
}

impl RankMemory {
    fn ticket(registration: &Registration, part: &[f32]) -> Option<Ticket> {
        let offset = registration.offset_of(View::of(part))?;
        Some(Ticket { registration: 0, offset, len: size_of_val(part) as u64 })
    }

    /// The buffers of `other`, as this rank reaches them.
    fn reach<'a>(&'a self, rank: usize, other: &RankMemory) -> PeerBuffers<'a> {
        let view = |ticket: Option<Ticket>| match ticket {
            Some(ticket) => self.registration.reach(rank, ticket).expect("it is registered"),
            None => ViewMut::EMPTY,
        };
        PeerBuffers { input: view(other.input).as_view(), output: view(other.output) }
    }
}

impl RankMemory {
    /// The buffers, for ranks that copy them.
    fn process(&self, beacon: &MemoryBeacon) -> ProcessBuffers {
        let [input, output] = self.places;
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
        let programs: Vec<RegisteredProgram> = programs.collect::<Option<_>>()?;
        let may = programs[0].allows_in_place;
        assert!(programs.iter().all(|it| it.allows_in_place == may));
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
                let program = &self.programs[me].program;
                let scratch = Region::new(program.scratch);
                let reach = |(rank, other)| memory[me].reach(rank, other);
                let all: Vec<PeerBuffers<'_>> = memory.iter().enumerate().map(reach).collect();
                let PeerBuffers { input, output } = all[me];
                let own = Buffers { input, output, scratch: scratch.view() };
                let sum = BuiltInReducer::new(DataType::F32, BinaryOp::Sum).into();
                let each = all.into_iter().enumerate();
                let peers: Vec<PeerMemory<'_>> = each
                    .map(|(rank, buffers)| match self.access {
                        ReachedMemory::Registered => PeerMemory::Mapped(buffers),
                        ReachedMemory::Copied => PeerMemory::Process(memory[rank].process(&beacon)),
                    })
                    .collect();
                let ran = executor.run_registered(program, &sum, &own, &peers, NoObserver);
                ran.map_err(|failure| format!("{name}: {failure:?}"))?;
                let expected = View::of(&expected[me][..]).to_vec();
                let in_place = &self.in_place;
                assert!(
                    output.as_view().to_vec() == expected,
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

    /// Registered buffers of all ranks, with their inputs.
    fn memory(&self, whole: &[Vec<f32>]) -> Vec<RankMemory> {
        let lengths = vec![ARENA; whole.len()];
        let bytes = Registration::bytes(&lengths).unwrap();
        let segment = Segment::create(bytes).unwrap();
        let of_rank = |(me, whole): (usize, &Vec<f32>)| {
            let segment = Segment::from_fd(segment.fd().try_clone_to_owned().unwrap(), bytes);
            let made = Registration::new(segment.unwrap(), &lengths, me);
            let (registration, arena) = made.unwrap();
            let brings = self.operation.brings(me);
            let holds = self.operation.holds(me);
            let filled = |range: Range<usize>| {
                let mut buffer = arena.alloc::<f32>(range.len());
                buffer.copy_from_slice(&whole[range]);
                buffer
            };
            let buffers = match self.in_place[me] {
                true => vec![filled(0..whole.len())],
                false => vec![filled(brings.clone()), arena.alloc::<f32>(holds.len())],
            };
            let ticket = |part: &[f32]| RankMemory::ticket(&registration, part);
            let (input, output) = match &buffers[..] {
                [whole] => (&whole[brings], &whole[holds]),
                [input, output, ..] => (&input[..], &output[..]),
                [] => unreachable!("there is a buffer"),
            };
            let place = |part: &[f32]| (part.as_ptr().addr() as u64, size_of_val(part) as u64);
            let places = [place(input), place(output)];
            let (input, output) = (ticket(input), ticket(output));
            RankMemory { registration, buffers, input, output, places }
        };
        let memory: Vec<RankMemory> = whole.iter().enumerate().map(of_rank).collect();
        assert!(
            memory.iter().flat_map(|it| &it.buffers).all(|it| it.is_registered() || it.is_empty())
        );
        memory
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

/// Runs every algorithm by `access`; returns the names of those that can, and whether ranks may call
/// in place.
fn able(access: ReachedMemory) -> BTreeSet<String> {
    let mut rng = SeededRng::new(5);
    let mut able = BTreeSet::new();
    for algorithm in Algorithm::ALL {
        for collective in algorithm.collectives() {
            for world in 2..=9 {
                let collective = collective.with_root(rng.below(world));
                let name = format!("{algorithm} {}", collective.name());
                for _ in 0..4 {
                    let made =
                        RegisteredOperation::new(algorithm, collective, world, access, &mut rng);
                    let Some(operation) = made else { continue };
                    operation.check(&name);
                    let places = if operation.programs[0].allows_in_place { "" } else { " apart" };
                    able.insert(format!("{name}{places}"));
                }
            }
        }
    }
    able
}

#[test]
fn copies_have_the_bits_of_programs_through_slots() {
    let able = able(ReachedMemory::Copied);
    for name in [
        "linear broadcast",
        "ring broadcast",
        "linear gather",
        "binomial scatter",
        "linear scatter",
        "direct all_gather",
        "ring all_gather",
        "direct all_to_all apart",
    ] {
        assert!(able.contains(name), "{name} is not among {able:#?}");
    }
    // Between two ranks, an exclusive scan only moves bytes.
    let combines = |name: &&String| name.contains("reduce") || name.ends_with(" scan");
    assert_eq!(able.iter().find(combines), None, "what is copied cannot be combined");
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
            let program = &operation.programs[me].program;
            let PeerBuffers { input, output } = memory[me].reach(me, &memory[me]);
            let own = Buffers { input, output, scratch: ViewMut::EMPTY };
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
    let able = able(ReachedMemory::Registered);
    // One good algorithm for each collective, and which ones ranks may call in place.
    for name in [
        "two-shot all_reduce",
        "direct all_gather",
        "direct reduce_scatter",
        "direct all_to_all apart",
        "linear broadcast",
        "linear reduce",
        "linear gather",
        "linear scatter",
        "ring scan",
        "ring exclusive_scan",
        "ring all_reduce",
    ] {
        assert!(able.contains(name), "{name} is not among {able:#?}");
    }
}

/// The programs of three ranks on registered memory.
fn registered(algorithm: Algorithm, collective: Collective) -> Vec<RegisteredProgram> {
    let mut rng = SeededRng::new(1);
    let access = ReachedMemory::Registered;
    RegisteredOperation::new(algorithm, collective, 3, access, &mut rng).unwrap().programs
}

/// A rank has the fewest waits: no message announces that an input is ready, the results are
/// pushed, and no rank waits for another at the end.
#[test]
fn a_reduction_in_two_shots_is_one_message_to_each_rank() {
    for it in &registered(Algorithm::TwoShot, Collective::AllReduce) {
        let program = &it.program;
        let access = program.registered.as_ref().unwrap();
        assert!(it.allows_in_place);
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
        let waits = it.program.flushes.iter().map(|flush| (flush.peer, flush.nth, flush.stage));
        assert_eq!(waits.collect::<Vec<_>>(), [(next, 0, 0), (next, 1, 1)]);
        assert_eq!(it.program.registered.as_ref().unwrap().awaited_at_end[..], [next]);
    }
    let collective = Collective::Broadcast { root: 0 };
    for (me, it) in registered(Algorithm::Linear, collective).iter().enumerate() {
        let awaited: &[u32] = if me == 0 { &[1, 2] } else { &[] };
        assert_eq!(it.program.registered.as_ref().unwrap().awaited_at_end[..], *awaited);
    }
}
