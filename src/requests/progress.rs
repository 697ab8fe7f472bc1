//! Runs a communicator's requests, in the order in which they were started: on a background thread,
//! or on a thread of the program that waits for one of them.

use crate::control::Control;
use crate::control::departures::LeavingThread;
use crate::engine::Engine;
use crate::world::service::{Cause, FailureKind};
use maypole_transports::Alarm;
use maypole_transports::lock;
use maypole_transports::turns::{self, DeadlinePassed};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// The time that a panicking rank still runs its requests before it fails its group.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A call with its buffers. The thread that owns the engine runs it for its communicator `C`.
pub(crate) type RequestJob<'a, C> = Box<dyn FnOnce(&mut C) + Send + 'a>;

/// A communicator that owns its engine only while it runs calls of requests.
pub(crate) trait EngineBorrower: Send + 'static {
    /// Takes ownership of `engine`.
    fn put(&mut self, engine: Box<Engine>);

    fn engine(&mut self) -> &mut Engine;

    /// Returns the engine.
    fn take(&mut self) -> Box<Engine>;

    fn depart(&mut self);

    /// Sets whether a background thread uses the engine while the rank computes in another thread.
    /// A wait in the background yields the core to the computation.
    fn set_background(&mut self, background: bool) {
        self.engine().change_limits(|limits| limits.background = background);
    }
}

enum ProgressCommand {
    /// Poll the queue of jobs.
    Look,
    /// Return the engine, after all jobs.
    GiveBack,
    /// Leave the group, after all jobs, and end.
    Leave,
}

/// The pauses between two polls of the queue, and so the longest latency of a job that no other
/// thread runs. A program that waits for a request runs it sooner, without a switch of threads. The
/// longer pause is for a program that does so repeatedly: each poll takes the core from a rank.
const NAPS: [Duration; 2] = [Duration::from_micros(100), Duration::from_micros(1600)];
/// The number of polls without a job before the thread sleeps until it is woken.
const LOOKS: u32 = 20;

/// The jobs that have not completed, and the communicator that runs them: on the background thread,
/// or on a waiting thread of the program.
struct Jobs<C> {
    /// Owns the engine while there are jobs. Locked by the thread that runs them.
    comm: Mutex<C>,
    queue: Mutex<VecDeque<RequestJob<'static, C>>>,
    /// The total numbers of jobs that were queued, and that were taken from the queue.
    queued: AtomicUsize,
    taken: AtomicUsize,
    /// True while the background thread polls the queue.
    is_looked_after: AtomicBool,
    /// The thread that runs jobs.
    runner: Arc<Mutex<Option<ThreadId>>>,
}

/// Runs jobs on the calling thread.
pub(crate) trait RunsJobs: Send + Sync {
    /// Runs the jobs in their order until `is_done`, if no thread runs them.
    fn run_until(&self, is_done: &mut dyn FnMut() -> bool);
}

impl<C: EngineBorrower> Jobs<C> {
    fn new(comm: C) -> Self {
        Self {
            comm: Mutex::new(comm),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            is_looked_after: AtomicBool::new(false),
            runner: Arc::default(),
        }
    }

    fn add(&self, job: RequestJob<'static, C>) {
        lock(&self.queue).push_back(job);
        self.queued.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of jobs among the first `queued` ones that no thread has begun.
    fn left_of(&self, queued: usize) -> usize {
        queued.saturating_sub(self.taken.load(Ordering::SeqCst))
    }

    fn has_left(&self) -> bool {
        self.left_of(self.queued.load(Ordering::SeqCst)) > 0
    }

    fn run(&self, comm: &mut C, is_done: &mut dyn FnMut() -> bool) {
        *lock(&self.runner) = Some(thread::current().id());
        while !is_done() {
            let Some(job) = lock(&self.queue).pop_front() else { break };
            self.taken.fetch_add(1, Ordering::SeqCst);
            job(comm);
        }
        *lock(&self.runner) = None;
    }

    /// Runs all jobs. Waits for a thread that runs some.
    fn run_all(&self, background: bool) -> MutexGuard<'_, C> {
        let free = || match self.comm.try_lock() {
            Ok(comm) => Some(comm),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let mut comm = match turns::wait(None, free) {
            Some(Ok(comm)) => comm,
            _ => lock(&self.comm),
        };
        if self.has_left() {
            comm.set_background(background);
            self.run(&mut comm, &mut || false);
        }
        comm
    }
}

impl<C: EngineBorrower> RunsJobs for Jobs<C> {
    fn run_until(&self, is_done: &mut dyn FnMut() -> bool) {
        // In a simulation, the background thread has its turns.
        if turns::current().is_some() || !self.has_left() {
            return;
        }
        let Ok(mut comm) = self.comm.try_lock() else { return };
        if self.has_left() {
            comm.set_background(false);
            self.run(&mut comm, is_done);
        }
    }
}

/// The thread that runs requests, the channels to it and from it, and the jobs.
pub(crate) struct Progress<C> {
    jobs: Arc<Jobs<C>>,
    commands: Sender<ProgressCommand>,
    engines: Receiver<Box<Engine>>,
    thread: LeavingThread,
    control: Arc<dyn Control>,
    rank: usize,
}

impl<C: EngineBorrower> Progress<C> {
    /// Starts the thread. Jobs receive `comm`, once it owns the engine.
    pub(crate) fn start(comm: C, control: Arc<dyn Control>, rank: usize) -> io::Result<Self> {
        let (commands, received) = channel();
        let (give_back, engines) = channel();
        let jobs = Arc::new(Jobs::new(comm));
        let (shared, alarm) = (Arc::clone(&jobs), control.alarm());
        let name = format!("maypole-{rank}-run");
        let thread = LeavingThread::start(name, move || serve(shared, alarm, received, give_back))?;
        Ok(Self { jobs, commands, engines, thread, control, rank })
    }

    pub(crate) fn lend(&self, engine: Box<Engine>) {
        lock(&self.jobs.comm).put(engine);
    }

    /// Queues `job`. The engine must have been lent. The background thread runs it soon, unless a
    /// thread that waits for a request does.
    pub(crate) fn run(&self, job: RequestJob<'static, C>) {
        self.jobs.add(job);
        if !self.jobs.is_looked_after.swap(true, Ordering::SeqCst) {
            self.tell(ProgressCommand::Look);
        }
    }

    /// The queue, for a thread that waits for a job and runs jobs meanwhile.
    pub(crate) fn jobs(&self) -> Weak<dyn RunsJobs> {
        let jobs: Weak<Jobs<C>> = Arc::downgrade(&self.jobs);
        jobs
    }

    /// True on the thread that runs a job.
    pub(crate) fn runs_on_this_thread(&self) -> bool {
        *lock(&self.jobs.runner) == Some(thread::current().id())
    }

    /// True while a job is running or queued.
    pub(crate) fn is_busy(&self) -> bool {
        self.jobs.has_left() || lock(&self.jobs.runner).is_some()
    }

    /// Lets the thread leave the group after all jobs. The engine must have been lent.
    pub(crate) fn leave(self) -> LeavingThread {
        self.tell(ProgressCommand::Leave);
        self.thread.behind(Arc::clone(&self.jobs.runner))
    }

    fn tell(&self, command: ProgressCommand) {
        self.commands.send(command).expect("the thread outlives its communicator");
    }

    /// Runs all queued jobs, waits for running ones, each of which has its deadline, and takes the
    /// engine back.
    pub(crate) fn recall(&self) -> Box<Engine> {
        let alarm = self.control.alarm();
        let _wait = alarm.begin_foreground_wait();
        let mut comm = self.jobs.run_all(false);
        comm.set_background(false);
        comm.take()
    }

    /// Ends the thread, after all jobs, and returns the engine if it was lent. A panicking rank
    /// waits no longer than [`GRACE`] for its peers. Then it fails the group, so that no rank waits
    /// for long.
    pub(crate) fn end(self, lent: bool) -> Option<Box<Engine>> {
        if !lent {
            self.join();
            return None;
        }
        // A simulation ends this thread, too, when it drops the rank.
        let _ = self.commands.send(ProgressCommand::GiveBack);
        let patient = !thread::panicking();
        let engine = await_or_fail(&self.engines, &*self.control, self.rank, patient);
        if engine.is_some() {
            self.join();
        }
        engine
    }

    fn join(self) {
        // The thread ends, because its channel is closed.
        drop(self.commands);
        self.thread.join();
    }
}

/// Waits for the value that is sent after all jobs. If not `patient`, this fails the group after
/// [`GRACE`], and waits as long again for the running job to abort.
pub(crate) fn await_or_fail<T>(
    done: &Receiver<T>,
    control: &dyn Control,
    rank: usize,
    patient: bool,
) -> Option<T> {
    let alarm = control.alarm();
    let _wait = alarm.begin_foreground_wait();
    if patient {
        return receive(done);
    }
    match receive_within(done, Some(GRACE)) {
        Err(RecvTimeoutError::Timeout) => {
            let rank = control.activity().members()[rank];
            let words = " panicked while it had requests in flight".to_owned();
            // The highest sequence number: so that any other cause precedes it.
            control.fail(Cause::of_rank(u64::MAX, FailureKind::UserAbort, rank, words));
            receive_within(done, Some(GRACE)).ok()
        }
        done => done.ok(),
    }
}

/// Waits for the next value; `None` if the channel is closed.
pub(crate) fn receive<T>(channel: &Receiver<T>) -> Option<T> {
    receive_within(channel, None).ok()
}

/// As [`receive`], for no longer than `most`.
fn receive_within<T>(channel: &Receiver<T>, most: Option<Duration>) -> Result<T, RecvTimeoutError> {
    let deadline = most.map(|most| turns::now() + most);
    match (turns::wait(deadline, || poll(channel)), most) {
        (Some(Ok(received)), _) => received,
        (Some(Err(DeadlinePassed)), _) => Err(RecvTimeoutError::Timeout),
        (None, Some(most)) => channel.recv_timeout(most),
        (None, None) => channel.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// The next value, or the end of the channel, without waiting.
fn poll<T>(channel: &Receiver<T>) -> Option<Result<T, RecvTimeoutError>> {
    match channel.try_recv() {
        Ok(value) => Some(Ok(value)),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(Err(RecvTimeoutError::Disconnected)),
    }
}

/// Owns its channels, so that they close within the thread's turns of a simulation.
fn serve<C: EngineBorrower>(
    jobs: Arc<Jobs<C>>,
    alarm: Arc<Alarm>,
    commands: Receiver<ProgressCommand>,
    give_back: Sender<Box<Engine>>,
) {
    let mut next = receive(&commands);
    while let Some(command) = next {
        next = match command {
            ProgressCommand::Look => look_after(&jobs, &alarm, &commands),
            ProgressCommand::GiveBack => {
                let mut comm = jobs.run_all(true);
                comm.set_background(false);
                // The receiver is dropped if its thread panicked and timed out.
                let _ = give_back.send(comm.take());
                receive(&commands)
            }
            ProgressCommand::Leave => return jobs.run_all(true).depart(),
        }
    }
}

/// Runs jobs that no other thread runs in time, until several polls found none. Returns the next
/// command.
fn look_after<C: EngineBorrower>(
    jobs: &Jobs<C>,
    alarm: &Alarm,
    commands: &Receiver<ProgressCommand>,
) -> Option<ProgressCommand> {
    let mut idle = 0;
    let mut nap = NAPS[0];
    loop {
        let queued = jobs.queued.load(Ordering::SeqCst);
        let left = jobs.left_of(queued);
        let takes_turns = turns::current().is_some();
        let is_urgent = left > 0 && (takes_turns || alarm.has_foreground_wait());
        if !is_urgent && !takes_turns {
            match commands.recv_timeout(nap) {
                Ok(ProgressCommand::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        if jobs.left_of(queued) > 0 {
            drop(jobs.run_all(true));
            (idle, nap) = (0, NAPS[0]);
            continue;
        }
        // Other threads have run the queued jobs.
        let others_run = left > 0 || jobs.queued.load(Ordering::SeqCst) > queued;
        if others_run && !jobs.has_left() {
            nap = (nap * 2).min(NAPS[1]);
        }
        idle = if others_run || jobs.has_left() { 0 } else { idle + 1 };
        if idle == LOOKS || (takes_turns && idle > 0) {
            jobs.is_looked_after.store(false, Ordering::SeqCst);
            // A job that was queued before the line above has woken no thread.
            if !jobs.has_left() || jobs.is_looked_after.swap(true, Ordering::SeqCst) {
                return receive(commands);
            }
            idle = 0;
        }
    }
}
