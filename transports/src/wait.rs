//! One policy for every wait: spin, then yield, then sleep a little.
//!
//! The first polls are bare, because one `pause` can cost as much as a flag takes to reach another
//! core. Then come polls with `pause` for some microseconds, then yields. A poll of streams is a system call
//! for each of them, so a wait for streams reads the clock after each, and spins more rarely where
//! spins time out (`wait/vain.rs`). Ranks that outnumber the cores yield immediately, because the
//! rank that they wait for may need this core. After a few milliseconds the wait sleeps for short,
//! bounded times. The publisher wakes a waiter whose sleep flag it observes. The check has no
//! fence, so a wake-up can be missed until the bounded sleep ends. The alarm and the clock are read
//! only once a wait is slow.
//!
//! A thread that shares its core with another program (`wait/crowd.rs`) sleeps where others yield,
//! and every thread that waits for long asks the kernel for short time slices (`wait/slice.rs`).
//!
//! A background thread, which runs requests while its rank computes on another thread, sleeps from
//! the beginning of a wait, unless each of the two threads has a core of its own. Spinning or
//! yielding would take from the computation the time that overlapping should save. A peer's
//! progress in shared memory ends the sleep, so that a waiting peer is not delayed. The alarm
//! signals that the foreground thread waits for the background thread. During that time the
//! background thread waits as any other thread does.

mod crowd;
mod slice;
mod vain;

use crate::alarm::Alarm;
use crate::bell::Bell;
use crate::poll::{PollFd, poll};
use crate::turns;
use arrayvec::ArrayVec;
use crowd::Yields;
use std::time::{Duration, Instant};

const BARE_POLLS: u32 = 100;
/// Polls with `pause` between two reads of the clock: about a microsecond.
const PAUSED_POLLS: u32 = 32;
/// How long a wait spins. "Hosts" that are containers or virtual machines may share a core
/// undetected, and the awaited rank may need this one.
const SPINNING: Duration = Duration::from_micros(30);
/// Yields between two reads of the alarm, and polls between two sleeps in a crowd.
const YIELDS: u32 = 64;
/// How long a wait yields before it sleeps.
const YIELDING: Duration = Duration::from_millis(5);
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);
/// Streams that can end one sleep early. Sleeps are short enough for any further stream.
const MOST_INTERESTS: usize = 64;
/// The longest sleep of a background thread. Many packets arrive in this time, so the computation
/// is interrupted once for all of them.
const BACKGROUND_SLEEP: Duration = Duration::from_micros(400);

/// Why a wait ended early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interrupted {
    /// The deadline passed.
    TimedOut,
    /// The alarm was raised.
    Alarmed,
}

/// One bounded sleep within a [wait](Waiting::until), which the caller may take or skip.
///
/// ```
/// use maypole_transports::{Alarm, Interrupted, Waiting, poll::interest};
/// use std::{os::fd::AsFd, os::unix::net::UnixStream, time::Duration};
///
/// let (here, _there) = UnixStream::pair()?;
/// let waiting = Waiting::new(1, 1, Duration::from_millis(20));
/// let outcome = waiting.until(
///     &Alarm::default(),
///     |sleep| sleep.take(interest(here.as_fd(), true, false).into_iter()),
///     || None::<()>,
/// );
/// assert_eq!(outcome, Err(Interrupted::TimedOut));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Sleep<'a> {
    length: Duration,
    /// On a background thread, the alarm that ends the sleep early.
    alarm: Option<&'a Alarm>,
}

impl Sleep<'_> {
    #[cfg(test)]
    pub(crate) fn of(length: Duration) -> Self {
        Self { length, alarm: None }
    }

    #[cfg(test)]
    pub(crate) fn in_background(length: Duration, alarm: &Alarm) -> Sleep<'_> {
        Sleep { length, alarm: Some(alarm) }
    }

    /// True on a background thread, whose sleep ends with its alarm, too.
    pub fn is_in_background(&self) -> bool {
        self.alarm.is_some()
    }

    /// Sleeps until the time has passed or one of `bells` rings, unless `is_over` already.
    pub(crate) fn on(self, bells: &[&Bell], is_over: impl FnOnce() -> bool) {
        match self.alarm {
            Some(alarm) => alarm.sleep(bells, self.length, is_over),
            None => Bell::sleep_on(bells, None, self.length, is_over),
        }
    }

    /// Sleeps until the time has passed or one of `interests` is met. Their streams have
    /// [prepared](crate::Stream::prepare_to_sleep) for it.
    ///
    /// On a background thread only the alarm ends the sleep early, because waking up for every
    /// packet would interrupt the computation each time.
    pub fn take<'a>(self, interests: impl Iterator<Item = PollFd<'a>>) {
        if self.is_in_background() {
            return self.on(&[], || false);
        }
        let mut interests: ArrayVec<_, MOST_INTERESTS> = interests.take(MOST_INTERESTS).collect();
        // If the system cannot poll, the streams report their own errors at the next attempt.
        if poll(&mut interests, self.length).is_err() {
            std::thread::sleep(self.length);
        }
    }
}

/// The policy of waiting, for a given number of ranks that share a given number of cores.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    spins: bool,
    /// Each rank has two cores: one for each of its threads.
    two_cores_a_rank: bool,
    /// The waiting thread shares its core with the thread that computes.
    background: bool,
    /// A poll takes as long as several reads of the clock.
    polls_streams: bool,
    timeout: Duration,
    deadline: Option<Instant>,
}

impl Waiting {
    /// Makes the policy for `ranks` ranks of this host on `cores` cores. Every wait aborts after
    /// `timeout`.
    pub fn new(ranks: usize, cores: usize, timeout: Duration) -> Self {
        Self {
            spins: ranks <= cores,
            two_cores_a_rank: ranks <= cores / 2,
            background: false,
            polls_streams: false,
            timeout,
            deadline: None,
        }
    }

    /// Returns the same policy for waits whose polls are system calls on streams.
    pub fn on_streams(self) -> Self {
        Self { polls_streams: true, ..self }
    }

    /// Returns the same policy for a background thread, which waits while another thread of its
    /// rank computes.
    pub fn in_background(self) -> Self {
        Self { background: !self.two_cores_a_rank, ..self }
    }

    /// Returns how long a wait may last.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the same policy with another timeout.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the same policy, in which all waits end at `deadline` instead of after a timeout
    /// each. `None` restores the timeout.
    pub fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the time at which a wait that begins `now` ends.
    ///
    /// # Panics
    /// If the clock cannot show that time.
    pub fn end(&self, now: Instant) -> Instant {
        self.deadline.unwrap_or_else(|| now + self.timeout)
    }

    /// True if a wait that began at `since` must end `now`.
    fn is_over(&self, since: Instant, now: Instant) -> bool {
        self.deadline.map_or(now - since >= self.timeout, |deadline| now >= deadline)
    }

    /// Polls `ready` until it returns a value. Once the wait has become long, calls `sleep` between
    /// polls, which may take the given [`Sleep`] or return immediately.
    ///
    /// # Errors
    /// [`Interrupted`] if the deadline passes or `alarm` is raised first. `ready` is polled once
    /// more before that.
    #[inline(always)]
    pub fn until<T>(
        &self,
        alarm: &Alarm,
        mut sleep: impl FnMut(Sleep<'_>),
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Interrupted> {
        match ready() {
            Some(value) => Ok(value),
            None => self.slowly(alarm, &mut sleep, &mut ready),
        }
    }

    #[inline(never)]
    fn slowly<T>(
        &self,
        alarm: &Alarm,
        sleep: &mut impl FnMut(Sleep<'_>),
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Result<T, Interrupted> {
        if self.spins && !self.yields_core(alarm) {
            let spun = match self.polls_streams {
                true => vain::unless_in_vain(|| self.spin(ready)),
                false => self.spin(ready),
            };
            if let Some(value) = spun {
                return Ok(value);
            }
        }
        self.very_slowly(alarm, sleep, ready)
    }

    /// Polls for [`SPINNING`].
    fn spin<T>(&self, ready: &mut impl FnMut() -> Option<T>) -> Option<T> {
        let (bare, paused) = if self.polls_streams { (0, 1) } else { (BARE_POLLS, PAUSED_POLLS) };
        for _ in 0..bare {
            if let Some(value) = ready() {
                return Some(value);
            }
        }
        let begin = Instant::now();
        while begin.elapsed() < SPINNING {
            for _ in 0..paused {
                if let Some(value) = ready() {
                    return Some(value);
                }
                std::hint::spin_loop();
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn very_slowly<T>(
        &self,
        alarm: &Alarm,
        sleep: &mut impl FnMut(Sleep<'_>),
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Result<T, Interrupted> {
        if let Some(ended) = self.by_turns(alarm, ready) {
            return ended;
        }
        slice::shorten();
        let mut since: Option<Instant> = None;
        let mut yielding_since: Option<Instant> = None;
        let mut length = SHORTEST_SLEEP;
        let mut yields = self.spins.then(Yields::begin);
        loop {
            let background = self.yields_core(alarm);
            let mut crowded = self.spins && crowd::is_here();
            for _ in 0..if background { 0 } else { YIELDS } {
                if let Some(value) = ready() {
                    return Ok(value);
                }
                match &mut yields {
                    _ if crowded => {}
                    // Threads that outnumber the cores always share them.
                    None => std::thread::yield_now(),
                    Some(yields) => crowded = yields.take(),
                }
            }
            let now = Instant::now();
            let since = *since.get_or_insert(now);
            if let Some(interrupted) = self.interrupted(alarm, since, now) {
                return ready().ok_or(interrupted);
            }
            if background {
                yielding_since = None;
                sleep(Sleep { length: BACKGROUND_SLEEP, alarm: Some(alarm) });
            } else if !crowded && now - *yielding_since.get_or_insert(now) < YIELDING {
                length = SHORTEST_SLEEP;
                continue;
            } else {
                sleep(Sleep { length, alarm: None });
                length = (length * 2).min(LONGEST_SLEEP);
            }
            if let Some(value) = ready() {
                return Ok(value);
            }
        }
    }

    /// Waits as a thread that takes turns, which neither spins nor sleeps; `None` if this one takes none.
    fn by_turns<T>(
        &self,
        alarm: &Alarm,
        ready: &mut impl FnMut() -> Option<T>,
    ) -> Option<Result<T, Interrupted>> {
        let now = turns::current()?.now();
        let end = self.deadline.or_else(|| now.checked_add(self.timeout));
        let alarmed = || alarm.raised().then_some(Err(Interrupted::Alarmed));
        let ended = turns::wait(end, || ready().map(Ok).or_else(alarmed))?;
        Some(ended.unwrap_or(Err(Interrupted::TimedOut)))
    }

    /// Returns why a wait that began at `since` must end `now`, or `None` if it may continue. A
    /// raised alarm comes first, because the reason for the alarm may also be the reason for the
    /// timeout.
    fn interrupted(&self, alarm: &Alarm, since: Instant, now: Instant) -> Option<Interrupted> {
        if alarm.raised() {
            Some(Interrupted::Alarmed)
        } else if self.is_over(since, now) {
            Some(Interrupted::TimedOut)
        } else {
            None
        }
    }

    /// True on a background thread, unless the foreground thread waits for it.
    fn yields_core(&self, alarm: &Alarm) -> bool {
        self.background && !alarm.has_foreground_wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::iter;

    fn waiting(timeout: Duration) -> Waiting {
        Waiting::new(1, 1, timeout)
    }

    #[test]
    fn a_value_that_comes_in_time_is_returned() {
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
                waiting.until(&Alarm::default(), |sleep| sleep.take(iter::empty()), || None::<()>);
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

    /// Polls before the first sleep of a background thread, for `ranks` ranks on `cores` cores.
    fn polls_before_first_sleep(ranks: usize, cores: usize) -> Option<u32> {
        let mut first = None;
        let polls = Cell::new(0);
        let sleep = |_: Sleep<'_>| first = first.or(Some(polls.get()));
        let ready = || {
            polls.set(polls.get() + 1);
            (polls.get() > 5000).then_some(())
        };
        let waiting = Waiting::new(ranks, cores, Duration::from_secs(60)).in_background();
        waiting.until(&Alarm::default(), sleep, ready).unwrap();
        first
    }

    #[test]
    fn a_background_thread_sleeps_before_it_polls_again_unless_each_rank_has_two_cores() {
        assert_eq!(polls_before_first_sleep(1, 1), Some(1));
        assert_eq!(polls_before_first_sleep(2, 3), Some(1));
        let with_cores = polls_before_first_sleep(2, 4);
        assert!(with_cores.is_none_or(|polls| polls > BARE_POLLS + PAUSED_POLLS));
    }

    /// For any number of peers in a poll, and so any duration of a poll.
    #[test]
    fn a_wait_for_streams_spins_by_the_clock_and_not_by_polls() {
        for each in [1, 10, 100].map(Duration::from_micros) {
            let (begin, mut polls) = (Instant::now(), 0);
            let mut slow = || {
                polls += 1;
                let end = Instant::now() + each;
                while Instant::now() < end {}
                (begin.elapsed() > Duration::from_secs(1)).then_some(())
            };
            let waiting = Waiting::new(1, 1, Duration::from_secs(60)).on_streams();
            assert_eq!(waiting.spin(&mut slow), None);
            let most = SPINNING.as_micros() / each.as_micros() + 1;
            assert!(polls <= most, "{polls} polls of {each:?}");
        }
    }

    #[test]
    fn a_background_thread_does_not_sleep_while_the_foreground_waits_for_it() {
        let alarm = Alarm::default();
        let _wait = alarm.begin_foreground_wait();
        let mut polls = 0;
        let mut sleeps = 0;
        let ready = || {
            polls += 1;
            (polls > 50).then_some(())
        };
        let waiting = Waiting::new(2, 2, Duration::from_secs(60)).in_background();
        waiting.until(&alarm, |_| sleeps += 1, ready).unwrap();
        assert_eq!(sleeps, 0);
    }

    #[test]
    fn the_longer_a_wait_the_longer_its_sleeps() {
        const SLEEPS: usize = 12;
        let lengths = RefCell::new(Vec::new());
        let sleep = |sleep: Sleep<'_>| lengths.borrow_mut().push(sleep.length);
        let ready = || (lengths.borrow().len() == SLEEPS).then_some(());
        waiting(Duration::from_secs(60)).until(&Alarm::default(), sleep, ready).unwrap();
        let doubled = |length: &Duration| Some((2 * *length).min(LONGEST_SLEEP));
        let expected: Vec<_> =
            iter::successors(Some(SHORTEST_SLEEP), doubled).take(SLEEPS).collect();
        assert_eq!(lengths.into_inner(), expected);
        assert_eq!(expected.last(), Some(&LONGEST_SLEEP));
    }
}
