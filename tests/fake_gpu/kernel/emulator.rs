//! Compiles the emulator of `tests/fake_gpu/emulated/` and runs calls on it.

use super::case::{Case, cpu};
use maypole::lower::DeviceProgram;
use maypole::schedule::collective::Collective;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Blocks a rank, and threads a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) lanes: u64,
    pub(crate) threads: u64,
}

/// How publications signal their arrival, as in `program.h`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    Simple,
    LowLatency,
}

/// How calls run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) grid: Grid,
    pub(crate) protocol: Protocol,
    /// Draws the order of events.
    pub(crate) seed: u64,
    /// Publications of every rank before the first call.
    pub(crate) before: u64,
}

/// The disturbances of a run. By default none: all ranks make all calls, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disturbance {
    /// By rank: the calls that it makes, as many as every rank. All of them if there are no ranks.
    pub(crate) made: Vec<Vec<usize>>,
    /// The rank that its host aborts, and after how many polls.
    pub(crate) asked: Option<(usize, u64)>,
    /// Each rank makes all calls at the same time.
    pub(crate) at_once: bool,
    /// Every host has ended all walks of its rank before.
    pub(crate) refused: bool,
}

/// Why calls did not end, or not as they should.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// All threads waited for one another.
    Deadlock,
    /// A rank aborted: its `Status`, and the rank that it names.
    GaveUp { status: u16, rank: u16 },
    /// Two threads accessed the same bytes without an order.
    Race(String),
    /// A rank took the wrong output of a call for a right one.
    Wrong { call: usize, rank: usize },
    /// A rank ended a barrier before another one began it.
    PassedBarrier,
    /// A rank aborted first, without a reason.
    CauseLost,
    /// Threads of a block violate the rules of a barrier.
    MisusedBarrier,
    /// A signal ended the emulator: it left its memory.
    Crashed,
}

/// What the threads of all ranks have done: `Counts` of `emulated/machine.h`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    /// Bytes that are no lines.
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) lines_read: u64,
    pub(crate) lines_written: u64,
    /// Publications, credits, and what lanes tell at the end of a call.
    pub(crate) flags: u64,
    pub(crate) barriers: u64,
    /// How often a thread awaited what it loads together of the sources of a fold.
    pub(crate) rounds: u64,
}

impl Counts {
    const BYTES: usize = 56;

    fn of(bytes: &[u8]) -> Self {
        let mut words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let mut next = || words.next().expect("there are seven counts");
        Self {
            read: next(),
            written: next(),
            lines_read: next(),
            lines_written: next(),
            flags: next(),
            barriers: next(),
            rounds: next(),
        }
    }
}

impl Failure {
    fn gave_up(stderr: &[u8]) -> Self {
        let text = String::from_utf8_lossy(stderr);
        let report: u64 = text.trim().parse().unwrap_or_else(|_| panic!("a report, not '{text}'"));
        Self::GaveUp { status: report as u16, rank: (report >> 16) as u16 }
    }
}

/// A compiled emulator, deleted when dropped.
pub(crate) struct Emulator {
    folder: TempDir,
}

const COMPILER: [&str; 7] =
    ["c++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"];
const WATCHED: [&str; 5] =
    ["-DONE_KERNEL", "-DWATCHED", "-fsanitize=thread", "-g", "emulated/threads.cpp"];
/// The exit code of a program in which ThreadSanitizer has seen a race.
const RACE: i32 = 66;

/// The scheduler of threads, as an object file: no edit of the kernel changes it, so it is compiled
/// once. `None` if there is no compiler.
pub(crate) fn fibers() -> Option<&'static str> {
    static OBJECT: OnceLock<Option<(TempDir, String)>> = OnceLock::new();
    let compile = || {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("fibers.o").to_str().unwrap().to_owned();
        let both = ["fibers.cpp", "exact.cpp"].map(|name| sources().join(name));
        let mut compiler = Command::new(COMPILER[0]);
        // Linked to one object, which is compiled from both files.
        compiler.args(&COMPILER[1..]).args(["-r", "-nostdlib", "-o", &object]).args(both);
        check_compiled(&compiler.output().ok()?);
        Some((folder, object))
    };
    OBJECT.get_or_init(compile).as_ref().map(|(_, object)| object.as_str())
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_gpu/emulated")
}

fn check_compiled(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// True if the compiler has ThreadSanitizer, and its programs run on this machine.
fn has_thread_sanitizer() -> bool {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty.cpp"), "int main() { return 0; }").unwrap();
    let compiled = Command::new("c++")
        .args(["-fsanitize=thread", "empty.cpp", "-o", "empty"])
        .current_dir(folder.path())
        .output();
    compiled.is_ok_and(|output| output.status.success())
        && Command::new(folder.path().join("empty")).output().is_ok_and(|it| it.status.success())
}

fn copy_folder(from: &Path, to: &Path, edit: &dyn Fn(String) -> String) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        // The folder within has compressed modules of real GPUs.
        if path.is_file() {
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(to.join(path.file_name().unwrap()), edit(text)).unwrap();
        }
    }
}

impl Emulator {
    /// The kernel for all types and operations. `None` if there is no compiler.
    pub(crate) fn whole() -> Option<&'static Self> {
        static WHOLE: OnceLock<Option<Emulator>> = OnceLock::new();
        WHOLE.get_or_init(|| Self::compile(&[fibers()?], |text| text)).as_ref()
    }

    /// Sums of f32 alone, with `edit` applied to the files of the kernel.
    pub(crate) fn edited(edit: impl Fn(String) -> String) -> Option<Self> {
        Self::compile(&["-DONE_KERNEL", fibers()?], edit)
    }

    /// As [`edited`](Self::edited), with an OS thread for each thread of the GPU, watched by
    /// ThreadSanitizer. `None` if there is none.
    pub(crate) fn watched(edit: impl Fn(String) -> String) -> Option<Self> {
        has_thread_sanitizer().then(|| Self::compile(&WATCHED, edit)).flatten()
    }

    fn compile(options: &[&str], edit: impl Fn(String) -> String) -> Option<Self> {
        // Flags of lines repeat within a test.
        let options = [&["-DFLAG_LOG=8"], options].concat();
        compile_program("emulated/main.cpp", &options, edit).map(|folder| Self { folder })
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("emulator")
    }

    /// Runs cases that share slots, one call after the other. Every output must be that of the executor.
    pub(crate) fn run(&self, cases: &[Case], machine: Machine) -> Result<(), Failure> {
        self.run_disturbed(cases, machine, &Disturbance::default())
    }

    /// Runs cases that share slots. Every output that a rank takes for right must be that of the
    /// executor.
    pub(crate) fn run_disturbed(
        &self,
        cases: &[Case],
        machine: Machine,
        disturbance: &Disturbance,
    ) -> Result<(), Failure> {
        self.run_counted(cases, machine, disturbance).1
    }

    /// As [`run_disturbed`](Self::run_disturbed), with the counts of a run that came to its end.
    pub(crate) fn run_counted(
        &self,
        cases: &[Case],
        machine: Machine,
        disturbance: &Disturbance,
    ) -> (Counts, Result<(), Failure>) {
        let mut child = Command::new(self.program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let calls = calls(cases, disturbance);
        let mut stdin = child.stdin.take().unwrap();
        let input = input(cases, &calls, machine, disturbance);
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        // An emulator that ends early has not read everything.
        let written = writer.join().unwrap();
        let failure = match output.status.code() {
            Some(0 | 4) => None,
            Some(3) => Some(Failure::Deadlock),
            Some(5) => Some(Failure::PassedBarrier),
            Some(6) => Some(Failure::CauseLost),
            Some(7) => Some(Failure::MisusedBarrier),
            Some(RACE) => Some(Failure::Race(String::from_utf8_lossy(&output.stderr).into_owned())),
            None => Some(Failure::Crashed),
            other => panic!("the emulator ended with {other:?}"),
        };
        if let Some(failure) = failure {
            return (Counts::default(), Err(failure));
        }
        let (left, counts) = output.stdout.split_at(output.stdout.len() - Counts::BYTES);
        let found = find_wrong(cases, &calls, left);
        let end = found.and_then(|()| match output.status.code() {
            Some(0) => {
                written.unwrap();
                Ok(())
            }
            _ => Err(Failure::gave_up(&output.stderr)),
        });
        (Counts::of(counts), end)
    }
}

/// Compiles `main` with the kernel, whose files `edit` changes, as the program `emulator` of a folder.
/// `None` if there is no compiler.
pub(crate) fn compile_program(
    main: &str,
    options: &[&str],
    edit: impl Fn(String) -> String,
) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    copy_folder(&root.join("kernels/cuda"), folder.path(), &edit);
    copy_folder(&sources(), &folder.path().join("emulated"), &edit);
    let compiled = Command::new(COMPILER[0])
        .args(&COMPILER[1..])
        .args(options)
        .args(["-I.", main, "-o", "emulator"])
        .current_dir(folder.path())
        .output()
        .ok()?;
    check_compiled(&compiled);
    Some(folder)
}

/// By call and rank: the number of the case.
fn calls(cases: &[Case], disturbance: &Disturbance) -> Vec<Vec<usize>> {
    let made = &disturbance.made;
    match made.first() {
        None => (0..cases.len()).map(|nth| vec![nth; cases[nth].world()]).collect(),
        Some(first) => {
            (0..first.len()).map(|nth| made.iter().map(|rank| rank[nth]).collect()).collect()
        }
    }
}

/// Looks for outputs that a rank takes for right and that are not those of the executor.
fn find_wrong(cases: &[Case], calls: &[Vec<usize>], written: &[u8]) -> Result<(), Failure> {
    let expected = cpu(cases);
    let mut rest = written;
    for (call, ranks) in calls.iter().enumerate() {
        for (rank, nth) in ranks.iter().enumerate() {
            let case = &cases[*nth];
            let memory = case.memory(rank, &case.lower_for_device(rank));
            let (is_done, others) = rest.split_at(size_of::<u64>());
            let (mine, others) = others.split_at(memory.bytes.len());
            rest = others;
            if is_done != [0; 8] && mine[memory.output] != expected[*nth][rank] {
                return Err(Failure::Wrong { call, rank });
            }
        }
    }
    Ok(())
}

fn number(input: &mut Vec<u8>, number: usize) {
    input.extend_from_slice(&(number as u64).to_le_bytes());
}

/// The emulator's input; `main.cpp` has the order.
fn input(
    cases: &[Case],
    calls: &[Vec<usize>],
    machine: Machine,
    disturbance: &Disturbance,
) -> Vec<u8> {
    let Machine { grid, protocol, seed, before } = machine;
    let mut input = Vec::new();
    let world = cases[0].world();
    let slots = cases[0].slots;
    // One lane may have a whole publication.
    let slot_bytes = 32 * slots.bytes.div_ceil(16) * grid.lanes as usize;
    let fits = |case: &Case| {
        let program = case.lower_for_device(0);
        (0..world).all(|rank| program.totals[rank] <= slots.count as u64)
    };
    let is_by_lines = protocol == Protocol::LowLatency;
    let (asked, after) = disturbance.asked.unwrap_or((world, 0));
    for word in [
        cases[0].kind as usize,
        cases[0].op as usize,
        seed as usize,
        world,
        grid.lanes as usize,
        grid.threads as usize,
        slots.count,
        slot_bytes,
        is_by_lines as usize,
        calls.len(),
        before as usize,
        (is_by_lines && cases.iter().all(fits)) as usize,
        disturbance.at_once as usize,
        disturbance.refused as usize,
        asked,
        after as usize,
    ] {
        number(&mut input, word);
    }
    for ranks in calls {
        ranks.iter().enumerate().for_each(|(rank, nth)| write_rank(&mut input, &cases[*nth], rank));
    }
    input
}

/// The program and the buffers of one rank.
fn write_rank(input: &mut Vec<u8>, case: &Case, rank: usize) {
    let program = case.lower_for_device(rank);
    let memory = case.memory(rank, &program);
    let device = DeviceProgram::new(&program, rank, memory.places).expect("the kernel can walk it");
    let bytes = device.bytes();
    number(input, case.fingerprint_of(rank) as usize);
    number(input, usize::from(case.operation.collective == Collective::Barrier));
    number(input, bytes.len());
    input.extend_from_slice(bytes);
    number(input, memory.places.input);
    number(input, memory.places.output);
    number(input, memory.bytes.len());
    input.extend_from_slice(&memory.bytes);
    number(input, program.scratch);
}
