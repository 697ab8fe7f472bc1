//! Groups: the calls between an `ncclGroupStart` and its `ncclGroupEnd` start together.
//!
//! A group belongs to a thread, and may contain calls of several communicators. All are queued until
//! the outermost end. No call waits for another rank, so the end starts the collectives of each
//! communicator in their order, and then its messages, which wait for nothing in the group. Calls that
//! make or end communicators wait for other ranks, so the end runs them concurrently, in threads.

use crate::abi::{ncclInvalidUsage, ncclSystemError};
use crate::calls::{self, Message, Prepared, start_messages};
use crate::communicator::{Communicator, Task};
use crate::core::{self, Comm, JoinedStreams, StartableCall};
use crate::error::{Failure, Progress, panicked};
use crate::real::RealMember;
use cudarc::driver::CudaStream;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The calls of one thread since its group began.
#[derive(Default)]
struct Group {
    /// The number of nested open groups.
    depth: u32,
    /// The first failure of a call. The end returns it, and starts nothing.
    failure: Option<Failure>,
    calls: Vec<Queued>,
    jobs: Vec<Job>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// A queued collective or message, with its communicator and stream.
pub(crate) struct Queued {
    pub(crate) communicator: Arc<Communicator>,
    pub(crate) stream: usize,
    pub(crate) what: What,
}

/// The kind of a queued call.
pub(crate) enum What {
    Collective(Prepared),
    Message(Message),
    /// A call of NVIDIA's library.
    Real(RealMember, Box<dyn Fn() -> Result<(), Failure>>),
}

/// The work of a thread for a call that may wait for other ranks.
pub(crate) struct Job {
    /// The name of the call.
    pub(crate) function: &'static str,
    /// An abort of this communicator ends the job.
    pub(crate) communicator: Arc<Communicator>,
    pub(crate) is_blocking: bool,
    /// The body, which ends the task.
    pub(crate) work: Box<dyn FnOnce(&Task) + Send>,
}

/// A job that has a thread.
struct Started {
    communicator: Arc<Communicator>,
    is_blocking: bool,
    task: Arc<Task>,
}

impl Job {
    fn start(self) -> Started {
        let Self { function, communicator, is_blocking, work } = self;
        let task = Arc::new(Task::default());
        communicator.follow(&task);
        let own = task.clone();
        let run = move || {
            // The task must end also if the job panics.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&own))) {
                own.end(Err(panicked(panic.as_ref())));
            }
        };
        let name = function.trim_start_matches("nccl").to_owned();
        if let Err(error) = std::thread::Builder::new().name(name).spawn(run) {
            let text = format!("no thread for {function}: {error}");
            task.end(Err(Failure { result: ncclSystemError, text }));
        }
        Started { communicator, is_blocking, task }
    }
}

impl Started {
    fn wait(self) -> Result<Progress, Failure> {
        if !self.is_blocking {
            return Ok(Progress::Running);
        }
        let result = self.task.wait();
        self.communicator.forget(&self.task);
        result.map(|()| Progress::Done)
    }
}

/// The number of open groups of this thread.
pub(crate) fn depth() -> u32 {
    GROUP.with(|group| group.borrow().depth)
}

/// Records a call's failure in the open group.
pub(crate) fn noted<T>(result: Result<T, Failure>) -> Result<T, Failure> {
    result.inspect_err(|failure| {
        GROUP.with(|group| {
            let mut group = group.borrow_mut();
            if group.depth > 0 && group.failure.is_none() {
                group.failure = Some(failure.clone());
            }
        });
    })
}

/// Starts a call, now or at the end of the open group.
pub(crate) fn call(queued: Queued) -> Result<(), Failure> {
    let left = GROUP.with(|group| {
        let mut group = group.borrow_mut();
        match group.depth {
            0 => Some(queued),
            _ => {
                group.calls.push(queued);
                None
            }
        }
    });
    left.map_or(Ok(()), |queued| start(&[queued]))
}

/// Runs jobs concurrently, now or at the end of the open group.
pub(crate) fn run(jobs: Vec<Job>) -> Result<Progress, Failure> {
    let left = GROUP.with(|group| {
        let mut group = group.borrow_mut();
        match group.depth {
            0 => jobs,
            _ => {
                group.jobs.extend(jobs);
                Vec::new()
            }
        }
    });
    run_now(left)
}

fn run_now(jobs: Vec<Job>) -> Result<Progress, Failure> {
    let started: Vec<_> = jobs.into_iter().map(Job::start).collect();
    let ended: Vec<_> = started.into_iter().map(Started::wait).collect();
    ended.into_iter().try_fold(Progress::Done, |all, one| {
        Ok(if one? == Progress::Running { Progress::Running } else { all })
    })
}

/// Starts the calls of each communicator.
fn start(calls: &[Queued]) -> Result<(), Failure> {
    if calls.is_empty() {
        return Ok(());
    }
    let real: Vec<_> = calls
        .iter()
        .filter_map(|queued| match &queued.what {
            What::Real(real, call) => Some((real, call)),
            _ => None,
        })
        .collect();
    let is_ours = |queued: &&Queued| !matches!(queued.what, What::Real(..));
    let mut rest: Vec<&Queued> = calls.iter().filter(is_ours).collect();
    let mut parts = Vec::new();
    while let Some(first) = rest.first() {
        let first = &first.communicator;
        let (own, others) =
            rest.iter().partition(|queued| Arc::ptr_eq(&queued.communicator, first));
        parts.push(own);
        rest = others;
    }
    parts.iter().try_for_each(|own: &Vec<&Queued>| check_messages_to_itself(own))?;
    core::preserving(|_| {
        // Preparing a call may wait for kernels that wait for calls which this thread starts next.
        let ready = parts.iter().map(|own| OwnCalls::make_ready(own));
        let ready = ready.collect::<Result<Vec<_>, _>>()?;
        ready.iter().try_for_each(OwnCalls::start)?;
        match real[..] {
            [] => Ok(()),
            [(_, call)] => call(),
            [(first, _), ..] => first.group(|| real.iter().try_for_each(|(_, call)| call())),
        }
    })
}

/// The prepared calls of one communicator.
struct OwnCalls<'a> {
    communicator: &'a Communicator,
    comm: Arc<Comm>,
    streams: Vec<usize>,
    /// The first of the streams.
    stream: Arc<CudaStream>,
    collectives: Vec<StartableCall<'a>>,
    messages: Vec<Message>,
}

impl<'a> OwnCalls<'a> {
    /// Prepares the calls without starting them.
    fn make_ready(calls: &[&'a Queued]) -> Result<Self, Failure> {
        let communicator = &calls[0].communicator;
        let comm = communicator.comm()?;
        let mut streams: Vec<usize> = Vec::new();
        for call in calls {
            if !streams.contains(&call.stream) {
                streams.push(call.stream);
            }
        }
        // SAFETY: the program passes streams of the communicator's GPU, and keeps them until their work
        // has completed.
        let stream = unsafe { core::borrowed_stream(&communicator.context, streams[0]) };
        let (mut collectives, mut messages) = (Vec::new(), Vec::new());
        for call in calls {
            match &call.what {
                What::Collective(prepared) => {
                    collectives.push(calls::make_ready(&comm, &stream, prepared)?);
                }
                What::Message(message) => messages.push(*message),
                What::Real(..) => {}
            }
        }
        Ok(Self { communicator, comm, streams, stream, collectives, messages })
    }

    /// Starts the collectives, and then the messages.
    fn start(&self) -> Result<(), Failure> {
        let Self { communicator, comm, streams, stream, collectives, messages } = self;
        // SAFETY: the program passes streams of the communicator's GPU.
        let joined = unsafe { JoinedStreams::begin(&communicator.context, streams) }?;
        collectives.iter().try_for_each(|call| comm.start_on(stream, call))?;
        if !messages.is_empty() {
            start_messages(comm, stream, messages)?;
        }
        joined.end()
    }
}

/// Checks that a rank's sends to itself match its receives in order and in bytes.
fn check_messages_to_itself(calls: &[&Queued]) -> Result<(), Failure> {
    let own = |sends: bool| {
        calls.iter().filter_map(move |queued| match queued.what {
            What::Message(message)
                if message.peer == queued.communicator.rank && message.sends == sends =>
            {
                Some(message)
            }
            _ => None,
        })
    };
    let (sent, received) = (own(true).count(), own(false).count());
    if sent != received {
        return Err(Failure::usage(format!(
            "rank {} sends {sent} messages to itself and receives {received}: a message to oneself \
             without a matching call in the same group waits for ever",
            calls[0].communicator.rank
        )));
    }
    match own(true).zip(own(false)).find(|(sent, received)| sent.bytes != received.bytes) {
        None => Ok(()),
        Some((sent, received)) => Err(Failure::usage(format!(
            "rank {} sends itself {} bytes and receives {}: pass equal counts",
            calls[0].communicator.rank, sent.bytes, received.bytes
        ))),
    }
}

/// Opens a group.
fn open() {
    GROUP.with(|group| group.borrow_mut().depth += 1);
}

/// Closes the innermost group. Returns the outermost group; `None` if another one is still open.
fn close() -> Result<Option<Group>, Failure> {
    GROUP.with(|group| {
        let mut group = group.borrow_mut();
        match group.depth {
            0 => {
                let text = "ncclGroupEnd without an ncclGroupStart of this thread".to_owned();
                Err(Failure { result: ncclInvalidUsage, text })
            }
            1 => Ok(Some(std::mem::take(&mut *group))),
            _ => {
                group.depth -= 1;
                Ok(None)
            }
        }
    })
}

/// Ends the innermost group.
fn end() -> Result<Progress, Failure> {
    let Some(group) = close()? else { return Ok(Progress::Done) };
    if let Some(failure) = group.failure {
        return Err(failure);
    }
    let progress = run_now(group.jobs)?;
    start(&group.calls)?;
    Ok(progress)
}

exported! {
    /// Opens a group: the following calls of this thread start at its end. Groups may be nested.
    fn ncclGroupStart, pncclGroupStart(_line;) {
        open();
        Ok(())
    }

    /// Ends a group. The end of the outermost one starts its calls. If one of them failed, it returns
    /// that call's error and starts nothing.
    fn ncclGroupEnd, pncclGroupEnd(_line;) {
        end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_and_an_end_without_a_start_is_refused() {
        assert_eq!(close().map(|_| ()).unwrap_err().result, ncclInvalidUsage);
        open();
        open();
        assert_eq!(depth(), 2);
        assert!(close().unwrap().is_none());
        assert!(close().unwrap().is_some());
        assert_eq!((depth(), end().unwrap_err().result), (0, ncclInvalidUsage));
    }

    #[test]
    fn the_first_failure_comes_again_at_the_end_and_is_forgotten_then() {
        let wrong = |text: &str| noted(Err::<(), _>(Failure::argument(text))).unwrap_err();
        let outside = wrong("outside");
        assert_eq!(outside.text, "outside");
        open();
        open();
        wrong("first");
        wrong("second");
        assert_eq!(end(), Ok(Progress::Done), "an inner end says nothing");
        assert_eq!(end().unwrap_err().text, "first");
        open();
        assert_eq!(end(), Ok(Progress::Done));
    }

    #[test]
    fn a_group_belongs_to_its_thread() {
        open();
        let other = std::thread::spawn(|| (depth(), end().is_err()));
        assert_eq!(other.join().unwrap(), (0, true));
        assert_eq!(end(), Ok(Progress::Done));
    }
}
