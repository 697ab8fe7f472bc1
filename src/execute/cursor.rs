//! The position in a message that arrives on a stream, which moves a part of the message at a time.
//!
//! A message is a head of 16 bytes and a body. A cursor counts the bytes that have arrived and keeps no
//! pointer to the body: the caller names the same body again at each attempt.

use maypole_kernels::ViewMut;
use maypole_transports::{Fault, HEAD, Stream};

/// The result of one attempt to receive a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Advance {
    /// No byte has arrived.
    Blocked,
    /// Some bytes have arrived; more are left.
    Partial,
    /// The last byte has arrived.
    Complete,
}

/// The position in a message that is being received, and its head.
#[derive(Debug, Default)]
pub(super) struct ReceiveCursor {
    head: [u8; HEAD],
    /// Bytes of head and body that have arrived.
    received: usize,
}

impl ReceiveCursor {
    /// Receives as much of the message as has arrived, its body into `body`. Once the message is
    /// [complete](Advance::Complete), the next one begins after a [restart](Self::restart). A head
    /// that was received without a body is complete, too; the next call may receive the body that
    /// the head announces.
    ///
    /// # Panics
    /// If the message is complete already.
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        stream: &mut impl Stream,
        body: ViewMut<'_>,
    ) -> Result<Advance, Fault> {
        let came = stream.receive(&mut self.head, body, self.received)?;
        self.received += came;
        Ok(match came {
            0 => Advance::Blocked,
            _ if self.is_complete(body.len()) => Advance::Complete,
            _ => Advance::Partial,
        })
    }

    /// The head, once all of it has arrived.
    #[inline(always)]
    pub(super) fn head(&self) -> Option<[u8; HEAD]> {
        (self.received >= HEAD).then_some(self.head)
    }

    /// True once the head and its `body` bytes have arrived.
    #[inline(always)]
    pub(super) fn is_complete(&self, body: usize) -> bool {
        self.received == HEAD + body
    }

    /// True if no byte of the message has arrived.
    pub(super) fn is_at_start(&self) -> bool {
        self.received == 0
    }

    /// Advances to the next message.
    #[inline(always)]
    pub(super) fn restart(&mut self) {
        self.received = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole_kernels::View;
    use maypole_transports::mem;

    #[test]
    fn a_message_crosses_a_narrow_stream_in_parts() {
        let (mut here, mut there) = mem::pair(7);
        let body: Vec<u8> = (0..30).collect();
        let mut into = vec![0; body.len()];
        let mut receiving = ReceiveCursor::default();
        let mut sent = 0;
        while !receiving.is_complete(body.len()) {
            if sent < HEAD + body.len() {
                sent += here.send(&[3; HEAD], View::of(&body), sent).unwrap();
            }
            receiving.advance(&mut there, ViewMut::of(&mut into)).unwrap();
        }
        assert_eq!(receiving.head(), Some([3; HEAD]));
        assert_eq!(into, body);
    }

    #[test]
    fn a_cursor_stands_at_the_start_of_the_next_message_after_the_last_byte() {
        let (mut here, mut there) = mem::pair(100);
        let mut receiving = ReceiveCursor::default();
        for number in 0..3 {
            assert_eq!(here.send(&[number; HEAD], View::EMPTY, 0).unwrap(), HEAD);
            assert!(receiving.is_at_start());
            let received = receiving.advance(&mut there, ViewMut::EMPTY).unwrap();
            assert_eq!(received, Advance::Complete);
            assert_eq!(receiving.head(), Some([number; HEAD]));
            receiving.restart();
        }
        let received = receiving.advance(&mut there, ViewMut::EMPTY).unwrap();
        assert_eq!(received, Advance::Blocked);
    }

    #[test]
    fn a_head_is_known_before_its_body() {
        let (mut here, mut there) = mem::pair(HEAD);
        let mut receiving = ReceiveCursor::default();
        here.send(&[9; HEAD], View::of(&[1]), 0).unwrap();
        assert_eq!(receiving.head(), None);
        let advance = receiving.advance(&mut there, ViewMut::of(&mut [0])).unwrap();
        assert_eq!(advance, Advance::Partial);
        assert_eq!(receiving.head(), Some([9; HEAD]));
        assert!(!receiving.is_complete(1));
    }
}
