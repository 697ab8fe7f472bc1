//! Messages by number: a report carries a number where there is no room for words.

use crate::world::keep_last;
use std::collections::VecDeque;

/// The number of messages that are kept for lookup by number.
const KEPT: usize = 64;
/// This bit is set in the numbers of messages, and in no number of an operation.
pub(super) const IS_MESSAGE: u32 = 1 << 31;

/// The last messages that were numbered.
#[derive(Debug, Default)]
pub(super) struct NumberedMessages {
    words: VecDeque<String>,
    next: u32,
}

impl NumberedMessages {
    pub(super) fn push(&mut self, message: &str) -> u32 {
        keep_last(&mut self.words, KEPT, message.to_owned());
        let number = self.next;
        self.next = (number + 1) & !IS_MESSAGE;
        number | IS_MESSAGE
    }

    /// Returns the message that has this number; `None` if it was evicted.
    pub(super) fn find(&self, number: u32) -> Option<&str> {
        let before = self.next.wrapping_sub(number) & !IS_MESSAGE;
        let at = self.words.len().checked_sub(before as usize)?;
        self.words.get(at).map(String::as_str)
    }
}
