//! The fake driver of `kernels/cuda/emulated/driver/`: compiles it, and gives a child process the
//! environment in which CUDA is that driver.
#![allow(dead_code, reason = "not every test uses all of it")]

use crate::skip;
use maypole_kernels::DataType;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Compilations that run at the same time.
const COMPILERS: usize = 2;
const OPTIONS: [&str; 8] = [
    "-fPIC",
    "-O1",
    "-std=c++17",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-fvisibility=hidden",
];

/// A folder with the driver as `libcuda.so.1`. Drivers that lack a function are made from the same
/// objects.
pub(crate) struct FakeDriver {
    folder: PathBuf,
    /// Deletes the folder of a driver that only one test uses.
    _owned: Option<TempDir>,
}

impl FakeDriver {
    /// The whole driver, compiled once for the same sources. `None`, and a line that the calling
    /// test is skipped, if there is no C++ compiler.
    pub(crate) fn get() -> Option<&'static Self> {
        static DRIVER: OnceLock<Option<FakeDriver>> = OnceLock::new();
        let driver = DRIVER.get_or_init(|| {
            let folder = compiled()?;
            Some(Self { folder, _owned: None })
        });
        if driver.is_none() {
            skip::skipped("there is no C++ compiler: 'c++' cannot be started");
        }
        driver.as_ref()
    }

    /// The same driver without this function, as an older driver.
    pub(crate) fn without(&self, function: &str) -> Self {
        let owned = tempfile::tempdir().unwrap();
        let hidden = owned.path().join("hidden.map");
        fs::write(&hidden, format!("{{ local: {function}; }};\n")).unwrap();
        let mut script = OsString::from("-Wl,--version-script=");
        script.push(&hidden);
        link(&self.folder.join("objects"), owned.path(), Some(script));
        Self { folder: owned.path().to_owned(), _owned: Some(owned) }
    }

    /// `LD_LIBRARY_PATH` of a process that uses this driver.
    pub(crate) fn library_path(&self) -> String {
        let folder = self.folder.to_str().expect("the folder has a name in UTF-8");
        match std::env::var("LD_LIBRARY_PATH") {
            Ok(others) if !others.is_empty() => format!("{folder}:{others}"),
            _ => folder.to_owned(),
        }
    }

    /// Makes a child process use this driver.
    pub(crate) fn set<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_LIBRARY_PATH", self.library_path())
    }
}

/// FNV-1a with 64 bits, as `driver/modules.cpp` computes it.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The names of the modules whose kernels have the same names, by the hashes of their texts.
fn modules() -> String {
    let line = |name: String| {
        let text = maypole_kernels::cuda::ptx(&name).expect("every type of numbers has a module");
        format!("    {{{:#x}ull, \"{name}\"}},\n", hash(text.as_bytes()))
    };
    let maps = DataType::NUMBERS.into_iter().map(|kind| format!("map_{}", kind.name()));
    maps.chain(["layers_f32", "layers_f64"].map(str::to_owned)).map(line).collect()
}

fn source() -> PathBuf {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = folders.map(|folder| folder.join("kernels/cuda")).find(|folder| folder.is_dir());
    found.expect("the repository has the kernels")
}

/// All files of the driver that are compiled.
fn sources() -> Vec<PathBuf> {
    let emulated = source().join("emulated");
    let mut files: Vec<PathBuf> = fs::read_dir(emulated.join("driver"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "cpp"))
        .collect();
    files.sort();
    // The largest first, so that all compilers end at about the same time.
    files.sort_by_key(|path| !path.ends_with("walks.cpp"));
    files.extend([emulated.join("fibers.cpp"), emulated.join("live.cpp")]);
    files
}

/// A hash of everything that the driver is made of.
fn fingerprint(version: &Output) -> u64 {
    let mut all = [version.stdout.as_slice(), modules().as_bytes()].concat();
    for folder in ["", "layers", "emulated", "emulated/driver"] {
        let mut files: Vec<PathBuf> = fs::read_dir(source().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        files.iter().for_each(|path| all.extend(fs::read(path).unwrap()));
    }
    all.extend(OPTIONS.concat().as_bytes());
    hash(&all)
}

/// The folder of the compiled driver. It is kept for later runs of the tests, under a name that
/// changes with the sources. Test processes that compile it at the same time each make one, and the
/// first that is done wins.
fn compiled() -> Option<PathBuf> {
    let version = Command::new("c++").arg("--version").output().ok()?;
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = kept.join(format!("fake-driver-{:016x}", fingerprint(&version)));
    if folder.is_dir() {
        return Some(folder);
    }
    fs::create_dir_all(kept).unwrap();
    let made = tempfile::tempdir_in(kept).unwrap();
    let objects = made.path().join("objects");
    fs::create_dir(&objects).unwrap();
    fs::write(objects.join("modules.inc"), modules()).unwrap();
    compile(&objects);
    link(&objects, made.path(), None);
    if fs::rename(made.path(), &folder).is_ok() {
        // It has another name now, so it is not deleted.
        let _ = made.keep();
    }
    Some(folder)
}

fn check(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn compile(objects: &Path) {
    let files = sources();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            let compiled = Command::new("c++")
                .args(OPTIONS)
                .args(["-pthread", "-c", "-I"])
                .arg(objects)
                .arg(file)
                .current_dir(objects)
                .output();
            check(&compiled.unwrap());
        }
    };
    std::thread::scope(|threads| {
        (0..COMPILERS).for_each(|_| {
            threads.spawn(work);
        });
    });
}

/// Links the objects to `libcuda.so.1` in `folder`, with the other name under which it is looked
/// for.
fn link(objects: &Path, folder: &Path, option: Option<OsString>) {
    let files = sources();
    let object = |path: &PathBuf| objects.join(path.file_name().unwrap()).with_extension("o");
    let linked = Command::new("c++")
        .args(["-shared", "-pthread", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete"])
        .args(option)
        .args(files.iter().map(object))
        .arg("-o")
        .arg(folder.join("libcuda.so.1"))
        .output();
    check(&linked.unwrap());
    std::os::unix::fs::symlink("libcuda.so.1", folder.join("libcuda.so")).unwrap();
}
