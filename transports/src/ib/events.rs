//! Failures of a port and its queues while connections use them: asynchronous events of the device.

use super::abi::{
    EVENT_CQ_ERR, EVENT_DEVICE_FATAL, EVENT_GID_CHANGE, EVENT_LID_CHANGE, EVENT_PORT_ACTIVE,
    EVENT_PORT_ERR, EVENT_QP_ACCESS_ERR, EVENT_QP_FATAL, EVENT_QP_REQ_ERR, IbvAsyncEvent,
};
use super::adapter::VerbsAdapter;
use super::device::OpenDevice;
use super::error::{VerbsError, VerbsFault};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a port may be down: as long as a cable that is plugged in again, or a switch that
/// restarts a port, may take.
const PORT_PATIENCE: Duration = Duration::from_secs(2);

/// The reported state of a port and of all queues on it. All connections of the port share it.
#[derive(Debug, Default)]
pub(super) struct PortWatch(Mutex<HeardEvents>);

#[derive(Debug, Default)]
struct HeardEvents {
    /// The device is broken or was removed.
    device_gone: bool,
    down_since: Option<Instant>,
    /// An address of the port has changed, perhaps the one that is used.
    address_in_doubt: bool,
    address_lost: bool,
    /// Queue pairs and completion queues that the adapter has aborted, by their addresses, and the events.
    queues: Vec<(u64, u32)>,
}

impl HeardEvents {
    /// Takes an event of the device whose port `number` is used.
    fn take(&mut self, event: &IbvAsyncEvent, number: u8, now: Instant) {
        // The union's `int port_num`.
        let is_ours = event.element as u32 == u32::from(number);
        match event.event_type {
            EVENT_CQ_ERR | EVENT_QP_FATAL | EVENT_QP_REQ_ERR | EVENT_QP_ACCESS_ERR => {
                self.queues.push((event.element, event.event_type));
            }
            EVENT_DEVICE_FATAL => self.device_gone = true,
            EVENT_PORT_ERR if is_ours => self.down_since = self.down_since.or(Some(now)),
            EVENT_PORT_ACTIVE if is_ours => self.down_since = None,
            EVENT_GID_CHANGE | EVENT_LID_CHANGE if is_ours => self.address_in_doubt = true,
            _ => {}
        }
    }

    /// The fault of a connection that has these queues.
    fn fault(&self, queues: [u64; 2], now: Instant) -> Option<VerbsFault> {
        let aborted = self.queues.iter().find(|(queue, _)| queues.contains(queue));
        let is_down = self.down_since.is_some_and(|since| now - since >= PORT_PATIENCE);
        match aborted {
            Some((_, event)) => Some(VerbsFault::Queue(*event)),
            None if self.device_gone => Some(VerbsFault::DeviceGone),
            None if self.address_lost => Some(VerbsFault::AddressLost),
            None => is_down.then_some(VerbsFault::PortDown),
        }
    }

    /// Reads pending events, in one system call if there are none. Returns the fault of a
    /// connection that has these queues.
    fn look(&mut self, adapter: &VerbsAdapter, queues: [u64; 2]) -> Option<VerbsFault> {
        let now = Instant::now();
        let mut event = IbvAsyncEvent::default();
        let device = &adapter.device;
        let library = device.library;
        // SAFETY: the context is open, its descriptor does not block, and the library writes one
        // event, which is acknowledged once.
        while unsafe { (library.get_async_event)(device.context.as_ptr(), &mut event) } == 0 {
            self.take(&event, adapter.port.number, now);
            // SAFETY: as above.
            unsafe { (library.ack_async_event)(&mut event) };
        }
        if std::mem::take(&mut self.address_in_doubt) {
            self.address_lost = !adapter.has_address();
        }
        self.fault(queues, now)
    }
}

impl PortWatch {
    /// Makes reading the events of `device` not wait.
    pub(super) fn new(device: &OpenDevice) -> Result<Self, VerbsError> {
        // SAFETY: the context is open, and its descriptor as long as it is.
        let events = unsafe { BorrowedFd::borrow_raw((*device.context.as_ptr()).async_fd) };
        device.unblock(events).map(|()| Self::default())
    }

    /// The fault of a connection on `adapter` that has these queues.
    pub(super) fn look(&self, adapter: &VerbsAdapter, queues: [u64; 2]) -> Option<VerbsFault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).look(adapter, queues)
    }

    /// Removes a queue that was destroyed. Another one may get its address.
    pub(super) fn forget(&self, queue: u64) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.queues.retain(|(other, _)| *other != queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_QUEUES: [u64; 2] = [0; 2];

    fn event(event_type: u32, element: u64) -> IbvAsyncEvent {
        IbvAsyncEvent { element, event_type }
    }

    fn trouble(heard: &HeardEvents, now: Instant) -> Option<VerbsFault> {
        heard.fault(NO_QUEUES, now)
    }

    #[test]
    fn a_port_may_flap_for_two_seconds() {
        let now = Instant::now();
        let mut heard = HeardEvents::default();
        heard.take(&event(EVENT_PORT_ERR, 1), 1, now);
        assert_eq!(trouble(&heard, now + PORT_PATIENCE / 2), None);
        assert_eq!(trouble(&heard, now + PORT_PATIENCE), Some(VerbsFault::PortDown));
        heard.take(&event(EVENT_PORT_ERR, 1), 1, now + PORT_PATIENCE);
        let since_the_first = trouble(&heard, now + PORT_PATIENCE);
        assert_eq!(since_the_first, Some(VerbsFault::PortDown));
        heard.take(&event(EVENT_PORT_ACTIVE, 1), 1, now + PORT_PATIENCE);
        assert_eq!(trouble(&heard, now + 9 * PORT_PATIENCE), None);
    }

    #[test]
    fn other_ports_are_no_concern_and_a_broken_device_is_at_once() {
        let now = Instant::now();
        let mut heard = HeardEvents::default();
        heard.take(&event(EVENT_PORT_ERR, 2), 1, now);
        heard.take(&event(EVENT_GID_CHANGE, 2), 1, now);
        assert_eq!(trouble(&heard, now + PORT_PATIENCE), None);
        assert!(!heard.address_in_doubt);
        heard.take(&event(EVENT_DEVICE_FATAL, 0), 1, now);
        heard.take(&event(EVENT_PORT_ACTIVE, 1), 1, now);
        assert_eq!(trouble(&heard, now), Some(VerbsFault::DeviceGone));
    }

    #[test]
    fn a_queue_is_lost_alone() {
        let now = Instant::now();
        let mut heard = HeardEvents::default();
        heard.take(&event(EVENT_CQ_ERR, 77), 1, now);
        assert_eq!(heard.fault([5, 77], now), Some(VerbsFault::Queue(EVENT_CQ_ERR)));
        assert!(heard.fault([5, 78], now).is_none());
    }
}
