//! The checker: runs the schedules of all ranks on symbols instead of numbers, and proves that they
//! implement the collective, or names the first flaw.
//!
//! A span holds the [`Symbol`]s that were combined into it, and the order of combination as far as
//! proved: the first and the last, and whether those between are sorted. Sending and copying hand
//! them on; reducing concatenates two of them. When all steps are taken, each chunk of each output
//! must be made of exactly the contributions that [`Collective::result`] lists, each once. So a
//! proof holds for all numbers, all element types and all lengths, and the order of combination is
//! derived, not declared.
//!
//! The order of steps is the law of [`walk`]: schedules that are proved here complete on every
//! executor.

mod contributions;
mod flaw;

pub use flaw::Flaw;

use crate::schedule::collective::{Collective, Symbol};
use crate::schedule::walk::{Meaning, walk};
use crate::schedule::{Buffer, Placement, Schedule, Span, Step, input, output};
use contributions::Contributions;
use std::rc::Rc;

/// Properties of schedules that the checker has proved to be correct.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Proof {
    /// Every combination takes the ranks in their order: right for operations that do not commute.
    pub keeps_rank_order: bool,
    /// Every combination is `((x0 op x1) op x2) op ...`, one contribution at a time and the next
    /// one on the right: together with rank order, the bits of the plain loop over the ranks.
    pub left_to_right: bool,
}

/// Proves that `schedules`, one a rank, do `collective`, with input and output placed by
/// `placement`.
///
/// In place, an input chunk and the output chunk of the same number are one, so a schedule that
/// overwrites its input too early is refused. The checker takes each step once; a combination takes a bit for
/// each rank.
///
/// ```
/// use maypole::algorithms::Algorithm;
/// use maypole::schedule::Placement;
/// use maypole::schedule::collective::Collective;
/// use maypole::schedule::verify::{Flaw, verify};
///
/// let mut ring = Algorithm::Ring.schedules(Collective::AllReduce, 4).unwrap();
/// assert!(verify(Collective::AllReduce, &ring, Placement::InPlace).is_ok());
///
/// ring[2].steps.pop();
/// let flaw = verify(Collective::AllReduce, &ring, Placement::Apart).unwrap_err();
/// assert!(matches!(flaw, Flaw::Stuck(_)));
/// assert_eq!(flaw.to_string(), "stuck: rank 2 never takes what rank 1 sent");
/// ```
///
/// # Errors
/// The first [`Flaw`]: a flaw of form, rank by rank; else a flaw of meaning, in the order of the
/// walk; else a flaw of the result.
pub fn verify(
    collective: Collective,
    schedules: &[Schedule],
    placement: Placement,
) -> Result<Proof, Flaw> {
    form(collective, schedules)?;
    let mut symbols = Symbols::new(collective, schedules, placement);
    let walked = walk(schedules, placement, &mut symbols);
    if let Some(flaw) = symbols.flaw.take() {
        return Err(flaw);
    }
    walked.map_err(Flaw::Stuck)?;
    symbols.result()
}

/// Checks each schedule by itself.
fn form(collective: Collective, schedules: &[Schedule]) -> Result<(), Flaw> {
    let world = schedules.len();
    if let Some(root) = collective.root().filter(|&root| root >= world) {
        return Err(Flaw::Root { root, world });
    }
    let chunks = schedules.first().map_or(1, |schedule| schedule.chunks.max(1));
    let check = |(rank, schedule)| check_steps(collective, schedule, (world, rank), chunks);
    schedules.iter().enumerate().try_for_each(check)
}

/// Checks each step of `rank`, one of `world`, by itself: the part of [`verify`] that needs no other schedule.
/// Where the algorithm chooses into how many chunks the whole is cut, there must be `chunks`.
///
/// # Errors
/// The first [`Flaw`] of form.
///
/// ```
/// use maypole::algorithms::Algorithm;
/// use maypole::schedule::{collective::Collective, verify::check_steps};
/// let schedule = Algorithm::Ring.schedule(Collective::AllGather, 4096, 17).unwrap();
/// assert_eq!(check_steps(Collective::AllGather, &schedule, (4096, 17), 4096), Ok(()));
/// ```
pub fn check_steps(
    collective: Collective,
    schedule: &Schedule,
    (world, rank): (usize, usize),
    chunks: usize,
) -> Result<(), Flaw> {
    let expected = if collective.is_blocked() { world } else { chunks };
    if schedule.chunks != expected {
        return Err(Flaw::Chunks { rank, chunks: schedule.chunks, expected });
    }
    schedule.steps.iter().enumerate().try_for_each(|(step, it)| {
        let checked = check(collective, schedule, (world, rank), *it);
        checked.map_err(|why| Flaw::Form { rank, step, why })
    })
}

/// Checks a step of a schedule by itself. The error is in words.
fn check(
    collective: Collective,
    schedule: &Schedule,
    (world, rank): (usize, usize),
    step: Step,
) -> Result<(), String> {
    match step.peer() {
        Some(peer) if peer >= world => {
            return Err(format!("there is no rank {peer} in a world of {world}"));
        }
        Some(peer) if peer == rank => {
            return Err(
                "sends to itself or receives from itself; use a copy or a reduce".to_owned()
            );
        }
        _ => {}
    }
    if let Step::Copy { from, into } | Step::Reduce { from, into } = step
        && !equally_long(collective, schedule.chunks, from, into)
    {
        return Err(format!(
            "{from} and {into} are different chunks of the whole and need not be equally long"
        ));
    }
    if let Some(span) = step.writes().filter(|span| span.buffer == Buffer::Input) {
        return Err(format!(
            "writes {span}, but the input is never written; copy it to output or scratch"
        ));
    }
    for span in step.reads().chain(step.writes()) {
        let (chunks, held) = match span.buffer {
            Buffer::Input => (schedule.chunks, collective.input(rank).contains(span.chunk)),
            Buffer::Output => (schedule.chunks, collective.output(rank).contains(span.chunk)),
            Buffer::Scratch => (schedule.scratch, true),
        };
        if span.chunk >= chunks {
            return Err(format!("{span} is out of range: that buffer has {chunks} chunks"));
        }
        if !held {
            let name = collective.name();
            return Err(format!(
                "{name} gives this rank no {span}; use scratch for chunks that are only passed on"
            ));
        }
    }
    Ok(())
}

/// True if the two spans are equally long. All-to-all moves chunks to other numbers, so its lengths
/// can only be checked in the result.
fn equally_long(collective: Collective, chunks: usize, a: Span, b: Span) -> bool {
    collective.transposes() || a.chunk % chunks == b.chunk % chunks
}

/// The content of a span, and of all spans that it was copied to.
struct Value {
    symbols: Contributions,
    /// In the order of combination.
    first: Symbol,
    last: Symbol,
    /// The order of combination is that of the ranks.
    is_sorted: bool,
    /// True if the combination was ((x op y) op z) op ..., for any order of the ranks.
    left_to_right: bool,
}

impl Value {
    fn of(symbol: Symbol) -> Rc<Self> {
        let symbols = Contributions::One(symbol);
        let (first, last) = (symbol, symbol);
        Rc::new(Self { symbols, first, last, is_sorted: true, left_to_right: true })
    }

    /// `self` op `right`.
    fn then(&self, right: &Self) -> Rc<Self> {
        let is_one = matches!(right.symbols, Contributions::One(_));
        Rc::new(Self {
            symbols: self.symbols.joined(&right.symbols),
            first: self.first,
            last: right.last,
            is_sorted: self.is_sorted && right.is_sorted && self.last <= right.first,
            left_to_right: self.left_to_right && is_one,
        })
    }
}

struct Symbols<'a> {
    collective: Collective,
    schedules: &'a [Schedule],
    placement: Placement,
    /// By rank; input, then output, then scratch.
    held: Vec<Vec<Option<Rc<Value>>>>,
    flaw: Option<Flaw>,
}

impl<'a> Symbols<'a> {
    fn new(collective: Collective, schedules: &'a [Schedule], placement: Placement) -> Self {
        let room = |schedule: &Schedule| vec![None; 2 * schedule.chunks + schedule.scratch];
        let held = schedules.iter().map(room).collect();
        let mut symbols = Self { collective, schedules, placement, held, flaw: None };
        for (rank, schedule) in schedules.iter().enumerate() {
            for chunk in
                (0..schedule.chunks).filter(|&chunk| collective.input(rank).contains(chunk))
            {
                *symbols.at(rank, input(chunk)) = Some(Value::of(Symbol { rank, chunk }));
            }
        }
        symbols
    }

    fn at(&mut self, rank: usize, span: Span) -> &mut Option<Rc<Value>> {
        let span = span.in_place(self.placement);
        let row = span.buffer as usize * self.schedules[rank].chunks;
        &mut self.held[rank][row + span.chunk]
    }

    fn read(&mut self, rank: usize, step: usize, span: Span) -> Option<Rc<Value>> {
        let value = self.at(rank, span).clone();
        if value.is_none() {
            self.flaw.get_or_insert(Flaw::Empty { rank, step, span });
        }
        value
    }

    /// `into` becomes `value`, or `into` op `value`.
    fn write(
        &mut self,
        rank: usize,
        step: usize,
        into: Span,
        value: Option<Rc<Value>>,
        reduce: bool,
    ) {
        let written = if reduce {
            let before = self.read(rank, step, into);
            before
                .zip(value)
                .and_then(|(before, value)| self.combine(rank, step, into, &before, &value))
        } else {
            value
        };
        *self.at(rank, into) = written;
    }

    fn combine(
        &mut self,
        rank: usize,
        step: usize,
        into: Span,
        left: &Value,
        right: &Value,
    ) -> Option<Rc<Value>> {
        // A barrier's token may hold a rank twice.
        let repeatable = matches!(self.collective, Collective::Barrier);
        if !repeatable && let Some(symbol) = right.symbols.shared(&left.symbols) {
            self.flaw.get_or_insert(Flaw::Twice { rank, step, into, symbol });
            return None;
        }
        Some(left.then(right))
    }

    fn result(&mut self) -> Result<Proof, Flaw> {
        let collective = self.collective;
        let world = self.schedules.len();
        let sums_all = matches!(
            collective,
            Collective::Reduce { .. } | Collective::AllReduce | Collective::ReduceScatter
        );
        let mut proof = Proof { keeps_rank_order: true, left_to_right: true };
        for rank in 0..world {
            for chunk in (0..self.schedules[rank].chunks)
                .filter(|&chunk| collective.output(rank).contains(chunk))
            {
                let value = self.at(rank, output(chunk)).take();
                let value = value.ok_or(Flaw::Unwritten { rank, chunk })?;
                // Lists of all ranks for each chunk of each rank would take the cube of the ranks.
                if !(sums_all && value.symbols.are_all(world, chunk)) {
                    let expected = collective.result(world, rank, chunk);
                    compare(&value.symbols.sorted(), &expected, rank, chunk)?;
                }
                proof.keeps_rank_order &= value.is_sorted || !collective.reduces();
                proof.left_to_right &= value.left_to_right || !collective.reduces();
            }
        }
        Ok(proof)
    }
}

/// Both lists hold no symbol twice, and are sorted.
fn compare(holds: &[Symbol], expected: &[Symbol], rank: usize, chunk: usize) -> Result<(), Flaw> {
    if holds == expected {
        return Ok(());
    }
    let without = |a: &[Symbol], b: &[Symbol]| {
        a.iter().copied().filter(|symbol| !b.contains(symbol)).collect()
    };
    Err(Flaw::Wrong {
        rank,
        chunk,
        missing: without(expected, holds),
        surplus: without(holds, expected),
    })
}

/// A message: the span that was sent, for its length, and its content.
struct SentSpan {
    span: Span,
    value: Option<Rc<Value>>,
}

impl Meaning for Symbols<'_> {
    type Message = SentSpan;

    fn send(&mut self, rank: usize, step: usize, from: Span, _: usize) -> SentSpan {
        SentSpan { span: from, value: self.read(rank, step, from) }
    }

    fn receive(
        &mut self,
        rank: usize,
        step: usize,
        into: Span,
        from: usize,
        message: SentSpan,
        reduce: bool,
    ) {
        let chunks = self.schedules[rank].chunks;
        if !equally_long(self.collective, chunks, message.span, into) {
            self.flaw.get_or_insert(Flaw::Mismatch {
                rank,
                step,
                from,
                sent: message.span,
                into,
                chunks,
            });
        }
        self.write(rank, step, into, message.value, reduce);
    }

    fn local(&mut self, rank: usize, step: usize, from: Span, into: Span, reduce: bool) {
        let value = self.read(rank, step, from);
        self.write(rank, step, into, value, reduce);
    }
}
