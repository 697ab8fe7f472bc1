//! A stream between processes of one host: two rings of bytes in a segment that both have mapped.
//!
//! One end mostly writes and the other mostly reads, so the ring of the other direction is small.
//! Transfers make no system calls. Each end wakes the other one if that sleeps. The death of a
//! process does not end its streams: its peers get it from the control plane.

use crate::bell::{self, Bell};
use crate::parts::{unfilled, unsent};
use crate::ring::{ByteRing, RingCounters};
use crate::shm::Segment;
use crate::stream::{Fault, HEAD, Result, Stream};
use crate::wait::Sleep;
use arrayvec::ArrayVec;
use maypole_kernels::{View, ViewMut};
use std::io;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes in flight from the writing end to the reading end: few enough to stay in a core's
/// cache.
const FORWARD_BYTES: usize = 128 << 10;
/// The most bytes in flight in the other direction.
const BACKWARD_BYTES: usize = 4 << 10;

/// The start of the segment. The writing end and its outgoing ring come first.
#[derive(Debug)]
#[repr(C)]
struct PipeHeader {
    /// Whether each end exists, so that no segment ever has two ends of a kind, which would write to the
    /// same bytes; and whether it sleeps.
    ends: [PipeEnd; 2],
    rings: [RingCounters; 2],
}

#[derive(Debug)]
#[repr(C, align(128))]
struct PipeEnd {
    exists: AtomicU64,
    bell: Bell,
}

const HEADER: usize = size_of::<PipeHeader>();
/// Where the bytes of each ring begin in the segment, and how many it holds.
const RINGS: [(usize, usize); 2] =
    [(HEADER, FORWARD_BYTES), (HEADER + FORWARD_BYTES, BACKWARD_BYTES)];

/// One end of a stream in shared memory.
///
/// Dropping it closes the stream: the peer receives all bytes that were sent, and then
/// [`Fault::Closed`].
///
/// ```
/// use maypole_kernels::{View, ViewMut};
/// use maypole_transports::{HEAD, Pipe, Stream, shm::Segment};
///
/// let segment = Segment::create(Pipe::BYTES)?;
/// let same = Segment::from_fd(segment.fd().try_clone_to_owned()?, Pipe::BYTES)?;
/// let mut here = Pipe::writer(segment);
/// let mut there = Pipe::reader(same);
/// assert_eq!(here.send(&[7; HEAD], View::of(b"ribbon"), 0)?, HEAD + 6);
///
/// let mut head = [0; HEAD];
/// let mut body = [0; 6];
/// assert_eq!(there.receive(&mut head, ViewMut::of(&mut body), 0)?, HEAD + 6);
/// assert_eq!((head, &body), ([7; HEAD], b"ribbon"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pipe {
    segment: Segment,
    /// The number of this end and of its outgoing ring.
    end: usize,
}

impl Pipe {
    /// Bytes of the segment, which must be all zero when the first end is made.
    pub const BYTES: usize = HEADER + FORWARD_BYTES + BACKWARD_BYTES;

    /// Makes the end that mostly writes.
    ///
    /// # Panics
    /// If the segment does not have [`Pipe::BYTES`], or has this end already.
    pub fn writer(segment: Segment) -> Self {
        Self::new(segment, 0)
    }

    /// Makes the end that mostly reads.
    ///
    /// # Panics
    /// If the segment does not have [`Pipe::BYTES`], or has this end already.
    pub fn reader(segment: Segment) -> Self {
        Self::new(segment, 1)
    }

    fn new(segment: Segment, end: usize) -> Self {
        assert_eq!(segment.len(), Self::BYTES, "the segment of a pipe must have Pipe::BYTES");
        let pipe = Self { segment, end };
        let taken = pipe.header().ends[end].exists.swap(1, Ordering::Relaxed);
        assert_eq!(taken, 0, "the segment has this end of the pipe already");
        pipe
    }

    #[inline]
    fn header(&self) -> &PipeHeader {
        // SAFETY: the segment starts at a page and is longer than the header, which is atomic integers alone, for
        // which every bit pattern is a value; these bytes are never used as anything else.
        unsafe { self.segment.start().cast::<PipeHeader>().as_ref() }
    }

    #[inline]
    fn other_bell(&self) -> &Bell {
        &self.header().ends[1 - self.end].bell
    }

    /// Wakes the other end, if it sleeps and bytes have `moved`.
    #[inline]
    fn wake_if(&self, moved: Result<usize>) -> Result<usize> {
        if matches!(moved, Ok(1..)) {
            self.other_bell().ring();
        }
        moved
    }

    #[inline]
    fn outgoing(&self) -> Result<ByteRing<'_>, Fault> {
        self.ring(self.end)
    }

    #[inline]
    fn incoming(&self) -> Result<ByteRing<'_>, Fault> {
        self.ring(1 - self.end)
    }

    /// Either ring. In a forked child there is none, because a child does not inherit the memory.
    #[inline]
    fn ring(&self, number: usize) -> Result<ByteRing<'_>, Fault> {
        if !self.segment.is_mapped() {
            return Err(Fault::Io(io::Error::other("the stream was created before fork")));
        }
        let (start, bytes) = RINGS[number];
        // SAFETY: each end of a segment exists once (`PipeHeader`), and sends and receives through an
        // exclusive borrow. A ring lets its writer touch free bytes alone and its reader bytes that
        // were written, and its counters order the two.
        let bytes = unsafe { self.segment.view() }.slice(start, bytes);
        Ok(ByteRing { counters: &self.header().rings[number], bytes })
    }
}

/// The wait of an end of a pipe.
#[derive(Clone, Copy, Debug)]
pub struct PipeWait<'a> {
    /// The end.
    pub pipe: &'a Pipe,
    /// Until there is something to receive.
    pub receives: bool,
    /// Until there is room to send.
    pub sends: bool,
}

impl PipeWait<'_> {
    /// The most waits of a [sleep](Self::sleep).
    pub const MOST: usize = bell::MOST - 1;

    /// Takes the `sleep`, unless `is_over`. It ends early once one of `waits` has ended or `bell`
    /// rings.
    ///
    /// # Panics
    /// If there are more than [`PipeWait::MOST`].
    pub fn sleep(
        waits: &[PipeWait<'_>],
        bell: &Bell,
        sleep: Sleep<'_>,
        is_over: impl FnOnce() -> bool,
    ) {
        if waits.iter().all(|wait| wait.pipe.segment.is_mapped()) {
            let ends = waits.iter().map(|wait| &wait.pipe.header().ends[wait.pipe.end].bell);
            let bells: ArrayVec<&Bell, { bell::MOST }> = iter::once(bell).chain(ends).collect();
            sleep.on(&bells, || is_over() || waits.iter().any(PipeWait::is_over));
        }
    }

    fn is_over(&self) -> bool {
        let Self { pipe, receives, sends } = *self;
        receives && pipe.incoming().is_ok_and(ByteRing::has_bytes)
            || sends && pipe.outgoing().is_ok_and(ByteRing::has_room)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // A forked child has nothing to end: its parent is the writer and the reader.
        if let (Ok(outgoing), Ok(incoming)) = (self.outgoing(), self.incoming()) {
            outgoing.end();
            incoming.abandon();
            self.other_bell().ring();
        }
    }
}

impl Stream for Pipe {
    #[inline]
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        self.wake_if(self.outgoing()?.put(unsent(head, body, skip)))
    }

    #[inline]
    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize> {
        self.wake_if(self.incoming()?.take(unfilled(head, body, skip)))
    }

    fn finish(&mut self) {
        if let Ok(outgoing) = self.outgoing() {
            outgoing.end();
            self.other_bell().ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarm::Alarm;
    use std::time::{Duration, Instant};

    fn same(segment: &Segment) -> Segment {
        Segment::from_fd(segment.fd().try_clone_to_owned().unwrap(), Pipe::BYTES).unwrap()
    }

    #[test]
    #[should_panic(expected = "has this end of the pipe already")]
    fn a_segment_has_one_writer() {
        let segment = Segment::create(Pipe::BYTES).unwrap();
        let _writer = Pipe::writer(same(&segment));
        let _reader = Pipe::reader(same(&segment));
        Pipe::writer(segment);
    }

    #[test]
    #[should_panic(expected = "has this end of the pipe already")]
    fn a_segment_has_one_reader_even_after_it_is_dropped() {
        let segment = Segment::create(Pipe::BYTES).unwrap();
        drop(Pipe::reader(same(&segment)));
        Pipe::reader(segment);
    }

    /// A thread that sleeps on pipes can be woken without a byte in any of them.
    #[test]
    fn a_bell_beside_the_pipes_wakes() {
        const LONG: Duration = Duration::from_secs(120);
        let (start, bell, alarm) = (Instant::now(), &Bell::default(), Alarm::default());
        let reader = Pipe::reader(Segment::create(Pipe::BYTES).unwrap());
        for sleep in [Sleep::of(LONG), Sleep::in_background(LONG, &alarm)] {
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    while !bell.is_asleep() {
                        assert!(start.elapsed() < LONG, "the reader never sleeps");
                        std::thread::yield_now();
                    }
                    bell.ring();
                });
                let wait = PipeWait { pipe: &reader, receives: true, sends: false };
                PipeWait::sleep(&[wait], bell, sleep, || false);
            });
        }
        assert!(start.elapsed() < LONG / 2);
    }

    fn sleep(pipe: &Pipe, length: Duration, receives: bool, sends: bool) {
        let waits = [PipeWait { pipe, receives, sends }];
        PipeWait::sleep(&waits, &Bell::default(), Sleep::of(length), || false);
    }

    #[test]
    fn any_of_several_pipes_wakes() {
        const LONG: Duration = Duration::from_secs(120);
        for woken in 0..3 {
            let segments: Vec<_> = (0..3).map(|_| Segment::create(Pipe::BYTES).unwrap()).collect();
            let readers: Vec<_> = segments.iter().map(|it| Pipe::reader(same(it))).collect();
            let mut writers: Vec<_> = segments.into_iter().map(Pipe::writer).collect();
            let start = Instant::now();
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    while !writers[woken].other_bell().is_asleep() {
                        assert!(start.elapsed() < LONG, "the reader never sleeps");
                        std::thread::yield_now();
                    }
                    writers[woken].send(&[1; HEAD], View::EMPTY, 0).unwrap();
                });
                let wait = |pipe| PipeWait { pipe, receives: true, sends: false };
                let waits: Vec<_> = readers.iter().map(wait).collect();
                PipeWait::sleep(&waits, &Bell::default(), Sleep::of(LONG), || false);
            });
            assert!(start.elapsed() < LONG / 2);
        }
    }

    /// The duration of the reader's sleep, while its writer runs `wakes`.
    fn slept(wakes: impl FnOnce(Pipe) + Send) -> Duration {
        const LONG: Duration = Duration::from_secs(120);
        let segment = Segment::create(Pipe::BYTES).unwrap();
        let reader = Pipe::reader(same(&segment));
        let writer = Pipe::writer(segment);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let start = Instant::now();
                while !writer.other_bell().is_asleep() {
                    assert!(start.elapsed() < LONG, "the reader never sleeps");
                    std::thread::yield_now();
                }
                wakes(writer);
            });
            let start = Instant::now();
            sleep(&reader, LONG, true, false);
            start.elapsed()
        })
    }

    #[test]
    fn bytes_and_the_end_wake_a_reader() {
        let soon = Duration::from_secs(60);
        assert!(slept(|mut pipe| assert!(pipe.send(&[1; HEAD], View::EMPTY, 0).is_ok())) < soon);
        assert!(slept(|mut pipe| pipe.finish()) < soon);
        assert!(slept(drop) < soon);
    }

    #[test]
    fn room_wakes_a_writer_and_what_is_there_needs_no_sleep() {
        let segment = Segment::create(Pipe::BYTES).unwrap();
        let mut reader = Pipe::reader(same(&segment));
        let mut writer = Pipe::writer(segment);
        let long = Duration::from_secs(120);
        let start = Instant::now();
        sleep(&writer, long, false, true);
        let body = vec![0; 2 * FORWARD_BYTES];
        assert_eq!(writer.send(&[0; HEAD], View::of(&body), 0).unwrap(), FORWARD_BYTES);
        sleep(&reader, long, true, false);
        std::thread::scope(|threads| {
            threads.spawn(|| sleep(&writer, long, false, true));
            while !reader.other_bell().is_asleep() {
                assert!(start.elapsed() < long, "the writer never sleeps");
                std::thread::yield_now();
            }
            reader.receive(&mut [0; HEAD], ViewMut::EMPTY, 0).unwrap();
        });
        assert!(start.elapsed() < long / 2);
    }

    /// A child neither moves bytes nor ends the stream of its parent.
    #[test]
    fn a_forked_child_has_no_stream() {
        let segment = Segment::create(Pipe::BYTES).unwrap();
        let mut reader = Pipe::reader(same(&segment));
        let mut writer = Some(Pipe::writer(segment));
        // SAFETY: the child takes no lock.
        let said = unsafe {
            crate::fork::forked::in_forked_child(|| {
                let mut child = writer.take().unwrap();
                let sent = child.send(&[7; HEAD], View::EMPTY, 0).map_err(|it| it.to_string());
                child.finish();
                drop(child);
                format!("{sent:?}")
            })
        };
        assert!(said.unwrap().contains("created before fork"));
        let mut head = [0; HEAD];
        assert_eq!(reader.receive(&mut head, ViewMut::EMPTY, 0).unwrap(), 0);
        writer.as_mut().unwrap().send(&[7; HEAD], View::EMPTY, 0).unwrap();
        assert_eq!(reader.receive(&mut head, ViewMut::EMPTY, 0).unwrap(), HEAD);
    }
}
