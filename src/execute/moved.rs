//! Traffic counters.

use std::ops::AddAssign;

/// The traffic over one kind of transport.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Moved {
    /// Publications, or messages.
    pub messages: u64,
    /// Payload bytes, once for each receiver.
    pub payload: u64,
    /// Bytes written, heads included: for a publication once, for any number of readers.
    pub written: u64,
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.payload += other.payload;
        self.written += other.written;
    }
}
