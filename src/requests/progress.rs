//! The thread that runs a communicator's requests, in the order in which they were started.

use crate::control::Control;
use crate::control::departures::LeavingThread;
use crate::engine::Engine;
use crate::error::Error;
use crate::world::RankSentence;
use crate::world::service::{Cause, CauseKind};
use maypole_transports::turns::{self, DeadlinePassed};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// How long a rank that panics goes on with its requests before it fails its group.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A call with its buffers. The thread that has the engine runs it for its communicator `C`.
pub(crate) type RequestJob<'a, C> = Box<dyn FnOnce(&mut C) + Send + 'a>;

/// The outcome of a request: a panic, an error, or the buffers.
pub(crate) type RequestOutcome<B> = thread::Result<Result<B, Error>>;

/// A communicator that has its engine only while it makes calls in a thread beside the caller's.
pub(crate) trait EngineBorrower: Send + 'static {
    /// Has `engine` from now on.
    fn put(&mut self, engine: Box<Engine>);

    /// The engine that it has.
    fn engine(&mut self) -> &mut Engine;

    /// Gives the engine back.
    fn take(&mut self) -> Box<Engine>;

    /// Leaves the group.
    fn depart(&mut self);

    /// Says whether a background thread uses the engine while the rank computes in another thread.
    /// A wait in the background leaves the core to the computation.
    fn set_background(&mut self, background: bool) {
        self.engine().change_limits(|limits| limits.background = background);
    }
}

/// What the thread is told to do.
enum ProgressCommand<C> {
    /// Use this engine from now on.
    Take(Box<Engine>),
    Run(RequestJob<'static, C>),
    /// Give the engine back.
    GiveBack,
    /// Leave the group and end.
    Leave,
}

/// The thread, and the channels to it and from it.
pub(crate) struct Progress<C> {
    commands: Sender<ProgressCommand<C>>,
    engines: Receiver<Box<Engine>>,
    thread: LeavingThread,
    /// How many jobs are not over.
    in_flight: Arc<AtomicUsize>,
    control: Arc<dyn Control>,
    rank: usize,
}

impl<C: EngineBorrower> Progress<C> {
    /// Starts the thread. Its jobs are given `comm`, once `comm` has the engine.
    pub(crate) fn start(comm: C, control: Arc<dyn Control>, rank: usize) -> io::Result<Self> {
        let (commands, received) = channel();
        let (give_back, engines) = channel();
        let in_flight = Arc::new(AtomicUsize::new(0));
        let unfinished = Arc::clone(&in_flight);
        let name = format!("maypole-{rank}-run");
        let thread =
            LeavingThread::start(name, move || serve(comm, &unfinished, received, give_back))?;
        Ok(Self { commands, engines, thread, in_flight, control, rank })
    }

    pub(crate) fn lend(&self, engine: Box<Engine>) {
        self.tell(ProgressCommand::Take(engine));
    }

    /// Queues `job`. The engine must have been lent.
    pub(crate) fn run(&self, job: RequestJob<'static, C>) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.tell(ProgressCommand::Run(job));
    }

    /// True on the thread itself.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.thread.is_this_thread()
    }

    /// True while a job is running or queued.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Lets the thread leave the group after all jobs. It has the engine.
    pub(crate) fn leave(self) -> LeavingThread {
        self.tell(ProgressCommand::Leave);
        self.thread
    }

    fn tell(&self, command: ProgressCommand<C>) {
        self.commands.send(command).expect("the thread outlives its communicator");
    }

    /// Waits for all jobs so far, each of which has its deadline, and takes the engine back.
    pub(crate) fn recall(&self) -> Box<Engine> {
        self.tell(ProgressCommand::GiveBack);
        let alarm = self.control.alarm();
        let _wait = alarm.begin_foreground_wait();
        receive(&self.engines).expect("the thread outlives its communicator")
    }

    /// Ends the thread, after all jobs, and returns the engine if it was lent. A rank that is
    /// panicking waits no longer than [`GRACE`] for peers that may never come. Then it fails the
    /// group, so that no rank waits for long.
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
        // The thread ends, because its queue is closed.
        drop(self.commands);
        self.thread.join();
    }
}

/// Waits for the value that comes once all jobs are done. If not `patient`, this fails the group
/// after [`GRACE`], and waits as long again for the running job to notice that.
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
    match receive_within(done, GRACE) {
        Err(RecvTimeoutError::Timeout) => {
            let activity = control.activity();
            let rank = activity.members()[rank];
            let text = RankSentence::default().rank(rank);
            let text = text.words(" panicked while it had requests in flight");
            // The highest sequence number: any other cause that is known came first.
            control.fail(Cause {
                sequence: u64::MAX,
                kind: CauseKind::UserAbort,
                rank,
                text,
                culprit: Some(rank),
                detail: None,
            });
            receive_within(done, GRACE).ok()
        }
        done => done.ok(),
    }
}

/// Waits for the next value; `None` if none will come any more.
pub(crate) fn receive<T>(channel: &Receiver<T>) -> Option<T> {
    match turns::wait(None, || poll(channel)) {
        Some(received) => received.ok()?.ok(),
        None => channel.recv().ok(),
    }
}

/// As [`receive`], for no longer than `most`.
fn receive_within<T>(channel: &Receiver<T>, most: Duration) -> Result<T, RecvTimeoutError> {
    let deadline = turns::now() + most;
    match turns::wait(Some(deadline), || poll(channel)) {
        Some(Ok(received)) => received,
        Some(Err(DeadlinePassed)) => Err(RecvTimeoutError::Timeout),
        None => channel.recv_timeout(most),
    }
}

/// The next value, or the end, if it is here.
pub(crate) fn poll<T>(channel: &Receiver<T>) -> Option<Result<T, RecvTimeoutError>> {
    match channel.try_recv() {
        Ok(value) => Some(Ok(value)),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(Err(RecvTimeoutError::Disconnected)),
    }
}

/// Owns its channels, so that they close within the turns of a thread that takes them.
fn serve<C: EngineBorrower>(
    mut comm: C,
    in_flight: &AtomicUsize,
    commands: Receiver<ProgressCommand<C>>,
    give_back: Sender<Box<Engine>>,
) {
    while let Some(command) = receive(&commands) {
        match command {
            ProgressCommand::Take(engine) => {
                comm.put(engine);
                comm.set_background(true);
            }
            ProgressCommand::Run(job) => {
                job(&mut comm);
                in_flight.fetch_sub(1, Ordering::Release);
            }
            ProgressCommand::GiveBack => {
                comm.set_background(false);
                // The receiver is gone if its thread panicked and waited in vain.
                let _ = give_back.send(comm.take());
            }
            ProgressCommand::Leave => return comm.depart(),
        }
    }
}
