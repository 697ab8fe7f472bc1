//! Values of any type in the spans of schedules, and a function that combines two.

use maypole::schedule::walk::{Meaning, Stuck, walk};
use maypole::schedule::{Placement, Schedule, Span};
use std::collections::HashMap;

/// The values in the spans of all ranks, by (rank, span), after all steps in the order of the
/// proof. In place, an input is the output span of the same chunk. The arguments of `combine` are a
/// span's value and the value to add.
pub fn walked<V: Clone>(
    schedules: &[Schedule],
    placement: Placement,
    before: impl IntoIterator<Item = ((usize, Span), V)>,
    combine: impl Fn(&V, V) -> V,
) -> Result<HashMap<(usize, Span), V>, Stuck> {
    let cells = before
        .into_iter()
        .map(|((rank, span), value)| ((rank, super::home(span, placement)), value));
    let mut carried = Carried { cells: cells.collect(), placement, combine };
    walk(schedules, placement, &mut carried)?;
    Ok(carried.cells)
}

/// Ignores what messages carry: a walk then shows only whether all of them are received.
pub struct Ignored;

impl Meaning for Ignored {
    type Message = ();
    fn send(&mut self, _: usize, _: usize, _: Span, _: usize) {}
    fn receive(&mut self, _: usize, _: usize, _: Span, _: usize, (): (), _: bool) {}
    fn local(&mut self, _: usize, _: usize, _: Span, _: Span, _: bool) {}
}

struct Carried<V, F> {
    cells: HashMap<(usize, Span), V>,
    placement: Placement,
    combine: F,
}

impl<V: Clone, F: Fn(&V, V) -> V> Carried<V, F> {
    fn read(&self, rank: usize, span: Span) -> V {
        let cell = (rank, super::home(span, self.placement));
        self.cells
            .get(&cell)
            .unwrap_or_else(|| panic!("rank {rank} reads nothing in {span}"))
            .clone()
    }

    fn write(&mut self, rank: usize, into: Span, mut value: V, reduce: bool) {
        if reduce {
            value = (self.combine)(&self.read(rank, into), value);
        }
        self.cells.insert((rank, super::home(into, self.placement)), value);
    }
}

impl<V: Clone, F: Fn(&V, V) -> V> Meaning for Carried<V, F> {
    type Message = V;

    fn send(&mut self, rank: usize, _: usize, from: Span, _: usize) -> V {
        self.read(rank, from)
    }

    fn receive(&mut self, rank: usize, _: usize, into: Span, _: usize, message: V, reduce: bool) {
        self.write(rank, into, message, reduce);
    }

    fn local(&mut self, rank: usize, _: usize, from: Span, into: Span, reduce: bool) {
        self.write(rank, into, self.read(rank, from), reduce);
    }
}
