//! NVIDIA's library, for groups that Maypole has no mailboxes for:
//! `MAYPOLE_NCCL_REAL=/PATH/libnccl.so.2`.
//!
//! All ranks of a group choose NVIDIA's library together, once, when they make the communicator: either all
//! ranks forward a call or none. They then connect again without GPUs, and rank 0 broadcasts a name made by
//! NVIDIA's library.
//!
//! The library is opened by its path and with `RTLD_DEEPBIND`. By name alone the loader would find this
//! library again. Without the flag NVIDIA's functions would bind to the symbols of this library where they
//! call each other.

use crate::abi::{
    ncclComm_t, ncclConfig_t, ncclDataType_t, ncclInProgress, ncclRedOp_t, ncclResult_t,
    ncclScalarResidence_t, ncclSuccess, ncclUniqueId,
};
use crate::communicator::Start;
use crate::core::Id;
use crate::error::{Failure, Progress};
use crate::variables::{self, DebugLevel};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use maypole::schedule::collective::Collective;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::Duration;

/// Makes a library's own symbols precede global ones. The value of the C library on Linux.
const RTLD_DEEPBIND: c_int = 0x8;

/// Timeout of the second rendezvous of the ranks.
const MEETING: Duration = Duration::from_secs(60);

type Stream = usize;

macro_rules! functions {
    ($($name:ident($($argument:ty),*);)+) => {
        /// The imported functions of NVIDIA's library.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> ncclResult_t,)+
            GetLastError: unsafe extern "C" fn(ncclComm_t) -> *const c_char,
            /// Functions of later versions, which may be missing.
            CommShrink: Option<
                unsafe extern "C" fn(
                    ncclComm_t, *mut c_int, c_int, *mut ncclComm_t, *mut ncclConfig_t, c_int,
                ) -> ncclResult_t,
            >,
            CommRevoke: Option<unsafe extern "C" fn(ncclComm_t, c_int) -> ncclResult_t>,
        }

        impl Functions {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: each type is the declaration of NCCL's header.
                unsafe {
                    Ok(Self {
                        $($name: {
                            let name = concat!("nccl", stringify!($name), "\0");
                            *library.get(name.as_bytes())?
                        },)+
                        GetLastError: *library.get(b"ncclGetLastError\0")?,
                        CommShrink: library.get(b"ncclCommShrink\0").ok().map(|it| *it),
                        CommRevoke: library.get(b"ncclCommRevoke\0").ok().map(|it| *it),
                    })
                }
            }
        }
    };
}

functions! {
    GetUniqueId(*mut ncclUniqueId);
    CommInitRankConfig(*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t);
    CommSplit(ncclComm_t, c_int, c_int, *mut ncclComm_t, *mut ncclConfig_t);
    CommFinalize(ncclComm_t);
    CommDestroy(ncclComm_t);
    CommAbort(ncclComm_t);
    CommGetAsyncError(ncclComm_t, *mut ncclResult_t);
    CommCount(ncclComm_t, *mut c_int);
    CommUserRank(ncclComm_t, *mut c_int);
    CommRegister(ncclComm_t, *mut c_void, usize, *mut *mut c_void);
    CommDeregister(ncclComm_t, *mut c_void);
    AllReduce(u64, u64, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, Stream);
    Reduce(u64, u64, usize, ncclDataType_t, ncclRedOp_t, c_int, ncclComm_t, Stream);
    Broadcast(u64, u64, usize, ncclDataType_t, c_int, ncclComm_t, Stream);
    AllGather(u64, u64, usize, ncclDataType_t, ncclComm_t, Stream);
    ReduceScatter(u64, u64, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, Stream);
    Send(u64, usize, ncclDataType_t, c_int, ncclComm_t, Stream);
    Recv(u64, usize, ncclDataType_t, c_int, ncclComm_t, Stream);
    GroupStart();
    GroupEnd();
    RedOpCreatePreMulSum(
        *mut ncclRedOp_t, *mut c_void, ncclDataType_t, ncclScalarResidence_t, ncclComm_t
    );
    RedOpDestroy(ncclRedOp_t, ncclComm_t);
}

/// NVIDIA's library, which is never closed.
struct Real {
    functions: Functions,
    _library: Library,
}

/// The library that the environment names, or the error of opening it. `None` if the variable is unset.
fn real() -> Option<&'static Result<Real, String>> {
    static REAL: OnceLock<Option<Result<Real, String>>> = OnceLock::new();
    REAL.get_or_init(|| variables::real_library().map(|path| open(&path))).as_ref()
}

fn open(path: &str) -> Result<Real, String> {
    if !path.starts_with('/') {
        return Err(format!("MAYPOLE_NCCL_REAL={path} does not begin with /"));
    }
    let flags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    // SAFETY: the user names the library, and vouches for its initializers.
    let library = unsafe { Library::open(Some(path), flags) };
    let library = library.map_err(|error| format!("MAYPOLE_NCCL_REAL={path}: {error}"))?;
    let functions = Functions::of(&library);
    let functions = functions.map_err(|error| format!("MAYPOLE_NCCL_REAL={path}: {error}"))?;
    Ok(Real { functions, _library: library })
}

/// True if groups may use NVIDIA's library.
pub(crate) fn is_named() -> bool {
    variables::real_library().is_some()
}

/// A communicator of NVIDIA's library.
#[derive(Clone, Copy)]
pub(crate) struct RealMember {
    functions: &'static Functions,
    handle: usize,
}

/// A collective with the program's arguments.
#[derive(Clone, Copy)]
pub(crate) struct RealCall {
    pub(crate) collective: Collective,
    pub(crate) send: u64,
    pub(crate) receive: u64,
    pub(crate) count: usize,
    pub(crate) kind: ncclDataType_t,
    /// Bytes of an element.
    pub(crate) size: usize,
    pub(crate) op: ncclRedOp_t,
    pub(crate) stream: Stream,
}

/// A message with the program's arguments.
#[derive(Clone, Copy)]
pub(crate) struct RealMessage {
    pub(crate) sends: bool,
    pub(crate) address: u64,
    pub(crate) count: usize,
    pub(crate) kind: ncclDataType_t,
    pub(crate) peer: c_int,
    pub(crate) stream: Stream,
}

impl RealMember {
    /// Joins a group of NVIDIA's library, because Maypole has no mailboxes for it: `why` is the cause. All
    /// ranks call this.
    pub(crate) fn instead(start: &Start, id: &Id, why: Failure) -> Result<Self, Failure> {
        let functions = match real() {
            Some(Ok(real)) => &real.functions,
            Some(Err(text)) => {
                return Err(Failure { text: format!("{}; {text}", why.text), ..why });
            }
            None => return Err(why),
        };
        variables::log(DebugLevel::Info, || format!("NVIDIA's library instead: {}", why.text));
        const MEET: u64 = 3;
        let Start { rank, world, context, .. } = start;
        let mut ranks = id.derived(&[MEET]).meet(*rank, *world, MEETING)?;
        let mut real_id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: a place for a name.
        let made = (*rank == 0).then(|| unsafe { (functions.GetUniqueId)(&raw mut real_id) });
        let mut bytes = real_id.internal.map(|byte| byte as u8);
        ranks.broadcast(&mut bytes, 0)?;
        drop(ranks);
        let mut member = Self { functions, handle: 0 };
        made.map_or(Ok(()), |made| member.check(made))?;
        let id = ncclUniqueId { internal: bytes.map(|byte| byte as c_char) };
        let bound = context.bind_to_thread();
        bound.map_err(|error| Failure::cuda(format!("making GPU current: {error:?}")))?;
        let mut handle = std::ptr::null_mut();
        let (rank, world) = (*rank as c_int, *world as c_int);
        let none = std::ptr::null_mut();
        // SAFETY: a place for a communicator; no settings.
        let made =
            unsafe { (functions.CommInitRankConfig)(&raw mut handle, world, id, rank, none) };
        member.check(made)?;
        member.handle = handle.expose_provenance();
        Ok(member)
    }

    fn handle(&self) -> ncclComm_t {
        std::ptr::with_exposed_provenance_mut(self.handle)
    }

    fn check(&self, result: ncclResult_t) -> Result<(), Failure> {
        if result == ncclSuccess || result == ncclInProgress {
            return Ok(());
        }
        // SAFETY: NCCL returns a string for every communicator, also for NULL.
        let text = unsafe { (self.functions.GetLastError)(std::ptr::null_mut()) };
        let text = match text.is_null() {
            true => "no reason".into(),
            // SAFETY: not NULL, so a string.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
        };
        Err(Failure { result, text: format!("NVIDIA's library says: {text}") })
    }

    /// Starts a collective.
    pub(crate) fn call(&self, call: &RealCall, world: usize, rank: usize) -> Result<(), Failure> {
        let (functions, comm) = (self.functions, self.handle());
        let RealCall { collective, send, receive, count, kind, size, op, stream } = *call;
        let root = collective.root().unwrap_or(0) as c_int;
        // SAFETY: the arguments are those that the program passes to the same function.
        let result = unsafe {
            match collective {
                Collective::AllReduce => {
                    (functions.AllReduce)(send, receive, count, kind, op, comm, stream)
                }
                Collective::Reduce { .. } => {
                    (functions.Reduce)(send, receive, count, kind, op, root, comm, stream)
                }
                Collective::Broadcast { .. } => {
                    (functions.Broadcast)(send, receive, count, kind, root, comm, stream)
                }
                Collective::AllGather => {
                    (functions.AllGather)(send, receive, count, kind, comm, stream)
                }
                Collective::ReduceScatter => {
                    (functions.ReduceScatter)(send, receive, count, kind, op, comm, stream)
                }
                // Older versions lack functions for these collectives.
                _ => return self.exchange(call, world, rank, size),
            }
        };
        self.check(result)
    }

    /// Runs all-to-all, gather and scatter as messages.
    fn exchange(
        &self,
        call: &RealCall,
        world: usize,
        rank: usize,
        size: usize,
    ) -> Result<(), Failure> {
        let RealCall { collective, send, receive, count, kind, stream, .. } = *call;
        let bytes = (count * size) as u64;
        let is_root = collective.root() == Some(rank);
        let gathers = matches!(collective, Collective::Gather { .. });
        let is_all = collective == Collective::AllToAll;
        let roots = collective.root().map_or(0..world, |root| root..root + 1);
        let everybody = 0..world;
        let sends_to = if is_all || (is_root && !gathers) {
            everybody.clone()
        } else if gathers {
            roots.clone()
        } else {
            0..0
        };
        let receives_from = if is_all || (is_root && gathers) {
            everybody
        } else if gathers {
            0..0
        } else {
            roots
        };
        self.group(|| {
            for peer in sends_to {
                let at = if is_all || !gathers { send + peer as u64 * bytes } else { send };
                let peer = peer as c_int;
                self.message(&RealMessage { sends: true, address: at, count, kind, peer, stream })?;
            }
            for peer in receives_from {
                let at = if is_all || gathers { receive + peer as u64 * bytes } else { receive };
                let peer = peer as c_int;
                self.message(&RealMessage {
                    sends: false,
                    address: at,
                    count,
                    kind,
                    peer,
                    stream,
                })?;
            }
            Ok(())
        })
    }

    pub(crate) fn message(&self, message: &RealMessage) -> Result<(), Failure> {
        let RealMessage { sends, address, count, kind, peer, stream } = *message;
        let function = if sends { self.functions.Send } else { self.functions.Recv };
        // SAFETY: the arguments are those that the program passes to the same function.
        self.check(unsafe { function(address, count, kind, peer, self.handle(), stream) })
    }

    /// Runs `body` between the start and the end of a group.
    pub(crate) fn group(&self, body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        // SAFETY: it takes nothing.
        self.check(unsafe { (self.functions.GroupStart)() })?;
        let done = body();
        // SAFETY: a group is open.
        let ended = self.check(unsafe { (self.functions.GroupEnd)() });
        done.and(ended)
    }

    pub(crate) fn state(&self) -> Result<Progress, Failure> {
        let mut error = ncclSuccess;
        // SAFETY: a place for a result.
        self.check(unsafe { (self.functions.CommGetAsyncError)(self.handle(), &raw mut error) })?;
        match error {
            ncclInProgress => Ok(Progress::Running),
            error => self.check(error).map(|()| Progress::Done),
        }
    }

    pub(crate) fn destroy(&self) -> Result<(), Failure> {
        // SAFETY: the handle is not used afterwards.
        self.check(unsafe { (self.functions.CommDestroy)(self.handle()) })
    }

    pub(crate) fn abort(&self) -> Result<(), Failure> {
        // SAFETY: the handle is not used afterwards.
        self.check(unsafe { (self.functions.CommAbort)(self.handle()) })
    }

    pub(crate) fn finalize(&self) -> Result<(), Failure> {
        // SAFETY: NVIDIA's handle.
        self.check(unsafe { (self.functions.CommFinalize)(self.handle()) })
    }

    pub(crate) fn revoke(&self) -> Result<(), Failure> {
        let Some(revoke) = self.functions.CommRevoke else {
            return Err(Failure::usage("the library of MAYPOLE_NCCL_REAL has no ncclCommRevoke"));
        };
        // SAFETY: NVIDIA's handle.
        self.check(unsafe { revoke(self.handle(), 0) })
    }

    /// Splits the communicator. `None` if this rank has no color.
    pub(crate) fn split(&self, color: Option<u32>, key: c_int) -> Result<Option<Self>, Failure> {
        let color = color.map_or(-1, |color| color as c_int);
        let (mut made, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a place for a communicator; the settings are those of the parent.
        let result =
            unsafe { (self.functions.CommSplit)(self.handle(), color, key, &raw mut made, none) };
        self.check(result)?;
        Ok((!made.is_null()).then(|| Self { handle: made.expose_provenance(), ..*self }))
    }

    pub(crate) fn shrink(&self, excluded: &[c_int], flags: c_int) -> Result<Self, Failure> {
        let Some(shrink) = self.functions.CommShrink else {
            return Err(Failure::usage("the library of MAYPOLE_NCCL_REAL has no ncclCommShrink"));
        };
        let (mut made, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut excluded, handle) = (excluded.to_vec(), self.handle());
        let count = excluded.len() as c_int;
        // SAFETY: an array of `count` ranks; a place for a communicator; the settings of the parent.
        let result =
            unsafe { shrink(handle, excluded.as_mut_ptr(), count, &raw mut made, none, flags) };
        self.check(result)?;
        Ok(Self { handle: made.expose_provenance(), ..*self })
    }

    /// This rank and the world size.
    pub(crate) fn place(&self) -> Result<(usize, usize), Failure> {
        let (mut rank, mut world) = (0, 0);
        // SAFETY: places for numbers.
        unsafe {
            self.check((self.functions.CommUserRank)(self.handle(), &raw mut rank))?;
            self.check((self.functions.CommCount)(self.handle(), &raw mut world))?;
        }
        Ok((rank as usize, world as usize))
    }

    pub(crate) fn register(&self, memory: *mut c_void, bytes: usize) -> Result<usize, Failure> {
        let mut token = std::ptr::null_mut();
        // SAFETY: the arguments are the program's; a place for a handle.
        let result =
            unsafe { (self.functions.CommRegister)(self.handle(), memory, bytes, &raw mut token) };
        self.check(result).map(|()| token.expose_provenance())
    }

    pub(crate) fn deregister(&self, token: *mut c_void) -> Result<(), Failure> {
        // SAFETY: the argument is the program's.
        self.check(unsafe { (self.functions.CommDeregister)(self.handle(), token) })
    }

    pub(crate) fn make_operation(
        &self,
        factor: *mut c_void,
        kind: ncclDataType_t,
        residence: ncclScalarResidence_t,
    ) -> Result<ncclRedOp_t, Failure> {
        let (mut op, comm) = (0, self.handle());
        let make = self.functions.RedOpCreatePreMulSum;
        // SAFETY: the arguments are the program's; a place for an operation.
        self.check(unsafe { make(&raw mut op, factor, kind, residence, comm) }).map(|()| op)
    }

    pub(crate) fn end_operation(&self, op: ncclRedOp_t) -> Result<(), Failure> {
        // SAFETY: the argument is the program's.
        self.check(unsafe { (self.functions.RedOpDestroy)(op, self.handle()) })
    }
}
