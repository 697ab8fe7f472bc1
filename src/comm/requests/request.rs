//! Requests: operations that run while their caller does something else.

use crate::comm::Communicator;
use crate::comm::messages::driver::Messages;
use crate::comm::requests::handle::EngineHandle;
use crate::comm::requests::progress::{Progress, poll, receive};
use crate::error::{Error, Result};
use maypole_transports::{Alarm, OwnerProcess};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

/// A call with its buffers. The thread that has the engine runs it.
pub(crate) type RequestJob<'a> = Box<dyn FnOnce(&mut Communicator) + Send + 'a>;

/// The outcome of a request: a panic, an error, or the buffers.
pub(crate) type RequestOutcome<B> = thread::Result<Result<B>>;

/// An operation under way, which owns its buffers until it is done.
///
/// Dropping a request detaches it: the operation still runs, because the other ranks count on it,
/// and its buffers are dropped afterwards. A later call says whether it failed.
#[must_use = "a request gives its buffers back; dropping it detaches the operation"]
pub struct Request<B> {
    /// Empty once the outcome is known.
    outcome: Option<Receiver<RequestOutcome<B>>>,
    done: Option<RequestOutcome<B>>,
    /// Wakes the thread that runs the operation.
    alarm: Arc<Alarm>,
    /// What a thread that waits for a message drives meanwhile.
    messages: Option<Arc<Messages>>,
    /// The process whose thread runs the operation.
    owner: OwnerProcess,
    rank: usize,
}

impl<B> Request<B> {
    /// The request of a message, whose end `outcome` tells.
    pub(crate) fn of_message(engine: &EngineHandle, outcome: Receiver<RequestOutcome<B>>) -> Self {
        Self {
            outcome: Some(outcome),
            done: None,
            alarm: Arc::clone(&engine.alarm),
            messages: Some(Arc::clone(&engine.messages)),
            owner: OwnerProcess::current(),
            rank: engine.rank,
        }
    }

    /// True once the operation has succeeded or failed. [`wait`](Self::wait) then returns at once.
    /// Does not block.
    pub fn test(&mut self) -> bool {
        if !self.owner.is_current() {
            return true;
        }
        if let (Some(_), Some(messages)) = (&self.outcome, &self.messages) {
            messages.poll();
        }
        if let Some(outcome) = &self.outcome {
            self.done = match outcome.try_recv() {
                Ok(outcome) => Some(outcome),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Ok(Err(abandoned()))),
            };
            if self.done.is_some() {
                self.outcome = None;
            }
        }
        self.done.is_some()
    }

    /// Waits until the operation is over and gives its buffers back.
    ///
    /// # Errors
    /// The errors of the call. [`Error::Invalid`] is one of them, because arguments are checked
    /// when the operation runs. After an error the buffers are lost. [`Error::Forked`] in a child
    /// of the process that started the request, where the operation does not run.
    ///
    /// # Panics
    /// If a function of the user's panicked in the call, with the same panic.
    pub fn wait(mut self) -> Result<B> {
        if !self.owner.is_current() {
            return Err(Error::Forked { rank: self.rank });
        }
        let _wait = self.alarm.begin_foreground_wait();
        let messages = self.messages.take();
        let come = self.outcome.take().map(|outcome| match messages {
            Some(messages) => messages.drive_until(|| poll(&outcome)).ok(),
            None => receive(&outcome),
        });
        let come = come.map(|come| come.unwrap_or_else(|| Ok(Err(abandoned()))));
        let outcome = self.done.take().or(come).expect("a request has an outcome or awaits it");
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<B> Drop for Request<B> {
    /// In a forked child, leaves the channel as it is: the other end may have held its lock when
    /// the process forked.
    fn drop(&mut self) {
        if !self.owner.is_current() {
            std::mem::forget(self.outcome.take());
        }
    }
}

impl<B> fmt::Debug for Request<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

/// The error of an operation that never ran, because its communicator ended first.
#[cold]
fn abandoned() -> Error {
    let first = "it ended before the operation could run".to_owned();
    Error::Failed { first, retryable: false, culprit: None }
}

/// Waits for all of `requests` and gives their buffers back, in order.
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
/// The first error, in the order of the requests. All requests are over by then.
pub fn wait_all<B>(requests: impl IntoIterator<Item = Request<B>>) -> Result<Vec<B>> {
    let all: Vec<_> = requests.into_iter().map(Request::wait).collect();
    all.into_iter().collect()
}

/// A job, and the request that tells its caller the outcome.
pub(crate) fn task<'a, B: Send + 'a>(
    alarm: Arc<Alarm>,
    rank: usize,
    mut buffers: B,
    call: impl FnOnce(&mut Communicator, &mut B) -> Result<()> + Send + 'a,
) -> (RequestJob<'a>, Request<B>) {
    let (tell, outcome) = sync_channel(1);
    let job = move |comm: &mut Communicator| {
        // Nothing that a panic leaves half done is used again: the communicator fails, and the
        // buffers are dropped.
        let done = catch_unwind(AssertUnwindSafe(|| call(comm, &mut buffers)));
        if let Err(panic) = &done {
            comm.engine.get_mut().panicked("a request", &**panic);
        }
        // The receiver is gone if the request was detached.
        let _ = tell.send(done.map(|done| done.map(|()| buffers)));
    };
    let owner = OwnerProcess::current();
    let request =
        Request { outcome: Some(outcome), done: None, alarm, messages: None, owner, rank };
    (Box::new(job), request)
}

impl Communicator {
    /// Queues `call`, to be run with `buffers` once the requests before it are done, and returns at
    /// once. `call` makes one call or several. Five collectives have a shorter form, such as
    /// [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// Requests run one after the other, in the order in which they were started, on a thread that
    /// the communicator starts at the first one; all ranks start them in the same order. A blocking
    /// call first waits until the queue is empty, then runs on its caller's thread. If a request
    /// fails, the communicator has failed, so all later requests fail, too. In a world of one
    /// rank, `call` runs at once.
    ///
    /// A message that waits here holds up the requests behind it. So messages are started by
    /// [`start_send`](Self::start_send) and [`start_recv`](Self::start_recv), which wait for no
    /// other request.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// use std::time::Duration;
    /// let norms = Communicator::run_local(2, |mut comm| {
    ///     let shard = vec![3.0f32 + comm.rank() as f32; 4];
    ///     let request = comm.start((shard, [0.0]), |comm, (shard, norm)| {
    ///         norm[0] = shard.iter().map(|x| x * x).sum();
    ///         comm.within(Duration::from_secs(10)).all_reduce(norm, ReduceOp::Sum)
    ///     });
    ///     let (_shard, norm) = request.wait().unwrap();
    ///     norm[0]
    /// });
    /// assert_eq!(norms, [100.0; 2]);
    /// ```
    ///
    /// If `call` panics, the communicator fails on all ranks, and [`Request::wait`] panics with the
    /// same panic.
    pub fn start<B: Send + 'static>(
        &mut self,
        buffers: B,
        call: impl FnOnce(&mut Self, &mut B) -> Result<()> + Send + 'static,
    ) -> Request<B> {
        let (job, request) = task(Arc::clone(&self.engine.alarm), self.rank(), buffers, call);
        self.queue(job);
        request
    }

    /// Lets requests wait for other ranks as eagerly as calls do, from now on: those of this
    /// communicator and of every other one of its world in this process.
    ///
    /// Where ranks have few cores, the thread of the requests sleeps while it waits for other ranks,
    /// because the program computes meanwhile; [`Request::wait`] wakes it. A program that learns in
    /// another way that a request is done, as by a channel that `call` sends to, wakes nothing: each of
    /// the request's waits then takes up to 0.4 ms. It calls this method.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// use std::sync::mpsc::channel;
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     comm.wait_eagerly();
    ///     let (done, is_done) = channel();
    ///     let request = comm.start(vec![1u32; 1000], move |comm, data| {
    ///         comm.all_reduce(data, ReduceOp::Sum)?;
    ///         done.send(data[0]).unwrap();
    ///         Ok(())
    ///     });
    ///     let sum = is_done.recv().unwrap();
    ///     request.wait().unwrap();
    ///     sum
    /// });
    /// assert_eq!(sums, [2, 2]);
    /// ```
    pub fn wait_eagerly(&mut self) {
        self.engine.alarm.stay_eager();
    }

    fn queue(&mut self, job: RequestJob<'static>) {
        if self.world() == 1 || self.engine.is_forked() {
            return job(self);
        }
        match self.lend_engine() {
            Ok(()) => self.engine.progress().run(job),
            Err(error) => {
                self.engine.get_mut().without_thread(&error);
                job(self);
            }
        }
    }

    /// Lends the engine to the thread that runs requests, which begins with the first of them.
    pub(crate) fn lend_engine(&mut self) -> io::Result<()> {
        if !self.engine.has_progress() {
            let control = self.engine.get().health().shared_control();
            let progress = Progress::start(self.without_engine(), control)?;
            self.engine.set_progress(progress);
        }
        if self.engine.is_here() {
            let engine = self.engine.take();
            self.engine.progress().lend(engine);
        }
        Ok(())
    }

    /// A communicator without an engine. It can take this one's engine to use it in another thread.
    pub(crate) fn without_engine(&self) -> Self {
        Self {
            engine: self.engine.empty(),
            hosts: self.hosts.clone(),
            conditions: self.conditions.clone(),
            // Only this communicator leaves the group.
            left: true,
        }
    }
}
