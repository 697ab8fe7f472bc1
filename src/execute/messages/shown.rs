//! What a recorder is told of a batch.

use super::post::Batch;
use crate::execute::record::Recorder;

/// Tells a recorder, if there is one, which messages are done.
pub(super) struct Shown<'r> {
    recorder: Option<&'r mut Recorder>,
    rank: usize,
    /// By step: whether it was told.
    told: Vec<bool>,
}

impl<'r> Shown<'r> {
    pub(super) fn new(recorder: Option<&'r mut Recorder>, rank: usize, batch: &Batch<'_>) -> Self {
        let steps = if recorder.is_some() { batch.len() } else { 0 };
        Self { recorder, rank, told: vec![false; steps] }
    }

    /// Bytes are about to move.
    #[inline]
    pub(super) fn before(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.about_to_move();
        }
    }

    /// They have.
    #[inline]
    pub(super) fn after(&mut self, batch: &Batch<'_>) {
        let Some(recorder) = &mut self.recorder else { return };
        for message in batch.done(self.rank) {
            if !std::mem::replace(&mut self.told[message.step], true) {
                recorder.message(message);
            }
        }
    }
}
