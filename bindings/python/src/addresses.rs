//! Calls on addresses, as functions of Python, for the backend of PyTorch. The caller guarantees that
//! the memory at the addresses stays valid.

use crate::communicator::Communicator;
use crate::error::raise;
use crate::names::{collective, element, operation};
use crate::raw::{RawBytes, RawCall};
use crate::request::{Request, RequestBuffers};
use crate::shared::InFlight;
use pyo3::prelude::*;

/// Makes a call on addresses: (name, root, type, op, factor), ((address, bytes), (address,
/// bytes)), (counts, receive counts). The caller guarantees the memory.
#[pyfunction]
pub(crate) fn _call(
    py: Python<'_>,
    on: &Communicator,
    call: (String, usize, String, String, Option<f64>),
    buffers: ((usize, usize), (usize, usize)),
    counts: (Option<Vec<usize>>, Option<Vec<usize>>),
) -> PyResult<()> {
    let (name, root, type_name, op, factor) = &call;
    let call = raw_call((name, *root, type_name, op, *factor), buffers, counts)?;
    on.shared.check_free(py, &call.uses(on.rank))?;
    // SAFETY: the caller guarantees the memory until this returns.
    on.shared.with(py, |comm| unsafe { call.run(comm) })
}

/// Starts calls on addresses, one after the other, as one request, which keeps `kept`. Then calls
/// `done` with None or the exception, on a thread of the library.
#[expect(clippy::type_complexity, reason = "Python passes tuples")]
#[pyfunction]
pub(crate) fn _start(
    py: Python<'_>,
    on: &Communicator,
    calls: Vec<(
        (String, usize, String, String, Option<f64>),
        ((usize, usize), (usize, usize)),
        (Option<Vec<usize>>, Option<Vec<usize>>),
    )>,
    kept: Py<PyAny>,
    done: Option<Py<PyAny>>,
) -> PyResult<Request> {
    let raw = |(call, buffers, counts): ((String, usize, String, String, Option<f64>), _, _)| {
        let (name, root, type_name, op, factor) = &call;
        raw_call((name, *root, type_name, op, *factor), buffers, counts)
    };
    let calls = calls.into_iter().map(raw).collect::<PyResult<Vec<RawCall>>>()?;
    for call in &calls {
        on.shared.check_free(py, &call.uses(on.rank))?;
    }
    let name = calls.first().map_or("nothing", |call| call.collective.name());
    let in_flight = InFlight::call(&on.shared);
    let tells_done = done.is_some();
    let run = move |comm: &mut maypole::Communicator, _: &mut RequestBuffers| {
        let _in_flight = in_flight;
        // SAFETY: the request keeps the object that keeps the memory, as the caller guarantees.
        let result = calls.iter().try_for_each(|call| unsafe { call.run(comm) });
        if let Some(done) = done {
            notify(done, result.as_ref().err());
        }
        result
    };
    let buffers = RequestBuffers::Kept { _object: Some(kept) };
    let request = on.shared.with(py, move |comm| Ok(comm.start(buffers, run)))?;
    if tells_done {
        // `done` has the error, so no later call returns it.
        request.ignore_error();
    }
    Ok(Request::new(request, name, on.shared.abort.clone()))
}

fn raw_call(
    call: (&str, usize, &str, &str, Option<f64>),
    buffers: ((usize, usize), (usize, usize)),
    counts: (Option<Vec<usize>>, Option<Vec<usize>>),
) -> PyResult<RawCall> {
    let (name, root, type_name, op, factor) = call;
    let (data_type, stands_for) = element(type_name)?;
    Ok(RawCall {
        collective: collective(name, root)?,
        data_type,
        stands_for,
        op: operation(op, factor)?,
        input: Some(RawBytes::new(buffers.0)),
        output: RawBytes::new(buffers.1),
        counts: counts.0,
        receive_counts: counts.1,
    })
}

/// Calls `done` with None or the exception, unless the interpreter has ended.
fn notify(done: Py<PyAny>, error: Option<&maypole::Error>) {
    Python::try_attach(|py| {
        let error = error.map(|error| raise(error).into_value(py));
        if let Err(error) = done.call1(py, (error,)) {
            error.write_unraisable(py, None);
        }
    });
}
