//! One policy for every wait: spin, then yield, then sleep a little.
//!
//! The first polls are bare, because `pause` alone can cost as much as a flag takes to cross to another core. Then come
//! polls with `pause`, then yields: with fewer cores than ranks, what is awaited may need this very core, so such ranks
//! yield at once. After a few milliseconds the wait sleeps in short bounded naps. Nobody has to wake it, so a
//! publication needs neither a fence nor a look for sleepers. The alarm and the clock are read only once a wait is slow.
//!
//! A thread that waits beside one that computes naps from the first moment on, unless each of them has a core: whatever
//! it would spin or yield for, a millisecond saved on the wire is one taken from the computation that should hide it.

use crate::alarm::Alarm;
use std::time::{Duration, Instant};

const BARE_POLLS: u32 = 100;
const PAUSED_POLLS: u32 = 2000;
/// Yields between two looks at the clock and the alarm.
const YIELDS: u32 = 64;
/// How long a wait yields before it naps.
const PATIENCE: Duration = Duration::from_millis(5);
const SHORTEST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// How a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interrupted {
    /// The deadline passed.
    TimedOut,
    /// The alarm was raised.
    Alarmed,
}

/// What a wait does before it has become long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Manner {
    Spins,
    Yields,
    Naps,
}

/// The policy, fitted to how many ranks share how many cores.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    manner: Manner,
    /// The manner of a thread beside another one of its rank's.
    beside: Manner,
    timeout: Duration,
    deadline: Option<Instant>,
}

impl Waiting {
    /// For `ranks` ranks of this host on `cores` cores; every wait gives up after `timeout`.
    pub fn new(ranks: usize, cores: usize, timeout: Duration) -> Self {
        let manner = if ranks <= cores { Manner::Spins } else { Manner::Yields };
        let beside = if ranks <= cores / 2 { Manner::Spins } else { Manner::Naps };
        Self { manner, beside, timeout, deadline: None }
    }

    /// The same policy for a thread that waits while another one of its rank computes.
    pub fn beside_work(self) -> Self {
        Self { manner: self.beside, ..self }
    }

    /// How long a wait lasts at most.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same policy with another bound on each wait.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The same policy with one end of all waits, if there is one, in place of a bound on each.
    pub fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// When a wait that begins `now` ends.
    ///
    /// # Panics
    /// If the clock cannot show that time.
    pub fn end(&self, now: Instant) -> Instant {
        self.deadline.unwrap_or_else(|| now + self.timeout)
    }

    /// True if a wait that began at `since` has lasted long enough.
    fn is_over(&self, since: Instant, now: Instant) -> bool {
        self.deadline.map_or(now - since >= self.timeout, |deadline| now >= deadline)
    }

    /// Polls `ready` until it gives something. `nap` is called with how long to sleep once the wait has become long; it
    /// may return early.
    ///
    /// # Errors
    /// [`Interrupted`] if the deadline passes or `alarm` is raised first; `ready` is polled once more before.
    #[inline(always)]
    pub fn until<T>(
        &self,
        alarm: &Alarm,
        mut nap: impl FnMut(Duration),
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Interrupted> {
        match ready() {
            Some(it) => Ok(it),
            None => self.slowly(alarm, &mut nap, &mut ready),
        }
    }

    #[inline(never)]
    fn slowly<T>(
        &self,
        alarm: &Alarm,
        nap: &mut impl FnMut(Duration),
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Result<T, Interrupted> {
        if self.manner == Manner::Spins {
            for _ in 0..BARE_POLLS {
                if let Some(it) = ready() {
                    return Ok(it);
                }
            }
            for _ in 0..PAUSED_POLLS {
                if let Some(it) = ready() {
                    return Ok(it);
                }
                std::hint::spin_loop();
            }
        }
        self.very_slowly(alarm, nap, ready)
    }

    #[cold]
    #[inline(never)]
    fn very_slowly<T>(
        &self,
        alarm: &Alarm,
        nap: &mut impl FnMut(Duration),
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Result<T, Interrupted> {
        let mut since: Option<Instant> = None;
        let mut sleep = SHORTEST_NAP;
        let (yields, patience) = if self.manner == Manner::Naps { (0, Duration::ZERO) } else { (YIELDS, PATIENCE) };
        loop {
            for _ in 0..yields {
                if let Some(it) = ready() {
                    return Ok(it);
                }
                std::thread::yield_now();
            }
            let now = Instant::now();
            let since = *since.get_or_insert(now);
            let interrupted = match (alarm.raised(), self.is_over(since, now)) {
                (true, _) => Some(Interrupted::Alarmed),
                (_, true) => Some(Interrupted::TimedOut),
                _ => None,
            };
            if let Some(interrupted) = interrupted {
                return ready().ok_or(interrupted);
            }
            if now - since >= patience {
                nap(sleep);
                sleep = (sleep * 2).min(LONGEST_NAP);
                if let Some(it) = ready() {
                    return Ok(it);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(timeout: Duration) -> Waiting {
        Waiting::new(1, 1, timeout)
    }

    #[test]
    fn what_comes_in_time_is_returned() {
        let mut polls = 0;
        let ready = || {
            polls += 1;
            (polls > 5000).then_some(polls)
        };
        assert_eq!(waiting(Duration::from_secs(60)).until(&Alarm::default(), |_| {}, ready), Ok(5001));
    }

    #[test]
    fn the_deadline_and_the_alarm_end_a_wait() {
        let never = || None::<()>;
        let alarm = Alarm::default();
        assert_eq!(waiting(Duration::ZERO).until(&alarm, |_| {}, never), Err(Interrupted::TimedOut));
        alarm.raise();
        assert_eq!(waiting(Duration::from_secs(60)).until(&alarm, |_| {}, never), Err(Interrupted::Alarmed));
    }

    #[test]
    fn one_deadline_ends_all_waits() {
        let start = Instant::now();
        let deadline = start + Duration::from_millis(30);
        let waiting = waiting(Duration::from_secs(60)).with_deadline(Some(deadline));
        for _ in 0..2 {
            let ended = waiting.until(&Alarm::default(), std::thread::sleep, || None::<()>);
            assert_eq!(ended, Err(Interrupted::TimedOut));
            assert!(Instant::now() >= deadline);
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the bound of each wait still counts");
        let longer = Waiting::new(1, 1, Duration::ZERO).with_deadline(Some(Instant::now() + Duration::from_secs(60)));
        let mut polls = 0;
        let ready = || {
            polls += 1;
            (polls > 500).then_some(())
        };
        assert_eq!(longer.until(&Alarm::default(), |_| {}, ready), Ok(()), "the deadline alone counts");
    }

    #[test]
    fn a_wait_beside_work_naps_before_it_polls_again_unless_there_are_cores_for_both() {
        let first_nap = |ranks, cores| {
            let (mut polls, mut first) = (0, None);
            let polls_now = std::cell::Cell::new(0);
            let nap = |_| first = first.or(Some(polls_now.get()));
            let ready = || {
                polls += 1;
                polls_now.set(polls);
                (polls > 5000).then_some(())
            };
            let waiting = Waiting::new(ranks, cores, Duration::from_secs(60)).beside_work();
            waiting.until(&Alarm::default(), nap, ready).unwrap();
            first
        };
        assert_eq!(first_nap(1, 1), Some(1));
        assert_eq!(first_nap(2, 3), Some(1));
        assert!(first_nap(2, 4).is_none_or(|polls| polls > BARE_POLLS + PAUSED_POLLS));
    }

    #[test]
    fn long_waits_nap_longer_and_longer() {
        let mut naps = Vec::new();
        let timeout = Duration::from_millis(60);
        let nap = |length| {
            naps.push(length);
            std::thread::sleep(length);
        };
        assert_eq!(waiting(timeout).until(&Alarm::default(), nap, || None::<()>), Err(Interrupted::TimedOut));
        assert!(naps.is_sorted() && *naps.last().unwrap() <= LONGEST_NAP, "{naps:?}");
    }
}
