//! The record of a batch, for traces.

use super::batch::MessageBatch;
use crate::execute::record::Recorder;

/// Tells a recorder, if there is one, which messages of a batch are complete.
pub(super) struct BatchRecording<'r> {
    recorder: Option<&'r mut Recorder>,
    rank: usize,
    /// By step: whether the recorder knows that it is complete.
    recorded: Vec<bool>,
}

impl<'r> BatchRecording<'r> {
    pub(super) fn new(
        recorder: Option<&'r mut Recorder>,
        rank: usize,
        batch: &MessageBatch<'_>,
    ) -> Self {
        let steps = if recorder.is_some() { batch.len() } else { 0 };
        Self { recorder, rank, recorded: vec![false; steps] }
    }

    /// Called before bytes are moved.
    #[inline]
    pub(super) fn before_moving(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.about_to_move();
        }
    }

    /// Called after bytes were moved.
    #[inline]
    pub(super) fn after_moving(&mut self, batch: &MessageBatch<'_>) {
        let Some(recorder) = &mut self.recorder else { return };
        for message in batch.complete_messages(self.rank) {
            if !std::mem::replace(&mut self.recorded[message.step], true) {
                recorder.message(message);
            }
        }
    }
}
