//! What each rank took, and how far apart the ranks began.
//!
//! A sample lasts from the first rank's start to the last rank's end. Some ranks are done earlier:
//! the root of a broadcast, or a rank that has nothing to receive.

use crate::statistics::median;

/// The times of the ranks in a series of batches. Equal on all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RankTimes {
    /// Microseconds a call on each rank, averaged over the batches; `None` for a rank that took no
    /// part.
    us: Vec<Option<f64>>,
    batches: usize,
    /// Microseconds from the first rank's start to the last rank's start, in each batch.
    skews: Vec<f64>,
}

/// The least, the mean and the greatest time of the ranks, in microseconds a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RankSpread {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
    /// The rank that took longest.
    pub(crate) slowest: usize,
}

impl RankTimes {
    /// Adds a batch of `calls` calls: nanoseconds that each rank took, and its start. Starts are
    /// compared where all ranks read one clock.
    pub(crate) fn add(&mut self, ranks: &[Option<(u64, u64)>], calls: f64, one_clock: bool) {
        self.us.resize(ranks.len(), None);
        for (sum, rank) in self.us.iter_mut().zip(ranks) {
            if let Some((ns, _)) = rank {
                *sum = Some(sum.unwrap_or(0.0) + *ns as f64 / 1e3 / calls);
            }
        }
        self.batches += 1;
        let starts = || ranks.iter().flatten().map(|(_, start)| *start);
        if let Some((first, last)) = starts().min().zip(starts().max()).filter(|_| one_clock) {
            self.skews.push((last - first) as f64 / 1e3);
        }
    }

    /// Turns the sums into means.
    pub(crate) fn finish(&mut self) {
        for sum in self.us.iter_mut().flatten() {
            *sum /= self.batches.max(1) as f64;
        }
    }

    /// Microseconds a call of each rank.
    pub(crate) fn us(&self) -> &[Option<f64>] {
        &self.us
    }

    /// The median over the batches of the time from the first rank's start to the last rank's
    /// start, in microseconds. `None` where ranks read several clocks.
    pub(crate) fn skew_us(&self) -> Option<f64> {
        median(self.skews.clone())
    }

    /// The least, mean and greatest time; `None` without a time.
    pub(crate) fn spread(&self) -> Option<RankSpread> {
        let numbered =
            || self.us.iter().enumerate().filter_map(|(rank, us)| us.map(|us| (us, rank)));
        let by_time = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0);
        let (max, slowest) = numbered().max_by(by_time)?;
        let (min, _) = numbered().min_by(by_time)?;
        let count = numbered().count() as f64;
        let mean = numbered().map(|(us, _)| us).sum::<f64>() / count;
        Some(RankSpread { min, mean, max, slowest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_rank_and_the_skew_are_found() {
        let mut times = RankTimes::default();
        times.add(&[Some((1000, 0)), Some((3000, 500)), None], 2.0, true);
        times.add(&[Some((3000, 0)), Some((5000, 1500)), None], 2.0, true);
        times.finish();
        assert_eq!(times.us(), [Some(1.0), Some(2.0), None]);
        let spread = RankSpread { min: 1.0, mean: 1.5, max: 2.0, slowest: 1 };
        assert_eq!(times.spread(), Some(spread));
        assert_eq!(times.skew_us(), Some(1.0));
        assert_eq!(RankTimes::default().spread(), None);
    }

    #[test]
    fn starts_by_several_clocks_are_not_compared() {
        let mut times = RankTimes::default();
        times.add(&[Some((1000, 0)), Some((3000, 500))], 1.0, false);
        assert_eq!(times.skew_us(), None);
    }
}
