//! Schedules made of schedules: one after the other, between some of the ranks, about some of the
//! chunks.
//!
//! A [`SubSchedule`] is a schedule with a translation: its rank `i` is rank `ranks[i]` of the
//! whole, its chunk `c` is all of `chunks[c]`, and its input and output lie in a [`WholeBuffer`] of
//! the whole. A property that is proved of a part stays true in a whole that runs its parts one
//! after the other: sends do not wait and links keep their order, so the first part completes on
//! all ranks, then the second part.

use crate::schedule::{Buffer, Schedule, Span, Step, input, output, scratch};

/// Where the input or the output of a part lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WholeBuffer {
    Input,
    Output,
    /// A row of scratch: as many chunks as the whole has.
    Row(usize),
}

/// A schedule of a smaller world, and the translation of its ranks, chunks and buffers.
pub(super) struct SubSchedule<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) ranks: &'a [usize],
    pub(super) chunks: &'a [Vec<usize>],
    pub(super) input: WholeBuffer,
    pub(super) output: WholeBuffer,
}

/// Builds the whole.
pub(super) struct Composer {
    chunks: usize,
    rows: usize,
    steps: Vec<Step>,
}

impl Composer {
    /// A whole of `chunks` chunks.
    pub(super) const fn new(chunks: usize) -> Self {
        Self { chunks, rows: 0, steps: Vec::new() }
    }

    /// A row of scratch that nothing else uses.
    pub(super) const fn row(&mut self) -> WholeBuffer {
        self.rows += 1;
        WholeBuffer::Row(self.rows - 1)
    }

    /// Adds the steps of `part`. Copies of a span to itself are left out; they occur where input
    /// and output of the part are the same buffer.
    pub(super) fn then(&mut self, part: &SubSchedule<'_>) {
        let rows = part.schedule.scratch.div_ceil(part.schedule.chunks);
        for &step in &part.schedule.steps {
            let spans = step.reads().chain(step.writes());
            let chunk = spans
                .map(|span| span.chunk % part.schedule.chunks)
                .next()
                .expect("a step has a span");
            let translated =
                |nth| step.map(|span| self.place(part, span, nth), |peer| part.ranks[peer]);
            let moves = |step: &Step| !matches!(step, Step::Copy { from, into } if from == into);
            let steps: Vec<Step> =
                (0..part.chunks[chunk].len()).map(translated).filter(moves).collect();
            self.steps.extend(steps);
        }
        self.rows += rows;
    }

    /// `span` for the `nth` of the chunks that its chunk stands for.
    fn place(&self, part: &SubSchedule<'_>, span: Span, nth: usize) -> Span {
        let chunk = part.chunks[span.chunk % part.schedule.chunks][nth];
        let room = match span.buffer {
            Buffer::Input => part.input,
            Buffer::Output => part.output,
            Buffer::Scratch => WholeBuffer::Row(self.rows + span.chunk / part.schedule.chunks),
        };
        match room {
            WholeBuffer::Input => input(chunk),
            WholeBuffer::Output => output(chunk),
            WholeBuffer::Row(row) => scratch(row * self.chunks + chunk),
        }
    }

    /// The finished schedule.
    pub(super) fn end(self) -> Schedule {
        Schedule::new(self.chunks, self.steps)
    }
}
