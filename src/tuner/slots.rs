//! How long bytes through slots take between the ranks of a group, beside what the table of costs says.

use super::price::Pricer;
use super::{CostTable, Costs, Plan, Question};

/// Bytes of the all-gathers that measure slots: they lie in a core's caches, in part, and not at all.
pub(crate) const LENGTHS: [usize; 3] = [64 << 10, 512 << 10, 4 << 20];
/// Calls of each length after which slots are measured again, because a machine may change its state: a
/// hundred times as many as measure them.
pub(crate) const AGAIN: [u32; LENGTHS.len()] = [6_000, 3_600, 1_200];

/// How many times as long slots take as the table says, by length of a call. Equal on all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotScale {
    millionths: [Option<u64>; LENGTHS.len()],
    /// Calls since they were measured.
    calls: [u32; LENGTHS.len()],
    /// Picoseconds of a KiB that is copied, in calls of these lengths.
    copied_kib: Option<[u64; LENGTHS.len()]>,
}

impl SlotScale {
    /// The number of the length that is to be measured before a call of `bytes` bytes; `None` if there is
    /// none, or it has been measured.
    pub(crate) fn unmeasured(&self, bytes: usize) -> Option<usize> {
        number(bytes).filter(|at| self.millionths[*at].is_none())
    }

    /// Counts a call of `bytes` bytes. Returns the number of its length if that is to be measured again.
    pub(crate) fn count(&mut self, bytes: usize) -> Option<usize> {
        let at = number(bytes)?;
        self.calls[at] = (self.calls[at] + 1) % AGAIN[at];
        (self.calls[at] == 0).then_some(at)
    }

    /// Notes that calls of the length with this number, which `question` asks for, took so many nanoseconds
    /// by `plan`.
    pub(crate) fn note(
        &mut self,
        at: usize,
        (question, plan): (&Question<'_>, Plan),
        table: &CostTable,
        nanoseconds: u64,
    ) {
        let price = |table: &CostTable| {
            Pricer::new(question, plan.algorithm, table).candidate(plan).predicted_ns
        };
        let whole = price(table);
        let no_bytes = |costs: Costs| Costs { beta: 0, gamma: 0, ..costs };
        let [small, chunk] = [table.small, table.chunk].map(no_bytes);
        let fixed = price(&CostTable { small, chunk, ..*table });
        // On a table that says bytes cost nothing, or where a call was faster than without bytes, nothing can
        // be scaled.
        let (bytes, took) = (whole.saturating_sub(fixed), nanoseconds.saturating_sub(fixed));
        let millionths = u128::from(took) * 1_000_000 / u128::from(bytes.max(1));
        self.millionths[at] = match (bytes, u64::try_from(millionths)) {
            (0, _) | (_, Ok(0) | Err(_)) => Some(1_000_000),
            (_, Ok(millionths)) => Some(millionths),
        };
    }

    /// Notes what a KiB takes that is copied from process to process, by length.
    pub(crate) fn note_copies(&mut self, picoseconds: [u64; LENGTHS.len()]) {
        self.copied_kib = Some(picoseconds);
    }

    /// In millionths, how many times as long slots take in calls of `bytes` bytes as the table says: as
    /// measured with the longest calls that are not longer, or else with the next longer ones. `None` if
    /// nothing has been measured, or the call is shorter than all lengths.
    pub(crate) fn of(&self, bytes: usize) -> Option<u64> {
        let at = number(bytes)?;
        let (shorter, longer) = self.millionths.split_at(at + 1);
        shorter.iter().rev().chain(longer).find_map(|scale| *scale)
    }

    /// The costs of calls of `bytes` bytes, as far as they were measured.
    pub(crate) fn costs(&self, table: &CostTable, bytes: usize) -> CostTable {
        let mut costs =
            self.of(bytes).map_or(*table, |millionths| table.with_slots_scaled(millionths));
        if let Some(copied) = self.copied_kib {
            costs.copy.beta = copied[number(bytes).unwrap_or(0)];
        }
        costs
    }
}

/// The number of the longest length that calls of `bytes` bytes reach.
fn number(bytes: usize) -> Option<usize> {
    LENGTHS.iter().rposition(|length| *length <= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::collective::Collective;
    use crate::schedule::hosts::Boards;
    use crate::tuner;

    #[test]
    fn what_was_measured_is_what_the_price_becomes() {
        let boards = Boards::new(&[0, 0]);
        let collective = Collective::AllGather;
        let table = CostTable::BUILT_IN;
        let mut scale = SlotScale::default();
        for (at, bytes) in LENGTHS.into_iter().enumerate() {
            let question = Question { collective, boards: &boards, bytes, crowding: 1, gpus: None };
            let plan = tuner::plan(&question, None, &table).unwrap();
            let price = |table: &CostTable| {
                Pricer::new(&question, plan.algorithm, table).candidate(plan).predicted_ns
            };
            assert_eq!(scale.unmeasured(bytes), Some(at));
            let took = 5 * price(&table);
            scale.note(at, (&question, plan), &table, took);
            assert_eq!(scale.unmeasured(bytes), None);
            let scaled = price(&scale.costs(&table, bytes));
            assert!(scaled.abs_diff(took) < took / 20, "{bytes} bytes: {scaled} for {took}");
        }
    }

    #[test]
    fn a_length_that_was_not_measured_counts_as_the_nearest() {
        let of =
            |millionths| move |bytes| SlotScale { millionths, ..SlotScale::default() }.of(bytes);
        let some = of([None, Some(3), None]);
        assert_eq!([8, 64 << 10, 1 << 20, 64 << 20].map(some), [None, Some(3), Some(3), Some(3)]);
        let all = of([Some(2), Some(3), Some(4)]);
        assert_eq!([65_535, 65_536, 600_000, 4 << 20].map(all), [None, Some(2), Some(3), Some(4)]);
        assert_eq!(of([None; 3])(1 << 20), None);
        assert_eq!(SlotScale::default().unmeasured(65_535), None);
    }

    #[test]
    fn each_length_is_measured_again_after_its_own_calls() {
        let mut scale = SlotScale::default();
        let mut due = |bytes| (0..12_000).filter(|_| scale.count(bytes).is_some()).count();
        assert_eq!([65_535, 64 << 10, 600 << 10, 64 << 20].map(&mut due), [0, 2, 3, 10]);
        assert_eq!((0..1_199).find_map(|_| scale.count(4 << 20)), None);
        assert_eq!(scale.count(4 << 20), Some(2));
    }
}
