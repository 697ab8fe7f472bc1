//! Links between two threads: a message there and one back, over each link and for several sizes.
//!
//! ```text
//! cargo bench --bench links
//! cargo bench --bench links -- board
//! ```
//!
//! Both threads poll, as ranks with a core of their own do; with fewer than two cores the figures
//! mean nothing. A board's message is one publication, so its largest size is one slot. Rates count
//! the bytes of both directions.

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use maypole_kernels::{SharedRegion, View, ViewMut};
use maypole_transports::board::{CHUNK, ExpectedPublication, Publication, SlotClass};
use maypole_transports::{Board, Fault, HEAD, Head, Pipe, Stream, Tcp, mem, shm::Segment};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes of a message over a stream.
const SIZES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];
/// Polls between two looks at what else there is to do.
const POLLS: u32 = 4096;

/// Polls until `ready` returns true.
fn until(mut ready: impl FnMut() -> bool) {
    let mut polls = 0;
    while !ready() {
        polls += 1;
        match polls % POLLS {
            0 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

/// Sends the whole message.
fn send(stream: &mut impl Stream, head: &[u8; HEAD], body: &[u8]) -> Result<(), Fault> {
    let mut sent = 0;
    let mut lost = Ok(());
    until(|| {
        match stream.send(head, View::of(body), sent) {
            Ok(more) => sent += more,
            Err(fault) => lost = Err(fault),
        }
        lost.is_err() || sent == HEAD + body.len()
    });
    lost
}

/// Receives the whole message.
fn receive(stream: &mut impl Stream, body: &mut [u8]) -> Result<(), Fault> {
    let mut head = [0; HEAD];
    let mut received = 0;
    let mut lost = Ok(());
    let len = HEAD + body.len();
    until(|| {
        match stream.receive(&mut head, ViewMut::of(body), received) {
            Ok(more) => received += more,
            Err(fault) => lost = Err(fault),
        }
        lost.is_err() || received == len
    });
    lost
}

/// A message there and one back over a pair of streams. The other thread echoes messages until this one
/// ends the stream.
fn stream_turn<A: Stream, B: Stream + Send>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut pair: impl FnMut() -> (A, B),
) {
    for bytes in SIZES {
        let (mut near, mut far) = pair();
        let head = Head { position: 0, fingerprint: 1 }.to_bytes();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let mut body = vec![0; bytes];
                while receive(&mut far, &mut body).is_ok() && send(&mut far, &head, &body).is_ok() {
                }
            });
            let mut body = vec![1; bytes];
            group.throughput(Throughput::Bytes(2 * bytes as u64));
            group.bench_function(BenchmarkId::new(name, bytes), |bencher| {
                bencher.iter_custom(|turns| {
                    let start = Instant::now();
                    for _ in 0..turns {
                        send(&mut near, &head, &body).expect("the other thread receives");
                        receive(&mut near, &mut body).expect("the other thread answers");
                    }
                    start.elapsed()
                });
            });
            near.finish();
            drop(near);
        });
    }
}

/// Two one-way pipes: [`Pipe`] carries bytes in one direction.
struct TwoPipes {
    out: Pipe,
    back: Pipe,
}

impl Stream for TwoPipes {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        self.out.send(head, body, skip)
    }

    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        body: ViewMut<'_>,
        skip: usize,
    ) -> Result<usize, Fault> {
        self.back.receive(head, body, skip)
    }

    fn finish(&mut self) {
        self.out.finish();
    }
}

fn pipes() -> (TwoPipes, TwoPipes) {
    let pipe = || {
        let segment = Segment::create(Pipe::BYTES).expect("shared memory");
        let descriptor = segment.fd().try_clone_to_owned().expect("a descriptor");
        let same = Segment::from_fd(descriptor, Pipe::BYTES).expect("the same memory");
        (Pipe::writer(segment), Pipe::reader(same))
    };
    let (there, arrives) = pipe();
    let (back, returns) = pipe();
    (TwoPipes { out: there, back: returns }, TwoPipes { out: back, back: arrives })
}

fn tcp() -> (Tcp, Tcp) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of loopback");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
    let far = listener.accept().expect("accepts").0;
    let end = |stream: TcpStream| Tcp::new(stream).expect("a stream");
    (end(near), end(far))
}

/// The publication of a rank of two at `position`, and the expected publication of the other rank.
fn publication(me: usize, position: u64, len: usize) -> (Publication, ExpectedPublication) {
    let class = SlotClass::holding(len).expect("a slot holds it");
    let mask = class.slots(2) as u64 - 1;
    let audience = 1 << (1 - me);
    let fingerprint = 1;
    (
        Publication { class, mask, position, audience, fingerprint, len },
        ExpectedPublication { class, peer: me, position, fingerprint, len },
    )
}

/// Publishes `body` as rank `me`.
fn publish(board: &Board, me: usize, position: u64, body: &[u8]) {
    let (out, _) = publication(me, position, body.len());
    until(|| board.writable(out));
    board.slot(out).fill_from(body);
    board.commit(out);
}

/// Takes the other rank's publication; false if `ends` is set first.
fn take(board: &Board, me: usize, position: u64, body: &mut [u8], ends: &AtomicBool) -> bool {
    let (_, from) = publication(1 - me, position, body.len());
    let mut is_there = false;
    until(|| {
        is_there = board.readable(from).expect("both threads make the same calls");
        is_there || ends.load(Ordering::Relaxed)
    });
    if is_there {
        board.lent(from).copy_to(body);
        board.consume(1 - me, position + 1);
    }
    is_there
}

/// A publication there and one back on a board of two ranks.
fn board_turn(group: &mut BenchmarkGroup<'_, WallTime>) {
    for bytes in [8, 4 << 10, CHUNK] {
        let region = Arc::new(SharedRegion::new(Board::bytes(2)));
        let [near, far] = [0, 1].map(|me| Board::new(Arc::clone(&region), 2, me));
        let ends = &AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let mut body = vec![0; bytes];
                let mut position = 0;
                while take(&far, 1, position, &mut body, ends) {
                    publish(&far, 1, position, &body);
                    position += 1;
                }
            });
            let mut body = vec![1; bytes];
            let mut position = 0;
            group.throughput(Throughput::Bytes(2 * bytes as u64));
            group.bench_function(BenchmarkId::new("board", bytes), |bencher| {
                bencher.iter_custom(|turns| {
                    let start = Instant::now();
                    for _ in 0..turns {
                        publish(&near, 0, position, &body);
                        take(&near, 0, position, &mut body, &AtomicBool::new(false));
                        position += 1;
                    }
                    start.elapsed()
                });
            });
            ends.store(true, Ordering::Relaxed);
        });
    }
}

fn links(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("links");
    board_turn(&mut group);
    stream_turn(&mut group, "pipe", pipes);
    stream_turn(&mut group, "tcp", tcp);
    stream_turn(&mut group, "mem", || mem::pair(64 << 10));
    group.finish();
}

criterion_group!(benches, links);
criterion_main!(benches);
