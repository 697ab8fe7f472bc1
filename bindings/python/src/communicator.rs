//! One rank's membership in a group, as Python sees it.

use crate::arrays::{ArrayMemory, ArrayUse};
use crate::error::{invalid, raise};
use crate::interrupt::{interruptible_join, listen};
use crate::memory::Memory;
use crate::messages::{MessageRequest, exchange_arrays, receive_array, send_array};
use crate::names::{collective, op_name};
use crate::numbers::{self, seconds};
use crate::request::Request;
use crate::shared::SharedCommunicator;
use maypole::Local;
use maypole::schedule::collective::Collective;
use maypole::world::bootstrap::JoinConfig;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// One rank's membership in a group of ranks. `Communicator()` joins the world that this process was
/// started for, by whatever launcher; a process that was started alone is a world of one.
///
/// Arrays are arrays of NumPy, tensors of PyTorch on the CPU, or any other object with the buffer protocol
/// or `__dlpack__`. Without `out`, a call works in place. Lengths are in elements: `count` is the
/// length of a vector or of one rank's block.
///
/// all_reduce, reduce, scan and exclusive_scan also take an int or a float, and return the result. All ranks
/// pass an int (of 64 bits; a sum wraps), or all pass a float. Calls that combine nothing take elements of any type,
/// such as complex numbers, dates and structured arrays, and arrays in Fortran order. Other objects are
/// pickled by send_object, recv_object, broadcast_object, gather_object and scatter_object.
#[pyclass(frozen, module = "maypole")]
pub(crate) struct Communicator {
    pub(crate) shared: Arc<SharedCommunicator>,
    pub(crate) rank: usize,
    pub(crate) world: usize,
}

impl Communicator {
    fn of(py: Python<'_>, communicator: maypole::Communicator) -> Self {
        listen(py);
        let (rank, world) = (communicator.rank(), communicator.world());
        Self { shared: SharedCommunicator::new(communicator), rank, world }
    }
}

#[pymethods]
impl Communicator {
    #[new]
    fn join(py: Python<'_>) -> PyResult<Self> {
        Ok(Self::of(py, interruptible_join(py, maypole::Communicator::from_env_until)?))
    }

    /// Joins as rank `rank` of `world` ranks: rank 0 listens at `address`. All ranks pass the same
    /// `job` and the same `key` of 32 bytes. The environment has the rest, such as MAYPOLE_TRANSPORT.
    /// Joining may take `join_timeout` seconds, by default as long as every later wait, `timeout`.
    #[staticmethod]
    #[pyo3(signature = (rank, world, address, *, job, key=None, timeout=300.0, join_timeout=None))]
    fn join_at(
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::rank)] rank: usize,
        #[pyo3(from_py_with = numbers::world)] world: usize,
        address: &str,
        job: &str,
        key: Option<[u8; 32]>,
        timeout: f64,
        join_timeout: Option<f64>,
    ) -> PyResult<Self> {
        let timeout = seconds(timeout, "timeout")?;
        let join_timeout =
            join_timeout.map_or(Ok(timeout), |value| seconds(value, "join_timeout"))?;
        let meeting = JoinConfig::new(rank, world, address).with_job(job);
        let config = JoinConfig { key, timeout, join_timeout, ..meeting };
        let join = move |stop| maypole::Communicator::join_by_env_until(config, stop);
        Ok(Self::of(py, interruptible_join(py, join)?))
    }

    /// The communicators of `world` threads of this process, by rank.
    #[staticmethod]
    fn threads(
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::world)] world: usize,
    ) -> PyResult<Vec<Self>> {
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
    /// sum, product (or prod), min, max, avg (or mean), and, or, xor. The avg of ints is cut towards zero; that of
    /// numbers of Python is a float.
    #[pyo3(signature = (data, op="sum", *, out=None))]
    fn all_reduce<'py>(
        this: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = op_name)] op: &str,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::combine(this, Collective::AllReduce, (data, out), op)
    }

    /// Copies the root's `data` (count) into every rank's `data` (count).
    #[pyo3(signature = (data, root=0))]
    fn broadcast(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::root)] root: usize,
    ) -> PyResult<()> {
        let which = Collective::Broadcast { root };
        self.of_name(py, which, (Some(data), None), "sum", [None, None])
    }

    /// Combines the `data` (count) of all ranks into the root's `out` (count), or into its `data`.
    /// Other ranks pass no `out`.
    #[pyo3(signature = (data, op="sum", root=0, *, out=None))]
    fn reduce<'py>(
        this: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = op_name)] op: &str,
        #[pyo3(from_py_with = numbers::root)] root: usize,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::combine(this, Collective::Reduce { root }, (data, out), op)
    }

    /// Collects the `data` (count) of all ranks, in rank order, in every rank's `out` (world * count).
    /// In place, `data` is the whole, and has this rank's block at its position. With `counts`, rank r
    /// sends counts[r] elements.
    #[pyo3(signature = (data, *, out=None, counts=None))]
    fn all_gather(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = numbers::counts)] counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::AllGather, (Some(data), out), "sum", [counts, None])
    }

    /// Combines the `data` (world * count) of all ranks; block r of the result goes to rank r's `out`
    /// (count). In place, the result is this rank's block of `data`. With `counts`, rank r receives
    /// counts[r] elements.
    #[pyo3(signature = (data, op="sum", *, out=None, counts=None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = op_name)] op: &str,
        out: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = numbers::counts)] counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::ReduceScatter, (Some(data), out), op, [counts, None])
    }

    /// Block r of `data` (world * count) goes to rank r; block s of `out` (world * count) comes from
    /// rank s. With `counts` and `receive_counts`, one number a rank, blocks differ in length.
    #[pyo3(signature = (data, *, out=None, counts=None, receive_counts=None))]
    fn all_to_all(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = numbers::counts)] counts: Option<Vec<usize>>,
        #[pyo3(from_py_with = numbers::counts)] receive_counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        let counts = [counts, receive_counts];
        self.of_name(py, Collective::AllToAll, (Some(data), out), "sum", counts)
    }

    /// Collects the `data` (count) of all ranks, in rank order, in the root's `out` (world * count).
    /// Other ranks pass no `out`. With `counts`, rank r sends counts[r] elements.
    #[pyo3(signature = (data, root=0, *, out=None, counts=None))]
    fn gather(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::root)] root: usize,
        out: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = numbers::counts)] counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::Gather { root }, (Some(data), out), "sum", [counts, None])
    }

    /// Copies block r of the root's `data` (world * count) to rank r's `out` (count). Other ranks pass
    /// None as `data`. With `counts`, rank r receives counts[r] elements.
    #[pyo3(signature = (data, root=0, *, out, counts=None))]
    fn scatter(
        &self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = numbers::root)] root: usize,
        out: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::counts)] counts: Option<Vec<usize>>,
    ) -> PyResult<()> {
        self.of_name(py, Collective::Scatter { root }, (data, Some(out)), "sum", [counts, None])
    }

    /// Combines the `data` (count) of ranks 0 to r into rank r's `out` (count), or in place.
    #[pyo3(signature = (data, op="sum", *, out=None))]
    fn scan<'py>(
        this: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = op_name)] op: &str,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::combine(this, Collective::Scan, (data, out), op)
    }

    /// Combines the `data` (count) of ranks 0 to r - 1 into rank r's `out` (count), or in place. Rank
    /// 0 keeps its `data`.
    #[pyo3(signature = (data, op="sum", *, out=None))]
    fn exclusive_scan<'py>(
        this: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = op_name)] op: &str,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::combine(this, Collective::ExclusiveScan, (data, out), op)
    }

    /// Waits until all ranks have called this.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.with(py, maypole::Communicator::barrier)
    }

    /// Sends `data` to rank `to`, which receives it with the same `tag`. Runs concurrently with calls of other
    /// threads.
    ///
    /// Up to 16 KiB, send does not wait for the receive, as long as at most 64 KiB of such messages await
    /// theirs. A longer message waits for its receive, so two ranks that both send first and then
    /// receive wait until the timeout: use sendrecv, isend or irecv.
    #[pyo3(signature = (data, to, tag=0))]
    fn send(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::to)] to: usize,
        #[pyo3(from_py_with = numbers::tag)] tag: u32,
    ) -> PyResult<()> {
        send_array(py, &self.shared, data, to, tag)?.wait(py).map(drop)
    }

    /// Starts to send `data` to rank `to`, of any length, and returns a MessageRequest immediately. `data` must not
    /// change before the request has completed.
    #[pyo3(signature = (data, to, tag=0))]
    fn isend(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::to)] to: usize,
        #[pyo3(from_py_with = numbers::tag)] tag: u32,
    ) -> PyResult<MessageRequest> {
        send_array(py, &self.shared, data, to, tag)
    }

    /// Receives `data` from rank `source`, or from any rank if `source` is None. Returns the rank that sent the
    /// message, and its number of elements. Runs concurrently with calls of other threads.
    ///
    /// From a named rank, the message must have the type and the length of `data`. From any rank it may be
    /// shorter, and the rest of `data` does not change. Another message raises InvalidArgument **and is lost**;
    /// the next receive takes the next message. If the length is unknown, receive with `source=None` in an
    /// array that is long enough, send the length first, or use send_object and recv_object.
    #[pyo3(signature = (data, source=None, tag=0))]
    fn recv(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::source)] source: Option<usize>,
        #[pyo3(from_py_with = numbers::tag)] tag: u32,
    ) -> PyResult<(usize, usize)> {
        let data = ArrayMemory::of(data, ArrayUse::RECEIVED)?;
        receive_array(py, &self.shared, data, source, tag)
    }

    /// Starts to receive `data` as recv does, and returns a MessageRequest immediately. Its wait() returns the
    /// rank that sent the message, and the number of elements.
    #[pyo3(signature = (data, source=None, tag=0))]
    fn irecv(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::source)] source: Option<usize>,
        #[pyo3(from_py_with = numbers::tag)] tag: u32,
    ) -> PyResult<MessageRequest> {
        let data = ArrayMemory::of(data, ArrayUse::RECEIVED)?.check_direct()?;
        MessageRequest::of_array(py, &self.shared, Arc::new(data), (false, source, tag))
    }

    /// Sends `data` to rank `to` and receives `out` from rank `source`, or from any rank if `source` is None,
    /// concurrently: ranks that exchange arrays of any length do not block one another. Returns as recv.
    #[pyo3(signature = (data, to, out, source=None, tag=0))]
    fn sendrecv(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::to)] to: usize,
        out: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::source)] source: Option<usize>,
        #[pyo3(from_py_with = numbers::tag)] tag: u32,
    ) -> PyResult<(usize, usize)> {
        let data = ArrayMemory::of(data, ArrayUse::SENT)?;
        let out = ArrayMemory::of(out, ArrayUse { name: "out", ..ArrayUse::RECEIVED })?;
        exchange_arrays(py, self, (data, to), (out, source), tag)
    }

    /// Starts the collective `name` ("all_reduce", ...) and returns a Request immediately. All ranks
    /// start requests in the same order, and no array of the call is touched before the request has completed.
    /// A barrier has no `data`, and neither has a scatter on other ranks than the root.
    #[pyo3(signature = (name, data=None, op="sum", *, out=None, root=0, counts=None, receive_counts=None))]
    fn start(
        this: &Bound<'_, Self>,
        name: &str,
        data: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = op_name)] op: &str,
        out: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = numbers::root)] root: usize,
        #[pyo3(from_py_with = numbers::counts)] counts: Option<Vec<usize>>,
        #[pyo3(from_py_with = numbers::counts)] receive_counts: Option<Vec<usize>>,
    ) -> PyResult<Request> {
        let counts = [counts, receive_counts];
        this.get().start_call(this.py(), collective(name, root)?, (data, out), op, counts)
    }

    /// Ranks of equal `color` form a new group, by `key` and then by rank; None joins none. All ranks
    /// call it.
    #[pyo3(signature = (color, key=0))]
    fn split(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::color)] color: Option<u64>,
        key: i64,
    ) -> PyResult<Option<Self>> {
        let made = self.shared.with(py, |comm| comm.split(color, key))?;
        Ok(made.map(|group| Self::of(py, group)))
    }

    /// Another group of the same ranks, for another thread. All ranks call it.
    fn duplicate(&self, py: Python<'_>) -> PyResult<Self> {
        let made = self.shared.with(py, maypole::Communicator::duplicate)?;
        Ok(Self::of(py, made))
    }

    /// After a failure: a group of the ranks that still exist. All of these call shrink.
    fn shrink(&self, py: Python<'_>) -> PyResult<Self> {
        let made = self.shared.with(py, maypole::Communicator::shrink)?;
        Ok(Self::of(py, made))
    }

    /// How a collective of `nbytes` bytes would run, and why.
    #[pyo3(signature = (name, nbytes, root=0))]
    fn explain(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = numbers::nbytes)] nbytes: usize,
        #[pyo3(from_py_with = numbers::root)] root: usize,
    ) -> PyResult<String> {
        let which = collective(name, root)?;
        if root >= self.world {
            return Err(invalid(format!("root {root} is not one of the {} ranks", self.world)));
        }
        self.shared.with(py, |comm| Ok(comm.explain(which, nbytes).to_string()))
    }

    /// Memory of `nbytes` bytes that the other ranks of the host reach in place, so that large calls
    /// on it move each byte once. It has the buffer protocol: numpy.frombuffer(memory, "float32").
    /// All ranks call it, each with its own length.
    fn alloc(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::nbytes)] nbytes: usize,
    ) -> PyResult<Memory> {
        let buffer = self.shared.with(py, |comm| comm.alloc::<u8>(nbytes))?;
        Ok(Memory::new(buffer, nbytes))
    }

    /// Sets how many seconds a call waits for other ranks before it fails.
    fn set_timeout(&self, py: Python<'_>, value: f64) -> PyResult<()> {
        self.shared.set_timeout(py, seconds(value, "value")?)
    }

    /// If `on`, every sum is ((x0 + x1) + x2) + ...: its bits depend on the contributions alone. All
    /// ranks set the same.
    #[pyo3(signature = (on=true))]
    fn set_deterministic(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.shared.with(py, |comm| {
            comm.set_deterministic(on);
            Ok(())
        })
    }

    /// Ends every call of the group on every rank, from any thread.
    #[pyo3(signature = (why="abort() was called"))]
    fn abort(&self, py: Python<'_>, why: &str) {
        py.detach(|| self.shared.abort.abort(why));
    }

    /// Leaves the group in order. Waits until all sent bytes have arrived. Later calls are refused;
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
        #[pyo3(from_py_with = numbers::root)] root: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.shared.with(py, |comm| comm.broadcast_bytes(bytes, root))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Gives every rank the bytes of all ranks.
    fn _all_gather_bytes<'py>(
        &self,
        py: Python<'py>,
        bytes: Vec<u8>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let all = self.shared.with(py, |comm| comm.all_gather_values(&bytes))?;
        Ok(all.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }
}
