//! Ranks that lack a resource: descriptors, addresses, `/proc`, or the permission to make shared
//! memory. All ranks fail immediately, and the error names the resource.

use crate::spawn::{World, say};
use maypole::{Communicator, ReduceOp, Result, Transport};
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Far below the timeout of the calls, which is 60 s.
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn rank_process(role: &str) {
    if let Err(error) = play(role) {
        say("error", error);
    }
    say("end", "");
}

fn play(role: &str) -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let start = Instant::now();
    let played = match role {
        "arena" => comm.barrier().and_then(|()| arena(&mut comm)),
        "group" => comm.barrier().and_then(|()| group(&mut comm)),
        _ => transport(&mut comm),
    };
    say("took", start.elapsed().as_millis());
    played
}

/// Opens files until `free` descriptors are left, on rank 1.
fn leave_descriptors(comm: &Communicator) -> Vec<File> {
    if comm.rank() != 1 {
        return Vec::new();
    }
    let free: usize = std::env::var("TEST_FREE").unwrap().parse().unwrap();
    let mut files: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(files.len() > free, "{} descriptors", files.len());
    files.truncate(files.len() - free);
    files
}

/// The buffer is registered on all ranks or on none, and the world continues.
fn arena(comm: &mut Communicator) -> Result<()> {
    let bytes = std::env::var("TEST_BYTES").unwrap().parse().unwrap();
    let _files = std::env::var_os("TEST_FREE").map(|_| leave_descriptors(comm));
    for _ in 0..3 {
        let arena = comm.arena(bytes)?;
        let mut registered = [u8::from(arena.bytes() > 0)];
        comm.all_reduce(&mut registered, ReduceOp::Sum)?;
        say("registered", registered[0]);
    }
    comm.barrier()
}

fn group(comm: &mut Communicator) -> Result<()> {
    let _files = leave_descriptors(comm);
    let mut kept = Vec::new();
    for _ in 0..20 {
        let mut group = comm.duplicate()?;
        group.barrier()?;
        kept.push(group);
    }
    Ok(())
}

fn transport(comm: &mut Communicator) -> Result<()> {
    say("shared", comm.boards().is_shared());
    comm.barrier()?;
    let mut over = comm.over(Transport::Auto)?;
    say("over", over.boards().is_shared());
    over.barrier()
}

/// Runs `role` on two ranks, and returns the output of each, by rank.
#[track_caller]
fn run(world: World) -> Vec<(Option<String>, Vec<String>)> {
    let ended = world.set("MAYPOLE_TIMEOUT", 60).start().end();
    let told = ended.iter().map(|ended| {
        assert!(!ended.said("end").is_empty(), "{ended:?}");
        for took in ended.said("took") {
            let took = Duration::from_millis(took.parse().unwrap());
            assert!(took < SOON, "it took {took:?}: {ended:?}");
        }
        let error = ended.said("error").first().map(|text| (*text).to_owned());
        let registered = ended.said("registered").iter().map(|it| (*it).to_owned()).collect();
        (error, registered)
    });
    told.collect()
}

/// The command that starts a process under this limit of `ulimit`.
fn limited(limit: &str) -> [String; 3] {
    ["bash".to_owned(), "-c".to_owned(), format!("ulimit {limit}; exec \"$0\" \"$@\"")]
}

fn by(command: &[String; 3]) -> [&str; 3] {
    command.each_ref().map(String::as_str)
}

#[test]
fn an_arena_is_private_on_all_ranks_if_one_has_no_descriptor_for_it() {
    let limit = limited("-n 140");
    for free in 0..4 {
        let world = World::new("arena", 2).by(1, &by(&limit)).set("TEST_BYTES", 1 << 16);
        for (error, registered) in run(world.set("TEST_FREE", free)) {
            assert_eq!(error, None, "{free} descriptors are free");
            assert_eq!(registered.len(), 3);
            assert!(registered.iter().all(|it| it == "0" || it == "2"), "{registered:?}");
            assert!(free > 0 || registered[0] == "0", "{registered:?}");
        }
    }
}

#[test]
fn an_arena_is_private_on_all_ranks_if_one_cannot_map_it() {
    // 2 GiB of addresses on rank 1, and 3 GiB for both.
    let limit = limited("-v 2097152");
    let world = World::new("arena", 2).by(1, &by(&limit)).set("TEST_BYTES", 3usize << 29);
    for (error, registered) in run(world) {
        assert_eq!(error, None);
        assert_eq!(registered, ["0"; 3]);
    }
}

#[test]
fn a_group_that_one_rank_has_no_descriptor_for_is_an_error_that_names_the_limit() {
    let limit = limited("-n 140");
    for (transport, free) in
        [("shm", 0), ("shm", 1), ("shm", 2), ("shm", 3), ("tcp", 0), ("tcp", 1)]
    {
        let world = World::new("group", 2).by(1, &by(&limit)).set("TEST_FREE", free);
        for (error, _) in run(world.set("MAYPOLE_TRANSPORT", transport)) {
            let error = error.unwrap_or_else(|| panic!("{transport}, {free}: it works"));
            assert!(error.contains("`ulimit -n`"), "{transport}, {free}: {error}");
        }
    }
}

/// Starts a program under a filter of system calls: `memfd_create` is allowed with the flags in the
/// first argument alone.
const SANDBOX: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
needed = int(sys.argv[1])
refuse, allow = (6, 0, 0, 0x50000 | 13), (6, 0, 0, 0x7fff0000)
code = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 24), (0x45, 1, 0, needed), refuse, allow]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(filter)))
libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, program, 0, 0):
    sys.exit(77)
os.execv(sys.argv[2], sys.argv[2:])
"#;

/// A command that starts a program in the sandbox; `None` where there is none.
fn sandbox(flags: u32) -> Option<Vec<String>> {
    let command: Vec<String> =
        ["python3", "-c", SANDBOX, &flags.to_string()].map(str::to_owned).into();
    let tried = Command::new(&command[0]).args(&command[1..]).arg("/bin/true").status();
    let works = tried.is_ok_and(|status| status.success());
    if !works {
        println!("SKIPPED: needs Python 3 and filters of system calls");
    }
    works.then_some(command)
}

/// The flag of kernels since 6.3 for memory that is never executed.
const NOEXEC_SEAL: u32 = 8;

#[test]
fn memory_that_may_not_be_executed_is_enough_for_shared_memory() {
    let Some(command) = sandbox(NOEXEC_SEAL) else { return };
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let world = World::new("transport", 2).by(0, &words).by(1, &words);
    for ended in world.start().end() {
        if ended.lines.iter().any(|line| line.contains("Invalid argument")) {
            return println!("SKIPPED: needs Linux 6.3");
        }
        assert_eq!(ended.said("shared"), ["true"], "{ended:?}");
    }
}

#[test]
fn ranks_that_may_not_share_memory_use_tcp_and_say_why() {
    // No flags are these.
    let Some(command) = sandbox(1 << 31) else { return };
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let ended = World::new("transport", 2).by(1, &words).start().end();
    for ended in &ended {
        assert_eq!((ended.said("shared"), ended.said("over")), (vec!["false"], vec!["false"]));
        assert!(ended.said("error").is_empty(), "{ended:?}");
    }
    let said = |text: &str| ended[0].lines.iter().any(|line| line.contains(text));
    let why =
        "maypole: rank 1 cannot share memory (the system refuses memfd_create: Permission denied";
    assert!(said(why), "{ended:?}");
    let world = World::new("transport", 2).by(1, &words).set("MAYPOLE_TRANSPORT", "shm");
    for ended in world.start().end() {
        let error = ended.said("error")[0];
        assert!(error.contains("shm was asked for, but rank 1 cannot share memory (the system"));
    }
}

#[test]
fn joining_without_proc_says_what_is_missing() {
    let hide = "mount -t tmpfs none /proc && exec \"$0\" \"$@\"";
    let words = ["unshare", "--mount", "bash", "-c", hide];
    let tried = Command::new(words[0]).args(&words[1..]).arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        return println!("SKIPPED: needs leave to mount");
    }
    for ended in World::new("transport", 2).by(0, &words).by(1, &words).start().end() {
        let error = ended.said("error")[0];
        assert!(error.contains("/proc/sys/kernel/random/boot_id"), "{error}");
        assert!(error.contains("mount /proc"), "{error}");
    }
}
