//! From arrays to calls of the library.

use crate::arrays::{ArrayElements, ArrayMemory, ArrayUse};
use crate::communicator::Communicator;
use crate::error::{invalid, invalid_type};
use crate::names::operation;
use crate::raw::{AlignedBytes, RawBytes, RawCall};
use crate::request::{Request, RequestBuffers};
use crate::shared::InFlight;
use maypole::DataType;
use maypole::schedule::collective::Collective;
use pyo3::prelude::*;

/// The counts of the blocks that are sent, and that are received.
pub(crate) type BlockCounts = [Option<Vec<usize>>; 2];

/// The arguments `data` and `out`.
pub(crate) type ArrayArguments<'a, 'py> =
    (Option<&'a Bound<'py, PyAny>>, Option<&'a Bound<'py, PyAny>>);

/// A call on arrays, which are kept as long as the call.
struct ArrayCall {
    call: RawCall,
    arrays: Vec<ArrayMemory>,
    /// Why this rank cannot take the result, and the memory that takes it instead.
    refusal: Option<(PyErr, AlignedBytes)>,
}

impl ArrayCall {
    /// The call that reads and writes `data`, or reads `data` and writes `out`. Ranks other than the root
    /// lack one of the two.
    fn of(
        on: &Communicator,
        which: Collective,
        (data, out): ArrayArguments<'_, '_>,
        op: &str,
        counts: BlockCounts,
    ) -> PyResult<Self> {
        use Collective::{AllGather, AllToAll, Broadcast, Gather, Reduce, Scatter};
        if which == Collective::Barrier && (data.is_some() || out.is_some()) {
            return Err(invalid("data or out is given, and a barrier takes neither"));
        }
        let gets_result = !matches!(which, Reduce { root } | Gather { root } if root != on.rank);
        let moves = matches!(
            which,
            Broadcast { .. } | Gather { .. } | AllGather | Scatter { .. } | AllToAll
        );
        let read = |array| ArrayMemory::of(array, ArrayUse { name: "data", writes: false, moves });
        let written = |array, name| ArrayMemory::of(array, ArrayUse { name, writes: true, moves });
        let data =
            data.filter(|_| !matches!(which, Scatter { root } if root != on.rank && out.is_some()));
        match (data, out) {
            (Some(data), out) if gets_result && out.is_none_or(|out| out.is(data)) => {
                let whole = written(data, "data")?;
                let mut this = Self::new(on, which, (None, Some(whole)), op, counts)?;
                this.call.input = None;
                Ok(this)
            }
            (data, out) => {
                let data = data.map(read).transpose()?;
                let out = out.filter(|_| gets_result);
                let out = out.map(|out| written(out, "out")).transpose()?;
                Self::new(on, which, (data, out), op, counts)
            }
        }
    }

    fn new(
        on: &Communicator,
        collective: Collective,
        (data, out): (Option<ArrayMemory>, Option<ArrayMemory>),
        op: &str,
        counts: BlockCounts,
    ) -> PyResult<Self> {
        let known = data.as_ref().or(out.as_ref()).map(|array| array.elements);
        let elements = match known {
            None if collective == Collective::Barrier => ArrayElements::known(DataType::U8),
            known => known.ok_or_else(|| invalid("data is None: pass an array"))?,
        };
        let ArrayElements { data_type, stands_for, scale } = elements;
        let scaled =
            |counts: Vec<usize>| counts.iter().map(|it| it.saturating_mul(scale)).collect();
        let [counts, receive_counts] = counts.map(|it| it.map(scaled));
        let bytes =
            |array: &Option<ArrayMemory>| array.as_ref().map_or(RawBytes::EMPTY, ArrayMemory::raw);
        let (input, mut output) = (Some(bytes(&data)), bytes(&out));
        let mut refusal = None;
        if let Some(out) = out.as_ref().filter(|out| out.elements != elements) {
            let why = format!("data has elements of {elements}, and out of {}", out.elements);
            if collective.root().is_none() {
                return Err(invalid(why));
            }
            // Other ranks cannot see the root's mistake, so the root serves them first.
            let read = data.as_ref().map_or(0, |data| data.len);
            let len = bytes_written(on, collective, (read, data_type.size()), counts.as_deref());
            let Some(mut scratch) = len.and_then(AlignedBytes::zeroed) else {
                return Err(invalid(why));
            };
            output = scratch.raw();
            refusal = Some((invalid(why), scratch));
        }
        let op = operation(op, None)?;
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

/// The bytes that the root receives in a call in which it reads `read` bytes, of elements of `size` bytes.
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
    /// Makes a call on arrays.
    pub(crate) fn of_name(
        &self,
        py: Python<'_>,
        which: Collective,
        arrays: ArrayArguments<'_, '_>,
        op: &str,
        counts: BlockCounts,
    ) -> PyResult<()> {
        self.run_call(py, ArrayCall::of(self, which, arrays, op, counts)?)
    }

    /// Makes a call that combines arrays, or numbers, of which it returns the result.
    pub(crate) fn combine<'py>(
        this: &Bound<'py, Self>,
        which: Collective,
        (data, out): (&Bound<'py, PyAny>, Option<&Bound<'py, PyAny>>),
        op: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, on) = (this.py(), this.get());
        let root = which.root();
        // The root of a reduction cannot write a number of NumPy, but other ranks could read it.
        let call = match root.filter(|_| out.is_none() && data.hasattr("item").unwrap_or(false)) {
            Some(_) if !data.hasattr("__setitem__")? => Err(invalid_type("data is a number")),
            _ => ArrayCall::of(on, which, (Some(data), out), op, [None, None]),
        };
        match call {
            Ok(call) => on.run_call(py, call).map(|()| py.None().into_bound(py)),
            Err(error) if out.is_some() => Err(error),
            Err(error) => {
                let arguments = (this, which.name(), data, op, root, error);
                py.import("maypole._numbers")?.call_method1("combine", arguments)
            }
        }
    }

    fn run_call(&self, py: Python<'_>, on: ArrayCall) -> PyResult<()> {
        let call = &on.call;
        self.shared.check_free(py, &call.uses(self.rank))?;
        // SAFETY: the arrays are kept until the call has ended. A Python program must not use the arrays
        // of a call meanwhile.
        self.shared.with(py, |comm| unsafe { call.run(comm) })?;
        on.arrays.iter().try_for_each(|array| array.finish(py))?;
        on.refusal.map_or(Ok(()), |(error, _)| Err(error))
    }

    /// Starts a collective, whose request owns the arrays.
    pub(crate) fn start_call(
        &self,
        py: Python<'_>,
        which: Collective,
        arrays: ArrayArguments<'_, '_>,
        op: &str,
        counts: BlockCounts,
    ) -> PyResult<Request> {
        let ArrayCall { call, arrays, refusal } = ArrayCall::of(self, which, arrays, op, counts)?;
        if let Some((error, _)) = refusal {
            return Err(error);
        }
        let arrays = arrays.into_iter().map(ArrayMemory::check_direct).collect::<PyResult<_>>()?;
        self.shared.check_free(py, &call.uses(self.rank))?;
        let buffers = RequestBuffers::Arrays { _arrays: arrays };
        let in_flight = InFlight::call(&self.shared);
        let request = self.shared.with(py, move |comm| {
            Ok(comm.start(buffers, move |comm, _| {
                let _in_flight = in_flight;
                // SAFETY: the request owns the arrays until the call has ended.
                unsafe { call.run(comm) }
            }))
        })?;
        Ok(Request::new(request, which.name(), self.shared.abort.clone()))
    }
}
