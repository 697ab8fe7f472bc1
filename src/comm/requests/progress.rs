//! The thread that runs a communicator's requests, in the order in which they were started.

use crate::comm::Communicator;
use crate::comm::control::Control;
use crate::comm::requests::home::Kit;
use crate::comm::requests::request::Job;
use crate::world::service::{Cause, CauseKind};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

/// How long a rank that panics goes on with its requests before it fails its group.
const GRACE: Duration = Duration::from_secs(5);

/// What the thread is told.
enum Order {
    /// Use this from now on.
    Take(Box<Kit>),
    Run(Job<'static>),
    /// Give the engine back.
    Give,
}

/// The thread and the way to it.
pub(crate) struct Progress {
    orders: Sender<Order>,
    kits: Receiver<Box<Kit>>,
    thread: JoinHandle<()>,
    control: Arc<dyn Control>,
    rank: usize,
}

impl Progress {
    /// Starts the thread. `comm` is what jobs are given once it has the engine.
    pub(crate) fn start(comm: Communicator, control: Arc<dyn Control>) -> io::Result<Self> {
        let (orders, told) = channel();
        let (back, kits) = channel();
        let rank = comm.rank();
        let thread = Builder::new()
            .name(format!("maypole-{rank}-run"))
            .spawn(move || serve(comm, &told, &back))?;
        Ok(Self { orders, kits, thread, control, rank })
    }

    pub(crate) fn lend(&self, kit: Box<Kit>) {
        self.tell(Order::Take(kit));
    }

    /// Queues `job`. The engine must have been lent.
    pub(crate) fn run(&self, job: Job<'static>) {
        self.tell(Order::Run(job));
    }

    fn tell(&self, order: Order) {
        self.orders.send(order).expect("the thread ends after its communicator alone");
    }

    /// Waits for all jobs so far, each of which has its deadline, and takes the engine back.
    pub(crate) fn recall(&self) -> Box<Kit> {
        self.tell(Order::Give);
        let alarm = self.control.alarm();
        let _wait = alarm.begin_foreground_wait();
        self.kits.recv().expect("the thread ends after its communicator alone")
    }

    /// Ends the thread, after all jobs, and gives back what was lent. A rank that is panicking has
    /// no patience with peers that may never come: it fails the group instead, so that neither they
    /// nor it wait for long.
    pub(crate) fn end(self, lent: bool) -> Option<Box<Kit>> {
        if !lent {
            self.join();
            return None;
        }
        if self.thread.thread().id() == thread::current().id() {
            // A request owned its communicator, and is the last that did: nobody else can take the
            // engine.
            return None;
        }
        self.tell(Order::Give);
        let kit = await_or_fail(&self.kits, &*self.control, self.rank, !thread::panicking());
        if kit.is_some() {
            self.join();
        }
        kit
    }

    fn join(self) {
        drop(self.orders);
        // It has nothing to do any more. What panics is caught job by job.
        let _ = self.thread.join();
    }
}

/// Awaits what comes once all jobs are done. Without patience, fails the group after [`GRACE`], and
/// waits as long again for what is running then to notice.
pub(crate) fn await_or_fail<T>(
    done: &Receiver<T>,
    control: &dyn Control,
    rank: usize,
    patient: bool,
) -> Option<T> {
    let alarm = control.alarm();
    let _wait = alarm.begin_foreground_wait();
    if patient {
        return done.recv().ok();
    }
    match done.recv_timeout(GRACE) {
        Err(RecvTimeoutError::Timeout) => {
            let text = format!("rank {rank} panicked while it had requests in flight");
            // Whatever else is known is nearer to the cause.
            control.fail(Cause {
                sequence: u64::MAX,
                kind: CauseKind::UserAbort,
                rank,
                text,
                culprit: Some(rank),
            });
            done.recv_timeout(GRACE).ok()
        }
        done => done.ok(),
    }
}

fn serve(mut comm: Communicator, orders: &Receiver<Order>, back: &Sender<Box<Kit>>) {
    for order in orders {
        match order {
            Order::Take(kit) => {
                comm.engine.put(kit);
                comm.engine.set_beside(true);
            }
            Order::Run(job) => job(&mut comm),
            Order::Give => {
                comm.engine.set_beside(false);
                // Nobody takes it if a panic had no patience left.
                let _ = back.send(comm.engine.take());
            }
        }
    }
}
