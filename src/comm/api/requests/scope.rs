//! Requests on borrowed buffers, for as long as a scope lasts.

use crate::comm::Communicator;
use crate::error::Result;
use crate::requests::handle::EngineHandle;
use crate::requests::progress::{EngineBorrower, RequestJob, await_or_fail, receive};
use crate::requests::request::{Request, task};
use maypole_transports::turns::{self, ThreadEnd};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Builder};

/// Starts requests on buffers that outlive the scope: see [`Communicator::scope`].
///
/// Has the same `start` methods as [`Communicator`]. Buffers must live as long as `'scope`, and may
/// be borrowed from anything that lives as long as `'env`, the surroundings of the scope.
pub struct Scope<'scope, 'env: 'scope> {
    runner: RequestRunner<'scope>,
    /// Without an engine, which the runner owns.
    engine: EngineHandle<Communicator>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Where requests run.
enum RequestRunner<'scope> {
    /// In the caller's thread, immediately: the world has one rank, or there is no thread.
    Inline(Box<Communicator>),
    /// On the scope's thread.
    Thread(Sender<RequestJob<'scope, Communicator>>),
}

maypole_transports::opaque!(Scope<'_, '_>, "Scope");

impl<'scope> Scope<'scope, '_> {
    fn new(engine: EngineHandle<Communicator>, runner: RequestRunner<'scope>) -> Self {
        Self { runner, engine, scope: PhantomData, env: PhantomData }
    }

    /// As [`Communicator::start`], for buffers that may be borrowed.
    pub fn start<B: Send + 'scope>(
        &mut self,
        buffers: B,
        call: impl FnOnce(&mut Communicator, &mut B) -> Result<()> + Send + 'scope,
    ) -> Request<B> {
        let (job, request) = task(&self.engine, buffers, call);
        match &mut self.runner {
            RequestRunner::Inline(comm) => job(comm),
            RequestRunner::Thread(jobs) => jobs.send(job).expect("the thread ends after its scope"),
        }
        request
    }
}

impl Communicator {
    /// Runs `body`, which may start requests on borrowed slices, for instance of one flat buffer.
    /// Before it returns, it waits for all requests that `body` has not waited for.
    /// [`Request::wait`] gives the slices back.
    ///
    /// Within the scope requests run in the order in which they were started, on a thread of the
    /// scope's own. Starting this thread costs some ten microseconds, so a scope should hold more
    /// than one small request. Otherwise requests are as those of [`start`](Self::start).
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let gradients = Communicator::run_local(2, |mut comm| {
    ///     let mut flat = vec![1.0f32; 1000];
    ///     comm.scope(|scope| {
    ///         // The last layer's gradients are ready first.
    ///         for bucket in flat.chunks_mut(256).rev() {
    ///             bucket.iter_mut().for_each(|x| *x *= 0.5);
    ///             let _detached = scope.start_all_reduce(bucket, ReduceOp::Sum);
    ///         }
    ///     });
    ///     comm.barrier().unwrap(); // Returns the error of a dropped request.
    ///     flat
    /// });
    /// assert_eq!(gradients, [[1.0; 1000]; 2]);
    /// ```
    ///
    /// # Panics
    /// If `body` panics, after its requests have ended. If some have not ended after 5 s, because
    /// peers do not start them, the communicator fails on all ranks, which ends them.
    pub fn scope<'env, R>(
        &mut self,
        body: impl for<'scope> FnOnce(&mut Scope<'scope, 'env>) -> R,
    ) -> R {
        let mut lent = Box::new(self.without_engine());
        lent.engine.put(self.engine.take());
        let runs_inline = self.world() == 1 || self.engine.is_forked();
        let (mut lent, result) =
            if runs_inline { run_inline(lent, body) } else { run_beside(lent, body) };
        self.engine.put(lent.engine.take());
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Runs `body`. Its requests run immediately, in this thread.
fn run_inline<'scope, 'env: 'scope, R>(
    comm: Box<Communicator>,
    body: impl FnOnce(&mut Scope<'scope, 'env>) -> R,
) -> (Box<Communicator>, thread::Result<R>) {
    let mut scope = Scope::new(comm.engine.empty(), RequestRunner::Inline(comm));
    let result = catch_unwind(AssertUnwindSafe(|| body(&mut scope)));
    match scope.runner {
        RequestRunner::Inline(comm) => (comm, result),
        RequestRunner::Thread(_) => unreachable!("the scope was made with the communicator"),
    }
}

/// Runs `body` while another thread runs its requests.
fn run_beside<'env, R>(
    mut comm: Box<Communicator>,
    body: impl for<'scope> FnOnce(&mut Scope<'scope, 'env>) -> R,
) -> (Box<Communicator>, thread::Result<R>) {
    let engine = comm.engine.empty();
    let (rank, control) = (engine.rank, Arc::clone(&engine.messages.control));
    thread::scope(|threads| {
        let (jobs, queue) = channel();
        let (lend, lent) = channel();
        let (give_back, done) = channel();
        let name = format!("maypole-{rank}-run");
        let turns = turns::current().map(|turns| turns.add_thread());
        let _end = turns.as_ref().map(|thread| AwaitEnd(thread.end()));
        let run = move || {
            let _turn = turns.map(|thread| thread.enter());
            serve(lent, queue, give_back);
        };
        if let Err(error) = Builder::new().name(name).spawn_scoped(threads, run) {
            comm.engine.get_mut().health.without_thread(&error);
            return run_inline(comm, body);
        }
        lend.send(comm).expect("the thread begins by taking it");
        let mut scope = Scope::new(engine, RequestRunner::Thread(jobs));
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut scope)));
        // Closes the queue, so that the thread ends after the last request.
        drop(scope);
        let comm = await_or_fail(&done, &*control, rank, result.is_ok()).or_else(|| receive(&done));
        match (comm, result) {
            (Some(comm), result) => (comm, result),
            // A simulation ends both threads of a rank that it drops.
            (None, Err(panic)) => resume_unwind(panic),
            (None, Ok(_)) => unreachable!("the thread ends by giving it back"),
        }
    })
}

/// Waits for the end of a thread that takes turns when it is dropped, also on a panic: without
/// that, the end of the scope would wait for the thread without giving it turns.
struct AwaitEnd(Box<dyn ThreadEnd>);

impl Drop for AwaitEnd {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// Owns its channels, so that they close within the turns of a thread that takes them.
fn serve(
    lent: Receiver<Box<Communicator>>,
    jobs: Receiver<RequestJob<'_, Communicator>>,
    give_back: Sender<Box<Communicator>>,
) {
    let Some(mut comm) = receive(&lent) else { return };
    comm.set_background(true);
    while let Some(job) = receive(&jobs) {
        job(&mut comm);
    }
    comm.set_background(false);
    let _ = give_back.send(comm);
}
