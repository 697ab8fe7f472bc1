//! One rank's membership in a group, as Python sees it.

use crate::arrays::ArrayMemory;
use crate::error::{invalid, panicked, raise};
use crate::interrupt::{InterruptibleWait, listen};
use crate::raw::{RawBytes, RawCall, collective, data_type, operation};
use crate::request::{Request, RequestBuffers};
use maypole::schedule::collective::Collective;
use maypole::world::bootstrap::JoinConfig;
use maypole::{AbortHandle, ErasedBuffers, ErasedCall, Local, RegisteredBuffer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{ffi, pyclass};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// One rank's membership in a group of ranks. `Communicator()` joins the world that this process was
/// started for, by whatever launcher; a process that was started alone is a world of one.
///
/// Arrays are arrays of NumPy, tensors of PyTorch on the CPU, or anything else with the buffer protocol
/// or `__dlpack__`. Without `out`, a call works in place. Lengths are in elements: `count` is the
/// length of a vector or of one rank's block.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct Communicator {
    shared: Arc<SharedCommunicator>,
    rank: usize,
    world: usize,
}

/// The communicator, for its object and for the end of the interpreter.
struct SharedCommunicator {
    communicator: Mutex<Option<maypole::Communicator>>,
    abort: AbortHandle,
    /// How many requests are not over.
    in_flight: AtomicUsize,
}

/// All communicators, for the end of the interpreter.
static OPEN: Mutex<Vec<Weak<SharedCommunicator>>> = Mutex::new(Vec::new());

/// Leaves all groups in order before the interpreter ends. A group with requests in flight is aborted:
/// the arrays of the requests are about to be freed.
#[pyfunction]
pub(crate) fn _leave(py: Python<'_>) {
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    py.detach(|| {
        for shared in open.iter().filter_map(Weak::upgrade) {
            if shared.in_flight.load(Ordering::Acquire) > 0 {
                shared.abort.abort("the program of this rank has ended with requests in flight");
            }
            // What it failed with is nobody's any more.
            let _ = shared.close();
        }
    });
}

impl SharedCommunicator {
    fn close(&self) -> maypole::Result<()> {
        let taken = self.communicator.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.map_or(Ok(()), maypole::Communicator::close)
    }
}

/// A request that is not over, until it is dropped.
struct InFlight(Arc<SharedCommunicator>);

impl InFlight {
    fn new(shared: &Arc<SharedCommunicator>) -> Self {
        shared.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Release);
    }
}

/// Arrays of a collective: in place, or input and output.
type CallArrays = (Option<ArrayMemory>, ArrayMemory);

impl Communicator {
    fn of(py: Python<'_>, communicator: maypole::Communicator) -> Self {
        listen(py);
        let abort = communicator.abort_handle();
        let (rank, world) = (communicator.rank(), communicator.world());
        let shared = Arc::new(SharedCommunicator {
            communicator: Mutex::new(Some(communicator)),
            abort,
            in_flight: AtomicUsize::new(0),
        });
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|it| it.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        Self { shared, rank, world }
    }

    /// Runs `call` without the interpreter's lock. The lock of the communicator is taken after the
    /// interpreter's was released, so no thread waits for one while it holds the other.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut maypole::Communicator) -> maypole::Result<R> + Send,
    ) -> PyResult<R> {
        let waiting = InterruptibleWait::begin(&self.shared.abort);
        let done = py.detach(|| {
            let mut communicator =
                self.shared.communicator.lock().unwrap_or_else(PoisonError::into_inner);
            let communicator = communicator.as_mut()?;
            Some(catch_unwind(AssertUnwindSafe(|| call(communicator))))
        });
        drop(waiting);
        match done {
            None => Err(invalid("the communicator is closed")),
            Some(Ok(Ok(result))) => Ok(result),
            // An interrupted wait fails, too, and that is told as Python tells it.
            Some(Ok(Err(error))) => Err(py.check_signals().err().unwrap_or_else(|| raise(&error))),
            Some(Err(panic)) => Err(panicked(&*panic)),
        }
    }

    fn call(
        &self,
        py: Python<'_>,
        call: ErasedCall<'_>,
        (input, output): CallArrays,
    ) -> PyResult<()> {
        // SAFETY: the arrays are kept until the call is over. That nobody else uses them meanwhile is
        // what every call on an array asks of a Python program.
        self.with(py, |comm| unsafe {
            let buffers = match &input {
                Some(input) => ErasedBuffers::Apart(input.bytes(), output.bytes_mut()),
                None => ErasedBuffers::InPlace(output.bytes_mut()),
            };
            comm.call_erased(call, buffers)
        })
    }

    /// The arrays of a call: `data` alone, or `data` and `out`, which have elements of one type.
    fn arrays(data: &Bound<'_, PyAny>, out: Option<&Bound<'_, PyAny>>) -> PyResult<CallArrays> {
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
        if read.start < written.end && written.start < read.end {
            return Err(invalid("data and out overlap: leave out away to work in place"));
        }
        Ok((Some(input), output))
    }

    fn of_name(
        &self,
        py: Python<'_>,
        which: Collective,
        (data, out): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
        op: &str,
        counts: [Option<Vec<usize>>; 2],
    ) -> PyResult<()> {
        let arrays = Self::arrays(data, out)?;
        let [counts, receive_counts] = &counts;
        let call = ErasedCall {
            op: operation(op, None)?,
            counts: counts.as_deref(),
            receive_counts: receive_counts.as_deref(),
            ..ErasedCall::new(which, arrays.1.data_type)
        };
        self.call(py, call, arrays)
    }

    /// A call that only the root's `out`, or only the root's `data`, takes part in.
    fn rooted(
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
        let call = ErasedCall {
            op: operation(op, None)?,
            counts: counts.as_deref(),
            ..ErasedCall::new(which, data_type)
        };
        // SAFETY: as in `call`.
        self.with(py, |comm| unsafe {
            let input = input.as_ref().map_or(&[][..], |it| it.bytes());
            let output = output.as_ref().map_or(&mut [][..], |it| it.bytes_mut());
            comm.call_erased(call, ErasedBuffers::Apart(input, output))
        })
    }

    fn raw_call(
        call: (&str, usize, &str, &str, Option<f64>),
        buffers: ((usize, usize), (usize, usize)),
        counts: (Option<Vec<usize>>, Option<Vec<usize>>),
    ) -> PyResult<RawCall> {
        let (name, root, type_name, op, factor) = call;
        Ok(RawCall {
            collective: collective(name, root)?,
            data_type: data_type(type_name)?,
            op: operation(op, factor)?,
            input: RawBytes::new(buffers.0),
            output: RawBytes::new(buffers.1),
            counts: counts.0,
            receive_counts: counts.1,
        })
    }
}

/// Seconds of Python as a duration.
fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|it| !it.is_zero())
        .ok_or_else(|| invalid(format!("{value} is no positive number of seconds")))
}

#[pymethods]
impl Communicator {
    #[new]
    fn join(py: Python<'_>) -> PyResult<Self> {
        let made = py.detach(maypole::Communicator::from_env).map_err(|error| raise(&error))?;
        Ok(Self::of(py, made))
    }

    /// Joins as rank `rank` of `world` ranks: rank 0 listens at `address`. All ranks pass the same
    /// `job` and the same `key` of 32 bytes. The environment says the rest, such as MAYPOLE_TRANSPORT.
    #[staticmethod]
    #[pyo3(signature = (rank, world, address, *, job, key=None, timeout=300.0))]
    fn join_at(
        py: Python<'_>,
        rank: usize,
        world: usize,
        address: &str,
        job: &str,
        key: Option<[u8; 32]>,
        timeout: f64,
    ) -> PyResult<Self> {
        let timeout = seconds(timeout)?;
        let meeting = JoinConfig::new(rank, world, address).with_job(job);
        let config = JoinConfig { key, timeout, join_timeout: timeout, ..meeting };
        let made = py.detach(|| maypole::Communicator::join_by_env(config));
        Ok(Self::of(py, made.map_err(|error| raise(&error))?))
    }

    /// The communicators of `world` threads of this process, by rank.
    #[staticmethod]
    fn threads(py: Python<'_>, world: usize) -> PyResult<Vec<Self>> {
        if world == 0 {
            return Err(invalid("a world has at least one rank"));
        }
        let made = Local::new(world).build();
        Ok(made.into_iter().map(|communicator| Self::of(py, communicator)).collect())
    }

    /// This rank, from 0 to world - 1.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    #[getter]
    fn world(&self) -> usize {
        self.world
    }

    /// Combines the `data` (count) of all ranks into every rank's `out` (count), or in place. `op` is
    /// sum, product, min, max, avg, and, or, xor.
    #[pyo3(signature = (data, op="sum", *, out=None))]
    fn all_reduce(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        op: &str,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::AllReduce, (data, out), op, [None, None])
    }

    /// Copies the root's `data` (count) into every rank's `data` (count).
    #[pyo3(signature = (data, root=0))]
    fn broadcast(&self, py: Python<'_>, data: &Bound<'_, PyAny>, root: usize) -> PyResult<()> {
        self.of_name(py, Collective::Broadcast { root }, (data, None), "sum", [None, None])
    }

    /// Combines the `data` (count) of all ranks into the root's `out` (count), or into its `data`.
    /// Other ranks pass no `out`.
    #[pyo3(signature = (data, op="sum", root=0, *, out=None))]
    fn reduce(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        op: &str,
        root: usize,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let which = Collective::Reduce { root };
        match self.rank == root {
            true => self.of_name(py, which, (data, out), op, [None, None]),
            false => self.rooted(py, which, (Some(data), None), op, None),
        }
    }

    /// Collects the `data` (count) of all ranks, in rank order, in every rank's `out` (world * count).
    /// In place, `data` is the whole, with this rank's block in its place. With `counts`, rank r
    /// sends counts[r] elements.
    #[pyo3(signature = (data, *, out=None, counts=None))]
    fn all_gather(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::AllGather, (data, out), "sum", [counts, None])
    }

    /// Combines the `data` (world * count) of all ranks; block r of the result goes to rank r's `out`
    /// (count). In place, the result is this rank's block of `data`. With `counts`, rank r receives
    /// counts[r] elements.
    #[pyo3(signature = (data, op="sum", *, out=None, counts=None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        op: &str,
        out: Option<&Bound<'_, PyAny>>,
        counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::ReduceScatter, (data, out), op, [counts, None])
    }

    /// Block r of `data` (world * count) goes to rank r; block s of `out` (world * count) comes from
    /// rank s. With `counts` and `receive_counts`, one number a rank, blocks differ in length.
    #[pyo3(signature = (data, *, out=None, counts=None, receive_counts=None))]
    fn all_to_all(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        counts: Option<Vec<usize>>,
        receive_counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        let counts = [counts, receive_counts];
        self.of_name(py, Collective::AllToAll, (data, out), "sum", counts)
    }

    /// Collects the `data` (count) of all ranks, in rank order, in the root's `out` (world * count).
    /// Other ranks pass no `out`. With `counts`, rank r sends counts[r] elements.
    #[pyo3(signature = (data, root=0, *, out=None, counts=None))]
    fn gather(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        root: usize,
        out: Option<&Bound<'_, PyAny>>,
        counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        let which = Collective::Gather { root };
        match (self.rank == root, out) {
            (true, None) => self.of_name(py, which, (data, None), "sum", [counts, None]),
            (true, out) => self.rooted(py, which, (Some(data), out), "sum", counts),
            (false, _) => self.rooted(py, which, (Some(data), None), "sum", counts),
        }
    }

    /// Copies block r of the root's `data` (world * count) to rank r's `out` (count). Other ranks pass
    /// None as `data`. With `counts`, rank r receives counts[r] elements.
    #[pyo3(signature = (data, root=0, *, out, counts=None))]
    fn scatter(
        &self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
        root: usize,
        out: &Bound<'_, PyAny>,
        counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        let data = data.filter(|_| self.rank == root);
        self.rooted(py, Collective::Scatter { root }, (data, Some(out)), "sum", counts)
    }

    /// Combines the `data` (count) of ranks 0 to r into rank r's `out` (count), or in place.
    #[pyo3(signature = (data, op="sum", *, out=None))]
    fn scan(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        op: &str,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::Scan, (data, out), op, [None, None])
    }

    /// Combines the `data` (count) of ranks 0 to r - 1 into rank r's `out` (count), or in place. Rank
    /// 0 keeps what it has.
    #[pyo3(signature = (data, op="sum", *, out=None))]
    fn exclusive_scan(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        op: &str,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::ExclusiveScan, (data, out), op, [None, None])
    }

    /// Waits until all ranks have called this.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, maypole::Communicator::barrier)
    }

    /// Sends `data` to rank `to`, which receives it with the same `tag`.
    #[pyo3(signature = (data, to, tag=0))]
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, to: usize, tag: u32) -> PyResult<()> {
        let data = ArrayMemory::of(data, "data", false)?;
        // SAFETY: as in `call`.
        self.with(py, |comm| unsafe { comm.send_erased(data.data_type, data.bytes(), to, tag) })
    }

    /// Receives `data` from rank `source`, or from any rank if it is None. Returns the rank that the
    /// message came from, and how many elements it had.
    #[pyo3(signature = (data, source=None, tag=0))]
    fn recv(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        source: Option<usize>,
        tag: u32,
    ) -> PyResult<(usize, usize)> {
        let data = ArrayMemory::of(data, "data", true)?;
        // SAFETY: as in `call`.
        self.with(py, |comm| unsafe {
            comm.recv_erased(data.data_type, data.bytes_mut(), source, tag)
        })
    }

    /// Starts the collective `name` ("all_reduce", ...) and returns a Request at once. All ranks
    /// start requests in the same order, and no array of the call is touched before it is over.
    #[pyo3(signature = (name, data, op="sum", *, out=None, root=0, counts=None))]
    fn start(
        &self,
        py: Python<'_>,
        name: &str,
        data: &Bound<'_, PyAny>,
        op: &str,
        out: Option<&Bound<'_, PyAny>>,
        root: usize,
        counts: Option<Vec<usize>>,
    ) -> PyResult<Request> {
        let (input, output) = Self::arrays(data, out)?;
        let bytes = |it: &ArrayMemory| RawBytes::new((it.start.expose_provenance(), it.len));
        let call = RawCall {
            collective: collective(name, root)?,
            data_type: output.data_type,
            op: operation(op, None)?,
            input: bytes(input.as_ref().unwrap_or(&output)),
            output: bytes(&output),
            counts,
            receive_counts: None,
        };
        let buffers =
            RequestBuffers::Arrays { _arrays: input.into_iter().chain([output]).collect() };
        let in_flight = InFlight::new(&self.shared);
        let request = self.with(py, move |comm| {
            Ok(comm.start(buffers, move |comm, _| {
                let _in_flight = in_flight;
                // SAFETY: the request owns the arrays until the call is over.
                unsafe { call.run(comm) }
            }))
        })?;
        Ok(Request::new(request, self.shared.abort.clone()))
    }

    /// Ranks of equal `color` form a new group, by `key` and then by rank; None joins none. All ranks
    /// call it.
    #[pyo3(signature = (color, key=0))]
    fn split(&self, py: Python<'_>, color: Option<u64>, key: i64) -> PyResult<Option<Self>> {
        let made = self.with(py, |comm| comm.split(color, key))?;
        Ok(made.map(|group| Self::of(py, group)))
    }

    /// Another group of the same ranks, for another thread. All ranks call it.
    fn duplicate(&self, py: Python<'_>) -> PyResult<Self> {
        let made = self.with(py, maypole::Communicator::duplicate)?;
        Ok(Self::of(py, made))
    }

    /// After a failure: a group of the ranks that still exist. All of them call it.
    fn shrink(&self, py: Python<'_>) -> PyResult<Self> {
        let made = self.with(py, maypole::Communicator::shrink)?;
        Ok(Self::of(py, made))
    }

    /// How a collective of `nbytes` bytes would run, and why.
    #[pyo3(signature = (name, nbytes, root=0))]
    fn explain(&self, py: Python<'_>, name: &str, nbytes: usize, root: usize) -> PyResult<String> {
        let which = collective(name, root)?;
        if root >= self.world {
            return Err(invalid(format!("root {root} is not one of the {} ranks", self.world)));
        }
        self.with(py, |comm| Ok(comm.explain(which, nbytes).to_string()))
    }

    /// Memory of `nbytes` bytes that the other ranks of the host reach in place, so that large calls
    /// on it move each byte once. It has the buffer protocol: numpy.frombuffer(memory, "float32").
    /// All ranks call it, each with its own length.
    fn alloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<Memory> {
        let buffer = self.with(py, |comm| comm.alloc::<u8>(nbytes))?;
        Ok(Memory { buffer: Mutex::new(buffer), nbytes })
    }

    /// Sets how many seconds a call waits for other ranks before it fails.
    fn set_timeout(&self, py: Python<'_>, value: f64) -> PyResult<()> {
        let timeout = seconds(value)?;
        self.with(py, |comm| {
            comm.set_timeout(timeout);
            Ok(())
        })
    }

    /// If `on`, every sum is ((x0 + x1) + x2) + ...: its bits depend on the contributions alone. All
    /// ranks set the same.
    #[pyo3(signature = (on=true))]
    fn set_deterministic(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.with(py, |comm| {
            comm.set_deterministic(on);
            Ok(())
        })
    }

    /// Ends every call of the group on every rank, from any thread.
    #[pyo3(signature = (why="abort() was called"))]
    fn abort(&self, py: Python<'_>, why: &str) {
        py.detach(|| self.shared.abort.abort(why));
    }

    /// Leaves the group in order. Waits until what was sent has arrived. Later calls are refused;
    /// closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.shared.close()).map_err(|error| raise(&error))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Closes; after an exception, aborts first, so that no rank waits for this one.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return self.close(py);
        }
        self.abort(py, &format!("{value}"));
        let _ = self.close(py);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<maypole.Communicator: rank {} of {}>", self.rank, self.world)
    }

    /// Gives every rank the root's bytes.
    fn _broadcast_bytes<'py>(
        &self,
        py: Python<'py>,
        bytes: Vec<u8>,
        root: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, |comm| comm.broadcast_bytes(bytes, root))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Gives every rank the bytes of all ranks.
    fn _all_gather_bytes<'py>(
        &self,
        py: Python<'py>,
        bytes: Vec<u8>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let all = self.with(py, |comm| comm.all_gather_values(&bytes))?;
        Ok(all.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// Makes a call on addresses: (name, root, type, op, factor), ((address, bytes), (address,
    /// bytes)), (counts, receive counts). The caller vouches for the memory.
    fn _call(
        &self,
        py: Python<'_>,
        call: (String, usize, String, String, Option<f64>),
        buffers: ((usize, usize), (usize, usize)),
        counts: (Option<Vec<usize>>, Option<Vec<usize>>),
    ) -> PyResult<()> {
        let (name, root, type_name, op, factor) = &call;
        let call = Self::raw_call((name, *root, type_name, op, *factor), buffers, counts)?;
        // SAFETY: the caller vouches for the memory until this returns.
        self.with(py, |comm| unsafe { call.run(comm) })
    }

    /// Starts calls on addresses, one after the other, as one request, which keeps `kept`. Then calls
    /// `done` with None or the exception, on a thread of the library.
    #[expect(clippy::type_complexity, reason = "Python passes tuples")]
    fn _start(
        &self,
        py: Python<'_>,
        calls: Vec<(
            (String, usize, String, String, Option<f64>),
            ((usize, usize), (usize, usize)),
            (Option<Vec<usize>>, Option<Vec<usize>>),
        )>,
        kept: Py<PyAny>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Request> {
        let raw =
            |(call, buffers, counts): ((String, usize, String, String, Option<f64>), _, _)| {
                let (name, root, type_name, op, factor) = &call;
                Self::raw_call((name, *root, type_name, op, *factor), buffers, counts)
            };
        let calls = calls.into_iter().map(raw).collect::<PyResult<Vec<RawCall>>>()?;
        let in_flight = InFlight::new(&self.shared);
        let run = move |comm: &mut maypole::Communicator, _: &mut RequestBuffers| {
            let _in_flight = in_flight;
            // SAFETY: the request keeps what the caller says keeps the memory.
            let result = calls.iter().try_for_each(|call| unsafe { call.run(comm) });
            if let Some(done) = done {
                notify(done, &result);
            }
            result
        };
        let buffers = RequestBuffers::Kept { _object: Some(kept) };
        let request = self.with(py, move |comm| Ok(comm.start(buffers, run)))?;
        Ok(Request::new(request, self.shared.abort.clone()))
    }

    /// Starts a message on an address: to rank `peer` if `sends`, else from it, or from any rank if it
    /// is None. Then calls `done` as `_start` does, with the rank that the message came from.
    #[expect(clippy::too_many_arguments, reason = "Python passes them by position")]
    fn _start_message(
        &self,
        py: Python<'_>,
        sends: bool,
        type_name: &str,
        buffer: (usize, usize),
        peer: Option<usize>,
        tag: u32,
        kept: Py<PyAny>,
        done: Py<PyAny>,
    ) -> PyResult<Request> {
        let bytes = RawBytes::new(buffer);
        let data_type = data_type(type_name)?;
        let in_flight = InFlight::new(&self.shared);
        let run = move |comm: &mut maypole::Communicator, _: &mut RequestBuffers| {
            let _in_flight = in_flight;
            // SAFETY: the request keeps what the caller says keeps the memory.
            let result = unsafe {
                match (sends, peer) {
                    (true, Some(to)) => comm.send_erased(data_type, bytes.bytes(), to, tag),
                    (_, from) => {
                        comm.recv_erased(data_type, bytes.bytes_mut(), from, tag).map(drop)
                    }
                }
            };
            notify(done, &result);
            result
        };
        let buffers = RequestBuffers::Kept { _object: Some(kept) };
        let request = self.with(py, move |comm| Ok(comm.start(buffers, run)))?;
        Ok(Request::new(request, self.shared.abort.clone()))
    }
}

/// Calls `done` with None or the exception. Without an interpreter nobody listens any more.
fn notify(done: Py<PyAny>, result: &maypole::Result<()>) {
    Python::try_attach(|py| {
        let error = result.as_ref().err().map(|error| raise(error).into_value(py));
        if let Err(error) = done.call1(py, (error,)) {
            error.write_unraisable(py, None);
        }
    });
}

/// Registered memory, with the buffer protocol.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct Memory {
    buffer: Mutex<RegisteredBuffer<u8>>,
    nbytes: usize,
}

#[pymethods]
impl Memory {
    /// True if other ranks reach the memory in place; false where ranks share no memory.
    #[getter]
    fn is_registered(&self) -> bool {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner).is_registered()
    }

    fn __len__(&self) -> usize {
        self.nbytes
    }

    /// # Safety
    /// Called by the interpreter, with a view to fill.
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let start = {
            let memory = this.get();
            let mut buffer = memory.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.as_mut_ptr()
        };
        let len = this.get().nbytes as ffi::Py_ssize_t;
        // SAFETY: the view keeps `this`, and `this` keeps the memory, which never moves.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), start.cast(), len, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(this.py())) }
    }
}
