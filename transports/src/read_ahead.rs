//! Bytes of a connection that were received before their message was requested.

use crate::parts::unfilled;
use crate::stream::HEAD;
use maypole_kernels::ViewMut;

/// Bytes that are received ahead, at most: more than a hundred messages of a few bytes.
const CAPACITY: usize = 8 << 10;

/// A buffer that takes many short messages in one system call, and gives them one by one.
///
/// It is a queue that is filled only when it is empty, so its bytes never wrap around.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    bytes: Box<[u8; CAPACITY]>,
    start: usize,
    end: usize,
}

impl ReadAhead {
    /// Makes an empty buffer.
    pub(crate) fn new() -> Self {
        Self { bytes: Box::new([0; CAPACITY]), start: 0, end: 0 }
    }

    /// True if no byte is left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Lets `receive` write to the whole buffer. It returns how many bytes it has written to the
    /// buffer's start; the rest is not read.
    ///
    /// # Panics
    /// If bytes are left, or `receive` has written more than there is room for.
    #[inline]
    pub(crate) fn fill<E>(
        &mut self,
        receive: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        assert!(self.is_empty(), "bytes that were received ahead would be lost");
        self.start = 0;
        self.end = 0;
        let received = receive(&mut self.bytes[..])?;
        assert!(received <= CAPACITY, "{received} bytes are more than {CAPACITY}");
        self.end = received;
        Ok(())
    }

    /// Moves bytes to `head` and then `body`, from byte `skip` of the two together on, as far as
    /// there are any. Returns how many.
    ///
    /// # Panics
    /// If `skip` is not below `HEAD + body.len()`.
    #[inline]
    pub(crate) fn take(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> usize {
        let before = self.start;
        for part in unfilled(head, body, skip) {
            let bytes = &self.bytes[self.start..self.end];
            let moved = bytes.len().min(part.len());
            part.slice(0, moved).fill_from(&bytes[..moved]);
            self.start += moved;
        }
        self.start - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn filled(bytes: &[u8]) -> ReadAhead {
        let mut ahead = ReadAhead::new();
        let receive = |into: &mut [u8]| {
            into[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, Infallible>(bytes.len())
        };
        ahead.fill(receive).unwrap();
        ahead
    }

    #[test]
    fn messages_come_out_one_by_one_and_the_last_one_in_parts() {
        let whole: Vec<u8> = (0..50).collect();
        let mut ahead = filled(&whole[..45]);
        let mut head = [0; HEAD];
        let mut body = [0; 9];
        assert_eq!(ahead.take(&mut head, ViewMut::of(&mut body), 0), 25);
        assert_eq!([&head[..], &body[..]].concat(), whole[..25]);
        assert_eq!(ahead.take(&mut head, ViewMut::of(&mut body), 0), 20);
        assert!(ahead.is_empty());
        assert_eq!(ahead.take(&mut head, ViewMut::of(&mut body), 20), 0);
        let mut ahead = filled(&whole[45..]);
        assert_eq!(ahead.take(&mut head, ViewMut::of(&mut body), 20), 5);
        assert_eq!([&head[..], &body[..]].concat(), whole[25..]);
    }

    #[test]
    #[should_panic(expected = "would be lost")]
    fn a_buffer_that_holds_bytes_is_not_filled() {
        let _ = filled(&[1]).fill(|_| Ok::<_, Infallible>(1));
    }
}
