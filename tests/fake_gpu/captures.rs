//! Functions that a library needs to capture its own work: the mode of its thread, the capture of a
//! stream, and events that order graphs and plain work.

use crate::raw::{allocate, context, free, hold, read, result, write};
use crate::{Role, check};
use cudarc::driver::CudaStream;
use cudarc::driver::sys::{
    self, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};
use std::sync::mpsc;

pub(crate) const ROLES: &[(&str, Role)] = &[
    ("changes its capture mode", change_mode),
    ("asks about captures", ask),
    ("orders graphs by events", order),
    ("uses events of graphs wrongly", misuse),
];

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const ACTIVE: CUstreamCaptureStatus = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

/// Sets the mode of the calling thread, and returns the one before.
fn exchange(mut mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    // SAFETY: the pointer is valid.
    result(unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }).unwrap();
    mode
}

/// An event that is destroyed when it is dropped.
struct Event(CUevent);

impl Event {
    fn new() -> Self {
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is valid.
        result(unsafe { sys::cuEventCreate(&mut event, 0) }).unwrap();
        Self(event)
    }

    fn record(&self, stream: &CudaStream, flags: u32) -> Result<(), CUresult> {
        // SAFETY: the event and the stream live.
        result(unsafe { sys::cuEventRecordWithFlags(self.0, stream.cu_stream(), flags) })
    }

    fn await_on(&self, stream: &CudaStream, flags: u32) -> Result<(), CUresult> {
        // SAFETY: the event and the stream live.
        result(unsafe { sys::cuStreamWaitEvent(stream.cu_stream(), self.0, flags) })
    }

    fn query(&self) -> Result<(), CUresult> {
        // SAFETY: the event lives.
        result(unsafe { sys::cuEventQuery(self.0) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event lives, and is not used later.
        result(unsafe { sys::cuEventDestroy_v2(self.0) }).unwrap();
    }
}

/// A graph that is ready, and is destroyed when it is dropped.
struct Ready(CUgraphExec);

impl Ready {
    fn launch(&self, stream: &CudaStream) {
        // SAFETY: the graph and the stream live.
        result(unsafe { sys::cuGraphLaunch(self.0, stream.cu_stream()) }).unwrap();
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: the graph lives, and is not launched later.
        result(unsafe { sys::cuGraphExecDestroy(self.0) }).unwrap();
    }
}

fn begin(stream: &CudaStream, mode: CUstreamCaptureMode) {
    // SAFETY: the stream lives.
    result(unsafe { sys::cuStreamBeginCapture_v2(stream.cu_stream(), mode) }).unwrap();
}

fn end(stream: &CudaStream) -> Result<CUgraph, CUresult> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the pointer is valid, and the stream lives.
    result(unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &mut graph) }).map(|()| graph)
}

fn destroy(graph: CUgraph) {
    // SAFETY: the graph lives, and is not used later.
    result(unsafe { sys::cuGraphDestroy(graph) }).unwrap();
}

/// The work of `work` on the stream, as a graph.
fn capture(stream: &CudaStream, work: impl FnOnce()) -> Ready {
    begin(stream, THREAD_LOCAL);
    work();
    let graph = end(stream).unwrap();
    let mut ready = std::ptr::null_mut();
    // SAFETY: the pointer is valid, and the graph lives.
    result(unsafe { sys::cuGraphInstantiateWithFlags(&mut ready, graph, 0) }).unwrap();
    destroy(graph);
    Ready(ready)
}

/// A thread, in its own mode, tries to allocate and to query an event.
fn try_in(mode: CUstreamCaptureMode) -> [Result<(), CUresult>; 2] {
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            let _context = context(0);
            let event = Event::new();
            assert_eq!(exchange(mode), GLOBAL, "each thread begins with this mode");
            [allocate(8).and_then(free), event.query()]
        });
        thread.join().unwrap()
    })
}

/// The same on the calling thread, which is in mode `GLOBAL` before and after.
fn try_here(mode: CUstreamCaptureMode) -> [Result<(), CUresult>; 2] {
    let event = Event::new();
    assert_eq!(exchange(mode), GLOBAL);
    let tried = [allocate(8).and_then(free), event.query()];
    assert_eq!(exchange(GLOBAL), mode);
    tried
}

fn change_mode() {
    let stream = context(0).new_stream().unwrap();
    let check = |mode, tried: [Result<(), CUresult>; 2], is_allowed| {
        let right = if is_allowed { Ok(()) } else { Err(UNSUPPORTED) };
        assert_eq!(tried, [right; 2], "{mode:?}");
        let invalidated = Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(end(&stream).map(destroy), if is_allowed { Ok(()) } else { invalidated });
    };
    // The mode of the capture, that of the thread, and whether another thread and the capturing one
    // may make unsafe calls.
    let cases = [
        (GLOBAL, GLOBAL, false, false),
        (GLOBAL, THREAD_LOCAL, true, false),
        (GLOBAL, RELAXED, true, true),
        (THREAD_LOCAL, GLOBAL, true, false),
        (THREAD_LOCAL, THREAD_LOCAL, true, false),
        (THREAD_LOCAL, RELAXED, true, true),
        (RELAXED, GLOBAL, true, true),
        (RELAXED, THREAD_LOCAL, true, true),
        (RELAXED, RELAXED, true, true),
    ];
    for (of_capture, of_thread, others_may, own_may) in cases {
        begin(&stream, of_capture);
        check((of_capture, of_thread), try_in(of_thread), others_may);
        begin(&stream, of_capture);
        check((of_capture, of_thread), try_here(of_thread), own_may);
    }
}

#[test]
fn a_thread_says_what_captures_forbid_it_emulated() {
    check("changes its capture mode", &[]);
}

type First = unsafe extern "C" fn(CUstream, *mut CUstreamCaptureStatus, *mut u64) -> CUresult;
type Second = unsafe extern "C" fn(
    CUstream,
    *mut CUstreamCaptureStatus,
    *mut u64,
    *mut CUgraph,
    *mut *const CUgraphNode,
    *mut usize,
) -> CUresult;

/// The capture of a stream: its status, and for an active capture the id, the graph, and the nodes
/// that the next one comes after.
fn info(stream: CUstream) -> (CUstreamCaptureStatus, u64, CUgraph, Vec<CUgraphNode>) {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, std::ptr::null_mut());
    let (mut nodes, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
    // SAFETY: the pointers are valid, and the stream lives.
    let done = unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut nodes,
            &mut edges,
            &mut count,
        )
    };
    result(done).unwrap();
    let mut older = (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0);
    let null = std::ptr::null_mut::<CUgraph>();
    // SAFETY: the functions of older versions have these parameters. Pointers may be null.
    unsafe {
        let library = libloading::Library::new("libcuda.so.1").unwrap();
        let second = library.get::<Second>(b"cuStreamGetCaptureInfo_v2\0").unwrap();
        let told = second(stream, &mut older.0, null.cast(), null, null.cast(), null.cast());
        assert_eq!((result(told), older.0), (Ok(()), status));
        let first = library.get::<First>(b"cuStreamGetCaptureInfo\0").unwrap();
        let told = first(stream, &mut older.0, &mut older.1);
        assert_eq!((result(told), older), (Ok(()), (status, id)));
    }
    // SAFETY: the driver keeps the nodes until the next call about the stream.
    let nodes = (0..count).map(|at| unsafe { *nodes.add(at) }).collect();
    (status, id, graph, nodes)
}

fn ask() {
    let context = context(0);
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    assert_eq!(info(first.cu_stream()), (none, 0, std::ptr::null_mut(), vec![]));
    begin(&first, THREAD_LOCAL);
    let (status, id, graph, nodes) = info(first.cu_stream());
    assert_eq!((status, nodes), (ACTIVE, vec![]));
    assert!(id != 0 && !graph.is_null());
    let address = allocate(8).err();
    assert_eq!(address, Some(UNSUPPORTED));
    let invalidated = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    assert_eq!(info(first.cu_stream()), (invalidated, 0, std::ptr::null_mut(), vec![]));
    end(&first).unwrap_err();
    // A stream that joins has the same id. The next capture has another one.
    begin(&first, RELAXED);
    let event = Event::new();
    let node = |stream: &CudaStream| {
        event.record(stream, EXTERNAL).unwrap();
        let (_, id, graph, nodes) = info(stream.cu_stream());
        assert_eq!(nodes.len(), 1);
        (id, graph, nodes[0])
    };
    let (next, graph, in_first) = node(&first);
    assert_ne!(next, id);
    second.join(&first).unwrap();
    assert_eq!(info(second.cu_stream()), (ACTIVE, next, graph, vec![in_first]));
    let (_, _, in_second) = node(&second);
    first.join(&second).unwrap();
    assert_eq!(info(first.cu_stream()), (ACTIVE, next, graph, vec![in_first, in_second]));
    assert_eq!(end(&first).map(|made| (made, destroy(made))), Ok((graph, ())));
    assert_eq!(info(first.cu_stream()).0, none);
}

#[test]
fn a_stream_tells_what_it_captures_emulated() {
    check("asks about captures", &[]);
}

const ROUNDS: u64 = 50;

fn copy(stream: &CudaStream, from: u64, into: u64) {
    // SAFETY: the driver checks the addresses, which have eight bytes each.
    result(unsafe { sys::cuMemcpyDtoDAsync_v2(into, from, 8, stream.cu_stream()) }).unwrap();
}

fn number(address: u64) -> u64 {
    u64::from_le_bytes(read(address, 8).try_into().unwrap())
}

/// In each round plain work writes a number, a graph takes it and writes another one, and plain
/// work keeps both. Only events order the two streams.
fn order() {
    let context = context(0);
    let (plain, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let (turn, done) = (Event::new(), Event::new());
    let numbers: Vec<u8> = (0..=ROUNDS).flat_map(u64::to_le_bytes).collect();
    let sources = allocate(numbers.len()).unwrap();
    write(sources, &numbers);
    let kept = allocate(16 * ROUNDS as usize).unwrap();
    let (value, seen) = (allocate(8).unwrap(), allocate(8).unwrap());
    let graph = capture(&other, || {
        turn.await_on(&other, EXTERNAL).unwrap();
        copy(&other, value, seen);
        copy(&other, sources, value);
        done.record(&other, EXTERNAL).unwrap();
    });
    // Not recorded yet.
    assert_eq!((turn.query(), done.query()), (Ok(()), Ok(())));
    let (open, gate) = mpsc::channel();
    hold(&plain, gate);
    for round in 1..=ROUNDS {
        copy(&plain, sources + 8 * round, value);
        turn.record(&plain, 0).unwrap();
        graph.launch(&other);
        done.await_on(&plain, 0).unwrap();
        copy(&plain, seen, kept + 16 * (round - 1));
        copy(&plain, value, kept + 16 * (round - 1) + 8);
    }
    let busy = Err(CUresult::CUDA_ERROR_NOT_READY);
    assert_eq!((turn.query(), done.query()), (busy, busy));
    drop(open);
    plain.synchronize().unwrap();
    assert_eq!((turn.query(), done.query()), (Ok(()), Ok(())));
    for round in 1..=ROUNDS {
        let at = kept + 16 * (round - 1);
        assert_eq!([number(at), number(at + 8)], [round, 0]);
    }
    // A launch does not wait for later records.
    let (open, gate) = mpsc::channel();
    graph.launch(&other);
    hold(&plain, gate);
    turn.record(&plain, 0).unwrap();
    other.synchronize().unwrap();
    assert_eq!(done.query(), Ok(()));
    drop(open);
    // Graphs in a graph make their records when the outer one is launched.
    let outer = capture(&plain, || {
        graph.launch(&plain);
        graph.launch(&plain);
    });
    let (open, gate) = mpsc::channel();
    hold(&other, gate);
    turn.record(&other, 0).unwrap();
    outer.launch(&plain);
    assert_eq!(done.query(), busy);
    drop(open);
    plain.synchronize().unwrap();
    assert_eq!(done.query(), Ok(()));
    for address in [sources, kept, value, seen] {
        free(address).unwrap();
    }
}

#[test]
fn events_order_graphs_and_plain_work_emulated() {
    for delay in ["0", "100"] {
        check("orders graphs by events", &[("FAKE_CUDA_DELAY", delay)]);
    }
}

fn misuse() {
    let context = context(0);
    let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let event = Event::new();
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    for flags in [EXTERNAL, 2] {
        assert_eq!(event.record(&stream, flags), invalid, "nothing is captured");
        assert_eq!(event.await_on(&stream, flags), invalid, "nothing is captured");
    }
    event.record(&other, 0).unwrap();
    begin(&stream, THREAD_LOCAL);
    assert_eq!(event.record(&stream, 2), invalid);
    assert_eq!(event.await_on(&stream, 2), invalid);
    event.await_on(&stream, EXTERNAL).unwrap();
    assert_eq!(event.await_on(&stream, 0), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
    let invalidated = Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(event.await_on(&stream, EXTERNAL), invalidated);
    assert_eq!(end(&stream).map(drop), invalidated);
    // The thread still must not synchronize a capturing stream, in any mode.
    begin(&stream, THREAD_LOCAL);
    exchange(RELAXED);
    event.record(&stream, 0).unwrap();
    assert_eq!(event.query(), Err(CUresult::CUDA_ERROR_CAPTURED_EVENT));
    exchange(GLOBAL);
    end(&stream).unwrap_err();
}

#[test]
fn external_events_are_for_captures_only_emulated() {
    check("uses events of graphs wrongly", &[]);
}
