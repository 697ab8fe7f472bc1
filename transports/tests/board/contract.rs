//! The contract of the board, over memory that several threads share.

use super::{boards, chunk_slots};
use maypole_kernels::SharedRegion;
use maypole_transports::Board;
use maypole_transports::board::{
    CHUNK, ExpectedPublication, MAX_RANKS, Mismatch, Publication, SHORT, SMALL, SMALL_SLOTS,
    SlotClass, TINY, lines,
};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLASSES: [SlotClass; 4] =
    [SlotClass::Tiny, SlotClass::Short, SlotClass::Small, SlotClass::Chunk];

/// Polls until `ready` returns true. Fails the test after 30 s.
fn until(what: impl Fn() -> String, mut ready: impl FnMut() -> bool) {
    let mut since = None;
    while !ready() {
        std::thread::yield_now();
        let since = since.get_or_insert_with(Instant::now);
        assert!(since.elapsed() < Duration::from_secs(30), "{}", what());
    }
}

/// Pseudo-random numbers (SplitMix64), the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        maypole_kernels::mix(self.0)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A publication and its writer. All ranks have the list of all publications.
#[derive(Clone, Copy, Debug)]
struct Published {
    writer: usize,
    out: Publication,
}

impl Published {
    fn wanted(&self) -> ExpectedPublication {
        let Publication { class, position, fingerprint, len, .. } = self.out;
        ExpectedPublication { class, peer: self.writer, position, fingerprint, len }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut random = Random((self.writer as u64) << 32 | self.out.position);
        (0..self.out.len.div_ceil(8))
            .flat_map(|_| random.next().to_le_bytes())
            .take(self.out.len)
            .collect()
    }

    fn has_reader(&self, rank: usize) -> bool {
        self.out.audience >> rank & 1 == 1
    }
}

/// Draws a length that the class holds: often 0, 1 or the largest.
fn length(class: SlotClass, random: &mut Random) -> usize {
    match random.below(6) {
        0 => 0,
        1 => 1,
        2 => class.bytes(),
        _ => random.below(class.bytes() + 1),
    }
}

fn random_publications(ranks: usize, count: usize, random: &mut Random) -> Vec<Published> {
    let mut positions = vec![0; ranks];
    let mut draw = |_| {
        let writer = random.below(ranks);
        let class = CLASSES[random.below(CLASSES.len())];
        // A random set of the other ranks or, if it is empty, the next rank.
        let others = random.next() & ((1 << ranks) - 1) & !(1 << writer);
        let audience = if others == 0 { 1 << ((writer + 1) % ranks) } else { others };
        let slots = match class {
            SlotClass::Chunk => chunk_slots(ranks),
            class => class.slots(ranks),
        };
        // A writer may use more or fewer slots from one publication to the next.
        let slots = slots >> random.below(4);
        let position = positions[writer];
        positions[writer] += 1;
        let mask = slots.max(1) as u64 - 1;
        let len = length(class, random);
        Published {
            writer,
            out: Publication { class, mask, position, audience, fingerprint: random.next(), len },
        }
    };
    (0..count).map(&mut draw).collect()
}

/// Runs the part of rank `me`. All ranks go through the list in the same order, so the slowest rank
/// can always continue.
fn take_part(board: &Board, me: usize, list: &[Published], mut random: Random, slow: bool) {
    for publication in list {
        if publication.writer == me {
            until(|| format!("no room for {publication:?}"), || board.writable(publication.out));
            board.slot(publication.out).fill_from(&publication.bytes());
            board.commit(publication.out);
        } else if publication.has_reader(me) {
            let wanted = publication.wanted();
            until(
                || format!("rank {me} never sees {publication:?}"),
                || board.readable(wanted).expect("all ranks are in the same call"),
            );
            assert_eq!(
                board.lent(wanted).to_vec(),
                publication.bytes(),
                "{publication:?} as rank {me} sees it"
            );
            if slow {
                (0..random.below(50)).for_each(|_| std::thread::yield_now());
                assert_eq!(
                    board.lent(wanted).to_vec(),
                    publication.bytes(),
                    "{publication:?} changed before rank {me} consumed it"
                );
            }
            board.consume(publication.writer, publication.out.position + 1);
        }
    }
}

fn check_random(ranks: usize, count: usize, seed: u64, slow: u64) {
    let list = &random_publications(ranks, count, &mut Random(seed));
    std::thread::scope(|scope| {
        for (me, board) in boards(ranks).into_iter().enumerate() {
            let random = Random(seed ^ me as u64);
            scope.spawn(move || take_part(&board, me, list, random, slow >> me & 1 == 1));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        max_shrink_iters: 20,
        ..ProptestConfig::default()
    })]
    #[test]
    fn readers_read_what_was_published(
        ranks in prop::sample::select(vec![2, 3, 5]),
        seed: u64,
        slow in 0..32u64,
    ) {
        check_random(ranks, 400, seed, slow);
    }
}

fn out(class: SlotClass, position: u64, audience: u64) -> Publication {
    let mask = class.slots(2) as u64 - 1;
    Publication { class, mask, position, audience, fingerprint: 7, len: 8 }
}

fn wanted(out: Publication, peer: usize) -> ExpectedPublication {
    let Publication { class, position, fingerprint, len, .. } = out;
    ExpectedPublication { class, peer, position, fingerprint, len }
}

fn publish(board: &Board, out: Publication) {
    assert!(board.writable(out), "{out:?}");
    board.slot(out).fill_from(&vec![out.position as u8; out.len]);
    board.commit(out);
}

#[test]
fn a_slot_is_free_again_once_all_its_readers_say_so() {
    for class in CLASSES {
        let boards = boards(3);
        let slots = class.slots(3) as u64;
        let out = |position| Publication { mask: slots - 1, ..out(class, position, 0b110) };
        (0..slots).for_each(|position| publish(&boards[0], out(position)));
        let next = out(slots);
        assert!(!boards[0].writable(next), "{class:?}");
        boards[1].consume(0, 1);
        assert!(!boards[0].writable(next), "{class:?}: rank 2 has not read");
        boards[2].consume(0, 1);
        publish(&boards[0], next);
        assert!(!boards[0].writable(out(slots + 1)), "{class:?}: one slot was given back, not two");
    }
}

#[test]
fn a_credit_does_what_a_counter_does() {
    for class in CLASSES {
        let boards = boards(2);
        let slots = class.slots(2) as u64;
        (0..slots).for_each(|position| publish(&boards[0], out(class, position, 0b10)));
        assert!(!boards[0].writable(out(class, slots, 0b10)));
        boards[0].credit(1, 2);
        boards[0].credit(1, 1);
        publish(&boards[0], out(class, slots, 0b10));
        publish(&boards[0], out(class, slots + 1, 0b10));
        assert!(!boards[0].writable(out(class, slots + 2, 0b10)));
    }
}

/// Each class has data slots of its own, but all classes share the lines.
#[test]
fn classes_share_lines_alone() {
    let boards = boards(2);
    let lines = lines(2) as u64;
    (0..SMALL_SLOTS as u64)
        .for_each(|position| publish(&boards[0], out(SlotClass::Small, position, 0b10)));
    assert!(!boards[0].writable(out(SlotClass::Small, SMALL_SLOTS as u64, 0b10)));
    (SMALL_SLOTS as u64..lines)
        .for_each(|position| publish(&boards[0], out(SlotClass::Tiny, position, 0b10)));
    assert!(!boards[0].writable(out(SlotClass::Chunk, lines, 0b10)));
    boards[1].consume(0, 1);
    publish(&boards[0], out(SlotClass::Chunk, lines, 0b10));
}

#[test]
fn nothing_is_readable_before_it_is_published() {
    let boards = boards(2);
    let first = out(SlotClass::Small, 0, 0b10);
    assert_eq!(boards[1].readable(wanted(first, 0)), Ok(false));
    assert!(boards[0].writable(first));
    boards[0].slot(first).fill_from(&[1; 8]);
    assert_eq!(boards[1].readable(wanted(first, 0)), Ok(false));
    boards[0].commit(first);
    assert_eq!(boards[1].readable(wanted(first, 0)), Ok(true));
    assert_eq!(boards[1].readable(wanted(out(SlotClass::Small, 1, 0), 0)), Ok(false));
}

#[test]
fn another_call_is_recognised_by_its_fingerprint() {
    let boards = boards(2);
    let theirs = Publication { fingerprint: 99, ..out(SlotClass::Tiny, 0, 0b10) };
    publish(&boards[0], theirs);
    let expected = wanted(out(SlotClass::Tiny, 0, 0b10), 0);
    assert_eq!(boards[1].readable(expected), Err(Mismatch { peer: 0, theirs: 99 }));
}

#[test]
fn a_later_publication_in_the_line_is_a_mismatch() {
    let boards = boards(2);
    (0..=lines(2) as u64)
        .for_each(|position| publish(&boards[0], out(SlotClass::Tiny, position, 0)));
    assert_eq!(
        boards[1].readable(wanted(out(SlotClass::Tiny, 0, 0b10), 0)),
        Err(Mismatch { peer: 0, theirs: 7 }),
        "the line holds a later publication"
    );
}

#[test]
fn peeking_returns_the_fingerprint_in_the_line() {
    let boards = boards(3);
    assert_eq!(boards[1].peek_fingerprint(0, 0), None);
    publish(&boards[0], Publication { fingerprint: 99, ..out(SlotClass::Tiny, 0, 0b100) });
    assert_eq!(boards[1].peek_fingerprint(0, 0), Some(99));
    assert_eq!(boards[1].peek_fingerprint(0, 1), None);
}

/// A line may hold a later publication for another reader, while the awaited publication is in
/// another line. So another fingerprint that `peek_fingerprint` returns does not prove a mismatch.
#[test]
fn peeking_may_return_the_fingerprint_of_a_later_call() {
    let boards = boards(3);
    publish(&boards[0], out(SlotClass::Tiny, 0, 0b100));
    boards[2].consume(0, 1);
    let lines = lines(3) as u64;
    (1..lines).for_each(|position| publish(&boards[0], out(SlotClass::Tiny, position, 0b010)));
    publish(&boards[0], Publication { fingerprint: 99, ..out(SlotClass::Tiny, lines, 0b100) });
    assert_eq!(boards[1].peek_fingerprint(0, 0), Some(99));
    assert_eq!(boards[1].readable(wanted(out(SlotClass::Tiny, 1, 0b010), 0)), Ok(true));
}

#[test]
fn the_smallest_class_that_fits_is_chosen() {
    let limits = [0, TINY, SHORT, SMALL, CHUNK];
    for (nth, class) in CLASSES.into_iter().enumerate() {
        let least = limits[nth] + usize::from(nth > 0);
        assert_eq!([least, limits[nth + 1]].map(SlotClass::holding), [Some(class); 2]);
    }
    assert_eq!(SlotClass::holding(CHUNK + 1), None);
    for ranks in 1..=MAX_RANKS {
        let fits = |class: SlotClass| {
            class.slots(ranks).is_power_of_two() && class.slots(ranks) <= lines(ranks)
        };
        assert!(CLASSES.into_iter().all(fits), "{ranks} ranks");
    }
}

/// Fills all slots of all ranks completely, and reads each slot unchanged.
#[test]
fn slots_do_not_overlap() {
    for class in CLASSES {
        let boards = boards(3);
        let outs = |rank: usize| {
            let mask = class.slots(3) as u64 - 1;
            let full = move |position| Publication {
                mask,
                len: class.bytes(),
                ..out(class, position, 0b111 & !(1 << rank))
            };
            (0..class.slots(3) as u64).map(full)
        };
        let filling = |rank: usize, out: Publication| {
            ((rank as u64) << 32 | out.position).to_le_bytes().repeat(class.bytes() / 8)
        };
        for (rank, board) in boards.iter().enumerate() {
            outs(rank).for_each(|out| board.slot(out).fill_from(&filling(rank, out)));
            outs(rank).for_each(|out| board.commit(out));
        }
        for rank in 0..3 {
            for out in outs(rank) {
                assert_eq!(boards[(rank + 1) % 3].readable(wanted(out, rank)), Ok(true));
                let lent = boards[(rank + 1) % 3].lent(wanted(out, rank)).to_vec();
                assert!(lent == filling(rank, out), "{class:?} {out:?} of {rank}");
            }
        }
    }
}

#[test]
fn the_last_of_64_ranks_reads_and_is_waited_for() {
    let region = Arc::new(SharedRegion::new(Board::bytes(MAX_RANKS)));
    let first = Board::new(Arc::clone(&region), MAX_RANKS, 0);
    let last = Board::new(region, MAX_RANKS, MAX_RANKS - 1);
    let full =
        |position| Publication { mask: 63, len: CHUNK, ..out(SlotClass::Chunk, position, 1 << 63) };
    (0..64).for_each(|position| publish(&first, full(position)));
    assert!(!first.writable(full(64)));
    assert_eq!(last.readable(wanted(full(63), 0)), Ok(true));
    assert_eq!(last.lent(wanted(full(63), 0)).to_vec(), [63; CHUNK]);
    last.consume(0, 64);
    publish(&first, full(127));
    assert!(format!("{last:?}").contains("63"));
}

#[test]
fn a_single_rank_has_a_board_too() {
    let board = boards(1).remove(0);
    assert_eq!(board.ranks(), 1);
    (0..200).for_each(|position| publish(&board, out(SlotClass::Small, position, 0)));
}

#[test]
fn wrong_arguments_are_refused() {
    let both = boards(2);
    let stranger = wanted(out(SlotClass::Tiny, 0, 0b10), 2);
    let long = Publication { len: TINY + 1, ..out(SlotClass::Tiny, 0, 0b10) };
    let longer =
        ExpectedPublication { len: SMALL + 1, ..wanted(out(SlotClass::Small, 0, 0b10), 0) };
    let region = |missing| Arc::new(SharedRegion::new(Board::bytes(2) - missing));
    let shared = region(0);
    let _there = [0, 1].map(|me| Board::new(Arc::clone(&shared), 2, me));
    let calls: [(&str, &dyn Fn()); 11] = [
        ("a board serves 1 to 64 ranks", &|| assert!(Board::bytes(0) > 0)),
        ("a board serves 1 to 64 ranks", &|| assert!(Board::bytes(MAX_RANKS + 1) > 0)),
        ("a board of 2 ranks needs", &|| drop(Board::new(region(1), 2, 0))),
        ("local rank 2 is not on a board of 2 ranks", &|| drop(Board::new(region(0), 2, 2))),
        ("the board has a local rank 1 already", &|| {
            drop(Board::new(Arc::clone(&shared), 2, 1));
        }),
        ("a payload of 49 bytes does not fit into a slot of 48 bytes", &|| {
            both[0].slot(long);
        }),
        ("a payload of 16385 bytes does not fit into a slot of 16384 bytes", &|| {
            both[1].lent(longer);
        }),
        ("local rank 2 is not on a board", &|| assert!(both[0].readable(stranger).is_ok())),
        ("local rank 2 is not on a board", &|| assert!(both[0].lent(stranger).is_empty())),
        ("local rank 2 is not on a board", &|| {
            assert!(both[0].peek_fingerprint(2, 0).is_none());
        }),
        ("local rank 2 is not on a board", &|| both[0].consume(2, 1)),
    ];
    for (why, call) in calls {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).expect_err(why);
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).expect("a message");
        assert!(text.contains(why), "{text}");
    }
}

/// A reader that has consumed and gone is not the one that a writer waits for.
#[test]
fn holders_are_the_readers_that_have_not_consumed() {
    let [late, writer, quick] = <[Board; 3]>::try_from(boards(3)).expect("three ranks");
    for class in CLASSES {
        let position = CLASSES.iter().position(|it| *it == class).unwrap() as u64;
        let out = Publication { class, mask: 0, position, audience: 0b101, fingerprint: 1, len: 0 };
        until(|| format!("{class:?}"), || writer.writable(out));
        writer.commit(out);
        assert_eq!(writer.holders(out), 0b101, "{class:?}");
        quick.consume(1, position + 1);
        assert_eq!(writer.holders(out), 0b001, "{class:?}: rank 2 has consumed");
        assert_eq!(writer.late(0b100, position + 1), 0);
        late.consume(1, position + 1);
        assert_eq!(writer.holders(out), 0, "{class:?}");
        assert!(writer.writable(out));
    }
}
