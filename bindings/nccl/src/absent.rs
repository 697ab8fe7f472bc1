//! Unsupported functions: programs look up these symbols when they are loaded. Each call returns
//! `ncclInvalidUsage` with an error message.

use crate::abi::*;
use crate::error::Failure;
use crate::variables::put;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// The failure of an unsupported function.
fn absent(what: &str, instead: &str) -> Result<(), Failure> {
    Err(Failure::usage(format!("{what} is not there in Maypole: {instead}")))
}

const KERNELS: &str = "use the collectives of the host";
const WINDOWS: &str = "use ncclSend and ncclRecv";
const MEMORY: &str = "destroy the communicator, and make it again when it is needed";
const GROWING: &str = "make a new communicator of all ranks";

/// A parameter of the library.
pub type ncclParamHandle_t = *mut c_void;

fn no_parameter() -> Result<(), Failure> {
    Err(Failure::argument("there is no such parameter: Maypole publishes none"))
}

exported! {
    /// Not supported: a simulation of a group.
    fn ncclGroupSimulateEnd, pncclGroupSimulateEnd(_line; _info: *mut c_void) {
        absent("simulating a group", "end it by ncclGroupEnd, or ask `maypole simulate`")
    }

    /// Not supported: a communicator that takes in new ranks.
    fn ncclCommGetUniqueId, pncclCommGetUniqueId(
        _line;
        _comm: ncclComm_t,
        _id: *mut ncclUniqueId,
    ) {
        absent("growing a communicator", GROWING)
    }

    /// Not supported: a communicator that takes in new ranks.
    fn ncclCommGrow, pncclCommGrow(
        _line;
        _comm: ncclComm_t,
        _ranks: c_int,
        _id: *const ncclUniqueId,
        _rank: c_int,
        _made: *mut ncclComm_t,
        _config: *mut ncclConfig_t,
    ) {
        absent("growing a communicator", GROWING)
    }

    /// Not supported: giving back a communicator's memory for a while.
    fn ncclCommSuspend, pncclCommSuspend(_line; _comm: ncclComm_t, _flags: c_int) {
        absent("suspending a communicator", MEMORY)
    }

    /// Not supported: the end of `ncclCommSuspend`.
    fn ncclCommResume, pncclCommResume(_line; _comm: ncclComm_t) {
        absent("suspending a communicator", MEMORY)
    }

    /// Not supported: the memory use of a communicator.
    fn ncclCommMemStats, pncclCommMemStats(
        _line;
        _comm: ncclComm_t,
        _which: c_int,
        _value: *mut u64,
    ) {
        absent("measuring a communicator's memory", "ask CUDA how much memory is free")
    }

    /// Not supported: the properties of a communicator for kernels of the program.
    fn ncclCommQueryProperties, pncclCommQueryProperties(
        _line;
        _comm: ncclComm_t,
        _properties: *mut c_void,
    ) {
        absent("NCCL's interface for kernels", KERNELS)
    }

    /// Not supported: a communicator for kernels of the program's own.
    fn ncclDevCommCreate, pncclDevCommCreate(
        _line;
        _comm: ncclComm_t,
        _requirements: *const c_void,
        _made: *mut c_void,
    ) {
        absent("NCCL's interface for kernels", KERNELS)
    }

    /// Not supported: the end of `ncclDevCommCreate`.
    fn ncclDevCommDestroy, pncclDevCommDestroy(
        _line;
        _comm: ncclComm_t,
        _made: *const c_void,
    ) {
        absent("NCCL's interface for kernels", KERNELS)
    }

    /// Not supported: the address of a window for multicast.
    fn ncclGetLsaMultimemDevicePointer, pncclGetLsaMultimemDevicePointer(
        _line;
        _window: ncclWindow_t,
        _offset: usize,
        _pointer: *mut *mut c_void,
    ) {
        absent("NCCL's interface for kernels", KERNELS)
    }

    /// Not supported: the address of a window for multicast.
    fn ncclGetMultimemDevicePointer, pncclGetMultimemDevicePointer(
        _line;
        _window: ncclWindow_t,
        _offset: usize,
        _multimem: *mut c_void,
        _pointer: *mut *mut c_void,
    ) {
        absent("NCCL's interface for kernels", KERNELS)
    }

    /// Not supported: the address of another rank's window.
    fn ncclGetLsaDevicePointer, pncclGetLsaDevicePointer(
        _line;
        _window: ncclWindow_t,
        _offset: usize,
        _rank: c_int,
        _pointer: *mut *mut c_void,
    ) {
        absent("NCCL's interface for kernels", KERNELS)
    }

    /// Not supported: the address of another rank's window.
    fn ncclGetPeerDevicePointer, pncclGetPeerDevicePointer(
        _line;
        _window: ncclWindow_t,
        _offset: usize,
        _peer: c_int,
        _pointer: *mut *mut c_void,
    ) {
        absent("NCCL's interface for kernels", KERNELS)
    }

    /// Not supported: writing to another rank's window.
    fn ncclPutSignal, pncclPutSignal(
        _line;
        _memory: *const c_void,
        _count: usize,
        _kind: ncclDataType_t,
        _peer: c_int,
        _window: ncclWindow_t,
        _offset: usize,
        _signal: c_int,
        _context: c_int,
        _flags: c_uint,
        _comm: ncclComm_t,
        _stream: cudaStream_t,
    ) {
        absent("writing to another rank's window", WINDOWS)
    }

    /// Not supported: a signal to another rank.
    fn ncclSignal, pncclSignal(
        _line;
        _peer: c_int,
        _signal: c_int,
        _context: c_int,
        _flags: c_uint,
        _comm: ncclComm_t,
        _stream: cudaStream_t,
    ) {
        absent("signalling another rank", WINDOWS)
    }

    /// Not supported: waiting for signals.
    fn ncclWaitSignal, pncclWaitSignal(
        _line;
        _count: c_int,
        _signals: *mut c_void,
        _comm: ncclComm_t,
        _stream: cudaStream_t,
    ) {
        absent("waiting for another rank's signal", WINDOWS)
    }

    /// Not supported: the memory of a window, since there are no windows.
    fn ncclWinGetUserPtr, pncclWinGetUserPtr(
        _line;
        _comm: ncclComm_t,
        _window: ncclWindow_t,
        _pointer: *mut *mut c_void,
    ) {
        absent("a window", WINDOWS)
    }

    /// Looks for a parameter of the library: there is none.
    fn ncclParamBind, pncclParamBind(
        _line;
        _handle: *mut ncclParamHandle_t,
        _key: *const c_char,
    ) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetI8, pncclParamGetI8(_line; _handle: ncclParamHandle_t, _value: *mut i8) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetI16, pncclParamGetI16(_line; _handle: ncclParamHandle_t, _value: *mut i16) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetI32, pncclParamGetI32(_line; _handle: ncclParamHandle_t, _value: *mut i32) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetI64, pncclParamGetI64(_line; _handle: ncclParamHandle_t, _value: *mut i64) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetU8, pncclParamGetU8(_line; _handle: ncclParamHandle_t, _value: *mut u8) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetU16, pncclParamGetU16(_line; _handle: ncclParamHandle_t, _value: *mut u16) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetU32, pncclParamGetU32(_line; _handle: ncclParamHandle_t, _value: *mut u32) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetU64, pncclParamGetU64(_line; _handle: ncclParamHandle_t, _value: *mut u64) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetStr, pncclParamGetStr(
        _line;
        _handle: ncclParamHandle_t,
        _value: *mut *const c_char,
    ) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGet, pncclParamGet(
        _line;
        _handle: ncclParamHandle_t,
        _value: *mut c_void,
        _room: c_int,
        _length: *mut c_int,
    ) {
        no_parameter()
    }

    /// Reads a parameter of the library: there is none.
    fn ncclParamGetParameter, pncclParamGetParameter(
        _line;
        _key: *const c_char,
        _value: *mut *const c_char,
        _length: *mut c_int,
    ) {
        no_parameter()
    }

    /// Lists the parameters of the library: there are none.
    fn ncclParamGetAllParameterKeys, pncclParamGetAllParameterKeys(
        _line;
        keys: *mut *mut *const c_char,
        count: *mut c_int,
    ) {
        // SAFETY: the caller passes places for a table and its length.
        unsafe {
            put(keys, std::ptr::null_mut(), "the place for the names")?;
            put(count, 0, "the place for the count")
        }
    }
}
