//! Resharding: from the parts of one mesh to the parts of any other, as runs of the whole model's
//! flat buffer.
//!
//! A rank of a tensor group has some rows of a matrix, a stage of a pipeline some layers, a rank of
//! FSDP the third quarter of a block. All of these are *runs*: so many elements from this element
//! of the whole model on. A checkpoint is a set of runs with their numbers; reading it on another
//! mesh is finding, for each run that is wanted, the runs that cover it. No case is special, so
//! there is no table of which mesh can become which.

use crate::model::layout::ParameterLayout;
use std::fmt;
use std::ops::Range;

/// So many elements, from this element of the whole model on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ParameterRun {
    /// The first.
    pub start: usize,
    /// How many.
    pub len: usize,
}

/// The runs that elements `part` of the flat buffer of `layout` are, in order.
pub fn runs(layout: &ParameterLayout, part: Range<usize>) -> Vec<ParameterRun> {
    let overlap = |piece: crate::model::layout::LayoutPiece| {
        let start = part.start.max(piece.local);
        let end = part.end.min(piece.local + piece.len);
        (start < end)
            .then(|| ParameterRun { start: piece.global + start - piece.local, len: end - start })
    };
    layout.pieces().filter_map(overlap).collect()
}

/// Numbers of some runs, by where they lie in the whole model: one for each of some buffers, `N` of
/// which go together.
#[derive(Clone, Debug, Default)]
pub struct RunPool<const N: usize> {
    runs: Vec<(ParameterRun, [Vec<f32>; N])>,
}

/// A run that no part of a checkpoint has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MissingParameters(pub ParameterRun);

impl std::error::Error for MissingParameters {}

impl fmt::Display for MissingParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParameterRun { start, len } = self.0;
        write!(f, "nobody has parameters {start} to {} of the whole model", start + len - 1)
    }
}

impl<const N: usize> RunPool<N> {
    /// Adds runs whose numbers lie one after the other in each of `buffers`. An empty buffer stands
    /// for zeros.
    pub fn add(&mut self, runs: &[ParameterRun], buffers: [&[f32]; N]) {
        let mut at = 0;
        for run in runs {
            let numbers = buffers.map(|buffer| {
                buffer.get(at..at + run.len).map_or(vec![0.0; run.len], <[f32]>::to_vec)
            });
            self.runs.push((*run, numbers));
            at += run.len;
        }
        self.runs.sort_by_key(|(run, _)| *run);
    }

    /// The numbers of `run`, appended to each of `buffers`.
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

    /// A run that has element `at`. Ranks that have copies brought the same run several times, or
    /// runs that overlap.
    fn covering(&self, at: usize) -> Option<&(ParameterRun, [Vec<f32>; N])> {
        let after = self.runs.partition_point(|(run, _)| run.start <= at);
        self.runs[..after].iter().rev().find(|(run, _)| at < run.start + run.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_across_parts_and_missing_ones_are_named() {
        let mut pool = RunPool::<2>::default();
        pool.add(
            &[ParameterRun { start: 6, len: 2 }, ParameterRun { start: 0, len: 2 }],
            [&[6.0, 7.0, 0.0, 1.0], &[]],
        );
        pool.add(&[ParameterRun { start: 2, len: 4 }], [&[2.0, 3.0, 4.0, 5.0], &[1.0; 4]]);
        let mut read = [vec![], vec![]];
        pool.read(ParameterRun { start: 1, len: 6 }, &mut read).unwrap();
        assert_eq!(read, [vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![0.0, 1.0, 1.0, 1.0, 1.0, 0.0]]);
        let missing = pool.read(ParameterRun { start: 6, len: 4 }, &mut read).unwrap_err();
        assert_eq!(missing.to_string(), "nobody has parameters 8 to 9 of the whole model");
    }
}
