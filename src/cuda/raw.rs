//! Calls on memory and streams of a foreign program, for a C library.

use super::comm::Comm;
use super::exchange::DeviceMessage;
use super::programs::StartableCall;
use crate::element::{DataType, Factor, ReduceOp};
use crate::error::Result;
use crate::schedule::collective::Collective;
use cudarc::driver::CudaStream;
use maypole_transports::cuda::Lent;
use std::sync::Arc;

/// A collective on memory of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct RawCall<'a> {
    /// The operation of the ranks.
    pub collective: Collective,
    /// The type of the elements.
    pub kind: DataType,
    /// How elements are combined; not used by calls that combine none.
    pub op: RawOp<'a>,
    /// This rank's input. `None`: the call is in place, as the methods of [`Comm`] named so, and
    /// `output` is the whole buffer.
    pub input: Option<Lent<'a>>,
    /// This rank's output.
    pub output: Lent<'a>,
}

/// How the elements of a [`RawCall`] are combined.
#[derive(Clone, Copy, Debug)]
pub enum RawOp<'a> {
    /// By an operation of the library.
    BuiltIn(ReduceOp),
    /// By the sum of each rank's elements times the element at this address when the call runs on
    /// the GPU. It has the type of the elements.
    PreMulSumAt(Lent<'a>),
}

impl Comm {
    /// Starts a collective on `stream`, after the work of that stream and after this rank's earlier
    /// calls on any stream. Waits for no other rank and not for the stream; but a call whose type
    /// and operation no call of the process had before waits until the kernels that run on the GPU
    /// have ended. A stream may capture the call in a graph, also if it is the first one of its
    /// kind.
    ///
    /// Consecutive calls may be on different streams of the GPU's context, and graphs and calls may be
    /// mixed: they run in the order in which the host starts them.
    ///
    /// ```no_run
    /// # fn rank(comm: &maypole::cuda::Comm) -> maypole::error::Result<()> {
    /// use maypole::cuda::{Lent, RawCall, RawOp};
    /// use maypole::schedule::collective::Collective;
    /// use maypole::{DataType, ReduceOp};
    /// // Other calls have memory that `Lent::from_raw` names.
    /// let (kind, op, input, output) =
    ///     (DataType::U8, RawOp::BuiltIn(ReduceOp::Sum), Some(Lent::EMPTY), Lent::EMPTY);
    /// let call = RawCall { collective: Collective::Barrier, kind, op, input, output };
    /// comm.call_on(&comm.stream(), &call)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the lengths are not those of the collective, if the
    /// buffers overlap in another way than in place, or if the capture of the stream has failed; else as
    /// every call.
    pub fn call_on(&self, stream: &Arc<CudaStream>, call: &RawCall<'_>) -> Result<()> {
        self.start_on(stream, &self.make_ready(stream, call)?)
    }

    /// Makes all that a collective needs before it can start on `stream`, so that
    /// [`start_on`](Self::start_on) waits for nothing. A thread that starts calls of several ranks makes all of
    /// them ready first: otherwise it might wait for a kernel that waits for a call which it has not started.
    ///
    /// # Errors
    /// As [`call_on`](Self::call_on). Nothing has started then.
    pub fn make_ready<'a>(
        &self,
        stream: &Arc<CudaStream>,
        call: &RawCall<'a>,
    ) -> Result<StartableCall<'a>> {
        let RawCall { collective, kind, op, input, output } = *call;
        let (op, factor) = match op {
            RawOp::BuiltIn(op) => (op, None),
            RawOp::PreMulSumAt(at) => (ReduceOp::PreMulSum(Factor::ONE), Some(at)),
        };
        if factor.is_some_and(|at| at.bytes() != kind.size() as u64) {
            let why = format!("the factor is not one element of {}", kind.name());
            return Err(self.invalid(collective.name(), why));
        }
        let mut lent = self.lent_call(collective, (kind, op), input, output)?;
        lent.factor = factor;
        self.ready(stream, lent)
    }

    /// Starts a call that was made ready on the same stream.
    ///
    /// # Errors
    /// As [`call_on`](Self::call_on).
    pub fn start_on(&self, stream: &Arc<CudaStream>, call: &StartableCall<'_>) -> Result<()> {
        self.lock().start_ready(stream, call)
    }

    /// Starts messages on `stream`, so that none of them waits for another one. Messages of this rank to
    /// itself match in their order. Waits as [`call_on`](Self::call_on) does.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if there is no such rank, or if a message of this rank to
    /// itself lacks its other end; else as every call.
    pub fn exchange_on(
        &self,
        stream: &Arc<CudaStream>,
        messages: &[DeviceMessage<'_>],
    ) -> Result<()> {
        let world = self.world_size();
        if let Some(message) = messages.iter().find(|message| message.peer >= world) {
            let why = format!("there is no rank {} of {world}", message.peer);
            return Err(self.invalid("exchange_on", why));
        }
        match messages {
            [] => Ok(()),
            _ => self.lock().exchange_messages(stream, messages),
        }
    }
}
