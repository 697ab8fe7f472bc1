//! From arrays to calls of the library.

use crate::arrays::ArrayMemory;
use crate::communicator::Communicator;
use crate::error::invalid;
use crate::names::operation;
use crate::raw::{AlignedBytes, RawBytes, RawCall};
use crate::request::{Request, RequestBuffers};
use crate::shared::InFlight;
use maypole::schedule::collective::Collective;
use pyo3::prelude::*;

/// The counts of the blocks that are sent, and that are received.
type BlockCounts = [Option<Vec<usize>>; 2];

/// A call on arrays, which are kept as long as it is.
struct ArrayCall {
    call: RawCall,
    arrays: Vec<ArrayMemory>,
    /// Why this rank cannot take the result, and the memory that takes it instead.
    refusal: Option<(PyErr, AlignedBytes)>,
}

impl ArrayCall {
    /// The call that reads and writes `data`, or reads `data` and writes `out`.
    fn of(
        on: &Communicator,
        which: Collective,
        (data, out): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: BlockCounts,
    ) -> PyResult<Self> {
        let Some(out) = out.filter(|out| !out.is(data)) else {
            let data = ArrayMemory::of(data, "data", true)?;
            let mut this = Self::new(on, which, (None, Some(data)), op, counts)?;
            this.call.input = None;
            return Ok(this);
        };
        let data = ArrayMemory::of(data, "data", false)?;
        let out = ArrayMemory::of(out, "out", true)?;
        Self::new(on, which, (Some(data), Some(out)), op, counts)
    }

    /// The call of a rank that may lack `data` or `out`.
    fn rooted(
        on: &Communicator,
        which: Collective,
        (data, out): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: BlockCounts,
    ) -> PyResult<Self> {
        let data = data.map(|data| ArrayMemory::of(data, "data", false)).transpose()?;
        let out = out.map(|out| ArrayMemory::of(out, "out", true)).transpose()?;
        Self::new(on, which, (data, out), op, counts)
    }

    fn new(
        on: &Communicator,
        collective: Collective,
        (data, out): (Option<ArrayMemory>, Option<ArrayMemory>),
        op: &str,
        [counts, receive_counts]: BlockCounts,
    ) -> PyResult<Self> {
        let known = data.as_ref().or(out.as_ref());
        let data_type = known.ok_or_else(|| invalid("data and out are both None"))?.data_type;
        let bytes = |array: &Option<ArrayMemory>| {
            let place = |it: &ArrayMemory| RawBytes::new((it.start.expose_provenance(), it.len));
            array.as_ref().map_or(RawBytes::EMPTY, place)
        };
        let (input, mut output) = (Some(bytes(&data)), bytes(&out));
        let mut refusal = None;
        if let Some(out) = out.as_ref().filter(|out| out.data_type != data_type) {
            let why = format!("data has elements of {data_type:?}, and out of {:?}", out.data_type);
            if collective.root().is_none() {
                return Err(invalid(why));
            }
            // Other ranks cannot see what is wrong on the root. They are served first.
            let read = data.as_ref().map_or(0, |data| data.len);
            let len = bytes_written(on, collective, (read, data_type.size()), counts.as_deref());
            let Some(mut scratch) = len.and_then(AlignedBytes::zeroed) else {
                return Err(invalid(why));
            };
            output = scratch.raw();
            refusal = Some((invalid(why), scratch));
        }
        let op = operation(op, None)?;
        let stands_for = None;
        let call = RawCall {
            collective,
            data_type,
            stands_for,
            op,
            input,
            output,
            counts,
            receive_counts,
        };
        Ok(Self { call, arrays: data.into_iter().chain(out).collect(), refusal })
    }
}

/// The bytes that the root gets in a call in which it reads `read` bytes, of elements of `size` bytes.
/// `None` if the counts are not those of its `read`.
fn bytes_written(
    on: &Communicator,
    collective: Collective,
    (read, size): (usize, usize),
    counts: Option<&[usize]>,
) -> Option<usize> {
    let own = counts.map(|counts| counts.get(on.rank).copied().unwrap_or(0).checked_mul(size));
    let total = counts.map(|counts| {
        let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count))?;
        total.checked_mul(size)
    });
    match (collective, own, total) {
        (Collective::Gather { .. }, Some(own), Some(total)) => total.filter(|_| own == Some(read)),
        (Collective::Scatter { .. }, Some(own), Some(total)) => own.filter(|_| total == Some(read)),
        (Collective::Gather { .. }, ..) => read.checked_mul(on.world),
        (Collective::Scatter { .. }, ..) => Some(read / on.world),
        _ => Some(read),
    }
}

impl Communicator {
    pub(crate) fn of_name(
        &self,
        py: Python<'_>,
        which: Collective,
        arrays: (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: BlockCounts,
    ) -> PyResult<()> {
        self.run_call(py, ArrayCall::of(self, which, arrays, op, counts)?)
    }

    /// A call that only the root's `out`, or only the root's `data`, takes part in.
    pub(crate) fn rooted(
        &self,
        py: Python<'_>,
        which: Collective,
        arrays: (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        self.run_call(py, ArrayCall::rooted(self, which, arrays, op, [counts, None])?)
    }

    fn run_call(&self, py: Python<'_>, on: ArrayCall) -> PyResult<()> {
        let call = &on.call;
        self.shared.check_free(py, &call.uses(self.rank))?;
        // SAFETY: the arrays are kept until the call has ended. That no other code uses them meanwhile
        // is what every call on an array requires of a Python program.
        self.shared.with(py, |comm| unsafe { call.run(comm) })?;
        on.refusal.map_or(Ok(()), |(error, _)| Err(error))
    }

    /// Starts a collective, whose request owns the arrays.
    pub(crate) fn start_call(
        &self,
        py: Python<'_>,
        which: Collective,
        arrays: (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: Option<Vec<usize>>,
    ) -> PyResult<Request> {
        let ArrayCall { call, arrays, refusal } =
            ArrayCall::of(self, which, arrays, op, [counts, None])?;
        if let Some((error, _)) = refusal {
            return Err(error);
        }
        self.shared.check_free(py, &call.uses(self.rank))?;
        let buffers = RequestBuffers::Arrays { _arrays: arrays };
        let in_flight = InFlight::call(&self.shared);
        let request = self.shared.with(py, move |comm| {
            Ok(comm.start(buffers, move |comm, _| {
                let _in_flight = in_flight;
                // SAFETY: the request owns the arrays until the call is over.
                unsafe { call.run(comm) }
            }))
        })?;
        Ok(Request::new(request, self.shared.abort.clone()))
    }
}
