//! The one path from the buffers of a collective to its call.

use super::comm::Comm;
use super::programs::{LentCall, StartableCall};
use crate::comm::api::arguments::operation::OpKind;
use crate::element::{DataType, Element, ReduceOp};
use crate::engine::calls::call::{CollectiveCall, used_parts};
use crate::engine::calls::counts::BufferLengths;
use crate::error::Result;
use crate::schedule::collective::{Collective, HeldChunks};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use maypole_transports::cuda::{Lent, lend, lend_mut};
use std::sync::Arc;

/// The number of a root that is passed as NCCL has it.
pub(super) fn number(root: i32) -> usize {
    usize::try_from(root).unwrap_or(usize::MAX)
}

impl Comm {
    /// Starts a call whose buffers do not overlap. One that this rank does not need is not used.
    pub(super) fn apart<T: Element>(
        &self,
        collective: Collective,
        send: Option<&impl DevicePtr<T>>,
        receive: Option<&mut impl DevicePtrMut<T>>,
        op: ReduceOp,
    ) -> Result<()> {
        let (stream, name) = (&*self.stream, collective.name());
        let [reads, writes] = self.uses(collective);
        let send = send.filter(|_| reads).map(|send| self.read(name, send, stream));
        let receive = receive.filter(|_| writes).map(|it| self.written(name, it, stream));
        let (send, receive) = (send.transpose()?, receive.transpose()?);
        let input = send.as_ref().map_or(Lent::EMPTY, |it| it.0);
        let output = receive.as_ref().map_or(Lent::EMPTY, |it| it.0);
        let call = self.lent_call(collective, (T::DATA_TYPE, op), Some(input), output)?;
        self.issue(&self.stream(), &call)
    }

    /// Starts a call whose input and output are `data`.
    pub(super) fn in_place<T: Element>(
        &self,
        collective: Collective,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
    ) -> Result<()> {
        let (data, _guard) = self.written(collective.name(), data, &self.stream)?;
        let call = self.lent_call(collective, (T::DATA_TYPE, op), None, data)?;
        self.issue(&self.stream(), &call)
    }

    /// Whether this rank reads an input, and whether it writes an output.
    pub(super) fn uses(&self, collective: Collective) -> [bool; 2] {
        let held = [collective.input(self.rank()), collective.output(self.rank())];
        held.map(|held| held != HeldChunks::Nothing)
    }

    /// The call on these buffers. In place there is no `input`.
    pub(super) fn lent_call<'a>(
        &self,
        collective: Collective,
        (kind, op): (DataType, ReduceOp),
        input: Option<Lent<'a>>,
        output: Lent<'a>,
    ) -> Result<LentCall<'a>> {
        let elements = |lent: Lent<'_>| lent.bytes() as usize / kind.size();
        let lengths = match input {
            None => BufferLengths::InPlace(elements(output)),
            Some(input) => {
                BufferLengths::Apart { input: elements(input), output: elements(output) }
            }
        };
        let held = (collective.input(self.rank()), collective.output(self.rank()));
        let own_block = |whole| self.own_block(whole);
        let (input, output, in_place) = used_parts(held, input, output, |whole| whole, own_block);
        let (input, output) = (input.unwrap_or(Lent::EMPTY), output.unwrap_or(Lent::EMPTY));
        let comm = &self.lock().comm;
        comm.check_call(collective, OpKind::BuiltIn(op))?;
        let operands = (kind, comm.even_count(collective, lengths)?);
        let settings = &comm.engine.get().settings;
        let call = CollectiveCall::new(settings, collective, operands, op.into(), in_place);
        Ok(LentCall { call, op, factor: None, input, output })
    }

    /// Makes all that `call` needs on the stream `on`: see [`make_ready`](Self::make_ready).
    pub(super) fn ready<'a>(
        &self,
        on: &Arc<CudaStream>,
        lent: LentCall<'a>,
    ) -> Result<StartableCall<'a>> {
        if !lent.call.in_place && lent.input.overlaps(&lent.output) {
            let why = "input and output overlap: use the call in place".to_owned();
            return Err(self.invalid(lent.call.collective.name(), why));
        }
        let prepared = self.lock().make_ready(on, &lent)?;
        Ok(StartableCall { lent, prepared })
    }

    /// Starts `call` on the stream `on`.
    pub(super) fn issue(&self, on: &Arc<CudaStream>, call: &LentCall<'_>) -> Result<()> {
        self.start_on(on, &self.ready(on, *call)?)
    }

    /// Lends a buffer that `operation` reads.
    pub(super) fn read<'a, T>(
        &self,
        operation: &'static str,
        buffer: &'a impl DevicePtr<T>,
        stream: &'a CudaStream,
    ) -> Result<(Lent<'a>, SyncOnDrop<'a>)> {
        lend(buffer, stream).map_err(|why| self.invalid(operation, why))
    }

    /// Lends a buffer that `operation` writes.
    pub(super) fn written<'a, T>(
        &self,
        operation: &'static str,
        buffer: &'a mut impl DevicePtrMut<T>,
        stream: &'a CudaStream,
    ) -> Result<(Lent<'a>, SyncOnDrop<'a>)> {
        lend_mut(buffer, stream).map_err(|why| self.invalid(operation, why))
    }

    fn own_block<'a>(&self, whole: Lent<'a>) -> Lent<'a> {
        let bytes = whole.bytes() / self.world_size() as u64;
        let start = self.rank() as u64 * bytes;
        whole.slice(start..start + bytes)
    }
}
