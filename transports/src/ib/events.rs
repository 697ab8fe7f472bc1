//! What happens to a port while connections use it: asynchronous events of the device.

use super::abi::{EVENT_DEVICE_FATAL, EVENT_PORT_ACTIVE, EVENT_PORT_ERR, IbvAsyncEvent};
use super::device::OpenDevice;
use super::error::VerbsError;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The state of a port, as the events tell it. All connections of the port share it.
#[derive(Debug, Default)]
pub(super) struct PortWatch(Mutex<PortHealth>);

#[derive(Debug, Default)]
enum PortHealth {
    #[default]
    Up,
    DownSince(Instant),
    /// The device is broken or was removed.
    DeviceGone,
}

/// What is wrong with a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PortTrouble {
    Down,
    DeviceGone,
}

impl PortHealth {
    /// Takes an event about the port `number`.
    fn take(&mut self, event: &IbvAsyncEvent, number: u8, now: Instant) {
        // The union's `int port_num`.
        let port = event.element as u32;
        match event.event_type {
            EVENT_DEVICE_FATAL => *self = Self::DeviceGone,
            EVENT_PORT_ERR if port == u32::from(number) => {
                if matches!(self, Self::Up) {
                    *self = Self::DownSince(now);
                }
            }
            EVENT_PORT_ACTIVE if port == u32::from(number) => {
                if matches!(self, Self::DownSince(_)) {
                    *self = Self::Up;
                }
            }
            _ => {}
        }
    }

    /// What is wrong, if the port did not come up again within `patience`.
    fn trouble(&self, patience: Duration, now: Instant) -> Option<PortTrouble> {
        match self {
            Self::Up => None,
            Self::DownSince(since) => (now - *since >= patience).then_some(PortTrouble::Down),
            Self::DeviceGone => Some(PortTrouble::DeviceGone),
        }
    }
}

impl PortWatch {
    /// Makes reading the events of `device` not wait.
    pub(super) fn new(device: &OpenDevice) -> Result<Self, VerbsError> {
        // SAFETY: the context is open, and its descriptor as long as it is.
        let events = unsafe { BorrowedFd::borrow_raw((*device.context.as_ptr()).async_fd) };
        let unblocked =
            fcntl_getfl(events).and_then(|flags| fcntl_setfl(events, flags | OFlags::NONBLOCK));
        match unblocked {
            Ok(()) => Ok(Self::default()),
            Err(error) => Err(device.check("fcntl", error.raw_os_error()).unwrap_err()),
        }
    }

    /// Reads the events that have come, in one system call if there are none. Returns what is wrong
    /// with the port `number` and has been so for `patience`.
    pub(super) fn look(
        &self,
        device: &OpenDevice,
        number: u8,
        patience: Duration,
    ) -> Option<PortTrouble> {
        // Another connection is looking.
        let mut health = self.0.try_lock().ok()?;
        let now = Instant::now();
        let mut event = IbvAsyncEvent::default();
        let library = device.library;
        // SAFETY: the context is open, its descriptor does not block, and the library writes one
        // event, which is acknowledged once.
        while unsafe { (library.get_async_event)(device.context.as_ptr(), &mut event) } == 0 {
            health.take(&event, number, now);
            // SAFETY: as above.
            unsafe { (library.ack_async_event)(&mut event) };
        }
        health.trouble(patience, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_type: u32, port: u64) -> IbvAsyncEvent {
        IbvAsyncEvent { element: port, event_type }
    }

    #[test]
    fn a_port_may_flap_for_as_long_as_packets_are_repeated() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut health = PortHealth::Up;
        health.take(&event(EVENT_PORT_ERR, 1), 1, now);
        assert_eq!(health.trouble(second, now + second / 2), None);
        assert_eq!(health.trouble(second, now + second), Some(PortTrouble::Down));
        health.take(&event(EVENT_PORT_ERR, 1), 1, now + second);
        assert_eq!(
            health.trouble(second, now + second),
            Some(PortTrouble::Down),
            "since the first"
        );
        health.take(&event(EVENT_PORT_ACTIVE, 1), 1, now + second);
        assert_eq!(health.trouble(second, now + 9 * second), None);
    }

    #[test]
    fn other_ports_are_no_concern_and_a_broken_device_is_at_once() {
        let now = Instant::now();
        let mut health = PortHealth::Up;
        health.take(&event(EVENT_PORT_ERR, 2), 1, now);
        assert_eq!(health.trouble(Duration::ZERO, now), None);
        health.take(&event(EVENT_DEVICE_FATAL, 0), 1, now);
        health.take(&event(EVENT_PORT_ACTIVE, 1), 1, now);
        let trouble = health.trouble(Duration::from_secs(9), now);
        assert_eq!(trouble, Some(PortTrouble::DeviceGone));
    }
}
