//! The end of a simulated link.

use super::fault::CorruptedByte;
use super::link::LinkDirection;
use super::state::{NetworkState, SimulatedNetwork};
use super::thread;
use maypole_kernels::{View, ViewMut};
use maypole_transports::parts::{unfilled, unsent};
use maypole_transports::{Fault, HEAD, Stream};
use std::sync::{Arc, MutexGuard};

/// One end of a link of a [`SimulatedNetwork`].
///
/// Takes a part of the offered bytes, buffers them for a latency, and delivers a part of the
/// arrived ones, all by the network's seed. Dropping it ends both directions; sent bytes still
/// arrive.
///
/// ```
/// use maypole_kernels::{View, ViewMut};
/// use maypole_testing::network::{NetworkConditions, SimulatedNetwork};
/// use maypole_transports::{HEAD, Stream};
/// use std::time::Duration;
///
/// let network = SimulatedNetwork::new(NetworkConditions {
///     seed: 7,
///     hosts: vec![0, 1],
///     capacity: 10,
///     longest_delay: Duration::from_micros(50),
///     faults: Vec::new(),
///     most_turns: 1000,
/// });
/// let (mut here, mut there) = network.link(0, 1);
/// let mut head = [0; HEAD];
/// let mut sent = 0;
/// let mut received = 0;
/// while received < HEAD {
///     if sent < HEAD {
///         sent += here.send(&[7; HEAD], View::EMPTY, sent)?;
///     }
///     received += there.receive(&mut head, ViewMut::EMPTY, received)?;
/// }
/// assert_eq!(head, [7; HEAD]);
/// # Ok::<(), maypole_transports::Fault>(())
/// ```
#[derive(Debug)]
pub struct SimulatedStream {
    pub(super) network: Arc<SimulatedNetwork>,
    pub(super) outgoing: usize,
    pub(super) incoming: usize,
}

impl SimulatedStream {
    /// A step of the thread that uses the stream. Sometimes it passes the turn on.
    ///
    /// A thread that has no turns (a stream that outlives its world) continues immediately.
    fn step(&self) -> MutexGuard<'_, NetworkState> {
        match thread::current() {
            Some(turns) if turns.is_of(&self.network) => turns.step_at_link(&self.network),
            _ => {
                let mut state = self.network.state();
                state.table.clock += 1;
                state
            }
        }
    }

    /// Corrupts the bytes of `parts` that are planned to be.
    fn corrupt(&self, state: &mut NetworkState, head: &mut [u8], body: &mut [u8]) {
        let from = state.directions[self.outgoing].from;
        let to = state.directions[self.outgoing].to;
        let NetworkState { corruptions, corrupted, .. } = state;
        corruptions.retain_mut(|planned| {
            let in_head = planned.in_head;
            let done = planned.pass(if in_head { &mut *head } else { &mut *body });
            if done {
                corrupted.push(CorruptedByte { from, to, in_head });
            }
            !done
        });
    }
}

impl Stream for SimulatedStream {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        let [head, body] = unsent(head, body, skip);
        let mut state = self.step();
        let now = state.table.clock;
        let capacity = self.network.conditions.capacity;
        let offered = head.len() + body.len();
        let room = state.directions[self.outgoing].room(offered, capacity, now)?;
        let from = state.directions[self.outgoing].from;
        let count = self.network.share(&mut state, from, room);
        if count == 0 {
            return Ok(0);
        }
        let in_head = count.min(head.len());
        let mut bytes = head.slice(0, in_head).to_vec();
        bytes.extend(body.slice(0, count - in_head).to_vec());
        let (of_head, of_body) = bytes.split_at_mut(in_head);
        self.corrupt(&mut state, of_head, of_body);
        let delay = self.network.delay(&mut state);
        let arrival = state.directions[self.outgoing].put(bytes, now, delay);
        let to = state.directions[self.outgoing].to;
        state.table.plan(arrival, to);
        state.note((self.outgoing as u64) << 32 | count as u64);
        Ok(count)
    }

    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        let parts = unfilled(head, body, skip);
        let mut state = self.step();
        let now = state.table.clock;
        let arrived = state.directions[self.incoming].arrived(now)?;
        let most = arrived.min(parts[0].len() + parts[1].len());
        let LinkDirection { from, to, .. } = state.directions[self.incoming];
        let count = self.network.share(&mut state, to, most);
        if count > 0 {
            state.directions[self.incoming].take(parts, count);
            // The sender has room, and the receiver may find more.
            state.table.change(from);
            state.table.change(to);
            state.note((self.incoming as u64) << 32 | count as u64);
        }
        Ok(count)
    }

    fn finish(&mut self) {
        let delay = self.network.end_delay(self.outgoing);
        let mut state = self.network.state();
        let now = state.table.clock;
        let end = state.directions[self.outgoing].finish(now, delay);
        let to = state.directions[self.outgoing].to;
        state.table.plan(end, to);
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        self.finish();
        let delay = self.network.end_delay(self.incoming);
        let mut state = self.network.state();
        let now = state.table.clock;
        state.directions[self.incoming].abandon(now, delay);
        state.directions[self.incoming].ends -= 1;
        state.directions[self.outgoing].ends -= 1;
        let from = state.directions[self.incoming].from;
        state.table.plan(now + delay, from);
    }
}
