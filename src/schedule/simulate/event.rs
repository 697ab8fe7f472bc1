//! Events of cores that take turns.

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CoreEvent {
    /// All nodes that this one waited for have ended.
    Ready(usize),
    /// A core has finished its work.
    Free(usize),
}

/// An event and its time in one number, so that one comparison orders events: earlier times come
/// first, then nodes that are ready, by number, then cores.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct TimedEvent(u128);

impl TimedEvent {
    /// This bit is set for cores.
    const FREE: u64 = 1 << 63;

    pub(super) fn new(time: u64, event: CoreEvent) -> Self {
        let number = match event {
            CoreEvent::Ready(node) => node as u64,
            CoreEvent::Free(core) => core as u64 | Self::FREE,
        };
        Self(u128::from(time) << 64 | u128::from(number))
    }

    pub(super) fn parts(self) -> (u64, CoreEvent) {
        let number = self.0 as u64;
        let event = match number & Self::FREE {
            0 => CoreEvent::Ready(number as usize),
            _ => CoreEvent::Free((number & !Self::FREE) as usize),
        };
        ((self.0 >> 64) as u64, event)
    }
}
