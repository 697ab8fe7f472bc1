//! Waits for a task as a runtime does.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Wakes a thread, and counts how often.
struct Unpark {
    thread: Thread,
    count: AtomicUsize,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Polls a task only after it was woken. Returns the result, and how often it was polled and woken.
pub fn block_on<T>(task: impl Future<Output = T>, limit: Duration) -> (T, usize, usize) {
    let mut task = pin!(task);
    let unpark = Arc::new(Unpark { thread: thread::current(), count: AtomicUsize::new(0) });
    let waker = Waker::from(Arc::clone(&unpark));
    let start = Instant::now();
    let (mut polls, mut wakes) = (0, 0);
    loop {
        polls += 1;
        if let Poll::Ready(result) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (result, polls, unpark.count.load(Ordering::SeqCst));
        }
        while unpark.count.load(Ordering::SeqCst) == wakes {
            thread::park_timeout(Duration::from_millis(100));
            assert!(start.elapsed() < limit, "a task was not woken");
        }
        wakes = unpark.count.load(Ordering::SeqCst);
    }
}
