//! Averages of integers, by calls on longer ones.

use crate::engine::Engine;
use crate::engine::calls::call::{CollectiveCall, ReadyCall};
use crate::error::Result;
use crate::schedule::Schedule;
use maypole_kernels::{AverageParts, DataType, View, ViewMut};

impl Engine {
    /// Runs one call that averages integers: sums their summands in 64 bits, which hold the sum. The
    /// summands move by `schedules`, if there are some.
    #[cold]
    pub(crate) fn average_integers(
        &mut self,
        ready: ReadyCall<'_>,
        schedules: Option<Vec<Schedule>>,
    ) -> Result<()> {
        let (kind, ranks) = (ready.call.kind, self.boards.world() as u64);
        let stands_for = ready.call.stands_for.or(Some(kind.name()));
        let call =
            CollectiveCall { kind: DataType::I64, stands_for, in_place: false, ..ready.call };
        if let Some(schedules) = schedules {
            self.make_current_by(call, &schedules)?;
        }
        let mut parts = AverageParts::of(ready.input, kind, ranks);
        for part in &mut parts.0 {
            let mut sums = vec![0; ready.output.len() / kind.size()];
            let (input, output) = (View::of(part), ViewMut::of(&mut sums));
            self.perform(ReadyCall { call, scaling: None, input, output })?;
            *part = sums;
        }
        parts.quotient(ready.output, kind, ranks);
        Ok(())
    }
}
