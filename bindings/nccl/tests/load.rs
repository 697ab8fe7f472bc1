//! The library as a file: its symbols, its dependencies, and a load without side effects.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library that cargo has built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libnccl.so");
    assert!(library.exists(), "cargo builds {} before its tests", library.display());
    library
}

/// Runs `command` and returns its output.
///
/// # Panics
/// If it fails.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        said(&output.stdout),
        said(&output.stderr)
    );
    output
}

fn text(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).unwrap()
}

/// The names that the library defines.
fn defined() -> BTreeSet<String> {
    let listed = text(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let names = listed.lines().filter_map(|line| line.split_whitespace().last());
    names.map(str::to_owned).collect()
}

fn lines_of(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(here().join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_names_are_those_of_the_list() {
    let defined = defined();
    if std::env::var_os("UPDATE").is_some() {
        let text: String = defined.iter().map(|name| format!("{name}\n")).collect();
        std::fs::write(here().join("tests/symbols.txt"), text).unwrap();
    }
    let listed = lines_of("tests/symbols.txt");
    let differing: Vec<_> = defined.symmetric_difference(&listed).collect();
    assert!(differing.is_empty(), "UPDATE=1 cargo test -p maypole-nccl: {differing:?}");
    for name in defined.iter().filter(|name| !name.starts_with('p')) {
        assert!(defined.contains(&format!("p{name}")), "profilers call p{name}");
    }
}

/// PyTorch binds all names when it is loaded: one that is missing fails `import torch`.
#[test]
fn every_name_that_pytorch_asks_for_is_there() {
    let asked = lines_of("tests/torch.txt");
    assert_eq!(asked.len(), 51);
    let missing: Vec<_> = asked.difference(&defined()).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_header_declares_what_the_library_has() {
    let header = std::fs::read_to_string(here().join("nccl.h")).unwrap();
    let declared = header.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("NCCL_DECLARE(")?.split_once(", ")?;
        Some(format!("nccl{}", rest.split(',').next()?))
    });
    let declared: BTreeSet<String> = declared.collect();
    let defined: BTreeSet<String> =
        defined().into_iter().filter(|name| name.starts_with("nccl")).collect();
    let differing: Vec<_> = declared.symmetric_difference(&defined).collect();
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn the_file_has_the_name_of_nccl_and_needs_only_the_system() {
    let dynamic = text(Command::new("readelf").args(["-dW"]).arg(library()));
    assert!(dynamic.contains("Library soname: [libnccl.so.2]"), "{dynamic}");
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let allowed = ["libc.so", "libgcc_s.so", "libm.so", "ld-linux"];
        assert!(allowed.iter().any(|name| line.contains(name)), "{line}");
    }
    let versions = text(Command::new("readelf").args(["-VW"]).arg(library()));
    assert!(!versions.contains("Version definition"), "names of NCCL have no version: {versions}");
}

/// A program that is started with the library, and its output.
fn with_library(source: &str, change: impl Fn(&mut Command)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&file, source).unwrap();
    run(Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here())
        .arg(&file)
        .arg("-o")
        .arg(&program)
        .arg("-ldl"));
    let mut command = Command::new(&program);
    command.arg(library()).env_remove("NCCL_DEBUG").env_remove("MAYPOLE_NCCL_VERSION");
    change(&mut command);
    text(&mut command)
}

#[test]
fn a_program_that_knows_nothing_of_it_may_be_started_with_it() {
    run(Command::new("true").env("LD_PRELOAD", library()));
    let said = text(Command::new("cat").arg("/proc/self/maps").env("LD_PRELOAD", library()));
    assert!(said.contains("libnccl.so") && !said.contains("libcuda"), "{said}");
}

const LOADS: &str = r#"
#include "nccl.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define FIND(name) __typeof__(&name) find_##name = (__typeof__(&name))dlsym(library, #name)

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static int descriptors(void) {
    DIR *open = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(open)) count++;
    closedir(open);
    return count;
}

int main(int count, char **arguments) {
    int before = descriptors();
    void *library = dlopen(arguments[count - 1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return puts(dlerror()), 1;
    int started = threads() - 1, opened = descriptors() - before;
    FIND(ncclGetVersion);
    FIND(ncclGetUniqueId);
    FIND(ncclGroupStart);
    FIND(pncclGroupEnd);
    FIND(ncclCommDestroy);
    FIND(ncclCommUserRank);
    FIND(ncclCommInitRank);
    FIND(ncclGetLastError);
    FIND(ncclGetErrorString);
    int number = 0, ranks = 0;
    ncclUniqueId one, other;
    /* A handle that never was one is refused, and not followed. */
    ncclComm_t comm = NULL, nobody = (ncclComm_t)64;
    printf("%d threads, %d files, '%s'\n", started, opened, find_ncclGetLastError(NULL));
    printf("%d ", find_ncclGetVersion(&number));
    printf("%d\n", number);
    printf("%d ", find_ncclGetUniqueId(&one));
    printf("%d ", find_ncclGetUniqueId(&other));
    printf("%d\n", memcmp(&one, &other, sizeof one) != 0);
    printf("%d ", find_ncclGroupStart());
    printf("%d ", find_pncclGroupEnd());
    printf("%d\n", find_pncclGroupEnd());
    printf("%s\n", find_ncclGetLastError(NULL));
    printf("%d ", find_ncclCommDestroy(NULL));
    printf("%d ", find_ncclCommDestroy(nobody));
    printf("%d\n", find_ncclCommUserRank(nobody, &ranks));
    printf("%s\n", find_ncclGetErrorString(4));
    printf("%d ", find_ncclCommInitRank(&comm, 1, one, 0));
    printf("%d\n", find_ncclCommInitRank(&comm, 1, one, 1));
    printf("%d threads\n", threads() - 1);
    return 0;
}
"#;

/// Without a driver: the functions that work, and the errors of the others.
#[test]
fn loading_it_does_nothing_and_calls_need_no_gpu_until_a_communicator_does() {
    let said = with_library(LOADS, |command| {
        // Where there is a driver, another test uses it.
        command.env("CUDA_VISIBLE_DEVICES", "");
    });
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "0 threads, 0 files, ''");
    assert_eq!(lines[1], "0 22809");
    assert_eq!(lines[2], "0 0 1");
    assert_eq!(lines[3], "0 0 5");
    assert_eq!(lines[4], "ncclGroupEnd: ncclGroupEnd without an ncclGroupStart of this thread");
    assert_eq!(lines[5], "0 4 4");
    assert_eq!(lines[6], "invalid argument (run with NCCL_DEBUG=WARN for details)");
    assert_eq!(lines[7], "1 4", "no GPU, and no rank 1 of 1");
    assert_eq!(lines[8], "0 threads");
}

#[test]
fn what_the_environment_says_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (log, trace) = (folder.path().join("log.%p"), folder.path().join("trace"));
    let said = with_library(LOADS, |command| {
        command.env("CUDA_VISIBLE_DEVICES", "").env("NCCL_DEBUG", "WARN");
        command.env("MAYPOLE_NCCL_VERSION", "2.30.7").env("NCCL_COMM_ID", "127.0.0.1:5123");
        command.env("NCCL_DEBUG_FILE", &log).env("MAYPOLE_NCCL_TRACE", &trace);
    });
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[1], "0 23007");
    assert!(lines[2].starts_with("4 4 "), "no name from an address: {}", lines[2]);
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let logs: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap()).collect();
    let log = logs.iter().find(|it| it.file_name().to_string_lossy().starts_with("log."));
    let log = read(&log.expect("the log is a file of the process").path());
    assert!(log.contains("NCCL WARN ncclGroupEnd: ncclGroupEnd without"), "{log}");
    assert!(log.contains("NCCL_COMM_ID=127.0.0.1:5123 is not supported"), "{log}");
    let trace = read(&trace);
    let calls: Vec<_> = trace.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(calls[0], "0 - GetVersion - - - - - - - 0 0 -");
    assert_eq!(
        calls[3..6].iter().map(|it| it.split(' ').nth(10)).collect::<Vec<_>>(),
        [Some("0"), Some("1"), Some("0")]
    );
    assert!(calls.contains(&"0 - CommInitRank 1 - - 1 - - - 0 4 -"), "{trace}");
}

#[test]
fn values_and_layouts_are_those_of_nccl() {
    let folder = tempfile::tempdir().unwrap();
    let compile = |defines: &[&str], include: &Path| {
        let mut compile = Command::new("cc");
        compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-c"]).args(defines);
        compile.arg("-I").arg(include).arg(here().join("tests/abi.c"));
        compile.arg("-o").arg(folder.path().join("abi.o"));
        run(&mut compile);
    };
    compile(&[], here());
    // NVIDIA's own header, where it is installed together with CUDA's.
    let include = Path::new("/usr/include");
    let both = ["nccl.h", "cuda_runtime.h", "cuda_bf16.h"];
    if both.iter().all(|header| include.join(header).exists()) {
        compile(&["-DNVIDIA_HEADER"], include);
    }
}

#[test]
fn an_installed_library_has_the_names_that_programs_look_for() {
    let folder = tempfile::tempdir().unwrap();
    let stage = folder.path().join("stage");
    run(Command::new(here().join("install"))
        .arg("/opt/maypole")
        .envs([("DESTDIR", stage.as_os_str()), ("LIBDIR", "lib64".as_ref())])
        .env("MAYPOLE_NCCL", library()));
    let lib = stage.join("opt/maypole/lib64");
    for name in ["libnccl.so.2", "libnccl.so"] {
        let dynamic = text(Command::new("readelf").arg("-dW").arg(lib.join(name)));
        assert!(dynamic.contains("soname: [libnccl.so.2]"), "{dynamic}");
    }
    let package = std::fs::read_to_string(lib.join("pkgconfig/nccl.pc")).unwrap();
    assert!(package.contains("\nlibdir=/opt/maypole/lib64\n"), "{package}");
    assert!(package.contains("\nVersion: 2.28.9\n"), "{package}");
    assert!(stage.join("opt/maypole/include/nccl.h").exists());
}
