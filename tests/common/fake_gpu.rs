//! The fake driver of `tests/fake_gpu/driver/`: compiles it, and gives a child process the
//! environment in which CUDA is that driver.
#![allow(dead_code, reason = "not every test uses all of it")]

use crate::skip;
use maypole_kernels::cuda::{MODULES, walk_module};
use maypole_kernels::{BinaryOp, DataType};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Compilations that run at the same time.
const COMPILERS: usize = 2;
/// The source that names the modules whose kernels it has.
const NAMES_MODULES: &str = "modules.cpp";
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

/// Additional kernels of the driver, next to those of the library.
#[derive(Default)]
pub(crate) struct OtherKernels {
    /// C++ files, each with a `KernelTable`.
    pub(crate) sources: Vec<PathBuf>,
    /// Folders of the files that these include.
    pub(crate) folders: Vec<PathBuf>,
    /// The names of the modules that have these kernels, and their PTX.
    pub(crate) modules: Vec<(String, String)>,
}

/// A folder with the driver as `libcuda.so.1`.
pub(crate) struct FakeDriver {
    folder: PathBuf,
    objects: Vec<PathBuf>,
}

impl FakeDriver {
    /// The driver with the kernels of the library: as [`with`](Self::with).
    pub(crate) fn get() -> Option<&'static Self> {
        static DRIVER: OnceLock<Option<FakeDriver>> = OnceLock::new();
        let made = || Self::made(OtherKernels::default(), None);
        or_skipped(DRIVER.get_or_init(made).as_ref())
    }

    /// The driver with additional kernels, compiled once for the same sources. `None`, and a line
    /// that the calling test is skipped, if there is no C++ compiler.
    pub(crate) fn with(others: OtherKernels) -> Option<Self> {
        Self::get().and_then(|own| Self::made(others, Some(own)))
    }

    /// A driver with these kernels, and with the objects of `own` that do not depend on them.
    fn made(others: OtherKernels, own: Option<&Self>) -> Option<Self> {
        let parts = Parts::new(others);
        let folder = parts.compiled(own)?;
        let objects = parts.objects(&folder);
        Some(Self { folder, objects })
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

/// Prints that the calling test is skipped if nothing was made.
pub(crate) fn or_skipped<T>(made: Option<T>) -> Option<T> {
    if made.is_none() {
        skip::skipped("there is no C++ compiler: 'c++' cannot be started");
    }
    made
}

/// FNV-1a with 64 bits, as `driver/modules.cpp` computes it.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

pub(crate) fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = folders.find(|folder| folder.join("tests/fake_gpu").is_dir());
    found.expect("the repository has the fake driver")
}

/// The files of a folder, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// The sources of a driver.
struct Parts {
    /// The files that are compiled.
    sources: Vec<PathBuf>,
    /// Folders of the files that these include.
    folders: Vec<PathBuf>,
    /// The names of the modules whose kernels have the same names, by the hashes of their texts.
    modules: String,
}

impl Parts {
    fn new(others: OtherKernels) -> Self {
        let tests = repository().join("tests/fake_gpu");
        let mut sources = files(&tests.join("driver"));
        sources.retain(|path| path.extension().is_some_and(|kind| kind == "cpp"));
        // The largest first, so that all compilers end at about the same time.
        sources.sort_by_key(|path| !path.ends_with("walks.cpp"));
        sources.extend(["fibers.cpp", "live.cpp"].map(|name| tests.join("emulated").join(name)));
        sources.extend(others.sources);
        let own = [repository().join("kernels/cuda"), tests];
        let maps = DataType::NUMBERS.into_iter().map(|kind| format!("map_{}", kind.name()));
        let of = |kind| BinaryOp::ALL.into_iter().filter_map(move |op| walk_module(kind, op));
        let walks: BTreeSet<String> = DataType::ALL.into_iter().flat_map(of).collect();
        let own_modules = maps.chain(walks).map(|name| {
            let text = MODULES.ptx(&name).expect("it is one of the library's");
            (name, text)
        });
        let line = |(name, text): (String, String)| {
            format!("    {{{:#x}ull, \"{name}\"}},\n", hash(text.as_bytes()))
        };
        let modules = own_modules.chain(others.modules).map(line).collect();
        Self { sources, folders: own.into_iter().chain(others.folders).collect(), modules }
    }

    /// A hash of everything.
    fn fingerprint(&self, version: &Output) -> u64 {
        let mut all = [version.stdout.as_slice(), self.modules.as_bytes()].concat();
        let tests = repository().join("tests/fake_gpu");
        let more = ["driver", "emulated"].map(|name| tests.join(name));
        for path in self.folders.iter().chain(&more).flat_map(|folder| files(folder)) {
            all.extend(fs::read(path).unwrap());
        }
        all.extend(OPTIONS.concat().as_bytes());
        hash(&all)
    }

    /// The folder of the compiled driver. It is kept for later runs of the tests, under a name that
    /// changes with the sources. Test processes that compile it at the same time each make one, and
    /// the first that is done wins.
    fn compiled(&self, own: Option<&FakeDriver>) -> Option<PathBuf> {
        let version = Command::new("c++").arg("--version").output().ok()?;
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = kept.join(format!("fake-driver-{:016x}", self.fingerprint(&version)));
        if folder.is_dir() {
            return Some(folder);
        }
        fs::create_dir_all(kept).unwrap();
        let made = tempfile::tempdir_in(kept).unwrap();
        self.compile(made.path(), own);
        link(&self.objects(made.path()), made.path());
        if fs::rename(made.path(), &folder).is_ok() {
            // It has another name now, so it is not deleted.
            let _ = made.keep();
        }
        Some(folder)
    }

    /// Where the objects are below `folder`.
    fn objects(&self, folder: &Path) -> Vec<PathBuf> {
        let names = self.sources.iter().map(|path| path.file_name().unwrap());
        names.map(|name| folder.join("objects").join(name).with_extension("o")).collect()
    }

    fn compile(&self, folder: &Path, own: Option<&FakeDriver>) {
        let objects = folder.join("objects");
        fs::create_dir(&objects).unwrap();
        fs::write(objects.join("modules.inc"), &self.modules).unwrap();
        let folders = self.folders.iter().chain([&objects]);
        let folders: Vec<&Path> = folders.flat_map(|path| [Path::new("-I"), path]).collect();
        let mut sources = Vec::new();
        for (source, object) in self.sources.iter().zip(self.objects(folder)) {
            let mut made = own.iter().flat_map(|own| &own.objects);
            match made.find(|made| made.file_name() == object.file_name()) {
                Some(made) if !source.ends_with(NAMES_MODULES) => {
                    fs::copy(made, object).unwrap();
                }
                _ => sources.push(source),
            }
        }
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(file) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut compiler = Command::new("c++");
                compiler.args(OPTIONS).args(["-pthread", "-c"]).args(&folders).arg(file);
                check(&compiler.current_dir(&objects).output().unwrap());
            }
        };
        std::thread::scope(|threads| {
            (0..COMPILERS).for_each(|_| {
                threads.spawn(work);
            });
        });
    }
}

fn check(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Links the objects to `libcuda.so.1` in `folder`, with the other name under which it is looked
/// for.
fn link(objects: &[PathBuf], folder: &Path) {
    let linked = Command::new("c++")
        .args(["-shared", "-pthread", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete"])
        .args(objects)
        .arg("-o")
        .arg(folder.join("libcuda.so.1"))
        .output();
    check(&linked.unwrap());
    std::os::unix::fs::symlink("libcuda.so.1", folder.join("libcuda.so")).unwrap();
}
