//! The C interface as C and C++ programs use it. Needs a C compiler, as Rust itself does.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The newest static library of this name in the build folder of this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(test.parent().unwrap()).unwrap();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libmaypole_c-") && name.ends_with(".a")
    };
    let ours = files.map(|file| file.unwrap().path()).filter(is_ours);
    let newest = ours.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds the library before its tests")
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

/// Compiles `source` with `compiler` against the static library. Warnings are errors.
fn compile(compiler: &str, standard: &[&str], source: &Path, program: &Path) {
    run(Command::new(compiler)
        .args(standard)
        .args(["-Wall", "-Wextra", "-Werror", "-g", "-I"])
        .arg(here())
        .arg(source)
        .args(if compiler == "c++" { &["-x", "none"][..] } else { &[] })
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(program));
}

fn found(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Notes for the summary of `.ci/run` that a test was skipped.
fn skip(what: &str) {
    let line = format!("SKIPPED: {what}\n");
    eprint!("{line}");
    if let Ok(file) = std::env::var("SKIPPED_TESTS") {
        use std::io::Write;
        let file = std::fs::File::options().append(true).create(true).open(file);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// The version that a program was compiled with; that of the library it runs with is `maypole_version()`.
fn version_macros() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let [major, minor, patch] = ["MAJOR", "MINOR", "PATCH"];
    let mut parts = version.split('.');
    let mut part = |name| format!("#define MAYPOLE_VERSION_{name} {}\n", parts.next().unwrap());
    let numbers = [part(major), part(minor), part(patch)].concat();
    format!(
        "\n// The version of this header; maypole_version() is that of the library.\n\
         {numbers}#define MAYPOLE_VERSION \"{version}\""
    )
}

#[test]
fn the_header_is_that_of_the_source() {
    let mut config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    config.after_includes = Some(version_macros());
    let mut header = Vec::new();
    let files = ["error", "types", "communicator", "calls", "variable", "messages"];
    let builder = files.iter().fold(cbindgen::Builder::new().with_config(config), |it, name| {
        it.with_src(here().join(format!("src/{name}.rs")))
    });
    builder.generate().unwrap().write(&mut header);
    let header = String::from_utf8(header).unwrap();
    let place = here().join("maypole.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&place, &header).unwrap();
    }
    let committed = std::fs::read_to_string(&place).unwrap_or_default();
    assert!(committed == header, "maypole.h is not that of src: UPDATE=1 cargo test -p maypole-c");
}

#[test]
fn every_function_works_between_threads() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("threads");
    compile("cc", &["-std=c11"], &here().join("tests/threads.c"), &program);
    let output = run(&mut Command::new(&program));
    assert!(String::from_utf8_lossy(&output.stdout).contains("every call is right"));
}

#[test]
fn the_header_is_one_of_cpp_too() {
    if !found("c++") {
        return skip("the header in C++: there is no c++");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sum");
    compile("c++", &["-std=c++17", "-x", "c++"], &here().join("examples/sum.c"), &program);
    let output = run(&mut Command::new(&program));
    assert_eq!(output.stdout, b"rank 0 of 1: 1\n", "a process that was started alone");
}

#[test]
fn a_program_is_a_rank_of_whatever_started_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sum");
    compile("cc", &["-std=c11"], &here().join("examples/sum.c"), &program);
    let job = format!("c-{}", std::process::id());
    let start = |rank: usize| {
        let mut command = Command::new(&program);
        command.env("MAYPOLE_RANK", rank.to_string()).env("MAYPOLE_WORLD", "3");
        command.env("MAYPOLE_ADDRESS", "127.0.0.1").env("MAYPOLE_JOB", &job);
        command.env("MAYPOLE_JOB_KEY", "ab".repeat(32)).env("MAYPOLE_TIMEOUT", "60");
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let ranks: Vec<_> = (0..3).map(start).collect();
    for (rank, process) in ranks.into_iter().enumerate() {
        let output = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, format!("rank {rank} of 3: 6\n"), "{}", output.status);
    }
}

#[test]
fn an_installed_library_is_found_by_pkg_config_and_has_versions() {
    if !found("pkg-config") {
        return skip("an installed libmaypole: there is no pkg-config");
    }
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path();
    let mut install = Command::new(here().join("install"));
    run(install.arg(prefix).env("MAYPOLE_STATICLIB", library()));
    // Debug information made the library more than ten times as large.
    let shared = prefix.join("lib/libmaypole.so");
    let sections = run(Command::new("readelf").arg("-SW").arg(&shared));
    let sections = String::from_utf8_lossy(&sections.stdout).into_owned();
    assert!(sections.contains(".text") && !sections.contains(".debug_info"), "{sections}");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "maypole"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let flags = String::from_utf8(flags.stdout).unwrap();
    let program = prefix.join("sum");
    run(Command::new("cc")
        .arg(here().join("examples/sum.c"))
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program));
    let output = run(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert_eq!(output.stdout, b"rank 0 of 1: 1\n");
    let needed = run(Command::new("readelf").arg("-dVW").arg(&program));
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    assert!(needed.contains("libmaypole.so.0") && needed.contains("MAYPOLE_0"), "{needed}");
}

#[test]
fn a_library_that_a_package_has_staged_is_found_by_cmake() {
    let folder = tempfile::tempdir().unwrap();
    let [stage, build] = ["stage", "build"].map(|name| folder.path().join(name));
    run(Command::new(here().join("install"))
        .arg("/opt/maypole")
        .envs([("DESTDIR", stage.as_os_str()), ("LIBDIR", "lib/multiarch".as_ref())])
        .env("MAYPOLE_STATICLIB", library()));
    let lib = stage.join("opt/maypole/lib/multiarch");
    for file in ["pkgconfig/maypole.pc", "cmake/maypole/maypole-config.cmake"] {
        let text = std::fs::read_to_string(lib.join(file)).unwrap();
        assert!(!text.contains(stage.to_str().unwrap()), "{file} names the stage:\n{text}");
    }
    if !found("cmake") {
        return skip("libmaypole found by CMake, which is not installed");
    }
    let sum = here().join("examples/sum.c");
    let project = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(sum C)\nfind_package(maypole {} REQUIRED)\n\
         add_executable(sum {sum})\ntarget_link_libraries(sum maypole::maypole)\n\
         add_executable(alone {sum})\ntarget_link_libraries(alone maypole::static)\n",
        env!("CARGO_PKG_VERSION"),
        sum = sum.display()
    );
    std::fs::write(folder.path().join("CMakeLists.txt"), project).unwrap();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(folder.path()).arg("-B").arg(&build);
    run(configure.env("maypole_DIR", lib.join("cmake/maypole")));
    run(Command::new("cmake").arg("--build").arg(&build));
    for program in ["sum", "alone"] {
        let output = run(&mut Command::new(build.join(program)));
        assert_eq!(output.stdout, b"rank 0 of 1: 1\n", "{program}");
    }
}

#[test]
fn the_harness_of_other_libraries_measures_this_one() {
    let harness = here().join("../../../shared/peers");
    if !harness.join("pb.h").exists() {
        return skip("the driver pb_maypole.c: there is no ../shared/peers/pb.h");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("pb_maypole");
    let source = here().join("benches/pb_maypole.c");
    let include = harness.to_str().unwrap();
    // Warnings of the harness are none of ours.
    compile("cc", &["-std=gnu11", "-O2", "-isystem", include], &source, &program);
    for (ranks, transport) in [(2, "shm"), (3, "tcp")] {
        let mut measure = Command::new(&program);
        measure.env("PB_CTL", folder.path().join(format!("control-{ranks}")));
        measure.env("PB_RANKS", ranks.to_string()).env("PB_TRANSPORT", transport);
        measure.env("PB_PEER", "maypole").env("PB_SIZES", "8,65536").env("PB_MAX", "65536");
        measure.env("PB_BUDGET_MS", "1").env("PB_MINSAMP", "1").env("MAYPOLE_TIMEOUT", "60");
        let said = String::from_utf8(run(&mut measure).stdout).unwrap();
        let right = said.lines().filter(|line| line.contains("\"ok\":true")).count();
        // Eight collectives at two sizes, the barrier, and between two ranks messages there and back.
        let points = if ranks == 2 { 8 * 2 + 1 + 2 } else { 8 * 2 + 1 };
        assert_eq!((said.lines().count(), right), (points, points), "{said}");
        let over = format!("\"transport\":\"{transport}\"");
        assert!(said.lines().all(|line| line.contains(&over)), "{said}");
    }
}

#[test]
fn memory_is_clean_under_valgrind() {
    if !found("valgrind") {
        return skip("C under valgrind, which is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sum");
    compile("cc", &["-std=c11"], &here().join("examples/sum.c"), &program);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    run(valgrind.arg(&program));
}
