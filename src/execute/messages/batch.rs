//! The sends and receives that one call posts together.

use super::message::{MessageHead, MessageMemory, MessageState, Misfit};
use crate::execute::record::{MessageRecord, RecordedCall};
use maypole_kernels::DataType;

/// A message of the running call.
#[derive(Debug)]
pub(super) struct BatchMessage<'a> {
    pub(super) head: MessageHead,
    pub(super) memory: MessageMemory<'a>,
    /// A recorder has it.
    is_recorded: bool,
}

/// All messages that one call posts before it waits for any of them.
#[derive(Debug, Default)]
pub(crate) struct MessageBatch<'a> {
    pub(super) messages: Vec<BatchMessage<'a>>,
}

impl<'a> MessageBatch<'a> {
    /// Adds a message with elements of `kind` to or from rank `peer`. Without a rank, it is
    /// received from any rank, and may be shorter than its memory.
    pub(crate) fn add(
        &mut self,
        memory: MessageMemory<'a>,
        kind: DataType,
        peer: Option<usize>,
        tag: u32,
    ) {
        let head = MessageHead::new(memory, kind, peer, tag);
        self.messages.push(BatchMessage { head, memory, is_recorded: false });
    }

    /// The sends or the receives, in order.
    pub(super) fn of_kind(&self, sends: bool) -> impl DoubleEndedIterator<Item = &MessageHead> {
        self.messages.iter().map(|message| &message.head).filter(move |head| head.sends == sends)
    }

    /// For each receive, in order: the rank whose message arrived, and its length in elements.
    ///
    /// # Errors
    /// The first message that did not fit its receive.
    ///
    /// # Panics
    /// If a receive has not completed.
    pub(crate) fn arrivals(&self) -> Result<Vec<(usize, usize)>, Misfit> {
        self.of_kind(false).map(MessageHead::arrival).collect()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.messages.iter().all(|message| message.head.is_over())
    }

    /// The first receive that takes a message of `peer` with this tag.
    pub(super) fn first_open(&self, peer: usize, tag: u32) -> Option<usize> {
        self.messages.iter().position(|message| message.head.accepts(peer, tag))
    }

    /// The first message that has not completed; receives precede sends.
    pub(super) fn first_awaited(&self) -> usize {
        let open = |sends| {
            let is_open = |it: &BatchMessage<'_>| it.head.sends == sends && !it.head.is_over();
            self.messages.iter().position(is_open)
        };
        open(false).or_else(|| open(true)).unwrap_or(0)
    }

    /// The message that this rank waits for: in words, with its rank, if there is one, and its
    /// step.
    pub(crate) fn awaited(&self) -> (String, Option<usize>, usize) {
        let at = self.first_awaited();
        (self.describe(at), self.messages[at].head.peer(), self.step(at))
    }

    /// The index in [`schedule`](Self::schedule) of the step of message `at`.
    pub(super) fn step(&self, at: usize) -> usize {
        let sends_before = self.messages[..at].iter().filter(|it| it.head.sends).count();
        match self.messages[at].head.sends {
            true => sends_before,
            false => self.of_kind(true).count() + at - sends_before,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The whole batch in words, for traces.
    pub(crate) fn title(&self) -> String {
        match (self.len(), self.of_kind(true).count()) {
            (1, _) => self.describe(0),
            (all, sends) => format!("group({sends} sends, {} receives)", all - sends),
        }
    }

    /// The whole batch, for traces.
    pub(crate) fn recorded(&self) -> RecordedCall {
        let (operation, messages) = (self.title(), self.len());
        let bytes = self.messages.iter().map(|message| message.head.bytes).sum();
        RecordedCall::Batch { operation, messages, bytes }
    }

    /// One message in words, for errors and traces.
    pub(super) fn describe(&self, at: usize) -> String {
        let one = &self.messages[at].head;
        match self.len() {
            1 => one.to_string(),
            all => format!("{one}, one of a group of {all}"),
        }
    }

    /// Passes each message that has completed since the last call to `record`, as rank `rank`
    /// records it.
    pub(super) fn record_complete(&mut self, rank: usize, mut record: impl FnMut(MessageRecord)) {
        for at in 0..self.messages.len() {
            let BatchMessage { head, is_recorded, .. } = &mut self.messages[at];
            let MessageState::Complete { peer, bytes } = head.state else { continue };
            if std::mem::replace(is_recorded, true) {
                continue;
            }
            let MessageHead { sends, tag, number, .. } = *head;
            let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
            let step = self.step(at);
            record(MessageRecord { from, to, received: !sends, bytes, tag, number, step });
        }
    }
}
