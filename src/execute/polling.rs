//! The work between two polls of a wait, of programs and of messages.

/// Polls between two attempts to move bytes that the wait itself is not for.
const POLLS_PER_DRIVE: u32 = 64;
/// Polls between two readings of the clock for deadlines of single messages.
const POLLS_PER_CLOCK: u32 = 16;
/// Polls between two checks whether the awaited peer has failed.
const POLLS_PER_PEER_CHECK: u32 = 1024;

/// Counts the polls of one wait and schedules work other than polling, so that the common poll
/// stays cheap.
#[derive(Debug, Default)]
pub(super) struct PollCounter(u32);

impl PollCounter {
    #[inline(always)]
    pub(super) fn count(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    /// True if bytes should be moved on the other streams after this poll, so that no peer that
    /// sends to this rank waits on a full stream.
    #[inline(always)]
    pub(super) fn is_drive_due(&self) -> bool {
        self.0.is_multiple_of(POLLS_PER_DRIVE)
    }

    /// True if the clock should be read after this poll.
    #[inline(always)]
    pub(super) fn is_clock_due(&self) -> bool {
        self.0.is_multiple_of(POLLS_PER_CLOCK)
    }

    /// True if the awaited peer should be checked for failure after this poll.
    #[inline(always)]
    pub(super) fn is_peer_check_due(&self) -> bool {
        self.0.is_multiple_of(POLLS_PER_PEER_CHECK)
    }

    /// True for the first poll at which a peer check is due: the wait has become long.
    pub(super) fn is_first_peer_check(&self) -> bool {
        self.0 == POLLS_PER_PEER_CHECK
    }
}
