//! How one rank exchanges messages: several at a time, in launches that fit on all ranks.

use super::agreed::Found;
use super::programs::load_aside;
use super::rank::{Connected, DeviceRank, IS_CONNECTED};
use crate::element::DataType;
use crate::engine::Engine;
use crate::error::Result;
use crate::lower::{BufferPlaces, DeviceProgram, DeviceSlots};
use cudarc::driver::CudaStream;
use maypole_kernels::mix;
use maypole_transports::cuda::{
    BesideCapture, CallStream, DeviceCall, DeviceCode, Lent, ProgramCall, Room,
};
use std::collections::HashMap;
use std::sync::Arc;

/// One message of a rank, in the memory of its GPU.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMessage<'a> {
    /// The rank at the other end, which may be this one.
    pub peer: usize,
    /// True if this rank sends it.
    pub sends: bool,
    /// The sent bytes, or the place of the received ones.
    pub data: Lent<'a>,
    /// The type of its elements, which both ends agree on.
    pub kind: DataType,
}

impl DeviceMessage<'_> {
    /// A hash of all that the two ends must agree on.
    pub(super) fn fingerprint(&self) -> u32 {
        mix(self.data.bytes() ^ (self.kind as u64) << 56) as u32
    }

    /// The key of its program.
    pub(super) fn key(&self) -> (u64, bool) {
        (self.data.bytes(), self.sends)
    }

    pub(super) fn describe(&self) -> String {
        let Self { peer, data, kind, .. } = self;
        let (bytes, kind) = (data.bytes(), kind.name());
        match self.sends {
            true => format!("send({bytes} bytes of {kind} to rank {peer})"),
            false => format!("recv({bytes} bytes of {kind} from rank {peer})"),
        }
    }
}

/// The messages of rank `me` of `world`, by place, in one order of all messages of all ranks. So the first of
/// those that are not over has both ends at hand, and no message waits for a later one. Messages over the same
/// distance are beside one another: each rank sends one of them and receives one. Of two that follow one
/// another around, one is earlier for both ends, so that half of the ranks need not wait for the other half.
fn in_order(messages: &[DeviceMessage<'_>], me: usize, world: usize) -> Vec<usize> {
    let mut before = HashMap::new();
    let mut keyed = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        let nth = before.entry((message.peer, message.sends)).or_insert(0_usize);
        let (from, to) = if message.sends { (me, message.peer) } else { (message.peer, me) };
        let distance = (to + world - from) % world;
        keyed.push(((*nth, distance, from / distance % 2, from), at));
        *nth += 1;
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, at)| at).collect()
}

impl DeviceRank {
    /// Starts messages together, on a stream.
    pub(super) fn exchange_messages(
        &mut self,
        on: &Arc<CudaStream>,
        messages: &[DeviceMessage<'_>],
    ) -> Result<()> {
        let on = self.entered(on, "send")?;
        let me = self.comm.rank();
        let (own, messages): (Vec<_>, Vec<_>) = messages.iter().partition(|it| it.peer == me);
        let own = matched(&own).map_err(|why| self.comm.invalid("send", why))?;
        let first = || messages.first().map_or_else(String::new, DeviceMessage::describe);
        let mut numbers = Vec::with_capacity(messages.len());
        for message in &messages {
            let text = message.describe();
            let engine = self.comm.engine.get_mut();
            numbers.push(engine.begin_message_on_device(&text, message.peer)?);
        }
        let ordered = in_order(&messages, me, self.comm.world());
        let ordered: Vec<_> = ordered.into_iter().map(|at| (messages[at], numbers[at])).collect();
        let done = self.start_messages(&on, &ordered, &own);
        let engine = self.comm.engine.get_mut();
        engine.health.end_message();
        done.map_err(|why| self.fail(&first(), why))
    }

    /// Starts messages in their order, and copies from this rank to itself, all in one launch if it has room
    /// for them.
    fn start_messages(
        &mut self,
        on: &CallStream<'_>,
        messages: &[(DeviceMessage<'_>, u32)],
        own: &[(Lent<'_>, Lent<'_>)],
    ) -> Found<()> {
        let kernels = self.kernels(Self::byte_module()).map_err(|error| error.to_string())?;
        let patience = self.patience();
        let codes = messages.iter().map(|(it, _)| self.message_code(it, on.is_captured()));
        let codes = codes.collect::<Found<Vec<_>>>()?;
        let calls = messages.iter().zip(&codes).map(|((message, number), code)| ProgramCall {
            room: if message.sends { Room::To(message.peer) } else { Room::From(message.peer) },
            code,
            longest: message.data.bytes(),
            scratch: Lent::EMPTY,
            call: DeviceCall {
                input: if message.sends { message.data } else { Lent::EMPTY },
                output: message.data,
                fingerprint: message.fingerprint() ^ u32::from(on.is_captured()),
                patience,
                number: *number,
            },
        });
        let calls: Vec<ProgramCall<'_>> = calls.collect();
        let Connected { board, .. } = self.connected.as_mut().expect(IS_CONNECTED);
        let started = board.in_order(on, |board| board.launch(on, &kernels.walk, &calls, own));
        started.map_err(|error| error.to_string())
    }

    /// The program of a message, from the cache or made now.
    fn message_code(
        &mut self,
        message: &DeviceMessage<'_>,
        is_captured: bool,
    ) -> Found<Arc<DeviceCode>> {
        let key = message.key();
        let Self { connected, captured, .. } = self;
        if let Some(code) = captured.messages.get(&key).filter(|_| is_captured) {
            return Ok(Arc::clone(code));
        }
        let connected = connected.as_mut().expect(IS_CONNECTED);
        let Connected { board, messages: known, aside, .. } = connected;
        if let Some(code) = known.by_length.get(&key) {
            let code = Arc::clone(code);
            if is_captured {
                captured.messages.insert(key, Arc::clone(&code));
            }
            return Ok(code);
        }
        let shape = board.shapes().messages;
        let slots = DeviceSlots { bytes: shape.bytes, count: shape.slots as usize };
        let program = Engine::lower_message(key.0 as usize, slots, message.sends);
        let places = BufferPlaces { input: 0, output: 0 };
        let packed = DeviceProgram::new(&program, usize::from(!message.sends), places);
        let packed = packed.ok_or("its folds cut the same bytes into different parts")?;
        if !is_captured {
            let added = board.at_home(|| known.add(key, packed.bytes()));
            return added.map_err(|error| error.to_string());
        }
        let _beside = BesideCapture::begin();
        let code = Arc::new(load_aside(aside, packed.bytes()).map_err(|it| it.to_string())?);
        captured.messages.insert(key, Arc::clone(&code));
        Ok(code)
    }
}

/// The messages of a rank to itself: from where, and to where. Those that it sends and those that it
/// receives match by their order.
fn matched<'a>(own: &[DeviceMessage<'a>]) -> Found<Vec<(Lent<'a>, Lent<'a>)>> {
    let of = |sends| own.iter().filter(move |it| it.sends == sends);
    if of(true).count() != of(false).count() {
        let (sent, received) = (of(true).count(), of(false).count());
        return Err(format!(
            "the rank sends itself {sent} messages and receives {received}, without a matching call \
             in the same group"
        ));
    }
    let pairs = of(true).zip(of(false)).map(|(from, into)| {
        match (from.data.bytes(), from.kind) == (into.data.bytes(), into.kind) {
            true => Ok((from.data, into.data)),
            false => Err(format!("{} does not match {}", from.describe(), into.describe())),
        }
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(peer: usize, sends: bool) -> DeviceMessage<'static> {
        DeviceMessage { peer, sends, data: Lent::EMPTY, kind: DataType::U8 }
    }

    /// A rank sends to all others and receives from them, some twice, in an order of its own.
    fn of_rank(me: usize, world: usize) -> Vec<DeviceMessage<'static>> {
        let others = (0..world).filter(move |peer| *peer != me);
        let twice = others.clone().filter(|peer| (peer + me).is_multiple_of(3));
        let peers: Vec<usize> = others.chain(twice).collect();
        let ends = |peer: &usize| [message(*peer, true), message(*peer, false)];
        let mut messages: Vec<_> = peers.iter().flat_map(ends).collect();
        messages.rotate_left(me);
        messages
    }

    /// The ends of the messages of a rank, in their order, the last one first.
    fn in_turn(me: usize, world: usize) -> Vec<(usize, bool)> {
        let messages = of_rank(me, world);
        let ordered = in_order(&messages, me, world).into_iter();
        ordered.map(|at| (messages[at].peer, messages[at].sends)).rev().collect()
    }

    /// A message that is longer than its slots ends only when its other end has begun, and a block begins
    /// one when it has ended the one before.
    #[test]
    fn messages_one_at_a_time_wait_in_no_circle() {
        for world in [2, 3, 4, 7, 21] {
            let mut left: Vec<_> = (0..world).map(|me| in_turn(me, world)).collect();
            while let Some(me) = (0..world).find(|me| {
                let Some((peer, sends)) = left[*me].last() else { return false };
                left[*peer].last() == Some(&(*me, !sends))
            }) {
                let (peer, _) = left[me].pop().expect("it is there");
                left[peer].pop();
            }
            assert!(left.iter().all(Vec::is_empty), "{left:?}");
        }
    }

    /// Around a circle of ranks, messages that take all blocks of both ends are over after two turns.
    #[test]
    fn a_circle_of_messages_takes_two_turns() {
        let world = 8;
        let order = |me: usize| {
            let all = [message((me + 1) % world, true), message((me + 7) % world, false)];
            in_order(&all, me, world)
        };
        assert!((0..world).all(|me| order(me) == [me % 2, 1 - me % 2]));
    }
}
