//! Proofs for worlds of thousands of ranks, from the schedule of one rank.
//!
//! [`verify`](maypole::schedule::verify::verify) runs the steps of all ranks, each on sums of up to all ranks.
//! Where the schedule of each rank is that of rank 0, moved to that rank, one schedule is enough: a message of
//! rank `k` is what rank 0 sends to the rank that corresponds, moved by `k`. What is moved is proved, not
//! assumed: the schedule of every rank is made, and compared with that of rank 0.
//!
//! To *move* by `k` is to rename ranks by the algorithm's [`Symmetry`], and chunks in one of three ways: not at
//! all, as ranks, or with the bits of `k` reversed, as halving leaves chunks to ranks. What a collective
//! promises to rank `k` is what it promises to rank 0, moved.

use maypole::algorithms::Algorithm;
use maypole::schedule::collective::{Collective, Symbol};
use maypole::schedule::hosts::Boards;
use maypole::schedule::verify::{Flaw, check_steps};
use maypole::schedule::walk::{Meaning, walk_board};
use maypole::schedule::{Buffer, Placement, Schedule, Span, Step, Symmetry, input, output};
use std::collections::HashMap;
use std::rc::Rc;

/// The schedules of all ranks, each of which is that of rank 0, moved.
pub struct SymmetricSchedules {
    collective: Collective,
    first: Schedule,
    moves: RankMoves,
    /// Whether contributions are combined in the order of the ranks; `None` where that follows from no single
    /// schedule, because some ranks combine in the order of rank 0 and others the other way around.
    pub keeps_rank_order: Option<bool>,
}

/// How ranks and chunks are renamed.
#[derive(Clone, Copy)]
struct RankMoves {
    symmetry: Symmetry,
    world: usize,
    /// The chunks of input and output.
    chunks: ChunkMoves,
    scratch: ChunkMoves,
}

/// How chunks are renamed where rank 0 becomes rank `k`.
#[derive(Clone, Copy)]
enum ChunkMoves {
    /// They keep their numbers.
    Fixed,
    /// As the ranks of their numbers.
    AsRanks,
    /// By exclusive or with the reversed bits of `k`.
    Reversed,
}

impl SymmetricSchedules {
    /// The schedules of `algorithm` in a world of `world` ranks; `None` if they do not follow from that of rank
    /// 0. Takes some ten nanoseconds for each step of each rank, and the memory of two ranks' steps.
    ///
    /// ```
    /// use maypole::{algorithms::Algorithm, schedule::Placement, schedule::collective::Collective};
    /// use maypole_cluster::proof::SymmetricSchedules;
    /// let ring = SymmetricSchedules::new(Collective::AllReduce, Algorithm::Ring, 500).unwrap();
    /// assert_eq!(ring.prove(Placement::InPlace), Ok(()));
    /// assert_eq!(ring.keeps_rank_order, Some(false));
    /// let tree = SymmetricSchedules::new(Collective::AllReduce, Algorithm::Tree, 500);
    /// assert!(tree.is_none());
    /// ```
    pub fn new(collective: Collective, algorithm: Algorithm, world: usize) -> Option<Self> {
        let scans = matches!(collective, Collective::Scan | Collective::ExclusiveScan);
        // On one host, a hierarchical schedule is that of no symmetric algorithm.
        let promises_alike = collective.root().is_none() && !scans;
        if world < 2 || !promises_alike || algorithm == Algorithm::Hierarchical {
            return None;
        }
        let symmetry = algorithm.symmetry(collective, &Boards::separate(world))?;
        let first = algorithm.schedule(collective, world, 0)?;
        let of = |rank| algorithm.schedule(collective, world, rank);
        Self::of(collective, (symmetry, world), first, of)
    }

    /// Those of the ranks from 1 on as `of` gives them.
    fn of(
        collective: Collective,
        (symmetry, world): (Symmetry, usize),
        first: Schedule,
        of: impl Fn(usize) -> Option<Schedule>,
    ) -> Option<Self> {
        use ChunkMoves::{AsRanks, Fixed, Reversed};
        let ways = match (collective.is_blocked(), first.chunks == world) {
            // A block that changes its number may lie anywhere meanwhile.
            _ if collective.transposes() => &[(AsRanks, AsRanks), (AsRanks, Fixed)][..],
            (true, _) => &[(AsRanks, AsRanks)],
            (false, true) => &[(AsRanks, AsRanks), (Reversed, Reversed), (Fixed, Fixed)],
            (false, false) => &[(Fixed, Fixed)],
        };
        ways.iter().find_map(|&(chunks, scratch)| {
            let moves = RankMoves { symmetry, world, chunks, scratch };
            let mut turned = false;
            for rank in 1..world {
                turned |= moves.compare(&first, &of(rank)?, rank)?;
            }
            // What is sorted for one rank is not sorted for those that it is moved to.
            let keeps_rank_order =
                if collective.reduces() { (!turned).then_some(false) } else { Some(true) };
            Some(Self { collective, first: first.clone(), moves, keeps_rank_order })
        })
    }

    /// Proves that the schedules do the collective, with input and output placed by `placement`, as
    /// [`verify`](maypole::schedule::verify::verify) does.
    ///
    /// # Errors
    /// The first [`Flaw`], of rank 0.
    pub fn prove(&self, placement: Placement) -> Result<(), Flaw> {
        let Self { collective, first, moves, .. } = self;
        check_steps(*collective, first, (moves.world, 0), first.chunks.max(1))?;
        let mut sums = MovedSums { of: self, placement, held: HashMap::new(), flaw: None };
        for chunk in (0..first.chunks).filter(|chunk| collective.input(0).contains(*chunk)) {
            let own = ChunkSum { chunk, ranks: moves.ranks([0]) };
            sums.held.insert(sums.place(input(chunk)), Rc::new(own));
        }
        let boards = (moves.symmetry, moves.world);
        let walked = walk_board(std::slice::from_ref(first), boards, placement, &mut sums);
        if let Some(flaw) = sums.flaw.take() {
            return Err(flaw);
        }
        walked.map_err(Flaw::Stuck)?;
        sums.result()
    }
}

impl RankMoves {
    fn rank(self, rank: usize, by: usize) -> usize {
        // As `Symmetry::moved`, without its divisions: every step of every rank is renamed.
        match self.symmetry {
            Symmetry::Rotation if rank + by < self.world => rank + by,
            Symmetry::Rotation => rank + by - self.world,
            Symmetry::ExclusiveOr => rank ^ by,
        }
    }

    fn chunk(self, ways: ChunkMoves, chunk: usize, by: usize) -> usize {
        match ways {
            ChunkMoves::Fixed => chunk,
            ChunkMoves::AsRanks => self.rank(chunk, by),
            ChunkMoves::Reversed => {
                chunk ^ by.reverse_bits().checked_shr(self.world.leading_zeros() + 1).unwrap_or(0)
            }
        }
    }

    /// A span of a whole in so many chunks. Rows of scratch stay where they are.
    fn span(self, span: Span, chunks: usize, by: usize) -> Span {
        let row = if span.chunk < chunks { 0 } else { span.chunk - span.chunk % chunks };
        let ways = if span.buffer == Buffer::Scratch { self.scratch } else { self.chunks };
        Span { chunk: row + self.chunk(ways, span.chunk - row, by), ..span }
    }

    /// Whether some combination of `other`, the schedule of `rank`, has its two sides the other way around than
    /// that of `first`; `None` if `other` is not `first` moved, but for that.
    fn compare(self, first: &Schedule, other: &Schedule, rank: usize) -> Option<bool> {
        let (steps, others) = (&first.steps, &other.steps);
        if (first.chunks, steps.len()) != (other.chunks, others.len()) {
            return None;
        }
        let span = |at: Span| self.span(at, first.chunks, rank);
        let peer = |peer: usize| self.rank(peer, rank);
        let moved = |step: Step| match step {
            Step::Send { from, to } => Step::Send { from: span(from), to: peer(to) },
            Step::Recv { into, from } => Step::Recv { into: span(into), from: peer(from) },
            Step::RecvReduce { into, from } => {
                Step::RecvReduce { into: span(into), from: peer(from) }
            }
            Step::Copy { from, into } => Step::Copy { from: span(from), into: span(into) },
            Step::Reduce { from, into } => Step::Reduce { from: span(from), into: span(into) },
        };
        let mut turned = false;
        let mut at = 0;
        while at < steps.len() {
            let has_room = |at: Span| at.buffer != Buffer::Scratch || at.chunk < other.scratch;
            if first.scratch > 0 && !others[at].reads().chain(others[at].writes()).all(has_room) {
                return None;
            }
            if moved(steps[at]) == others[at] {
                at += 1;
            } else {
                let pair = |steps: &[Step]| combination(steps.get(at..at + 2)?);
                let (mine, own) = (pair(steps)?, pair(others)?);
                if (span(mine.0), span(mine.1), peer(mine.2)) != own {
                    return None;
                }
                turned = true;
                at += 2;
            }
        }
        Some(turned)
    }

    /// These ranks as bits.
    fn ranks(self, ranks: impl IntoIterator<Item = usize>) -> Vec<u64> {
        let mut bits = vec![0; self.world.div_ceil(64)];
        ranks.into_iter().for_each(|rank| bits[rank / 64] |= 1 << (rank % 64));
        bits
    }
}

/// The span of a rank's own part, the span of the sum and the peer, if two steps combine what is received with
/// the rank's own part into another span: in either order, also in place.
fn combination(steps: &[Step]) -> Option<(Span, Span, usize)> {
    let (from, into, peer) = match *steps {
        [Step::Recv { into, from: peer }, Step::Reduce { from, into: sum }] if into == sum => {
            (from, into, peer)
        }
        [Step::Copy { from, into }, Step::RecvReduce { into: sum, from: peer }] if into == sum => {
            (from, into, peer)
        }
        _ => return None,
    };
    (!from.overlaps(into, Placement::InPlace)).then_some((from, into, peer))
}

/// The contributions of some ranks to one chunk.
#[derive(PartialEq)]
struct ChunkSum {
    chunk: usize,
    /// By rank, as bits.
    ranks: Vec<u64>,
}

impl ChunkSum {
    fn symbols(&self) -> impl Iterator<Item = Symbol> {
        let ranks = ones(&self.ranks);
        ranks.map(|rank| Symbol { rank, chunk: self.chunk })
    }
}

/// The numbers of the bits that are set.
fn ones(bits: &[u64]) -> impl Iterator<Item = usize> {
    bits.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(|(at, word)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
    })
}

/// What rank 0 holds.
struct MovedSums<'a> {
    of: &'a SymmetricSchedules,
    placement: Placement,
    held: HashMap<Span, Rc<ChunkSum>>,
    flaw: Option<Flaw>,
}

impl MovedSums<'_> {
    /// The span under which the content of `span` is held.
    fn place(&self, span: Span) -> Span {
        match (self.placement, span.buffer) {
            (Placement::InPlace, Buffer::Input) => output(span.chunk),
            _ => span,
        }
    }

    fn read(&mut self, step: usize, span: Span) -> Option<Rc<ChunkSum>> {
        let found = self.held.get(&self.place(span)).cloned();
        if found.is_none() {
            self.object(Flaw::Empty { rank: 0, step, span });
        }
        found
    }

    fn object(&mut self, flaw: Flaw) {
        self.flaw.get_or_insert(flaw);
    }

    fn write(&mut self, step: usize, into: Span, sum: Option<Rc<ChunkSum>>, reduce: bool) {
        let written = match (reduce, sum) {
            (true, Some(sum)) => {
                let before = self.read(step, into);
                before.and_then(|before| self.combine(step, into, &before, &sum)).map(Rc::new)
            }
            (_, sum) => sum,
        };
        let place = self.place(into);
        match written {
            Some(written) => self.held.insert(place, written),
            None => self.held.remove(&place),
        };
    }

    fn combine(
        &mut self,
        step: usize,
        into: Span,
        left: &ChunkSum,
        right: &ChunkSum,
    ) -> Option<ChunkSum> {
        let both: Vec<u64> = left.ranks.iter().zip(&right.ranks).map(|(a, b)| a & b).collect();
        // A barrier's token may hold a rank twice.
        let repeatable = self.of.collective == Collective::Barrier;
        let again = ones(&both).next().filter(|_| !repeatable && left.chunk == right.chunk);
        if let Some(rank) = again {
            let symbol = Symbol { rank, chunk: left.chunk };
            self.object(Flaw::Twice { rank: 0, step, into, symbol });
            return None;
        }
        if left.chunk != right.chunk {
            let (missing, surplus) = (Vec::new(), right.symbols().collect());
            let chunk = into.chunk % self.of.first.chunks;
            self.object(Flaw::Wrong { rank: 0, chunk, missing, surplus });
            return None;
        }
        let ranks = left.ranks.iter().zip(&right.ranks).map(|(a, b)| a | b).collect();
        Some(ChunkSum { chunk: left.chunk, ranks })
    }

    /// Compares the output of rank 0 with what the collective promises.
    fn result(&self) -> Result<(), Flaw> {
        let SymmetricSchedules { collective, first, moves, .. } = self.of;
        for chunk in (0..first.chunks).filter(|chunk| collective.output(0).contains(*chunk)) {
            let sum = self.held.get(&output(chunk)).ok_or(Flaw::Unwritten { rank: 0, chunk })?;
            let expected = collective.result(moves.world, 0, chunk);
            if !sum.symbols().eq(expected.iter().copied()) {
                let holds: Vec<Symbol> = sum.symbols().collect();
                let without = |a: &[Symbol], b: &[Symbol]| {
                    a.iter().copied().filter(|symbol| !b.contains(symbol)).collect()
                };
                let (missing, surplus) = (without(&expected, &holds), without(&holds, &expected));
                return Err(Flaw::Wrong { rank: 0, chunk, missing, surplus });
            }
        }
        Ok(())
    }
}

impl Meaning for MovedSums<'_> {
    type Message = (Span, Option<Rc<ChunkSum>>);

    fn send(&mut self, _: usize, step: usize, from: Span, _: usize) -> Self::Message {
        (from, self.read(step, from))
    }

    fn receive(
        &mut self,
        rank: usize,
        step: usize,
        into: Span,
        from: usize,
        (sent, sum): Self::Message,
        reduce: bool,
    ) {
        let SymmetricSchedules { collective, first, moves, .. } = self.of;
        let (moves, chunks) = (*moves, first.chunks);
        let sent = moves.span(sent, chunks, from);
        if !collective.transposes() && sent.chunk % chunks != into.chunk % chunks {
            self.object(Flaw::Mismatch { rank, step, from, sent, into, chunks });
        }
        let moved = |sum: Rc<ChunkSum>| {
            let ranks = moves.ranks(ones(&sum.ranks).map(|rank| moves.rank(rank, from)));
            Rc::new(ChunkSum { chunk: moves.chunk(moves.chunks, sum.chunk, from), ranks })
        };
        self.write(step, into, sum.map(moved), reduce);
    }

    fn local(&mut self, _: usize, step: usize, from: Span, into: Span, reduce: bool) {
        let sum = self.read(step, from);
        self.write(step, into, sum, reduce);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::schedule::verify::verify;

    /// Every pair of an algorithm and a collective that is said to be symmetric.
    fn pairs(world: usize) -> impl Iterator<Item = (Algorithm, Collective)> {
        let boards = Boards::separate(world);
        let symmetric = move |(algorithm, collective): &(Algorithm, Collective)| {
            *algorithm != Algorithm::Hierarchical
                && algorithm.symmetry(*collective, &boards).is_some()
        };
        Algorithm::named()
            .flat_map(|algorithm| Collective::all(0).map(|collective| (algorithm, collective)))
            .filter(symmetric)
    }

    #[test]
    fn one_rank_proves_what_all_ranks_prove() {
        let mut proved = 0;
        for world in (2..=20).chain([31, 32, 64, 70]) {
            for (algorithm, collective) in pairs(world) {
                let said = format!("{algorithm} {collective:?} of {world}");
                let one = SymmetricSchedules::new(collective, algorithm, world).expect(&said);
                let all = algorithm.schedules(collective, world).unwrap();
                for placement in [Placement::Apart, Placement::InPlace] {
                    let proof = verify(collective, &all, placement);
                    assert_eq!(one.prove(placement).is_ok(), proof.is_ok(), "{said}");
                    if let (Ok(proof), Some(order)) = (proof, one.keeps_rank_order) {
                        assert_eq!(order, proof.keeps_rank_order, "{said}");
                    }
                }
                proved += 1;
            }
        }
        assert!(proved > 200, "{proved}");
    }

    /// Steps of all ranks that are left out, or take another chunk or peer, are flaws; those of one rank alone
    /// are no symmetry.
    #[test]
    fn flaws_are_found() {
        let mut found = 0;
        for world in [5, 8, 9] {
            for (algorithm, collective) in pairs(world) {
                let said = format!("{algorithm} {collective:?} of {world}");
                let all = algorithm.schedules(collective, world).unwrap();
                let symmetry = algorithm.symmetry(collective, &Boards::separate(world)).unwrap();
                let given = SymmetricSchedules::new(collective, algorithm, world).unwrap();
                for left_out in 0..all[0].steps.len() {
                    let broken: Vec<Schedule> = all
                        .iter()
                        .map(|schedule| {
                            let mut schedule = schedule.clone();
                            schedule.steps.remove(left_out);
                            schedule
                        })
                        .collect();
                    let by_one = SymmetricSchedules {
                        collective,
                        first: broken[0].clone(),
                        moves: given.moves,
                        keeps_rank_order: None,
                    };
                    for placement in [Placement::Apart, Placement::InPlace] {
                        let by_all = verify(collective, &broken, placement);
                        let proof = by_one.prove(placement);
                        assert_eq!(proof.is_ok(), by_all.is_ok(), "{said}, without {left_out}");
                        found += usize::from(proof.is_err());
                    }
                    let of_one_rank = |rank: usize| {
                        Some(if rank == world - 1 { &broken[rank] } else { &all[rank] }.clone())
                    };
                    let boards = (symmetry, world);
                    let first = all[0].clone();
                    let uneven = SymmetricSchedules::of(collective, boards, first, of_one_rank);
                    assert!(uneven.is_none(), "{said}, one rank without {left_out}");
                }
            }
        }
        assert!(found > 500, "{found}");
    }

    /// Within seconds, also without optimisation.
    #[test]
    fn four_thousand_ranks_are_proved() {
        for (collective, algorithm) in [
            (Collective::AllReduce, Algorithm::RecursiveDoubling),
            (Collective::Barrier, Algorithm::Dissemination),
        ] {
            let one = SymmetricSchedules::new(collective, algorithm, 4096).unwrap();
            assert_eq!(one.prove(Placement::Apart), Ok(()), "{algorithm}");
        }
        let ring = SymmetricSchedules::new(Collective::AllReduce, Algorithm::Ring, 1024).unwrap();
        assert_eq!(ring.prove(Placement::InPlace), Ok(()));
    }
}
