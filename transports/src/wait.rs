//! One policy for every wait: spin, then yield, then sleep a little.
//!
//! The first polls are bare, because `pause` alone can cost as much as a flag takes to cross to
//! another core. Then come polls with `pause`, then yields: with fewer cores than ranks, what is
//! awaited may need this very core, so such ranks yield at once. After a few milliseconds the wait
//! sleeps in short bounded naps. Nobody has to wake it, so a publication needs neither a fence nor
//! a look for sleepers. The alarm and the clock are read only once a wait is slow.
//!
//! A thread that waits beside one that computes naps from the first moment on, unless each of them
//! has a core: whatever it would spin or yield for, a millisecond saved on the wire is one taken
//! from the computation that should hide it. Once the other one has nothing left to do but to wait
//! for it, which the alarm tells, it waits like any other.

use crate::alarm::Alarm;
use crate::poll::{Interest, poll};
use arrayvec::ArrayVec;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

const BARE_POLLS: u32 = 100;
const PAUSED_POLLS: u32 = 2000;
/// Yields between two looks at the clock and the alarm.
const YIELDS: u32 = 64;
/// How long a wait yields before it naps.
const PATIENCE: Duration = Duration::from_millis(5);
const SHORTEST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// Most streams that one nap watches; naps are short enough for the others.
const WATCHED: usize = 64;
/// Beside work: long enough for many packets to come, so that the work is interrupted once for all
/// of them.
const NAP_BESIDE: Duration = Duration::from_micros(400);

/// How a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interrupted {
    /// The deadline passed.
    TimedOut,
    /// The alarm was raised.
    Alarmed,
}

/// A sleep that a [wait](Waiting::until) takes.
///
/// ```
/// use maypole_transports::{Alarm, Interrupted, Waiting, poll::Interest};
/// use std::{os::fd::AsFd, os::unix::net::UnixStream, time::Duration};
///
/// let (here, _there) = UnixStream::pair()?;
/// let waiting = Waiting::new(1, 1, Duration::from_millis(20));
/// let outcome = waiting.until(
///     &Alarm::default(),
///     |nap| nap.sleep([(here.as_fd(), Interest::Read)].into_iter()),
///     || None::<()>,
/// );
/// assert_eq!(outcome, Err(Interrupted::TimedOut));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Nap<'a> {
    length: Duration,
    /// By which it is ended beside work.
    alarm: Option<&'a Alarm>,
}

impl Nap<'_> {
    /// Sleeps, and wakes up early if one of `interests` can be followed. Beside work it does not,
    /// since the work would be interrupted each time that something comes; there the alarm alone
    /// wakes it.
    pub fn sleep<'a>(self, interests: impl Iterator<Item = (BorrowedFd<'a>, Interest)>) {
        if let Some(alarm) = self.alarm {
            return alarm.sleep(self.length);
        }
        let interests: ArrayVec<_, WATCHED> = interests.take(WATCHED).collect();
        // A failing poll means a sick system, which whatever is polled will report by itself.
        if poll(&interests, self.length).is_err() {
            std::thread::sleep(self.length);
        }
    }
}

/// The policy, fitted to how many ranks share how many cores.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    spins: bool,
    /// There is a core for a second thread of each rank.
    roomy: bool,
    /// It is that of a thread beside another one, which wants the core.
    beside: bool,
    timeout: Duration,
    deadline: Option<Instant>,
}

impl Waiting {
    /// For `ranks` ranks of this host on `cores` cores; every wait gives up after `timeout`.
    pub fn new(ranks: usize, cores: usize, timeout: Duration) -> Self {
        Self {
            spins: ranks <= cores,
            roomy: ranks <= cores / 2,
            beside: false,
            timeout,
            deadline: None,
        }
    }

    /// The same policy for a thread that waits while another one of its rank computes.
    pub fn beside_work(self) -> Self {
        Self { beside: !self.roomy, ..self }
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

    /// Polls `ready` until it gives something. `nap` is called once the wait has become long, to
    /// sleep or to return at once.
    ///
    /// # Errors
    /// [`Interrupted`] if the deadline passes or `alarm` is raised first; `ready` is polled once
    /// more before.
    #[inline(always)]
    pub fn until<T>(
        &self,
        alarm: &Alarm,
        mut nap: impl FnMut(Nap<'_>),
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
        nap: &mut impl FnMut(Nap<'_>),
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Result<T, Interrupted> {
        if self.spins && !self.is_patient(alarm) {
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
        nap: &mut impl FnMut(Nap<'_>),
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Result<T, Interrupted> {
        let mut since: Option<Instant> = None;
        // Since when it yields.
        let mut eager: Option<Instant> = None;
        let mut sleep = SHORTEST_NAP;
        loop {
            let patient = self.is_patient(alarm);
            for _ in 0..if patient { 0 } else { YIELDS } {
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
            if patient {
                eager = None;
            } else if now - *eager.get_or_insert(now) < PATIENCE {
                sleep = SHORTEST_NAP;
                continue;
            }
            if patient {
                nap(Nap { length: NAP_BESIDE, alarm: Some(alarm) });
            } else {
                nap(Nap { length: sleep, alarm: None });
                sleep = (sleep * 2).min(LONGEST_NAP);
            }
            if let Some(it) = ready() {
                return Ok(it);
            }
        }
    }

    /// True if another thread wants the core, and does not itself wait for this one.
    fn is_patient(&self, alarm: &Alarm) -> bool {
        self.beside && !alarm.is_hurried()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;

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
        assert_eq!(
            waiting(Duration::from_secs(60)).until(&Alarm::default(), |_| {}, ready),
            Ok(5001)
        );
    }

    #[test]
    fn the_deadline_and_the_alarm_end_a_wait() {
        let never = || None::<()>;
        let alarm = Alarm::default();
        assert_eq!(
            waiting(Duration::ZERO).until(&alarm, |_| {}, never),
            Err(Interrupted::TimedOut)
        );
        alarm.raise();
        assert_eq!(
            waiting(Duration::from_secs(60)).until(&alarm, |_| {}, never),
            Err(Interrupted::Alarmed)
        );
    }

    #[test]
    fn one_deadline_ends_all_waits() {
        let start = Instant::now();
        let deadline = start + Duration::from_millis(30);
        let waiting = waiting(Duration::from_secs(60)).with_deadline(Some(deadline));
        for _ in 0..2 {
            let ended =
                waiting.until(&Alarm::default(), |nap| nap.sleep(iter::empty()), || None::<()>);
            assert_eq!(ended, Err(Interrupted::TimedOut));
            assert!(Instant::now() >= deadline);
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the bound of each wait still counts");
        let longer = Waiting::new(1, 1, Duration::ZERO)
            .with_deadline(Some(Instant::now() + Duration::from_secs(60)));
        let mut polls = 0;
        let ready = || {
            polls += 1;
            (polls > 500).then_some(())
        };
        assert_eq!(
            longer.until(&Alarm::default(), |_| {}, ready),
            Ok(()),
            "the deadline alone counts"
        );
    }

    #[test]
    fn a_wait_beside_work_naps_before_it_polls_again_unless_there_are_cores_for_both() {
        let first_nap = |ranks, cores| {
            let (mut polls, mut first) = (0, None);
            let polls_now = std::cell::Cell::new(0);
            let nap = |_: Nap<'_>| first = first.or(Some(polls_now.get()));
            let ready = || {
                polls += 1;
                polls_now.set(polls);
                (polls > 5000).then_some(())
            };
            let waiting = Waiting::new(ranks, cores, Duration::from_secs(60)).beside_work();
            waiting.until(&Alarm::default(), nap, ready).unwrap();
            first
        };
        let hurried = Alarm::default();
        let _hurry = hurried.hurry();
        let (mut polls, mut naps) = (0, 0);
        let ready = || {
            polls += 1;
            (polls > 50).then_some(())
        };
        let waiting = Waiting::new(2, 2, Duration::from_secs(60)).beside_work();
        waiting.until(&hurried, |_| naps += 1, ready).unwrap();
        assert_eq!(naps, 0, "who is waited for does not sleep");
        assert_eq!(first_nap(1, 1), Some(1));
        assert_eq!(first_nap(2, 3), Some(1));
        assert!(first_nap(2, 4).is_none_or(|polls| polls > BARE_POLLS + PAUSED_POLLS));
    }

    #[test]
    fn long_waits_nap_longer_and_longer() {
        let mut naps = Vec::new();
        let timeout = Duration::from_millis(60);
        let nap = |nap: Nap<'_>| {
            naps.push(nap.length);
            nap.sleep(iter::empty());
        };
        assert_eq!(
            waiting(timeout).until(&Alarm::default(), nap, || None::<()>),
            Err(Interrupted::TimedOut)
        );
        assert!(naps.is_sorted() && *naps.last().unwrap() <= LONGEST_NAP, "{naps:?}");
    }
}
