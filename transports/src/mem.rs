//! A stream between threads of one process.
//!
//! Each direction is a ring of bytes with one writer and one reader. A ring may hold a single byte.
//! Tests use such rings, because an exchange that completes over them completes over any stream.

use crate::parts::{unfilled, unsent};
use crate::ring::{ByteRing, RingCounters};
use crate::stream::{HEAD, Result, Stream};
use maypole_kernels::{SharedRegion, View, ViewMut};
use std::sync::Arc;

/// One end of a stream within a process; see [`pair`].
///
/// Dropping it does what [`Mem::vanish`] does.
#[derive(Debug)]
pub struct Mem {
    outgoing: Arc<MemDirection>,
    incoming: Arc<MemDirection>,
}

/// Makes the two ends of a stream that holds `capacity` bytes in each direction.
///
/// # Panics
/// If `capacity` is 0.
///
/// ```
/// use maypole_kernels::{View, ViewMut};
/// use maypole_transports::{HEAD, Stream, mem};
///
/// let (mut here, mut there) = mem::pair(10);
/// let mut head = [0; HEAD];
/// let mut body = [0; 6];
/// let mut sent = 0;
/// let mut received = 0;
/// while received < HEAD + 6 {
///     if sent < HEAD + 6 {
///         sent += here.send(&[7; HEAD], View::of(b"ribbon"), sent)?;
///     }
///     received += there.receive(&mut head, ViewMut::of(&mut body), received)?;
/// }
/// assert_eq!((head, &body), ([7; HEAD], b"ribbon"));
/// # Ok::<(), maypole_transports::Fault>(())
/// ```
pub fn pair(capacity: usize) -> (Mem, Mem) {
    let forward = Arc::new(MemDirection::new(capacity));
    let backward = Arc::new(MemDirection::new(capacity));
    let first = Mem { outgoing: Arc::clone(&forward), incoming: Arc::clone(&backward) };
    let second = Mem { outgoing: backward, incoming: forward };
    (first, second)
}

impl Mem {
    /// Closes this end as the death of its process would. The peer receives all bytes that were
    /// sent, and then [`Fault::Closed`](crate::Fault::Closed). Bytes that the peer sends are
    /// refused immediately.
    ///
    /// ```
    /// use maypole_kernels::ViewMut;
    /// use maypole_transports::{Fault, HEAD, Stream, mem};
    ///
    /// let (here, mut there) = mem::pair(1);
    /// here.vanish();
    /// assert!(matches!(there.receive(&mut [0; HEAD], ViewMut::EMPTY, 0), Err(Fault::Closed)));
    /// ```
    pub fn vanish(&self) {
        self.outgoing.ring().end();
        self.incoming.ring().abandon();
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        self.vanish();
    }
}

impl Stream for Mem {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize> {
        self.outgoing.ring().put(unsent(head, body, skip))
    }

    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize> {
        self.incoming.ring().take(unfilled(head, body, skip))
    }

    fn finish(&mut self) {
        self.outgoing.ring().end();
    }
}

/// One direction of a stream within a process.
#[derive(Debug)]
struct MemDirection {
    bytes: SharedRegion,
    counters: RingCounters,
}

impl MemDirection {
    fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a stream between threads must hold at least one byte");
        Self { bytes: SharedRegion::new(capacity), counters: RingCounters::default() }
    }

    fn ring(&self) -> ByteRing<'_> {
        // SAFETY: `pair` gives each direction one end that writes and one end that reads, and both
        // use it through exclusive borrows. The ring lets the writer touch free bytes alone and the
        // reader bytes that were written, and its counters order the two.
        ByteRing { counters: &self.counters, bytes: unsafe { self.bytes.view() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Fault;

    fn drain(from: &mut Mem, most: usize) -> (Vec<u8>, Result<usize>) {
        let mut bytes = vec![0; most];
        let mut received = 0;
        loop {
            let mut head = [0; HEAD];
            match from.receive(&mut head, ViewMut::of(&mut bytes[received..]), HEAD) {
                Ok(0) => return (bytes[..received].to_vec(), Ok(0)),
                Ok(more) => received += more,
                Err(fault) => return (bytes[..received].to_vec(), Err(fault)),
            }
        }
    }

    #[test]
    fn a_ring_takes_what_it_holds_and_no_more() {
        let (mut here, mut there) = pair(7);
        let body: Vec<u8> = (0..20).collect();
        assert_eq!(here.send(&[0; HEAD], View::of(&body), HEAD).unwrap(), 7);
        assert_eq!(here.send(&[0; HEAD], View::of(&body), HEAD + 7).unwrap(), 0);
        assert_eq!(drain(&mut there, 20).0, body[..7]);
        assert_eq!(here.send(&[0; HEAD], View::of(&body), HEAD + 7).unwrap(), 7);
        assert_eq!(drain(&mut there, 20).0, body[7..14]);
    }

    #[test]
    fn a_body_never_overtakes_its_head() {
        let (mut here, mut there) = pair(HEAD - 1);
        assert_eq!(here.send(&[1; HEAD], View::of(&[2; 9]), 0).unwrap(), HEAD - 1);
        let mut head = [0; HEAD];
        let mut body = [0; 9];
        assert_eq!(there.receive(&mut head, ViewMut::of(&mut body), 0).unwrap(), HEAD - 1);
        assert_eq!(head[..HEAD - 1], [1; HEAD - 1]);
        assert_eq!(head[HEAD - 1], 0, "the last byte of the head has not arrived");
        assert_eq!(body, [0; 9]);
    }

    #[test]
    fn an_end_that_vanishes_is_seen_at_once_but_after_its_bytes() {
        let (mut here, mut there) = pair(64);
        assert_eq!(here.send(&[3; HEAD], View::EMPTY, 0).unwrap(), HEAD);
        here.vanish();
        assert!(matches!(there.send(&[0; HEAD], View::EMPTY, 0), Err(Fault::Closed)));
        let (bytes, end) = drain(&mut there, 64);
        assert_eq!(bytes, [3; HEAD]);
        assert!(matches!(end, Err(Fault::Closed)));
    }

    #[test]
    fn an_end_that_vanished_refuses_everything() {
        let (mut here, mut there) = pair(64);
        there.send(&[3; HEAD], View::EMPTY, 0).unwrap();
        here.vanish();
        assert!(matches!(here.send(&[0; HEAD], View::EMPTY, 0), Err(Fault::Closed)));
        assert!(matches!(drain(&mut here, 64), (bytes, Err(Fault::Closed)) if bytes.is_empty()));
    }

    #[test]
    #[should_panic(expected = "at least one byte")]
    fn a_ring_of_nothing_is_refused() {
        pair(0);
    }
}
