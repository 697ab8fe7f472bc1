//! Resharding: from the parts of one mesh to the parts of any other, as runs of the whole model's
//! flat buffer.
//!
//! A rank of a tensor group has some rows of a matrix, a stage of a pipeline some layers, a rank of
//! FSDP the third quarter of a block. All of these are *runs*: consecutive elements of the whole
//! model. A checkpoint is a set of runs with their numbers; reading it on another
//! mesh is finding, for each run that is wanted, the runs that cover it. No case is special, so
//! there is no table of which mesh can become which.

use crate::model::layout::ParameterLayout;
use std::fmt;
use std::ops::Range;

/// Consecutive elements of the whole model.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ParameterRun {
    /// The number of the first element.
    pub start: usize,
    /// The number of elements.
    pub len: usize,
}

/// Returns elements `part` of the flat buffer of `layout` as runs of the whole model, in order.
pub fn runs(layout: &ParameterLayout, part: Range<usize>) -> Vec<ParameterRun> {
    let overlap = |piece: crate::model::layout::LayoutPiece| {
        let start = part.start.max(piece.local);
        let end = part.end.min(piece.local + piece.len);
        (start < end)
            .then(|| ParameterRun { start: piece.global + start - piece.local, len: end - start })
    };
    layout.pieces().filter_map(overlap).collect()
}

impl ParameterRun {
    fn end(&self) -> usize {
        self.start + self.len
    }
}

/// Runs of the whole model with their numbers: `N` numbers for each element, each from its own
/// buffer.
#[derive(Clone, Debug)]
pub struct RunPool<const N: usize> {
    /// The elements to keep: runs that do not touch, ascending.
    wanted: Vec<ParameterRun>,
    runs: Vec<(ParameterRun, [Vec<f32>; N])>,
}

/// No part of a checkpoint has these elements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MissingParameters(pub ParameterRun);

impl std::error::Error for MissingParameters {}

impl fmt::Display for MissingParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParameterRun { start, len } = self.0;
        write!(f, "no part has parameters {start} to {} of the whole model", start + len - 1)
    }
}

impl<const N: usize> RunPool<N> {
    /// A pool that keeps only the elements of these runs.
    pub fn wanting(runs: &[ParameterRun]) -> Self {
        let mut sorted = runs.to_vec();
        sorted.sort();
        let mut wanted: Vec<ParameterRun> = Vec::new();
        for run in sorted.into_iter().filter(|run| run.len > 0) {
            match wanted.last_mut().filter(|last| run.start <= last.end()) {
                Some(last) => last.len = last.end().max(run.end()) - last.start,
                None => wanted.push(run),
            }
        }
        Self { wanted, runs: Vec::new() }
    }

    /// Adds runs whose numbers lie one after the other in each of `buffers`. An empty buffer stands
    /// for zeros.
    ///
    /// # Panics
    /// If a buffer that is not empty is shorter than the runs.
    pub fn add(&mut self, runs: &[ParameterRun], buffers: [&[f32]; N]) {
        let mut at = 0;
        for run in runs {
            for part in wanted_of(&self.wanted, *run) {
                let from = at + part.start - run.start;
                let numbers = buffers.map(|buffer| match buffer {
                    [] => vec![0.0; part.len],
                    _ => buffer[from..from + part.len].to_vec(),
                });
                self.runs.push((part, numbers));
            }
            at += run.len;
        }
        self.runs.sort_by_key(|(run, _)| *run);
    }

    /// Appends the numbers of `run` to each of `buffers`.
    ///
    /// # Errors
    /// [`MissingParameters`] if a part of it was never added.
    pub fn read(
        &self,
        run: ParameterRun,
        buffers: &mut [Vec<f32>; N],
    ) -> Result<(), MissingParameters> {
        let mut wanted = run;
        while wanted.len > 0 {
            let (found, numbers) = self.covering(wanted.start).ok_or(MissingParameters(wanted))?;
            let from = wanted.start - found.start;
            let len = wanted.len.min(found.len - from);
            for (buffer, numbers) in buffers.iter_mut().zip(numbers) {
                buffer.extend_from_slice(&numbers[from..from + len]);
            }
            wanted = ParameterRun { start: wanted.start + len, len: wanted.len - len };
        }
        Ok(())
    }

    /// Returns a run that has element `at`. Ranks with copies add the same run several times, or
    /// runs that overlap.
    fn covering(&self, at: usize) -> Option<&(ParameterRun, [Vec<f32>; N])> {
        let after = self.runs.partition_point(|(run, _)| run.start <= at);
        self.runs[..after].iter().rev().find(|(run, _)| at < run.end())
    }
}

/// Returns the parts of `run` that are in `wanted`, which is ascending.
fn wanted_of(wanted: &[ParameterRun], run: ParameterRun) -> impl Iterator<Item = ParameterRun> {
    let first = wanted.partition_point(|it| it.end() <= run.start);
    let touching = wanted[first..].iter().take_while(move |it| it.start < run.end());
    touching.map(move |it| {
        let start = it.start.max(run.start);
        ParameterRun { start, len: it.end().min(run.end()) - start }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_across_parts_and_missing_ones_are_named() {
        let mut pool = RunPool::<2>::wanting(&[ParameterRun { start: 0, len: 10 }]);
        pool.add(
            &[ParameterRun { start: 6, len: 2 }, ParameterRun { start: 0, len: 2 }],
            [&[6.0, 7.0, 0.0, 1.0], &[]],
        );
        pool.add(&[ParameterRun { start: 2, len: 4 }], [&[2.0, 3.0, 4.0, 5.0], &[1.0; 4]]);
        let mut read = [vec![], vec![]];
        pool.read(ParameterRun { start: 1, len: 6 }, &mut read).unwrap();
        assert_eq!(read, [vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![0.0, 1.0, 1.0, 1.0, 1.0, 0.0]]);
        let missing = pool.read(ParameterRun { start: 6, len: 4 }, &mut read).unwrap_err();
        assert_eq!(missing.to_string(), "no part has parameters 8 to 9 of the whole model");
    }

    #[test]
    fn only_what_is_wanted_is_kept() {
        let run = |start, len| ParameterRun { start, len };
        let mut pool = RunPool::<1>::wanting(&[run(8, 2), run(2, 2), run(3, 2), run(20, 0)]);
        assert_eq!(pool.wanted, [run(2, 3), run(8, 2)]);
        let numbers: Vec<f32> = (0..12u8).map(f32::from).collect();
        pool.add(&[run(0, 3), run(3, 9), run(30, 0)], [&numbers]);
        let kept: Vec<_> = pool.runs.iter().map(|(run, _)| *run).collect();
        assert_eq!(kept, [run(2, 1), run(3, 2), run(8, 2)]);
        let mut read = [vec![]];
        pool.read(run(2, 3), &mut read).unwrap();
        pool.read(run(8, 2), &mut read).unwrap();
        assert_eq!(read, [[2.0, 3.0, 4.0, 8.0, 9.0]]);
        assert_eq!(pool.read(run(4, 2), &mut read), Err(MissingParameters(run(5, 1))));
    }
}
