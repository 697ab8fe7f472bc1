//! libibverbs, opened when it is first needed.

use super::abi::{
    IbvAsyncEvent, IbvCompChannel, IbvContext, IbvCq, IbvDevice, IbvDeviceAttr, IbvGidEntry, IbvMr,
    IbvPd, IbvPortAttr, IbvQp, IbvQpAttr, IbvQpInitAttr,
};
use super::error::VerbsError;
use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// The file that every rdma-core installs.
const FILE: &str = "libibverbs.so.1";

type RegisterDmaBuf = unsafe extern "C" fn(*mut IbvPd, u64, usize, u64, c_int, c_int) -> *mut IbvMr;

/// Declares the functions that are used, and looks all of them up.
macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The library's functions, as `infiniband/verbs.h` declares them.
        pub(super) struct VerbsLibrary {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// `ibv_reg_dmabuf_mr`, of rdma-core 34 and later: its offset, length, address, file and access.
            pub(super) reg_dmabuf_mr: Option<RegisterDmaBuf>,
        }

        impl VerbsLibrary {
            fn look_up(library: &Library) -> Result<Self, VerbsError> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the symbol has this type in every version with `IBVERBS_1.1`,
                        // and the library is never unloaded.
                        let found = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                        *found.map_err(|_| too_old($symbol))?
                    },)*
                    // SAFETY: as above.
                    reg_dmabuf_mr: unsafe { library.get(b"ibv_reg_dmabuf_mr\0") }.ok().map(|it| *it),
                })
            }
        }
    };
}

functions! {
    get_device_list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut IbvDevice;
    free_device_list = "ibv_free_device_list": fn(*mut *mut IbvDevice);
    get_device_name = "ibv_get_device_name": fn(*mut IbvDevice) -> *const c_char;
    open_device = "ibv_open_device": fn(*mut IbvDevice) -> *mut IbvContext;
    close_device = "ibv_close_device": fn(*mut IbvContext) -> c_int;
    query_device = "ibv_query_device": fn(*mut IbvContext, *mut IbvDeviceAttr) -> c_int;
    query_port = "ibv_query_port": fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int;
    query_gid_table = "_ibv_query_gid_table":
        fn(*mut IbvContext, *mut IbvGidEntry, usize, u32, usize) -> isize;
    alloc_pd = "ibv_alloc_pd": fn(*mut IbvContext) -> *mut IbvPd;
    dealloc_pd = "ibv_dealloc_pd": fn(*mut IbvPd) -> c_int;
    reg_mr = "ibv_reg_mr": fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr;
    dereg_mr = "ibv_dereg_mr": fn(*mut IbvMr) -> c_int;
    create_comp_channel = "ibv_create_comp_channel": fn(*mut IbvContext) -> *mut IbvCompChannel;
    destroy_comp_channel = "ibv_destroy_comp_channel": fn(*mut IbvCompChannel) -> c_int;
    create_cq = "ibv_create_cq":
        fn(*mut IbvContext, c_int, *mut c_void, *mut IbvCompChannel, c_int) -> *mut IbvCq;
    destroy_cq = "ibv_destroy_cq": fn(*mut IbvCq) -> c_int;
    get_cq_event = "ibv_get_cq_event":
        fn(*mut IbvCompChannel, *mut *mut IbvCq, *mut *mut c_void) -> c_int;
    ack_cq_events = "ibv_ack_cq_events": fn(*mut IbvCq, u32);
    get_async_event = "ibv_get_async_event": fn(*mut IbvContext, *mut IbvAsyncEvent) -> c_int;
    ack_async_event = "ibv_ack_async_event": fn(*mut IbvAsyncEvent);
    create_qp = "ibv_create_qp": fn(*mut IbvPd, *mut IbvQpInitAttr) -> *mut IbvQp;
    modify_qp = "ibv_modify_qp": fn(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int;
    destroy_qp = "ibv_destroy_qp": fn(*mut IbvQp) -> c_int;
}

pub(super) fn too_old(symbol: &str) -> VerbsError {
    VerbsError::Unusable(format!("{FILE} has no {symbol}; install rdma-core 32 or newer"))
}

impl VerbsLibrary {
    /// The library of this process. It is looked for once, and stays loaded.
    ///
    /// # Errors
    /// [`VerbsError`] names the library or the function that is missing.
    pub(super) fn get() -> Result<&'static Self, VerbsError> {
        static LIBRARY: OnceLock<Result<VerbsLibrary, VerbsError>> = OnceLock::new();
        LIBRARY.get_or_init(|| Self::load(FILE)).as_ref().map_err(Clone::clone)
    }

    fn load(file: &str) -> Result<Self, VerbsError> {
        // SAFETY: the initialisation of libibverbs has no conditions.
        let library = unsafe { Library::new(file) };
        let library = library.map_err(|error| VerbsError::NoLibrary(error.to_string()))?;
        let functions = Self::look_up(&library);
        // Drivers keep pointers into the library, so it is never unloaded.
        std::mem::forget(library);
        functions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let missing = VerbsLibrary::load("libibverbs-of-nobody.so.1");
        let Err(VerbsError::NoLibrary(why)) = missing else { panic!("it is there") };
        assert!(why.contains("libibverbs-of-nobody.so.1"), "{why}");
    }

    /// Any library without these functions serves as one that is too old.
    #[test]
    fn the_symbol_that_is_missing_is_named() {
        let other = VerbsLibrary::load("libc.so.6");
        let Err(VerbsError::Unusable(why)) = other else { panic!("the C library has verbs") };
        assert!(why.contains("ibv_get_device_list"), "{why}");
    }
}
