//! Lesson 14: await requests as tasks, with an executor of one page and with tokio's.
//!
//! ```text
//! cargo lesson 14_futures
//! ```

use maypole::{Communicator, ReduceOp};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

/// Wakes a thread that has nothing to do.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A whole executor: polls a task, and sleeps until something wakes it.
fn block_on<T>(task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match task.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// The task of one rank. A request needs no runtime: it wakes the task that polls it when it completes.
async fn step(mut comm: Communicator) -> maypole::Result<(f32, u64)> {
    let gradients = comm.start_all_reduce(vec![comm.rank() as f32; 1000], ReduceOp::Avg);
    let next = (comm.rank() + 1) % comm.world();
    let sent = comm.start_send(vec![7u64 + comm.rank() as u64], next, 0);
    let come = comm.start_recv_any(vec![0u64], 0);
    // Messages wait for no other request.
    let (number, _) = come.await?;
    sent.await?;

    // Each request returns its buffers, which the next one takes.
    let mut sum = vec![number[0]];
    for _ in 0..3 {
        sum = comm.start_all_reduce(sum, ReduceOp::Sum).await?;
    }
    Ok((gradients.await?[0], sum[0]))
}

fn main() {
    let by_hand = Communicator::run_local(2, |comm| block_on(step(comm)));
    let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("it starts");
    let by_tokio = Communicator::run_local(2, |comm| runtime().block_on(step(comm)));
    println!("by hand: {by_hand:?}");
    println!("by tokio: {by_tokio:?}");
}
