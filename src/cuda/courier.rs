//! The thread that carries a rank's publications to other hosts.
//!
//! It looks at words that kernels write, at any time: graphs run without a call of the host. So it looks as
//! long as the rank is in the group, and sleeps between looks when nothing has moved for a while.

use crate::engine::device::DeviceWitness;
use maypole_transports::cuda::Courier;
use maypole_transports::turns::{self, poll_until};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread only yields its core between two looks, after something has moved.
const AWAKE: Duration = Duration::from_micros(200);
/// How long it sleeps at most between two looks after that, and when nothing has moved for longer.
const SHORT_SLEEP: Duration = Duration::from_micros(50);
const LONG_SLEEP: Duration = Duration::from_micros(500);
const LONG_AFTER: Duration = Duration::from_millis(50);

/// State that the thread shares with its rank.
#[derive(Debug, Default)]
struct Shared {
    /// The rank's kernels have ended.
    ends: AtomicBool,
    /// The thread ends without a goodbye.
    is_cut: AtomicBool,
    /// Ranks on other hosts whose goodbyes have arrived, by bits.
    left: AtomicU64,
    /// A lost stream fails the group.
    is_relied_on: AtomicBool,
    /// Why a stream was lost before that.
    lost: Mutex<Option<String>>,
}

impl Shared {
    /// Waits until a lost stream counts. False if the thread is to end before.
    fn comes_to_be_relied_on(&self) -> bool {
        while !self.is_relied_on.load(Ordering::Acquire) {
            if [&self.ends, &self.is_cut].iter().any(|it| it.load(Ordering::Acquire)) {
                return false;
            }
            std::thread::sleep(SHORT_SLEEP);
        }
        true
    }
}

/// Which of the ranks on other hosts have left the group: their goodbyes have arrived, behind all of their
/// words. What the control plane has may overtake words.
#[derive(Clone, Debug, Default)]
pub(super) struct FarDepartures {
    shared: Arc<Shared>,
    /// The ranks on other hosts.
    far: u64,
}

impl FarDepartures {
    /// These, and those of `left` that are on this host.
    pub(super) fn with_near(&self, left: u64) -> u64 {
        left & !self.far | self.shared.left.load(Ordering::Acquire)
    }
}

/// The thread of a rank's courier.
#[derive(Debug)]
pub(super) struct CourierThread {
    departures: FarDepartures,
    /// How publications reach other hosts, in words.
    pub(super) ways: String,
    thread: Option<JoinHandle<()>>,
}

impl CourierThread {
    /// Starts the thread. Once it is [relied on](Self::rely_on), it reports a lost stream to all ranks by
    /// `witness`.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(super) fn start(
        courier: Courier,
        witness: DeviceWitness,
        ways: String,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let departures = FarDepartures { shared: Arc::clone(&shared), far: courier.peers() };
        let carry = move || carry(courier, &shared, witness);
        let thread = std::thread::Builder::new().name("maypole-courier".to_owned()).spawn(carry)?;
        Ok(Self { departures, ways, thread: Some(thread) })
    }

    pub(super) fn departures(&self) -> FarDepartures {
        self.departures.clone()
    }

    /// From now on a lost stream fails the group, also one that was lost before.
    pub(super) fn rely_on(&self) {
        self.departures.shared.is_relied_on.store(true, Ordering::Release);
    }

    /// Why a stream was lost while the group could still do without the couriers.
    pub(super) fn lost(&self) -> Option<String> {
        self.departures.shared.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the thread after all words of this rank have arrived at the hosts of their readers, but within
    /// `limit`. The rank's kernels have ended.
    pub(super) fn end(self, limit: Duration) {
        self.departures.shared.ends.store(true, Ordering::Release);
        let is_done = || self.thread.as_ref().is_none_or(JoinHandle::is_finished).then_some(());
        let _ = poll_until(turns::now() + limit, SHORT_SLEEP, is_done);
    }
}

impl Drop for CourierThread {
    fn drop(&mut self) {
        self.departures.shared.is_cut.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Carries words until the goodbyes have arrived, a stream is lost, or the group fails.
fn carry(mut courier: Courier, shared: &Shared, mut witness: DeviceWitness) {
    let mut moved_last = Instant::now();
    loop {
        if shared.is_cut.load(Ordering::Acquire) || witness.has_failed() {
            courier.abandon();
            return;
        }
        let ends = shared.ends.load(Ordering::Acquire);
        if ends {
            courier.say_goodbye();
        }
        match courier.drive() {
            Ok(true) => moved_last = Instant::now(),
            Ok(false) => {}
            Err(lost) => {
                *shared.lost.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(format!("the stream to rank {} is lost: {}", lost.peer, lost.fault));
                if shared.comes_to_be_relied_on() {
                    witness.lose(lost);
                }
                return courier.abandon();
            }
        }
        shared.left.store(courier.left(), Ordering::Release);
        if ends && courier.has_ended() {
            return;
        }
        match moved_last.elapsed() {
            idle if idle < AWAKE => std::thread::yield_now(),
            idle if idle < LONG_AFTER => courier.sleep(SHORT_SLEEP),
            _ => courier.sleep(LONG_SLEEP),
        }
    }
}
