//! Requests: asynchronous operations.

use crate::error::{Error, Result};
use crate::requests::handle::EngineHandle;
use crate::requests::messages::driver::Messages;
use crate::requests::outcome::{RequestEnd, SharedOutcome, channel};
use crate::requests::progress::{EngineBorrower, RequestJob, RunsJobs, receive};
use maypole_transports::{Alarm, ForegroundWait, OwnerProcess};
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel as wakeups};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// An operation in flight, which owns its buffers until it is done.
///
/// Dropping a request detaches it: the operation still runs, because the other ranks wait for it,
/// and its buffers are dropped afterwards. If it fails, the next call of the communicator's thread
/// returns its error and does nothing else, or [`Communicator::close`](crate::Communicator::close)
/// does. Of several such errors the first one counts.
#[must_use = "a request gives its buffers back; dropping it detaches the operation"]
pub struct Request<B> {
    outcome: Arc<SharedOutcome<B>>,
    /// Wakes the thread that runs the operation.
    alarm: Arc<Alarm>,
    /// The messages that a waiting thread drives.
    messages: Option<Arc<Messages>>,
    /// The queue from which a waiting thread runs another operation.
    pub(crate) jobs: Option<Weak<dyn RunsJobs>>,
    /// While a task awaits the request, it is run without delay.
    awaited: Option<ForegroundWait<Arc<Alarm>>>,
    /// The process whose thread runs the operation.
    owner: OwnerProcess,
    rank: usize,
}

impl<B> Request<B> {
    /// The request with this `outcome`. For a message, `messages` are those that a
    /// waiting thread drives.
    pub(crate) fn new<C: EngineBorrower>(
        engine: &EngineHandle<C>,
        outcome: Arc<SharedOutcome<B>>,
        messages: Option<Arc<Messages>>,
    ) -> Self {
        Self {
            outcome,
            alarm: Arc::clone(&engine.messages.alarm),
            messages,
            jobs: None,
            awaited: None,
            owner: OwnerProcess::current(),
            rank: engine.rank,
        }
    }

    /// True once the operation has succeeded or failed. [`wait`](Self::wait) then returns
    /// immediately. Non-blocking.
    #[doc(alias("MPI_Test", "is_completed"))]
    pub fn test(&mut self) -> bool {
        if !self.owner.is_current() {
            return true;
        }
        if let Some(messages) = self.messages.as_ref().filter(|_| !self.outcome.end.is_over()) {
            messages.poll();
        }
        self.outcome.end.is_over()
    }

    /// Lets requests poll for other ranks as eagerly as calls do, from now on, as
    /// [`Communicator::wait_eagerly`](crate::Communicator::wait_eagerly) does. For a program that
    /// detects the end of this request by other means than [`wait`](Self::wait).
    pub fn wait_eagerly(&self) {
        self.alarm.stay_eager();
    }

    /// Lets the request be dropped without its error: no later call returns it. For a program that
    /// receives the error in another way, as by a channel that `call` sends to.
    ///
    /// ```
    /// use maypole::Communicator;
    /// Communicator::run_local(2, |mut comm| {
    ///     comm.start_broadcast(vec![0u8], 9).ignore_error();
    ///     comm.barrier().unwrap();
    ///     drop(comm.start_broadcast(vec![0u8], 9));
    ///     comm.barrier().unwrap_err(); // There is no root 9.
    ///     comm.barrier().unwrap();
    /// });
    /// ```
    pub fn ignore_error(&self) {
        self.outcome.end.ignore();
    }

    /// Waits until the operation has ended and returns its buffers. If no thread has begun it, it
    /// runs on the calling thread, after the requests before it.
    ///
    /// # Errors
    /// The errors of the call. [`Error::Invalid`] is one of them, because arguments are checked
    /// when the operation runs. After an error the buffers are lost, unless
    /// [`wait_or_buffers`](Self::wait_or_buffers) returns them. [`Error::Forked`] in a child
    /// of the process that started the request, where the operation does not run.
    ///
    /// # Panics
    /// If a function of the user's panicked in the call, with the same panic.
    #[doc(alias = "MPI_Wait")]
    pub fn wait(self) -> Result<B> {
        self.wait_or_buffers().map_err(|(error, _)| error)
    }

    /// As [`wait`](Self::wait), with the buffers beside an error. If the call was
    /// [refused](Error::is_harmless), they are unchanged; else parts of the outputs may be written. None in
    /// a forked child, and if the communicator has ended before the operation ran.
    ///
    /// ```
    /// use maypole::Communicator;
    /// Communicator::run_local(2, |mut comm| {
    ///     let request = comm.start_broadcast(vec![1u8, 2], 9);
    ///     let (error, buffers) = request.wait_or_buffers().unwrap_err();
    ///     assert!(error.to_string().ends_with("root 9 is not one of the 2 ranks"));
    ///     assert_eq!(buffers, Some(vec![1, 2]));
    /// });
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_or_buffers(mut self) -> std::result::Result<B, (Error, Option<B>)> {
        if !self.owner.is_current() {
            return Err((Error::Forked { rank: self.rank }, None));
        }
        if let Some(jobs) = self.jobs.take().and_then(|jobs| jobs.upgrade()) {
            jobs.run_until(&mut || self.test());
        }
        let _wait = self.alarm.begin_foreground_wait();
        match &self.messages {
            Some(messages) => messages.drive_until(&mut || self.outcome.end.is_over()),
            None => self.outcome.end.wait(),
        }
        self.outcome.receive()
    }
}

/// Buffers are never pinned: the operation owns them until it is done.
impl<B> Unpin for Request<B> {}

/// `request.await` is [`wait`](Request::wait) for any executor of tasks: no thread waits meanwhile.
/// The operation runs on the communicator's own thread, which wakes the task. A request that is
/// dropped while it is awaited is detached.
///
/// ```
/// use maypole::{Communicator, ReduceOp};
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
/// let sums = Communicator::run_local(2, |mut comm| {
///     let mut request = pin!(comm.start_all_reduce(vec![1; 9], ReduceOp::Sum));
///     // An executor has a waker that tells it when to poll again.
///     loop {
///         if let Poll::Ready(sum) = request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
///             return sum.unwrap()[0];
///         }
///     }
/// });
/// assert_eq!(sums, [2, 2]);
/// ```
///
/// # Panics
/// As `wait`, and if it is polled again after it was ready.
impl<B> Future for Request<B> {
    type Output = Result<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.owner.is_current() {
            return Poll::Ready(Err(Error::Forked { rank: self.rank }));
        }
        self.outcome.end.wake(context);
        if !self.test() {
            let alarm = Arc::clone(&self.alarm);
            self.awaited.get_or_insert_with(|| ForegroundWait::begin(alarm));
            return Poll::Pending;
        }
        self.awaited = None;
        Poll::Ready(self.outcome.receive().map_err(|(error, _)| error))
    }
}

impl<B> Drop for Request<B> {
    /// Keeps the error of the operation for the next call. A forked child does not touch the
    /// outcome: another thread may have held its lock at the fork.
    fn drop(&mut self) {
        if self.owner.is_current() {
            self.outcome.end.detach();
        }
    }
}

maypole_transports::opaque!(Request<B>, "Request", B);

/// Waits for all of `requests` and returns their buffers, in order.
///
/// ```
/// use maypole::{Communicator, ReduceOp, wait_all};
/// let sums = Communicator::run_local(2, |mut comm| {
///     let requests = [1, 2, 3].map(|x| comm.start_all_reduce(vec![x; 1000], ReduceOp::Sum));
///     wait_all(requests).unwrap().iter().map(|sum| sum[0]).collect::<Vec<_>>()
/// });
/// assert_eq!(sums, [[2, 4, 6]; 2]);
/// ```
///
/// # Errors
/// The first error, in the order of the requests, after the end of all of them. The next call
/// returns another one that does not follow from the first.
#[doc(alias("MPI_Waitall", "waitall"))]
pub fn wait_all<B>(requests: impl IntoIterator<Item = Request<B>>) -> Result<Vec<B>> {
    let mut all = Ok(Vec::new());
    for request in requests {
        let shared = Arc::clone(&request.outcome);
        match (request.wait_or_buffers(), &mut all) {
            (Ok(buffers), Ok(all)) => all.push(buffers),
            (Err((error, _)), Ok(_)) => all = Err(error),
            (outcome, Err(_)) => shared.end.keep(Ok(outcome.map(drop).map_err(|(error, _)| error))),
        }
    }
    all
}

/// Waits until one of `requests` is over, which is removed from them. Returns its index before that and
/// its outcome; `None` without requests.
///
/// ```
/// use maypole::{Communicator, wait_any};
/// Communicator::run_local(3, |mut comm| {
///     if comm.rank() > 0 {
///         return comm.send(&[comm.rank()], 0, 0).unwrap();
///     }
///     let mut receives: Vec<_> = [1, 2].map(|from| comm.start_recv(vec![0usize], from, 0)).into();
///     let mut sum = 0;
///     while let Some((_, came)) = wait_any(&mut receives) {
///         sum += came.unwrap()[0]; // in the order in which they arrive
///     }
///     assert_eq!(sum, 3);
/// });
/// ```
///
/// # Panics
/// As [`Request::wait`] of the request that is over.
#[doc(alias("MPI_Waitany", "waitany", "select"))]
pub fn wait_any<B>(requests: &mut Vec<Request<B>>) -> Option<(usize, Result<B>)> {
    let (wake, woken) = wakeups::<()>();
    let waker = Waker::from(Arc::new(Woken(wake)));
    while !requests.is_empty() {
        for at in 0..requests.len() {
            let polled = Pin::new(&mut requests[at]).poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(outcome) = polled {
                drop(requests.remove(at));
                return Some((at, outcome));
            }
        }
        receive(&woken);
    }
    None
}

/// Wakes a thread that waits for one of several requests.
struct Woken(Sender<()>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // The receiver is gone once another request was over.
        let _ = self.0.send(());
    }
}

/// A job, and the request that returns its outcome to the caller.
pub(crate) fn task<'a, C: EngineBorrower, B: Send + 'a>(
    engine: &EngineHandle<C>,
    mut buffers: B,
    call: impl FnOnce(&mut C, &mut B) -> Result<()> + Send + 'a,
) -> (RequestJob<'a, C>, Request<B>) {
    let (tell, outcome) = channel(engine.rank, &engine.unreported);
    let job = move |comm: &mut C| {
        let mut call = Some(call);
        let end = run_request(comm, &mut |comm| {
            call.take().expect("a request runs once")(comm, &mut buffers)
        });
        // No state that a panic leaves incomplete is used again.
        tell.send(end.is_ok().then_some(buffers), end);
    };
    (Box::new(job), Request::new(engine, outcome, None))
}

/// Runs a request's `call`. If it panics, the communicator fails.
fn run_request<C: EngineBorrower>(
    comm: &mut C,
    call: &mut dyn FnMut(&mut C) -> Result<()>,
) -> RequestEnd {
    let was_in_request = replace(&mut comm.engine().health.is_in_request, true);
    let end = catch_unwind(AssertUnwindSafe(|| call(comm)));
    if let Err(panic) = &end {
        comm.engine().health.panicked("a request", &**panic);
    }
    comm.engine().health.is_in_request = was_in_request;
    end
}
