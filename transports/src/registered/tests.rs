use super::*;

/// The registrations and arenas of ranks that share a segment.
fn ranks(lengths: &[usize]) -> Vec<(Registration, Arena)> {
    let bytes = Registration::bytes(lengths).unwrap();
    let first = Segment::create(bytes).unwrap();
    let again = |_| Segment::from_fd(first.fd().try_clone_to_owned().unwrap(), bytes).unwrap();
    let segments: Vec<Segment> = lengths.iter().map(again).collect();
    let of_rank = |(me, segment)| Registration::new(segment, lengths, me).unwrap();
    segments.into_iter().enumerate().map(of_rank).collect()
}

fn ticket(registration: &Registration, own: &[u8]) -> Ticket {
    let offset = registration.offset_of(View::of(own)).expect("the bytes are registered");
    Ticket { registration: 0, offset, len: own.len() as u64 }
}

#[test]
fn a_peer_reads_and_writes_sub_slices_in_place() {
    let [(mine, arena), (theirs, _)] = ranks(&[10_000, 5000]).try_into().unwrap();
    let _first = arena.alloc::<u8>(10);
    let mut buffer = arena.alloc::<u8>(5000);
    buffer[4990..].copy_from_slice(b"0123456789");
    let place = ticket(&mine, &buffer[4990..]);
    let reached = theirs.reach(0, place).unwrap();
    assert_eq!(reached.as_view().to_vec(), b"0123456789");
    reached.slice(3, 2).fill_from(b"ab");
    assert_eq!(&buffer[4990..], b"012ab56789");
}

#[test]
fn places_beyond_the_owner_s_part_are_not_reached() {
    let all = ranks(&[4096, 4096]);
    let reach = |owner, offset, len| all[0].0.reach(owner, Ticket { registration: 0, offset, len });
    assert!(reach(1, 0, 4096).is_some());
    assert!(reach(1, 1, 4096).is_none());
    assert!(reach(1, u64::MAX, 2).is_none());
    assert!(reach(0, 4096, 1).is_none(), "not even if another rank's part follows");
    assert!(reach(2, 0, 1).is_none());
}

#[test]
fn other_memory_is_not_registered() {
    let [(mine, arena)] = ranks(&[4096]).try_into().unwrap();
    assert_eq!(mine.offset_of(View::of(&[1u8, 2])), None);
    let full = arena.alloc::<u64>(512);
    assert!(full.is_registered());
    let other = arena.alloc::<u64>(1);
    assert!(!other.is_registered());
    assert_eq!(mine.offset_of(View::of(&other[..])), None);
    drop(full);
    assert!(arena.alloc::<u64>(1).is_registered());
}

/// Late writes of a peer after a failed call do not reach the user's memory, and concurrent writes
/// of other threads to the same pages are not lost.
#[test]
fn severed_bytes_keep_their_content_and_their_address() {
    let [(mine, arena), (theirs, _)] = ranks(&[1 << 20, 4096]).try_into().unwrap();
    let mut buffer = arena.alloc::<u8>(100_000);
    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    let before = buffer.to_vec();
    let late = theirs.reach(0, ticket(&mine, &buffer)).unwrap();
    let (call, neighbour) = buffer.split_at_mut(50_001);
    std::thread::scope(|threads| {
        let written = threads.spawn(|| {
            for round in 0..2000u32 {
                neighbour[..4].copy_from_slice(&round.to_le_bytes());
                assert_eq!(neighbour[..4], round.to_le_bytes());
            }
        });
        mine.sever(View::of(&*call));
        written.join().unwrap();
    });
    late.slice(0, 50_001).fill_from(&[7; 50_001]);
    assert_eq!(call, &before[..50_001]);
    assert_eq!(neighbour[..4], 1999u32.to_le_bytes());
    assert_eq!(neighbour[4..], before[50_005..]);
    call.fill(1);
    assert_eq!(late.as_view().slice(0, 3).to_vec(), [7; 3]);
    assert_eq!(mine.offset_of(View::of(&*call)), None, "peers must not reach it any more");
}

#[test]
fn memory_is_given_back_when_the_last_buffer_is_dropped() {
    let [(mine, arena), (theirs, _)] = ranks(&[8192, 0]).try_into().unwrap();
    let mut buffer = arena.alloc::<u8>(8192);
    buffer.fill(9);
    let place = ticket(&mine, &buffer);
    drop(arena);
    assert!(mine.is_used() && buffer.arena().is_some());
    drop(buffer);
    assert!(!mine.is_used());
    // A peer may still read, and finds zeroed pages.
    assert_eq!(theirs.reach(0, place).unwrap().as_view().to_vec(), [0; 8192]);
}

#[test]
fn used_ranges_are_zeroed_and_churn_takes_no_more() {
    let [(_, arena)] = ranks(&[1 << 16]).try_into().unwrap();
    for round in 0..10_000usize {
        let mut first = arena.alloc::<u32>(1 + round % 3000);
        let second = arena.alloc::<bool>(1 + round % 5000);
        assert!(first.is_registered() && second.is_registered());
        assert!(first.iter().all(|it| *it == 0) && second.iter().all(|it| !it));
        first.fill(u32::MAX);
    }
    assert_eq!(arena.left(), (1 << 16, 1 << 16));
}
