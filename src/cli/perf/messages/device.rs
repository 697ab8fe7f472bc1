//! Messages between the memory of GPUs.

use super::work::MessageCalls;
use crate::perf::measure::device::DeviceCall;
use maypole::Result;

impl MessageCalls for DeviceCall<'_> {
    /// Messages of GPUs have no tags: those of a pair arrive in order.
    fn together(&mut self, to: &[(usize, u32)], from: &[(usize, u32)]) -> Result<()> {
        let mut group = self.comm.group();
        for (peer, _) in to {
            let mut messages = self.input.parts.iter();
            messages.try_for_each(|message| group.send(message.as_view(), *peer as i32))?;
        }
        let each = self.output.parts.len() / from.len().max(1);
        let senders = from.iter().flat_map(|(peer, _)| std::iter::repeat_n(*peer, each));
        for (message, peer) in self.output.parts.iter_mut().zip(senders) {
            group.recv(message.as_view_mut(), peer as i32)?;
        }
        group.end()
    }

    fn confirm(&mut self, peer: usize, sends: bool) -> Result<()> {
        match sends {
            true => self.comm.send(self.confirmation, peer as i32),
            false => self.comm.recv(self.confirmation, peer as i32),
        }
    }
}
