//! Calls that do not block: they run while their caller does something else.

pub(crate) mod message_handle;
mod messages;
pub(crate) mod scope;
mod starts;

use crate::comm::Communicator;
use crate::comm::join::close::print_unreturned;
use crate::engine::Engine;
use crate::error::Result;
use crate::requests::progress::{EngineBorrower, Progress, RequestJob};
use crate::requests::request::{Request, task};
use std::io;
use std::sync::Arc;

impl EngineBorrower for Communicator {
    fn put(&mut self, engine: Box<Engine>) {
        self.engine.put(engine);
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.get_mut()
    }

    fn take(&mut self) -> Box<Engine> {
        self.engine.take()
    }

    fn depart(&mut self) {
        print_unreturned(self.depart(false));
    }
}

impl Communicator {
    /// Queues `call`, to be run with `buffers` once the requests before it are done, and returns
    /// immediately. `call` makes one call or several. Collectives have a shorter form, such as
    /// [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// Requests run one after the other, in the order in which they were started: on a thread that
    /// the communicator starts at the first one, which begins a tenth of a millisecond after a
    /// start (one or two milliseconds, after earlier ones with an immediate wait), or on that of an
    /// earlier caller of [`Request::wait`]. All ranks start them in the same order. A blocking call
    /// first waits until the queue is empty, then runs on its caller's thread. If a request fails,
    /// the communicator has failed, so all later requests fail, too. In a world of one rank, `call`
    /// runs immediately.
    ///
    /// A message that waits here delays all later requests. So messages are started by
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
        let (job, mut request) = task(&self.engine, buffers, call);
        self.queue(job);
        if !self.engine.is_forked() {
            request.jobs = self.engine.progress.as_ref().map(Progress::jobs);
        }
        request
    }

    /// Lets requests wait for other ranks as eagerly as calls do, from now on: those of this
    /// communicator and of every other one of its world in this process.
    ///
    /// Where ranks have few cores, the thread of the requests sleeps while it waits for other
    /// ranks, because the program computes meanwhile; [`Request::wait`] wakes it. A program that
    /// detects the end of a request by other means, as by a channel that `call` sends to, wakes no
    /// thread: each of the request's waits then takes up to 0.4 ms, and it begins later. Such a
    /// program calls this method.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// use std::sync::mpsc::channel;
    /// let sums = Communicator::run_local(2, |mut comm| {
    ///     comm.wait_eagerly();
    ///     let (done, is_done) = channel();
    ///     let request = comm.start(vec![1u32; 1000], move |comm, data| {
    ///         comm.all_reduce(&mut *data, ReduceOp::Sum)?;
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
        self.engine.messages.alarm.stay_eager();
    }

    fn queue(&mut self, job: RequestJob<'static, Self>) {
        if self.world() == 1 || self.engine.is_forked() {
            return job(self);
        }
        match self.lend_engine() {
            Ok(()) => self.engine.progress().run(job),
            Err(error) => {
                self.engine.get_mut().health.without_thread(&error);
                job(self);
            }
        }
    }

    /// Lends the engine to the thread that runs requests, which begins with the first of them.
    pub(crate) fn lend_engine(&mut self) -> io::Result<()> {
        if self.engine.progress.is_none() {
            let control = Arc::clone(&self.engine.messages.control);
            let progress = Progress::start(self.without_engine(), control, self.rank())?;
            self.engine.progress = Some(progress);
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
            // Only this communicator leaves the group.
            left: true,
        }
    }
}
