//! The types, values and layouts of NCCL, from 2.14 to 2.32.

use crate::error::Failure;
use crate::variables::{self, DebugLevel};
use maypole::DataType;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The result code of a call.
pub type ncclResult_t = c_int;
/// The call succeeded.
pub const ncclSuccess: ncclResult_t = 0;
/// CUDA reports an error, or has no driver.
pub const ncclUnhandledCudaError: ncclResult_t = 1;
/// The ranks did not find one another, or cannot be connected.
pub const ncclSystemError: ncclResult_t = 2;
/// A defect of this library.
pub const ncclInternalError: ncclResult_t = 3;
/// An argument is wrong.
pub const ncclInvalidArgument: ncclResult_t = 4;
/// The call is not allowed now, or not supported; or the ranks made different calls.
pub const ncclInvalidUsage: ncclResult_t = 5;
/// A rank is late, is gone, or has ended the communicator.
pub const ncclRemoteError: ncclResult_t = 6;
/// A background thread still runs the call.
pub const ncclInProgress: ncclResult_t = 7;
/// Never returned: programs for older versions of NCCL have no such code.
pub const ncclTimeout: ncclResult_t = 8;

/// The type of an element.
pub type ncclDataType_t = c_int;

/// A reduction: a built-in operation, or from 5 on one of
/// [`ncclRedOpCreatePreMulSum`](crate::ncclRedOpCreatePreMulSum).
pub type ncclRedOp_t = c_int;
/// The first operation that is not built in.
pub(crate) const BUILT_IN_OPS: ncclRedOp_t = 5;

/// Where the factor of an operation lies: 0 on the device, 1 on the host.
pub type ncclScalarResidence_t = c_int;

/// The color of a rank that is in no part of a split.
pub(crate) const NO_COLOR: c_int = -1;

/// A communicator. A handle is a number, not an address: it must not be dereferenced.
#[repr(C)]
pub struct ncclComm {
    _nothing: [u8; 0],
}
/// The handle of a communicator.
pub type ncclComm_t = *mut ncclComm;

/// A stream of CUDA.
pub type cudaStream_t = *mut c_void;

/// A registered window. None is made here.
pub type ncclWindow_t = *mut c_void;

/// The name of a group of ranks: 128 bytes that one rank makes and passes to the others.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ncclUniqueId {
    pub(crate) internal: [c_char; 128],
}

/// The magic number of an initialized struct of settings.
const MAGIC: c_uint = 0xcafe_beef;

/// A setting that is not set.
const UNDEFINED: c_int = c_int::MIN;

/// The settings of a communicator, in the layout of NCCL 2.32. A program for an older version
/// passes the first `size` bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ncclConfig_t {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    comm_name: *const c_char,
    collnet_enable: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
    channels_per_net_peer: c_int,
    nvlink_centric_sched: c_int,
    graph_usage_mode: c_int,
    rma_contexts: c_int,
    max_p2p_peers: c_int,
    graph_stream_ordering: c_int,
    launch_order_implicit: c_int,
    rma_signals: c_int,
    rma_eager_init: c_int,
    host_cft_mode: c_int,
    nvls_host_mode: c_int,
}

/// The settings of one collective: accepted and ignored.
pub type ncclCollConfig_t = c_void;

/// Settings of encryption, as in NCCL 2.32.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclEncryptionConfig_t {
    pub(crate) size: usize,
    pub(crate) magic: c_uint,
    pub(crate) version: c_uint,
    pub(crate) mode: c_int,
    pub(crate) psk: *const c_char,
}

/// The settings of a communicator that have an effect here.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Settings {
    /// Whether calls that make or end a communicator block until they have completed.
    pub(crate) blocking: Option<bool>,
    /// The maximum of lanes (blocks of a kernel) of a call, and the minimum.
    pub(crate) most_lanes: Option<u32>,
    pub(crate) least_lanes: Option<u32>,
    /// The program's name for the communicator, for logs.
    pub(crate) name: Option<String>,
}

/// The versions of NCCL that introduced the fields in use.
const WITH_BLOCKING: c_uint = 21_400;
const WITH_CTAS: c_uint = 21_700;
const WITH_NAME: c_uint = 22_700;

/// Settings without effect here: name, version that introduced it, and offset. All but `netName` are
/// numbers.
const IGNORED: [(&str, c_uint, usize); 19] = {
    use std::mem::offset_of as at;
    type C = ncclConfig_t;
    [
        ("cgaClusterSize", 21_700, at!(C, cga_cluster_size)),
        ("splitShare", 21_800, at!(C, split_share)),
        ("trafficClass", 22_600, at!(C, traffic_class)),
        ("collnetEnable", 22_700, at!(C, collnet_enable)),
        ("CTAPolicy", 22_700, at!(C, cta_policy)),
        ("shrinkShare", 22_700, at!(C, shrink_share)),
        ("nvlsCTAs", 22_700, at!(C, nvls_ctas)),
        ("nChannelsPerNetPeer", 22_800, at!(C, channels_per_net_peer)),
        ("nvlinkCentricSched", 22_800, at!(C, nvlink_centric_sched)),
        ("graphUsageMode", 22_900, at!(C, graph_usage_mode)),
        ("numRmaCtx", 22_900, at!(C, rma_contexts)),
        ("maxP2pPeers", 23_000, at!(C, max_p2p_peers)),
        ("graphStreamOrdering", 23_000, at!(C, graph_stream_ordering)),
        ("launchOrderImplicit", 23_200, at!(C, launch_order_implicit)),
        ("numRmaSignals", 23_200, at!(C, rma_signals)),
        ("rmaEagerInit", 23_200, at!(C, rma_eager_init)),
        ("hostCftMode", 23_200, at!(C, host_cft_mode)),
        ("nvlsHostMode", 23_200, at!(C, nvls_host_mode)),
        ("netName", 21_700, at!(C, net_name)),
    ]
};

impl ncclConfig_t {
    /// The names of the settings that are set but have no effect. The program filled `size` bytes of `self`.
    fn ignored(&self, size: usize) -> Vec<&'static str> {
        let start = (&raw const *self).cast::<u8>();
        let is_set = |&(name, since, place): &(&str, c_uint, usize)| {
            let is_pointer = name == "netName";
            let bytes = if is_pointer { size_of::<*const c_char>() } else { size_of::<c_int>() };
            if self.version < since || place + bytes > size {
                return false;
            }
            match is_pointer {
                true => !self.net_name.is_null(),
                // SAFETY: a number of `self` begins there.
                false => unsafe { start.add(place).cast::<c_int>().read() != UNDEFINED },
            }
        };
        IGNORED.iter().filter(|it| is_set(it)).map(|(name, ..)| *name).collect()
    }

    /// All settings unset.
    const UNDEFINED: Self = Self {
        size: 0,
        magic: 0,
        version: 0,
        blocking: UNDEFINED,
        cga_cluster_size: UNDEFINED,
        min_ctas: UNDEFINED,
        max_ctas: UNDEFINED,
        net_name: std::ptr::null(),
        split_share: UNDEFINED,
        traffic_class: UNDEFINED,
        comm_name: std::ptr::null(),
        collnet_enable: UNDEFINED,
        cta_policy: UNDEFINED,
        shrink_share: UNDEFINED,
        nvls_ctas: UNDEFINED,
        channels_per_net_peer: UNDEFINED,
        nvlink_centric_sched: UNDEFINED,
        graph_usage_mode: UNDEFINED,
        rma_contexts: UNDEFINED,
        max_p2p_peers: UNDEFINED,
        graph_stream_ordering: UNDEFINED,
        launch_order_implicit: UNDEFINED,
        rma_signals: UNDEFINED,
        rma_eager_init: UNDEFINED,
        host_cft_mode: UNDEFINED,
        nvls_host_mode: UNDEFINED,
    };

    /// Reads `config`; unset fields are inherited from `inherited`. NULL sets nothing.
    ///
    /// Several versions have the same size, with undefined padding after the last field. So a field
    /// counts only if the version has it. Strings are copied, because programs free them.
    ///
    /// # Safety
    /// `config` must be NULL or point to `size` bytes, its first field. Its name must be NULL or a
    /// string.
    pub(crate) unsafe fn read(
        config: *const Self,
        inherited: &Settings,
    ) -> Result<Settings, Failure> {
        if config.is_null() {
            return Ok(inherited.clone());
        }
        let mut all = Self::UNDEFINED;
        // SAFETY: every version has these three, and the caller vouches for `config`.
        let (size, magic) = unsafe { ((&raw const (*config).size).read(), (*config).magic) };
        if magic != MAGIC || size < std::mem::offset_of!(Self, blocking) {
            let text = "the settings of the communicator were not initialized: begin with \
                        NCCL_CONFIG_INITIALIZER";
            return Err(Failure::argument(text));
        }
        let bytes = size.min(size_of::<Self>());
        // SAFETY: `config` has `size` bytes, as the caller guarantees, and `all` has room for
        // `bytes`. Every bit pattern is a value of each field.
        unsafe {
            std::ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut all).cast(), bytes);
        }
        let ignored = all.ignored(size);
        if !ignored.is_empty() {
            let names = ignored.join(", ");
            variables::say_once(DebugLevel::Info, &format!("settings without effect: {names}"));
        }
        let known = |since: c_uint, end: usize| all.version >= since && end <= size;
        let set = |value: c_int, since, offset: usize| {
            let is_set = value != UNDEFINED && known(since, offset + size_of::<c_int>());
            is_set.then_some(value)
        };
        let blocking = set(all.blocking, WITH_BLOCKING, std::mem::offset_of!(Self, blocking));
        let blocking = match blocking {
            None => inherited.blocking,
            Some(0) => Some(false),
            Some(1) => Some(true),
            Some(other) => {
                return Err(Failure::argument(format!("blocking is {other}: use 0 or 1")));
            }
        };
        let least = set(all.min_ctas, WITH_CTAS, std::mem::offset_of!(Self, min_ctas));
        let most = set(all.max_ctas, WITH_CTAS, std::mem::offset_of!(Self, max_ctas));
        if least.is_some_and(|least| least <= 0 || most.is_some_and(|most| most < least)) {
            let text = "minCTAs is not between 1 and maxCTAs: correct the settings";
            return Err(Failure::argument(text));
        }
        let most_lanes = match most.map(u32::try_from) {
            None => inherited.most_lanes,
            Some(Ok(most)) if most > 0 => Some(most),
            Some(_) => return Err(Failure::argument("maxCTAs is not positive")),
        };
        let least_lanes = least.map_or(inherited.least_lanes, |least| u32::try_from(least).ok());
        let name_end = std::mem::offset_of!(Self, comm_name) + size_of::<*const c_char>();
        let name = match known(WITH_NAME, name_end) && !all.comm_name.is_null() {
            false => inherited.name.clone(),
            // SAFETY: not NULL, so the caller guarantees a string.
            true => Some(unsafe { CStr::from_ptr(all.comm_name) }.to_string_lossy().into_owned()),
        };
        Ok(Settings { blocking, most_lanes, least_lanes, name })
    }
}

impl ncclEncryptionConfig_t {
    /// The mode of encryption. NULL is none.
    ///
    /// # Safety
    /// `config` must be NULL or point to such a struct.
    pub(crate) unsafe fn mode(config: *const Self) -> Result<c_int, Failure> {
        // SAFETY: the caller guarantees NULL or such a struct.
        match unsafe { config.as_ref() } {
            None => Ok(0),
            Some(config) if config.magic == MAGIC => Ok(config.mode),
            Some(_) => {
                let text = "the settings of encryption were not initialized: begin with \
                            NCCL_ENCRYPTION_CONFIG_INITIALIZER";
                Err(Failure::argument(text))
            }
        }
    }
}

/// The element type of NCCL's number. 8-bit floats are bytes here: they are moved, but not reduced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ElementType {
    pub(crate) kind: DataType,
    /// False for types that have no arithmetic here.
    pub(crate) has_arithmetic: bool,
    pub(crate) name: &'static str,
}

impl ElementType {
    pub(crate) fn of(number: ncclDataType_t) -> Result<Self, Failure> {
        let number_type = |kind, name| Ok(Self { kind, has_arithmetic: true, name });
        let bytes = |name| Ok(Self { kind: DataType::U8, has_arithmetic: false, name });
        match number {
            0 => number_type(DataType::I8, "i8"),
            1 => number_type(DataType::U8, "u8"),
            2 => number_type(DataType::I32, "i32"),
            3 => number_type(DataType::U32, "u32"),
            4 => number_type(DataType::I64, "i64"),
            5 => number_type(DataType::U64, "u64"),
            6 => number_type(DataType::F16, "f16"),
            7 => number_type(DataType::F32, "f32"),
            8 => number_type(DataType::F64, "f64"),
            9 => number_type(DataType::BF16, "bf16"),
            10 => bytes("f8e4m3"),
            11 => bytes("f8e5m2"),
            other => Err(Failure::argument(format!("there is no type {other} of elements"))),
        }
    }

    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        self.kind.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the settings of a program for that version: its fields, followed by garbage.
    fn read(size: usize, version: c_uint, change: impl Fn(&mut ncclConfig_t)) -> Settings {
        try_read(size, version, change).unwrap()
    }

    fn try_read(
        size: usize,
        version: c_uint,
        change: impl Fn(&mut ncclConfig_t),
    ) -> Result<Settings, Failure> {
        let mut config = ncclConfig_t { size, magic: MAGIC, version, ..ncclConfig_t::UNDEFINED };
        change(&mut config);
        let mut bytes = [0x5a_u8; size_of::<ncclConfig_t>() + 8];
        // SAFETY: `bytes` has room for all of `config`, whose first `size` bytes are copied.
        unsafe {
            let from = (&raw const config).cast::<u8>();
            from.copy_to_nonoverlapping(bytes.as_mut_ptr().add(8), size.min(120));
        }
        let mut aligned = [0_u64; 15];
        for (word, bytes) in aligned.iter_mut().zip(bytes[8..].chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap());
        }
        // SAFETY: as many bytes as the largest version has, and any name in them is a string.
        unsafe { ncclConfig_t::read(aligned.as_ptr().cast(), &Settings::default()) }
    }

    #[test]
    fn fields_count_from_their_version_on() {
        let name = c"group";
        let all = |config: &mut ncclConfig_t| {
            config.blocking = 0;
            config.max_ctas = 8;
            config.comm_name = name.as_ptr();
        };
        let nothing = Settings::default();
        let blocking = Settings { blocking: Some(false), ..nothing.clone() };
        let lanes = Settings { most_lanes: Some(8), ..blocking.clone() };
        let named = Settings { name: Some("group".to_owned()), ..lanes.clone() };
        // 2.14 has 24 bytes, the last four of which are padding.
        assert_eq!(read(24, 21_403, all), blocking);
        assert_eq!(read(40, 21_700, all), lanes);
        assert_eq!(read(48, 21_800, all), lanes);
        assert_eq!(read(48, 22_605, all), lanes);
        for (size, version) in
            [(72, 22_700), (80, 22_809), (88, 22_902), (96, 23_007), (120, 23_203)]
        {
            assert_eq!(read(size, version, all), named, "{size} bytes");
        }
        // A future version may be longer.
        assert_eq!(read(120, 29_900, all), named);
        // Too short for the version: missing fields are not read.
        assert_eq!(read(24, 23_007, all), blocking);
        assert_eq!(read(80, 22_809, |_| {}), nothing);
    }

    #[test]
    fn settings_are_checked_and_inherited() {
        let refused = |change: &dyn Fn(&mut ncclConfig_t)| {
            assert_eq!(try_read(80, 22_809, change).unwrap_err().result, ncclInvalidArgument);
        };
        refused(&|config| config.magic = 0);
        refused(&|config| config.size = 8);
        refused(&|config| config.blocking = 2);
        refused(&|config| config.max_ctas = 0);
        refused(&|config| config.min_ctas = -1);
        refused(&|config| (config.min_ctas, config.max_ctas) = (5, 4));
        let (most_lanes, least_lanes) = (Some(3), Some(2));
        let (blocking, name) = (Some(true), Some("p".to_owned()));
        let parent = Settings { blocking, most_lanes, least_lanes, name };
        // SAFETY: NULL.
        let inherited = unsafe { ncclConfig_t::read(std::ptr::null(), &parent) };
        assert_eq!(inherited.unwrap(), parent);
    }

    #[test]
    fn settings_without_effect_are_named_if_the_version_has_them() {
        let set = |version, size| {
            let mut config = ncclConfig_t { version, ..ncclConfig_t::UNDEFINED };
            config.net_name = c"net".as_ptr();
            config.nvls_ctas = 2;
            config.nvls_host_mode = 1;
            config.ignored(size)
        };
        assert_eq!(set(23_203, 120), ["nvlsCTAs", "nvlsHostMode", "netName"]);
        assert_eq!(set(22_700, 72), ["nvlsCTAs", "netName"]);
        assert_eq!(set(21_700, 40), ["netName"]);
        assert!(set(21_400, 24).is_empty());
        let effective =
            ncclConfig_t { version: 23_203, blocking: 1, max_ctas: 4, ..ncclConfig_t::UNDEFINED };
        assert!(effective.ignored(120).is_empty());
    }

    #[test]
    fn types_have_the_sizes_of_nccl() {
        let sizes = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];
        for (number, size) in sizes.into_iter().enumerate() {
            assert_eq!(ElementType::of(number as c_int).unwrap().size(), size, "type {number}");
        }
        assert!(ElementType::of(-1).is_err() && ElementType::of(12).is_err());
    }

    #[test]
    fn the_layout_is_that_of_nccl() {
        use std::mem::offset_of;
        assert_eq!(size_of::<ncclConfig_t>(), 120);
        assert_eq!(offset_of!(ncclConfig_t, blocking), 16);
        assert_eq!(offset_of!(ncclConfig_t, max_ctas), 28);
        assert_eq!(offset_of!(ncclConfig_t, net_name), 32);
        assert_eq!(offset_of!(ncclConfig_t, comm_name), 48);
        assert_eq!(offset_of!(ncclConfig_t, nvlink_centric_sched), 76);
        assert_eq!(offset_of!(ncclConfig_t, graph_stream_ordering), 92);
        assert_eq!(offset_of!(ncclConfig_t, nvls_host_mode), 112);
        assert_eq!(size_of::<ncclUniqueId>(), 128);
        assert_eq!(size_of::<ncclEncryptionConfig_t>(), 32);
    }
}
