//! Calls on GPUs that do not reach one another, through the memory of the host.

use super::exchange::DeviceMessage;
use super::programs::LentCall;
use super::rank::DeviceRank;
use crate::comm::api::arguments::slices::{AnySlice, AnySliceMut};
use crate::element::ReduceOp;
use crate::error::Result;
use maypole_kernels::{ViewMut, divide};
use maypole_transports::cuda::{CallStream, Lent, copies};

/// The tag of messages between GPUs.
const TAG: u32 = 0;

impl DeviceRank {
    /// Makes `call` by the communicator.
    pub(super) fn call_through_host(
        &mut self,
        on: &CallStream<'_>,
        lent: &LentCall<'_>,
    ) -> Result<()> {
        let LentCall { call, op, input, output, .. } = *lent;
        let name = call.to_string();
        // A barrier orders the work of the streams, and has no bytes that would wait for it.
        self.await_stream(on, &name)?;
        let read = self.read(on, input, &name)?;
        // Bytes that a call does not write are copied back unchanged.
        let mut written = self.read(on, output, &name)?;
        let input = AnySlice::new(call.kind, &read);
        let buffers = (input, AnySliceMut::new(call.kind, &mut written));
        // As the kernels do: the sum of integers wraps, and is divided once.
        let divisor = call.output_divisor(self.comm.rank(), self.comm.world());
        let op = if call.averages_integers() { ReduceOp::Sum } else { op };
        self.comm.call(call.collective, buffers, op)?;
        self.last = self.comm.last_call().and_then(|last| last.algorithm.parse().ok());
        if let Some(divisor) = divisor {
            let written = ViewMut::of(&mut written);
            divide(written, written.as_view(), call.kind, divisor);
        }
        let done = copies::write(on.stream(), output, &written);
        done.map_err(|error| self.fail(&name, error.to_string()))
    }

    /// Exchanges messages by the communicator, after copies between buffers of this rank.
    pub(super) fn exchange_through_host(
        &mut self,
        on: &CallStream<'_>,
        own: &[(Lent<'_>, Lent<'_>)],
        messages: &[DeviceMessage<'_>],
    ) -> Result<()> {
        let name = messages.first().map(DeviceMessage::describe).unwrap_or_default();
        for (from, into) in own {
            let copied = copies::copy(on, *into, *from);
            copied.map_err(|error| self.fail(&name, error.to_string()))?;
        }
        self.await_stream(on, &name)?;
        let read = |message: &DeviceMessage<'_>| self.read(on, message.data, &name);
        let mut buffers = messages.iter().map(read).collect::<Result<Vec<_>>>()?;
        self.comm.group(|group| {
            for (message, buffer) in messages.iter().zip(&mut buffers) {
                match message.sends {
                    true => group.send::<u8>(buffer, message.peer, TAG)?,
                    false => group.recv::<u8>(buffer, message.peer, TAG)?,
                }
            }
            Ok(())
        })?;
        for (message, buffer) in messages.iter().zip(&buffers).filter(|(it, _)| !it.sends) {
            let done = copies::write(on.stream(), message.data, buffer);
            done.map_err(|error| self.fail(&name, error.to_string()))?;
        }
        Ok(())
    }

    fn await_stream(&mut self, on: &CallStream<'_>, name: &str) -> Result<()> {
        let done = on.stream().synchronize();
        done.map_err(|error| self.fail(name, format!("the driver reports {error:?}")))
    }

    fn read(&mut self, on: &CallStream<'_>, from: Lent<'_>, name: &str) -> Result<Vec<u8>> {
        let read = copies::read(on.stream(), from);
        read.map_err(|error| self.fail(name, error.to_string()))
    }
}
