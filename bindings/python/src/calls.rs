//! From arrays to calls of the library.

use crate::arrays::ArrayMemory;
use crate::communicator::Communicator;
use crate::error::invalid;
use crate::names::operation;
use crate::raw::{RawBytes, RawCall, buffers};
use crate::request::{Request, RequestBuffers};
use crate::shared::InFlight;
use maypole::schedule::collective::Collective;
use pyo3::prelude::*;

/// Arrays of a collective: in place, or input and output.
pub(crate) type CallArrays = (Option<ArrayMemory>, ArrayMemory);

/// The arrays of a call: `data` alone, or `data` and `out`, which have elements of one type.
pub(crate) fn arrays(
    data: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
) -> PyResult<CallArrays> {
    let Some(out) = out.filter(|out| !out.is(data)) else {
        return Ok((None, ArrayMemory::of(data, "data", true)?));
    };
    let input = ArrayMemory::of(data, "data", false)?;
    let output = ArrayMemory::of(out, "out", true)?;
    if input.data_type != output.data_type {
        let (input, output) = (input.data_type, output.data_type);
        return Err(invalid(format!("data has elements of {input:?}, and out of {output:?}")));
    }
    let range = |it: &ArrayMemory| it.start.addr()..it.start.addr() + it.len;
    let (read, written) = (range(&input), range(&output));
    // An array without elements overlaps nothing, wherever it begins.
    let both_have_bytes = !read.is_empty() && !written.is_empty();
    if both_have_bytes && read.start < written.end && written.start < read.end {
        return Err(invalid("data and out overlap: leave out away to work in place"));
    }
    Ok((Some(input), output))
}

impl Communicator {
    pub(crate) fn of_name(
        &self,
        py: Python<'_>,
        which: Collective,
        (data, out): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: [Option<Vec<usize>>; 2],
    ) -> PyResult<()> {
        let (input, output) = arrays(data, out)?;
        let op = operation(op, None)?;
        let counts = counts.each_ref().map(Option::as_deref);
        // SAFETY: the arrays are kept until the call is over. That nobody else uses them meanwhile is
        // what every call on an array asks of a Python program.
        self.shared.with(py, |comm| unsafe {
            let input = input.as_ref().map(|it| it.bytes());
            comm.call(which, buffers(output.data_type, input, output.bytes_mut(), counts), op)
        })
    }

    /// Starts a collective, whose request owns the arrays.
    pub(crate) fn start_call(
        &self,
        py: Python<'_>,
        which: Collective,
        (data, out): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: Option<Vec<usize>>,
    ) -> PyResult<Request> {
        let (input, output) = arrays(data, out)?;
        let bytes = |it: &ArrayMemory| RawBytes::new((it.start.expose_provenance(), it.len));
        let call = RawCall {
            collective: which,
            data_type: output.data_type,
            op: operation(op, None)?,
            input: bytes(input.as_ref().unwrap_or(&output)),
            output: bytes(&output),
            counts,
            receive_counts: None,
        };
        let buffers =
            RequestBuffers::Arrays { _arrays: input.into_iter().chain([output]).collect() };
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

    /// A call that only the root's `out`, or only the root's `data`, takes part in.
    pub(crate) fn rooted(
        &self,
        py: Python<'_>,
        which: Collective,
        arrays: (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        let input = arrays.0.map(|data| ArrayMemory::of(data, "data", false)).transpose()?;
        let output = arrays.1.map(|out| ArrayMemory::of(out, "out", true)).transpose()?;
        let known = input.as_ref().or(output.as_ref());
        let data_type = known.ok_or_else(|| invalid("data and out are both None"))?.data_type;
        let op = operation(op, None)?;
        let counts = [counts.as_deref(), None];
        // SAFETY: as in `of_name`.
        self.shared.with(py, |comm| unsafe {
            let input = input.as_ref().map_or(&[][..], |it| it.bytes());
            let output = output.as_ref().map_or(&mut [][..], |it| it.bytes_mut());
            comm.call(which, buffers(data_type, Some(input), output, counts), op)
        })
    }
}
