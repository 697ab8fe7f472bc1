//! The fake libibverbs of `transports/fake-verbs/`: compiles it, and makes this process or a child
//! process use it.
#![allow(dead_code, reason = "not every test uses all of it")]

use crate::skip;
use libloading::os::unix::Library;
use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const OPTIONS: [&str; 11] = [
    "-shared",
    "-pthread",
    "-fPIC",
    "-O1",
    "-std=c++17",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fvisibility=hidden",
    "-Wl,-soname,libibverbs.so.1",
    "-Wl,-z,nodelete",
];
const FILE: &str = "libibverbs.so.1";

/// A folder with the library as `libibverbs.so.1`.
pub(crate) struct FakeVerbs {
    folder: PathBuf,
}

impl FakeVerbs {
    /// The library, compiled once for the same sources. `None`, and a line that the calling test is
    /// skipped, if there is no C++ compiler.
    pub(crate) fn get() -> Option<&'static Self> {
        static LIBRARY: OnceLock<Option<FakeVerbs>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| Some(Self { folder: compiled()? }));
        if library.is_none() {
            skip::skipped("there is no C++ compiler: 'c++' cannot be started");
        }
        library.as_ref()
    }

    /// `LD_LIBRARY_PATH` of a process that uses the library.
    pub(crate) fn library_path(&self) -> String {
        let folder = self.folder.to_str().expect("the folder has a name in UTF-8");
        match std::env::var("LD_LIBRARY_PATH") {
            Ok(others) if !others.is_empty() => format!("{folder}:{others}"),
            _ => folder.to_owned(),
        }
    }

    /// The library in this process, which has not used libibverbs yet, with these devices. The
    /// loader finds it under its name from then on.
    pub(crate) fn load(&self, devices: &str) -> Controls {
        let controls = Controls::open(self.folder.join(FILE));
        let devices = CString::new(devices).unwrap();
        let add: unsafe extern "C" fn(*const c_char) = controls.function("fake_verbs_devices");
        // SAFETY: the function reads the text.
        unsafe { add(devices.as_ptr()) };
        controls
    }
}

/// The functions of the fake that libibverbs does not have.
pub(crate) struct Controls(Library);

impl Controls {
    /// The controls of the library that the loader finds in this process.
    pub(crate) fn here() -> Self {
        Self::open(FILE.into())
    }

    fn open(file: PathBuf) -> Self {
        // SAFETY: loading the library has no conditions.
        Self(unsafe { Library::new(file) }.expect("the library was compiled"))
    }

    fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: callers name the type that the C++ source declares.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.expect("the fake has this function")
    }

    /// How often a request was made of a device, or the value of the last one.
    pub(crate) fn counter(&self, device: &str, what: &str) -> u64 {
        let counter: unsafe extern "C" fn(*const c_char, *const c_char) -> u64 =
            self.function("fake_verbs_counter");
        let [device, what] = [device, what].map(|text| CString::new(text).unwrap());
        // SAFETY: the function reads the texts, and the tests name devices that there are.
        unsafe { counter(device.as_ptr(), what.as_ptr()) }
    }

    /// Changes an attribute of a device and all its ports.
    pub(crate) fn set(&self, device: &str, key: &str, value: &str) {
        let set: unsafe extern "C" fn(*const c_char, c_int, *const c_char, *const c_char) =
            self.function("fake_verbs_set");
        let [device, key, value] = [device, key, value].map(|text| CString::new(text).unwrap());
        // SAFETY: the function reads the texts, and the tests name devices that there are.
        unsafe { set(device.as_ptr(), 0, key.as_ptr(), value.as_ptr()) };
    }

    /// Raises an asynchronous event in all that it may be about. Returns how often.
    pub(crate) fn raise(&self, device: &str, event: i32) -> i32 {
        let raise: unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int =
            self.function("fake_verbs_raise");
        let device = CString::new(device).unwrap();
        // SAFETY: the function reads the text.
        unsafe { raise(device.as_ptr(), 1, event) }
    }
}

fn source() -> PathBuf {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut found = folders.map(|folder| folder.join("transports/fake-verbs"));
    found.find(|folder| folder.is_dir()).expect("the repository has the fake library")
}

/// The files of the library, in an order that does not change.
fn files() -> Vec<PathBuf> {
    let files = fs::read_dir(source()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

/// The folder of the compiled library. It is kept for later runs of the tests, under a name that
/// changes with the sources. Test processes that compile it at the same time each make one, and the
/// first that is done wins.
fn compiled() -> Option<PathBuf> {
    let version = Command::new("c++").arg("--version").output().ok()?;
    let mut hasher = DefaultHasher::new();
    (version.stdout, OPTIONS).hash(&mut hasher);
    files().iter().for_each(|file| fs::read(file).unwrap().hash(&mut hasher));
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = kept.join(format!("fake-verbs-{:016x}", hasher.finish()));
    if folder.is_dir() {
        return Some(folder);
    }
    let made = kept.join(format!("fake-verbs-{}", std::process::id()));
    fs::create_dir_all(&made).unwrap();
    let is_source = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "cpp");
    let linked = Command::new("c++")
        .args(OPTIONS)
        .arg(format!("-Wl,--version-script={}", source().join("verbs.map").display()))
        .args(files().into_iter().filter(is_source))
        .arg("-o")
        .arg(made.join(FILE))
        .output()
        .unwrap();
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    if fs::rename(&made, &folder).is_err() {
        // Another process was first.
        fs::remove_dir_all(&made).unwrap();
    }
    Some(folder)
}
