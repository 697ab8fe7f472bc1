//! Couriers of two hosts over TCP, beside threads that write and read as kernels do: for the ThreadSanitizer,
//! which sees no race of a kernel. And how fast they are.
//!
//! ```text
//! cargo test --release -p maypole-transports --features cuda --lib -- --ignored --nocapture --test-threads 1 courier
//! maypole perf latency bandwidth -n 2 --transport tcp --sizes 8,256K
//! ```
//!
//! Between network namespaces `a` and `b`, the first with address 10.9.0.1: the same by `ip netns exec a` with
//! `TEST_ADDRESS=10.9.0.1 TEST_NAMESPACE=/var/run/netns/b`.

use super::super::message::{WordHead, WordKind};
use super::super::places::{Direction, MailboxCopy};
use super::{
    AnyStream, Courier, CourierStream, DeviceBoard, GROUPS, LONGEST, MailboxLayout, SHAPE, Segment,
    Shape,
};
use super::{Shapes, SlotLayout, byte, direct, gpu, shapes};
use crate::stream::Stream;
use crate::tcp::Tcp;
use maypole_kernels::{View, ViewMut};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

/// A rank's words and slots in the copy of its host. The other rank is on the other host.
struct RankEnd {
    copy: MailboxCopy,
    /// The memory of its GPU, if slots are there.
    arena: Option<Arc<Segment>>,
    /// By room.
    outgoing: Vec<Direction>,
    incoming: Vec<Direction>,
}

impl RankEnd {
    fn word(&self, direction: &Direction, head: WordHead) -> &std::sync::atomic::AtomicU64 {
        self.copy.word(direction.place(&head).unwrap().0)
    }

    /// These bytes of its own slots, or of the slots of the other rank.
    ///
    /// # Safety
    /// As of [`MailboxCopy::slot`].
    unsafe fn slot(&self, direction: &Direction, head: WordHead, is_own: bool) -> ViewMut<'_> {
        let body = direction.place(&head).unwrap().1;
        let start = if is_own { body.start } else { direction.at_reader(body.start) };
        // SAFETY: the caller guarantees it.
        unsafe {
            match &self.arena {
                Some(arena) => arena.view().slice(start, body.len),
                None => self.copy.slot(body),
            }
        }
    }

    /// Publishes `len` bytes at this position of a lane, if its slot is free: those of `bytes`, or those that lie
    /// there.
    fn publish(
        &self,
        (room, lane): (usize, u8),
        position: u64,
        len: usize,
        bytes: Option<&[u8]>,
    ) -> bool {
        let (out, back) = (&self.outgoing[room], &self.incoming[room]);
        let head = WordHead { lane, ..WordHead::GOODBYE };
        let slots = out.slots as u64;
        let consumed = self.word(back, WordHead { kind: WordKind::Consumed, ..head });
        if position >= slots && consumed.load(Ordering::Acquire) <= position - slots {
            return false;
        }
        let slot = (position % slots) as u8;
        let head = WordHead { kind: WordKind::Arrived, slot, length: len as u32, ..head };
        if let Some(bytes) = bytes {
            // SAFETY: the reader has consumed what was there.
            unsafe { self.slot(out, head, true) }.fill_from(bytes);
        }
        self.copy.word(out.length(&head)).store(len as u64, Ordering::Relaxed);
        self.word(out, head).store(position + 1, Ordering::Release);
        true
    }

    /// Reads `len` bytes at this position of a lane, if they have arrived.
    fn read(
        &self,
        (room, lane): (usize, u8),
        position: u64,
        len: usize,
        check: impl FnOnce(View<'_>),
    ) -> bool {
        let (out, back) = (&self.outgoing[room], &self.incoming[room]);
        let slot = (position % back.slots as u64) as u8;
        let (kind, length) = (WordKind::Arrived, len as u32);
        let head = WordHead { kind, lane, slot, length, ..WordHead::GOODBYE };
        if self.word(back, head).load(Ordering::Acquire) <= position {
            return false;
        }
        // SAFETY: the publication has arrived, and its writer waits for the word below.
        check(unsafe { self.slot(back, head, false) }.as_view());
        let head = WordHead { kind: WordKind::Consumed, lane, ..WordHead::GOODBYE };
        self.word(out, head).store(position + 1, Ordering::Release);
        true
    }
}

/// Over loopback; or from the network namespace `TEST_NAMESPACE`, a file, to `TEST_ADDRESS` of this one.
fn connection() -> [TcpStream; 2] {
    let [address, namespace] = ["TEST_ADDRESS", "TEST_NAMESPACE"].map(std::env::var);
    let listener = TcpListener::bind((address.as_deref().unwrap_or("127.0.0.1"), 0)).unwrap();
    let connect = || {
        if let Ok(namespace) = namespace {
            let namespace = std::fs::File::open(namespace).unwrap();
            // SAFETY: it changes the network of this thread alone.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
        }
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    };
    let here = std::thread::scope(|threads| threads.spawn(connect).join().unwrap());
    [here, listener.accept().unwrap().0]
}

/// Two ranks on two hosts, each with its courier.
fn two_hosts(shapes: &Shapes) -> [(RankEnd, Courier); 2] {
    let on_gpus = shapes.slots_on_gpus;
    let [here, there] = connection().map(|socket| AnyStream::Tcp(Tcp::new(socket).unwrap()));
    let slots = on_gpus.then(|| SlotLayout::new(shapes, &[0, 1]));
    let (here, there) = match on_gpus {
        true => direct::over((here, there), 7, direct::Mutant::None),
        false => (here, there),
    };
    let mut streams = [here, there];
    let gpus = slots.as_ref().map(|slots| [0, 1].map(|rank| gpu(slots.bytes(rank), true)));
    let mut register = |rank: usize| {
        let (_, buffer) = &gpus.as_ref()?[rank];
        Some(streams[rank].direct()?.register_device(buffer).unwrap())
    };
    let registered = [0, 1].map(&mut register);
    let mut streams = streams.into_iter();
    [0, 1].map(|me| {
        let segment = Arc::new(Segment::create(DeviceBoard::bytes_in_host(shapes, 2)).unwrap());
        let (peer, stream) = (1 - me, streams.next().unwrap());
        let to_peer = CourierStream { peer, stream, writes_to: registered[peer] };
        let copy = || MailboxCopy::new(Arc::clone(&segment), 2, slots.clone());
        let courier = Courier::new(copy(), shapes, me, vec![to_peer]);
        let (copy, layout) = (copy(), MailboxLayout::new(shapes, 2));
        let [outgoing, incoming] =
            [(me, peer), (peer, me)].map(|pair| copy.directions(&layout, shapes, pair));
        let arena = gpus.as_ref().map(|gpus| Arc::clone(&gpus[me].0));
        (RankEnd { copy, arena, outgoing, incoming }, courier)
    })
}

/// Waits until `is_done`, and gives up the core meanwhile.
fn until(mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < LIMIT, "it never comes");
        std::thread::yield_now();
    }
}

/// Each lane has a writer and a reader, both ranks have a courier, and all of them are threads.
#[test]
fn couriers_run_beside_writers_and_readers() {
    for on_gpus in [false, true] {
        run_beside(on_gpus);
    }
}

fn run_beside(on_gpus: bool) {
    const POSITIONS: u64 = 300;
    let [(here, mut of_here), (there, mut of_there)] = two_hosts(&shapes(on_gpus));
    let is_over = AtomicBool::new(false);
    let expected = |room: usize, lane: u8, position: u64| -> Vec<u8> {
        let len = (position as usize * 7 + usize::from(lane)) % (LONGEST + 1);
        (0..len).map(|at| byte(0, room, position, at)).collect()
    };
    let lanes = |room: usize| [2, 3][room];
    let all = || (0..GROUPS).flat_map(|room| (0..lanes(room)).map(move |lane| (room, lane)));
    std::thread::scope(|threads| {
        for courier in [&mut of_here, &mut of_there] {
            threads.spawn(|| {
                until(|| {
                    courier.drive().unwrap();
                    is_over.load(Ordering::Acquire)
                });
            });
        }
        let work = all().flat_map(|(room, lane)| {
            let (here, there, expected) = (&here, &there, &expected);
            let writer = threads.spawn(move || {
                for position in 0..POSITIONS {
                    let bytes = expected(room, lane, position);
                    let bytes = &bytes[..];
                    until(|| here.publish((room, lane), position, bytes.len(), Some(bytes)));
                }
            });
            let reader = threads.spawn(move || {
                for position in 0..POSITIONS {
                    let bytes = expected(room, lane, position);
                    let check = |found: View<'_>| assert_eq!(found.to_vec(), bytes);
                    until(|| there.read((room, lane), position, bytes.len(), check));
                }
            });
            [writer, reader]
        });
        let work: Vec<_> = work.collect();
        let ended: Vec<_> = work.into_iter().map(|thread| thread.join()).collect();
        is_over.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok), "some thread has failed");
    });
}

/// Those of groups of two ranks: pieces of 4 KiB in four lanes, and of 256 KiB in eight.
fn long_shapes() -> Shapes {
    let short = Shape { lanes: 4, slots: 16, bytes: 16 << 10, lane_bytes: 4 << 10, ..SHAPE };
    let long = Shape { lanes: 8, slots: 4, bytes: 2 << 20, lane_bytes: 8 << 10, ..SHAPE };
    Shapes { groups: vec![short, long], messages: SHAPE, slots_on_gpus: false }
}

/// The lane and the position in it of publication `nth` in a room of these shapes.
fn place(room: usize, nth: u64) -> ((usize, u8), u64) {
    let lanes = u64::from(long_shapes().groups[room].lanes);
    ((room, (nth % lanes) as u8), nth / lanes)
}

/// Seconds from the first publication of `count` to the last read, both ranks' kernels being no threads.
fn seconds(count: u64, len: usize) -> f64 {
    let publication = |nth| place(usize::from(len > 4 << 10), nth);
    let [(here, mut of_here), (there, mut of_there)] = two_hosts(&long_shapes());
    let start = Instant::now();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut position, is_sent) = (0, |link: &Courier| link.links[0].has_ended());
            until(|| {
                while position < count {
                    let (lane, at) = publication(position);
                    if !here.publish(lane, at, len, None) {
                        break;
                    }
                    position += 1;
                }
                if position == count {
                    of_here.say_goodbye();
                }
                of_here.drive().unwrap();
                position == count && is_sent(&of_here)
            });
        });
        let mut position = 0;
        until(|| {
            of_there.drive().unwrap();
            while position < count {
                let (lane, at) = publication(position);
                if !there.read(lane, at, len, |_| ()) {
                    break;
                }
                position += 1;
            }
            position == count
        });
        // The goodbye is acknowledged up to 40 ms later.
        start.elapsed().as_secs_f64()
    })
}

/// Seconds of a publication of 8 bytes to the other host: half of the time there and back.
fn latency(turns: u64) -> f64 {
    let ends = two_hosts(&long_shapes());
    let start = Instant::now();
    std::thread::scope(|threads| {
        for (me, (end, mut courier)) in ends.into_iter().enumerate() {
            threads.spawn(move || {
                for position in 0..turns {
                    for publishes in [me == 0, me == 1] {
                        until(|| {
                            let sent = publishes && end.publish((0, 0), position, 8, None);
                            courier.drive().unwrap();
                            sent || !publishes && end.read((0, 0), position, 8, |_| ())
                        });
                    }
                }
                courier.say_goodbye();
                until(|| {
                    let _ = courier.drive();
                    courier.has_ended()
                });
            });
        }
    });
    start.elapsed().as_secs_f64() / (2 * turns) as f64
}

/// The same by messages of two streams, without mailboxes.
fn plain(count: u64, len: usize, answers: bool) -> f64 {
    use crate::stream::HEAD;
    let mut streams = connection().map(|socket| Tcp::new(socket).unwrap()).into_iter();
    let (mut here, mut there) = (streams.next().unwrap(), streams.next().unwrap());
    let bytes = vec![1_u8; len];
    let send = |stream: &mut Tcp, bytes: &[u8]| {
        let mut sent = 0;
        until(|| {
            sent += stream.send(&[7; HEAD], View::of(bytes), sent).unwrap();
            sent == HEAD + bytes.len()
        });
    };
    let receive = |stream: &mut Tcp, bytes: &mut [u8]| {
        let (mut received, mut head) = (0, [0; HEAD]);
        until(|| {
            received += stream.receive(&mut head, ViewMut::of(&mut *bytes), received).unwrap();
            received == HEAD + bytes.len()
        });
    };
    let start = Instant::now();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut bytes = bytes.clone();
            for _ in 0..count {
                send(&mut here, &bytes);
                if answers {
                    receive(&mut here, &mut bytes);
                }
            }
        });
        let mut bytes = bytes.clone();
        for _ in 0..count {
            receive(&mut there, &mut bytes);
            if answers {
                send(&mut there, &bytes);
            }
        }
    });
    start.elapsed().as_secs_f64()
}

/// Prints both, and how they compare with streams alone. Of several rounds the fastest counts.
#[test]
#[ignore = "it measures"]
fn the_rate_and_the_latency_of_couriers() {
    let best = |measure: &dyn Fn() -> f64| (0..9).map(|_| measure()).fold(f64::MAX, f64::min);
    const TURNS: u64 = 5_000;
    let ours = best(&|| latency(TURNS));
    let theirs = best(&|| plain(TURNS, 8, true)) / (2 * TURNS) as f64;
    println!(
        "8 bytes: {:.2} us, a stream {:.2} us: {:.2}",
        ours * 1e6,
        theirs * 1e6,
        ours / theirs
    );
    for len in [4 << 10, 64 << 10, 256 << 10] {
        let count = (256 << 20) / len as u64;
        let rate = |seconds: f64| (count * len as u64) as f64 / seconds / 1e9;
        let ours = rate(best(&|| seconds(count, len)));
        let theirs = rate(best(&|| plain(count, len, false)));
        println!("{len} bytes: {ours:.2} GB/s, a stream {theirs:.2} GB/s: {:.2}", ours / theirs);
    }
}
