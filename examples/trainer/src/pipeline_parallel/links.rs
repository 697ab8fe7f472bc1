//! Links between the stages of a pipeline: asynchronous messages that overlap with compute.
//!
//! What it does: connects each rank with the next and the previous rank. Activations go to the next
//! rank, gradients to the previous. Every link has its own communicator of two ranks, and during a
//! step a thread at each end. A rank queues a message at its sending thread and continues to
//! compute. When a pass needs a message, the rank takes it from its receiving thread. So a rank
//! waits for incomplete passes, and never for a receiver that computes.
//!
//! What is sharded: nothing. Which collective runs where: none; one send and one receive for each
//! message. Cost: the message. In mixed precision it has half the bytes: layers then give 16-bit
//! numbers, so sending 16 bits loses nothing.

use crate::ranks::group::RankGroup;
use crate::tensor::half_float::HalfFloat;
use crate::tensor::math::Real;
use maypole::{Communicator, Result};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};

/// The links of one rank to its neighbours. A pipeline of one rank has none.
#[derive(Debug)]
pub struct StageLinks<T> {
    /// To the next rank, and from the previous.
    forward: [Option<Communicator>; 2],
    /// To the previous rank, and from the next.
    backward: [Option<Communicator>; 2],
    wire: WireFormat<T>,
}

/// The form in which numbers are sent.
#[derive(Clone, Copy, Debug)]
struct WireFormat<T> {
    send: fn(&mut Communicator, &[T]) -> Result<()>,
    receive: fn(&mut Communicator, &mut [T]) -> Result<()>,
}

/// Sends numbers in the type that layers compute with.
fn plain<T: Real>() -> WireFormat<T> {
    WireFormat {
        send: |link, data| link.send(data, 1, 0),
        receive: |link, data| link.recv(data, 0, 0),
    }
}

/// Sends numbers in 16 bits. Numbers that 16 bits do not hold are rounded.
fn narrow<H: HalfFloat>() -> WireFormat<f32> {
    WireFormat {
        send: |link, data| {
            let mut half = vec![H::zero(); data.len()];
            H::narrow(&mut half, data);
            link.send(&half, 1, 0)
        },
        receive: |link, data| {
            let mut half = vec![H::zero(); data.len()];
            link.recv(&mut half, 0, 0)?;
            H::widen(data, &half);
            Ok(())
        },
    }
}

impl StageLinks<f32> {
    /// From now on sends numbers in 16 bits. Numbers that 16 bits do not hold are rounded.
    pub fn narrow<H: HalfFloat>(&mut self) {
        self.wire = narrow::<H>();
    }
}

impl<T: Real> StageLinks<T> {
    /// The links of a pipeline of one rank.
    pub fn none() -> Self {
        Self { forward: [None, None], backward: [None, None], wire: plain() }
    }

    /// Joins the neighbours in the ring of `ranks`. All ranks call it.
    ///
    /// # Errors
    /// As the library's `split`.
    pub fn new(ranks: &RankGroup) -> Result<Self> {
        let rank = ranks.rank();
        let world = ranks.world();
        let mut links = Self::none();
        if world == 1 {
            return Ok(links);
        }
        for from in 0..world {
            // In the communicator of a link the sender is rank 0.
            let at = |to: usize| [from, to].iter().position(|member| *member == rank);
            let ways = [(from + 1) % world, (from + world - 1) % world];
            for (ends, to) in [&mut links.forward, &mut links.backward].into_iter().zip(ways) {
                let color = at(to).map(|_| 0);
                let pair = ranks.call(|comm| comm.split(color, at(to).unwrap_or(0) as i64))?;
                if let Some(end) = at(to) {
                    ends[end] = pair;
                }
            }
        }
        Ok(links)
    }

    /// Returns the payload bytes that this rank has sent so far.
    pub fn payload(&self) -> u64 {
        let out = [&self.forward[0], &self.backward[0]];
        out.into_iter().flatten().map(|link| link.counters().payload()).sum()
    }

    /// Starts the threads of one step within `scope`. `sent` are the numbers of messages that this
    /// rank sends forward and backward, `received` the keys of the messages that it receives, each
    /// in the order of sending. A message has `length` numbers.
    ///
    /// If this rank sends fewer messages, because its step failed, the neighbours fail too instead
    /// of waiting.
    pub fn open<'scope, K: Copy + Eq + Hash + Send + 'scope>(
        &'scope mut self,
        scope: &'scope Scope<'scope, '_>,
        (sent, received): ([usize; 2], [Vec<K>; 2]),
        length: usize,
    ) -> StepMessages<'scope, K, T> {
        let WireFormat { send, receive } = self.wire;
        let mut messages = StepMessages {
            out: Vec::new(),
            coming: Vec::new(),
            arrived: HashMap::new(),
            threads: Vec::new(),
        };
        let links = [&mut self.forward, &mut self.backward].into_iter().zip(sent);
        for (([out, coming], sent), keys) in links.zip(received) {
            if let Some(link) = out {
                let (give, given) = channel::<Vec<T>>();
                messages.threads.push(scope.spawn(move || send_all(link, send, sent, &given)));
                messages.out.push(give);
            }
            if let Some(link) = coming {
                let (put, come) = channel();
                messages
                    .threads
                    .push(scope.spawn(move || receive_all(link, receive, keys, length, &put)));
                messages.coming.push(come);
            }
        }
        messages
    }
}

fn send_all<T>(
    link: &mut Communicator,
    send: fn(&mut Communicator, &[T]) -> Result<()>,
    count: usize,
    given: &Receiver<Vec<T>>,
) -> Result<()> {
    let mut sent = 0;
    for data in given {
        send(link, &data)?;
        sent += 1;
    }
    // The step failed. An empty message is an error at its receiver, which then fails too.
    if sent < count { send(link, &[]) } else { Ok(()) }
}

fn receive_all<K, T: Real>(
    link: &mut Communicator,
    receive: fn(&mut Communicator, &mut [T]) -> Result<()>,
    keys: Vec<K>,
    length: usize,
    put: &Sender<(K, Vec<T>)>,
) -> Result<()> {
    for key in keys {
        let mut data = vec![T::zero(); length];
        receive(link, &mut data)?;
        // If the step has failed, the receiver of this channel is dropped.
        let _ = put.send((key, data));
    }
    Ok(())
}

/// The messages of one step of one rank.
pub struct StepMessages<'scope, K, T> {
    out: Vec<Sender<Vec<T>>>,
    coming: Vec<Receiver<(K, Vec<T>)>>,
    arrived: HashMap<K, Vec<T>>,
    threads: Vec<ScopedJoinHandle<'scope, Result<()>>>,
}

impl<K: Copy + Eq + Hash, T> StepMessages<'_, K, T> {
    /// Queues a message: to the next rank (`way` 0) or the previous (1).
    ///
    /// # Errors
    /// The failure of the link.
    pub fn send(&mut self, way: usize, data: Vec<T>) -> Result<()> {
        self.out[way].send(data).or_else(|_| self.failure())
    }

    /// Waits for the message `key` from the previous rank (`way` 0) or the next (1), and returns
    /// it.
    ///
    /// # Errors
    /// The failure of the link.
    ///
    /// # Panics
    /// If all messages of the step have come and none has this key: the plan lacks it.
    pub fn receive(&mut self, way: usize, key: K) -> Result<Vec<T>> {
        loop {
            if let Some(data) = self.arrived.remove(&key) {
                return Ok(data);
            }
            match self.coming[way].recv() {
                Ok((key, data)) => drop(self.arrived.insert(key, data)),
                Err(_) => {
                    self.failure()?;
                    panic!("a pass waits for a message that is not in the plan of the step");
                }
            }
        }
    }

    /// Waits until the neighbours have taken all messages.
    ///
    /// # Errors
    /// The failure of a link.
    pub fn close(mut self) -> Result<()> {
        self.out.clear();
        self.failure()
    }

    /// Waits for all threads, and returns the error of a link that failed.
    fn failure(&mut self) -> Result<()> {
        self.out.clear();
        let ends =
            self.threads.drain(..).map(|thread| thread.join().expect("a link does not panic"));
        ends.collect()
    }
}
