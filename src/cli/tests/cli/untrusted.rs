//! Files that do not end, need more memory than the machine has, or hold escapes of terminals.

use super::{maypole, text};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs a command, which must not take long, with at most 2 GiB of memory.
fn run(line: &str, folder: &Path) -> Output {
    let program = maypole(line);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 2097152 && exec \"$0\" \"$@\""]).arg(program.get_program());
    command.args(program.get_args()).current_dir(folder);
    let start = Instant::now();
    let output = command.output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "{line}: {:?}", start.elapsed());
    output
}

/// The command must end with code 2 and the sentence.
#[track_caller]
fn refused(line: &str, folder: &Path, part: &str) {
    let output = run(line, folder);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {} {said}", output.status);
    assert!(said.contains(part), "{line}: {said}");
}

#[test]
fn no_file_is_read_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for line in [
        "run --hostfile FILE true",
        "perf --compare FILE --to FILE",
        "verify --schedule FILE",
        "topo --file FILE",
        "simulate all-reduce --cluster @FILE",
    ] {
        refused(&line.replace("FILE", "/dev/zero"), folder, "/dev/zero is longer than");
    }
    refused("topo --file /proc/self/exe", folder, "longer than 2M");
    fs::create_dir(folder.join("exercises")).unwrap();
    symlink("/dev/zero", folder.join("exercises/01_endless.toml")).unwrap();
    refused("learn --dir exercises 01", folder, "01_endless.toml is longer than");
}

#[test]
fn exercises_elsewhere_need_no_repository() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mine")).unwrap();
    let exercise = "task = \"copy\"\n[schedule]\ncollective = \"all_reduce\"\nchunks = 1\n\
                    ranks = [[\"???\"]]\n";
    fs::write(folder.path().join("mine/01_copy.toml"), exercise).unwrap();
    let output = run("learn --dir mine", folder.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("01_copy: not done yet"));
    refused("learn", folder.path(), "run this at the top of the repository");
}

#[test]
fn a_schedule_of_more_chunks_than_memory_holds_is_refused_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let two = "[[\"copy in0 to out0\", \"send in0 to 1\"], [\"recv out0 from 0\"]]";
    let file = |name: &str, chunks: &str, ranks: &str| {
        let text =
            format!("collective = \"broadcast\"\nroot = 0\nchunks = {chunks}\nranks = {ranks}\n");
        fs::write(folder.join(name), text).unwrap();
    };
    file("many.toml", "9000000000", two);
    file("more.toml", "9223372036854775807", two);
    file("some.toml", "3000000", two);
    file("ranks.toml", "65536", &format!("[{}]", "[],".repeat(20_000)));
    let scratch = "[\"copy in0 to tmp1048575\"],".repeat(3000);
    file("scratch.toml", "1", &format!("[{scratch}]"));
    let json = "{\"collective\":\"all_reduce\",\"chunks\":18446744073709551615,\
                \"ranks\":[[\"copy in0 to out0\"]]}";
    fs::write(folder.join("most.json"), json).unwrap();
    for name in ["many.toml", "more.toml", "some.toml", "ranks.toml", "scratch.toml", "most.json"] {
        for command in ["verify", "draw --html page.html", "simulate", "perf --threads"] {
            refused(&format!("{command} --schedule {name}"), folder, "chunks");
        }
    }
}

/// No character of a file reaches the terminal that it obeys or that turns the line around.
#[test]
fn what_a_terminal_obeys_in_a_file_is_printed_as_an_escape() {
    const EVIL: &str = "\u{1b}[31m\u{202e}\u{9b}evil";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write("a.toml", format!("collective = \"all_reduce\"\n{EVIL} = 1\n"));
    write("b.toml", format!("collective = \"{EVIL}\"\nchunks = 1\nranks = [[]]\n"));
    write("a.json", format!("{{\"{EVIL}\": 1}}"));
    write("a.txt", format!("GPU0 {EVIL}\n"));
    write("system.xml", format!("<system>\n<cpu><{EVIL}/></cpu></system>"));
    write("hosts", format!("a {EVIL}\n"));
    let lines = [
        "verify --schedule a.toml",
        "verify --schedule b.toml",
        "verify --schedule a.json",
        "topo --file a.txt",
        "topo --file system.xml",
        "run --hostfile hosts true",
    ];
    for line in lines {
        let output = run(line, folder);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output.stderr));
        harmless(line, &output);
    }
    // A name of a file may hold anything, too.
    let name = "x\n\u{1b}[31m.toml";
    write(
        name,
        "collective = \"all_reduce\"\nchunks = 1\nranks = [[\"copy in0 to out0\"]]\n".to_owned(),
    );
    for command in ["verify", "draw"] {
        let mut started = maypole(command);
        let output = started.args(["--schedule", name]).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        harmless(command, &output);
        let title = text(&output.stdout).lines().next().unwrap_or_default().to_owned();
        assert!(title.contains("x\\n\\u001b[31m.toml, 1 ranks"), "{title}");
    }
}

#[track_caller]
fn harmless(line: &str, output: &Output) {
    let said = text(&output.stdout) + &text(&output.stderr);
    let raw = said.chars().find(|char| char.is_control() && !"\n\t".contains(*char));
    assert_eq!(raw, None, "{line}: {said:?}");
    assert!(!said.contains('\u{202e}'), "{line}: {said:?}");
}

#[test]
fn results_of_another_machine_cannot_write_to_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let line = "perf barrier --threads -n 2 --iters 3 --samples --json first.json";
    let output = run(line, folder);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let first = fs::read_to_string(folder.join("first.json")).unwrap();
    let mut rows: Vec<serde_json::Value> =
        first.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    for row in &mut rows {
        row["header"]["kernel"] = "\u{1b}[31m\u{202e}X".into();
    }
    let second: String = rows.iter().map(|row| format!("{row}\n")).collect();
    fs::write(folder.join("second.json"), second).unwrap();
    let output = run("perf --compare second.json --to first.json", folder);
    harmless("--compare", &output);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("another kernel: \\u001b[31m\\u202eX"), "{said}");
}
