//! Resharding: from the parts of one mesh to the parts of any other, as runs of the whole model's
//! flat buffer.
//!
//! A rank of a tensor group has some rows of a matrix, a stage of a pipeline some layers, a rank of
//! FSDP the third quarter of a block. All of these are *runs*: consecutive elements of the whole
//! model. A checkpoint is a set of runs with their numbers. A reader on another mesh finds, for each of
//! its runs, the runs that cover it. No case is special: any mesh can become any other.

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
