//! Environment variables: the supported variables of NCCL, and those of this library.
//!
//! The table is in `README.md`. Variables are read at first use, not when the library is loaded. An invalid
//! value is logged, and the variable then counts as unset.

use crate::abi::Settings;
use crate::address::Family;
use crate::conf::conf;
use crate::error::{Failure, guarded};
use maypole::topology::PathClass;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The reported version, 2.28.9. It has all collectives and no windows.
const VERSION: c_int = 22_809;

/// The supported variables of NCCL.
const KNOWN: [&str; 14] = [
    "NCCL_COMM_BLOCKING",
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_HOSTID",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME",
];

/// The value of a variable: from the environment, else from a configuration file.
fn text(name: &str) -> Option<String> {
    let value = match std::env::var_os(name) {
        Some(value) => value.into_string().ok()?,
        None => conf().values.get(name)?.clone(),
    };
    (!value.is_empty()).then_some(value)
}

/// Parses the value of a variable by `read`. A value that is not `what` is logged once and ignored.
fn parsed<T>(name: &str, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let value = text(name)?;
    let read = read(value.trim());
    if read.is_none() {
        warn_once(&format!("{name}={value} has no effect: it is not {what}"));
    }
    read
}

/// Logs a warning, once per process.
pub(crate) fn warn_once(sentence: &str) {
    say_once(DebugLevel::Warn, sentence);
}

/// Logs a sentence, once per process.
pub(crate) fn say_once(level: DebugLevel, sentence: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let is_first = said.insert(sentence.to_owned());
    drop(said);
    if is_first {
        log(level, || sentence.to_owned());
    }
}

/// Parses a version, as a number or with dots: 22809 or 2.28.9.
fn version_of(value: &str) -> Option<c_int> {
    let parts: Vec<c_int> =
        value.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts[..] {
        [number] if number > 0 => Some(number),
        [major, minor, patch] if major > 0 && (0..100).contains(&minor) => {
            Some(major * 10_000 + minor * 100 + patch)
        }
        _ => None,
    }
}

pub(crate) fn version() -> c_int {
    let what = "a version such as 2.30.7 or 23007";
    parsed("MAYPOLE_NCCL_VERSION", what, version_of).unwrap_or(VERSION)
}

/// The maximum of lanes of a call, and the minimum: from the environment, else from the program's settings.
pub(crate) fn lanes(settings: &Settings) -> [Option<u32>; 2] {
    let lanes = |value: &str| value.parse().ok().filter(|lanes| *lanes > 0);
    let read = |name| parsed(name, "a number of blocks above 0", lanes);
    let most = ["NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS"].into_iter().find_map(read);
    let least = ["NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS"].into_iter().find_map(read);
    [most.or(settings.most_lanes), least.or(settings.least_lanes)]
}

/// Whether calls that make or end a communicator block: from the environment, else from the program's
/// settings.
pub(crate) fn is_blocking(settings: &Settings) -> bool {
    let set = parsed("NCCL_COMM_BLOCKING", "0 or 1", |value| match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    });
    set.or(settings.blocking).unwrap_or(true)
}

/// The farthest GPUs that may access each other's memory. `None`: no limit.
pub(crate) fn farthest_peers() -> Option<PathClass> {
    let number = |value: &str| value.parse::<i64>().ok();
    if parsed("NCCL_P2P_DISABLE", "0 or 1", number).is_some_and(|disabled| disabled != 0) {
        return Some(PathClass::Same);
    }
    let what = "one of LOC, NVL, PIX, PXB, PHB, SYS, or a number from 0 on";
    parsed("NCCL_P2P_LEVEL", what, level_of)?
}

/// The class of a level of NCCL. The inner `None` is no limit.
fn level_of(value: &str) -> Option<Option<PathClass>> {
    match value.to_ascii_uppercase().as_str() {
        "LOC" | "0" => Some(Some(PathClass::Same)),
        "NVL" | "NVB" | "C2C" => Some(Some(PathClass::NvLink(1))),
        "PIX" | "1" => Some(Some(PathClass::Pix)),
        "PXB" | "2" => Some(Some(PathClass::Pxb)),
        "PHB" | "3" => Some(Some(PathClass::Phb)),
        "SYS" => Some(None),
        number => number.parse::<u32>().ok().map(|_| None),
    }
}

/// The name of this host. Ranks with different names are on different hosts.
pub(crate) fn host_name() -> Option<String> {
    let own = std::env::var("MAYPOLE_HOST").ok().filter(|name| !name.is_empty());
    own.or_else(|| text("NCCL_HOSTID"))
}

/// Ten years: a deadline that a clock can represent.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Default timeout of a rendezvous. Without it, a rank would wait indefinitely for an unreachable host.
const JOIN_LIMIT: Duration = Duration::from_secs(600);

/// Timeout of calls for other ranks. Without `MAYPOLE_TIMEOUT` they wait indefinitely, as NCCL's do, because
/// programs for NCCL have timeouts of their own.
pub(crate) fn timeout() -> Result<Duration, Failure> {
    Ok(set_timeout()?.unwrap_or(FOREVER))
}

/// Timeout of the rendezvous of a new group.
pub(crate) fn join_timeout() -> Result<Duration, Failure> {
    Ok(set_timeout()?.unwrap_or(JOIN_LIMIT))
}

fn set_timeout() -> Result<Option<Duration>, Failure> {
    let Some(value) = text("MAYPOLE_TIMEOUT") else { return Ok(None) };
    let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.filter(|it| *it >= Duration::from_millis(1)).map(|it| it.min(FOREVER));
    seconds.map(Some).ok_or_else(|| {
        Failure::argument(format!("MAYPOLE_TIMEOUT={value} is no number of seconds above 0"))
    })
}

/// Refuses names that every process makes by itself: their key would follow from an address.
pub(crate) fn refuse_comm_id() -> Result<(), Failure> {
    text("NCCL_COMM_ID").map_or(Ok(()), |address| {
        Err(Failure::argument(format!(
            "NCCL_COMM_ID={address} is not supported, because whoever has the address could join: unset it, and \
             pass what ncclGetUniqueId returns on one rank to the others"
        )))
    })
}

/// The path of NVIDIA's library, for groups without mailboxes.
pub(crate) fn real_library() -> Option<String> {
    text("MAYPOLE_NCCL_REAL")
}

/// The allowed interfaces of this host: prefixes of names, or whole names after `=`.
pub(crate) fn interfaces() -> Option<String> {
    text("NCCL_SOCKET_IFNAME")
}

/// The address family of the rendezvous.
pub(crate) fn socket_family() -> Option<Family> {
    parsed("NCCL_SOCKET_FAMILY", "AF_INET or AF_INET6", |value| match value {
        "AF_INET" => Some(Family::V4),
        "AF_INET6" => Some(Family::V6),
        _ => None,
    })
}

/// The level of the log.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum DebugLevel {
    Nothing,
    Version,
    Warn,
    Info,
}

impl DebugLevel {
    /// `None` if there is no such level.
    fn of(value: &str) -> Option<Self> {
        match value.trim().to_ascii_uppercase().as_str() {
            "NONE" => Some(Self::Nothing),
            "VERSION" => Some(Self::Version),
            "WARN" => Some(Self::Warn),
            "INFO" | "ABORT" | "TRACE" => Some(Self::Info),
            _ => None,
        }
    }
}

struct Log {
    level: DebugLevel,
    /// `None`: standard output.
    file: Option<File>,
}

impl Log {
    /// True if lines would go to a file, and there is none.
    fn open() -> Self {
        // An unknown level counts as a request for warnings.
        let of = |value: String| DebugLevel::of(&value).unwrap_or(DebugLevel::Warn);
        let level = text("NCCL_DEBUG").map_or(DebugLevel::Nothing, of);
        let name = text("NCCL_DEBUG_FILE").filter(|_| level > DebugLevel::Version);
        let file = name.and_then(|name| File::create(expanded(&name)).ok());
        Self { level, file }
    }

    fn lacks_file(&self) -> bool {
        self.level > DebugLevel::Version && self.file.is_none()
    }
}

/// `None` until the first line is logged.
static LOG: Mutex<Option<Log>> = Mutex::new(None);

fn log_state() -> MutexGuard<'static, Option<Log>> {
    LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Logs the result of `line`, if the level is high enough. Write errors are ignored.
pub(crate) fn log(level: DebugLevel, line: impl FnOnce() -> String) {
    let is_wanted = log_state().get_or_insert_with(Log::open).level >= level;
    if !is_wanted {
        return;
    }
    let word = match level {
        DebugLevel::Warn => "NCCL WARN ",
        DebugLevel::Info => "NCCL INFO ",
        DebugLevel::Version | DebugLevel::Nothing => "",
    };
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let process = std::process::id();
    // `line` may log, so the lock of the log is not held while it runs.
    let line = format!("{}:{process}:{thread} {word}{}\n", host(), line());
    let mut state = log_state();
    let _ = match &mut state.get_or_insert_with(Log::open).file {
        Some(file) => file.write_all(line.as_bytes()),
        None => std::io::stdout().lock().write_all(line.as_bytes()),
    };
}

/// Logs the version, invalid settings and ignored variables, once per process.
pub(crate) fn log_start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        log(DebugLevel::Version, || format!("Maypole {version} as NCCL version {}", number()));
        conf().complaints.iter().for_each(|sentence| warn_once(sentence));
        let levels = "NONE, VERSION, WARN, INFO, ABORT or TRACE; it counts as WARN";
        parsed("NCCL_DEBUG", levels, DebugLevel::of);
        let file = text("NCCL_DEBUG_FILE");
        if let Some(name) = file.filter(|_| log_state().as_ref().is_some_and(Log::lacks_file)) {
            warn_once(&format!("NCCL_DEBUG_FILE={name} cannot be written: the log goes here"));
        }
        log(DebugLevel::Info, || {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            let names: BTreeSet<_> = names.chain(conf().values.keys().cloned()).collect();
            let ignored: Vec<_> = names.into_iter().filter(|name| is_ignored(name)).collect();
            match ignored.is_empty() {
                true => "every variable of NCCL that is set has an effect".to_owned(),
                false => format!("variables without effect on Maypole: {}", ignored.join(", ")),
            }
        });
    });
}

fn is_ignored(name: &str) -> bool {
    name.starts_with("NCCL_") && !KNOWN.contains(&name)
}

/// The reported version with dots.
fn number() -> String {
    let version = version();
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

pub(crate) fn host() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Expands a file name: %h is the host, %p the process.
pub(crate) fn expanded(name: &str) -> String {
    name.replace("%h", &host()).replace("%p", &std::process::id().to_string())
}

exported! {
    /// Stores the reported version of NCCL: 22809 is 2.28.9.
    fn ncclGetVersion, pncclGetVersion(_line; version: *mut c_int) {
        // SAFETY: the caller passes a place for a number.
        unsafe { put(version, self::version(), "the place for the version") }
    }

    /// Sets the encryption of messages. Only "none" is supported: GPU buffers never leave their host, and
    /// the control plane is always encrypted.
    fn ncclSetEncryption, pncclSetEncryption(
        _line;
        config: *const crate::abi::ncclEncryptionConfig_t,
    ) {
        // SAFETY: the caller passes NULL or such a struct.
        match unsafe { crate::abi::ncclEncryptionConfig_t::mode(config) }? {
            0 => Ok(()),
            _ => Err(Failure::usage("encryption by a key of the program is not there")),
        }
    }
}

/// Writes `value` to `to`.
///
/// # Safety
/// `to` must be NULL or writable.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, name: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::argument(format!("{name} is NULL")));
    }
    // SAFETY: not NULL, so the caller guarantees that it is writable.
    unsafe { to.write(value) };
    Ok(())
}

/// Resets the log: the next line reads its variables again.
#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInit() {
    *log_state() = None;
}

/// Equal to [`ncclResetDebugInit`], for a profiler that defines its own function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn pncclResetDebugInit() {
    ncclResetDebugInit();
}

/// Dumps the parameters of NCCL to the log: none is published.
#[unsafe(no_mangle)]
pub extern "C" fn ncclParamDumpAll() {
    guarded::<()>("ncclParamDumpAll", |_| Ok(()));
}

/// Equal to [`ncclParamDumpAll`], for a profiler that defines its own function of that name.
#[unsafe(no_mangle)]
pub extern "C" fn pncclParamDumpAll() {
    ncclParamDumpAll();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_or_have_dots() {
        assert_eq!(version_of("22809"), Some(22_809));
        assert_eq!(version_of("2.30.7"), Some(23_007));
        for wrong in ["", "0", "2.30", "a.b.c", "-2.1.1", "2.100.1"] {
            assert_eq!(version_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn levels_of_peers_are_those_of_nccl() {
        assert_eq!(level_of("loc"), Some(Some(PathClass::Same)));
        assert_eq!(level_of("NVL"), Some(Some(PathClass::NvLink(1))));
        assert_eq!(level_of("2"), Some(Some(PathClass::Pxb)));
        assert_eq!((level_of("SYS"), level_of("5")), (Some(None), Some(None)));
        assert_eq!((level_of("fast"), level_of("-1")), (None, None));
    }

    #[test]
    fn levels_are_ordered_and_unknown_names_are_none() {
        assert_eq!(DebugLevel::of("warn"), Some(DebugLevel::Warn));
        assert_eq!(DebugLevel::of("TRACE"), Some(DebugLevel::Info));
        assert_eq!(DebugLevel::of("loud"), None);
        assert!(DebugLevel::Info > DebugLevel::Warn && DebugLevel::Warn > DebugLevel::Version);
    }

    #[test]
    fn names_of_files_tell_processes_apart() {
        let name = expanded("log.%p");
        assert_eq!(name, format!("log.{}", std::process::id()));
        assert_eq!(expanded("plain"), "plain");
    }

    #[test]
    fn what_the_program_sets_counts_where_the_environment_is_silent() {
        let (most_lanes, least_lanes) = (Some(4), Some(2));
        let settings = Settings { most_lanes, least_lanes, ..Settings::default() };
        assert_eq!(lanes(&settings), [Some(4), Some(2)]);
        assert_eq!(lanes(&Settings::default()), [None; 2]);
        assert!(is_blocking(&Settings::default()));
        assert!(!is_blocking(&Settings { blocking: Some(false), ..Settings::default() }));
        assert!(is_ignored("NCCL_ALGO") && !is_ignored("NCCL_DEBUG") && !is_ignored("PATH"));
    }
}
