//! `train` refuses impossible options before it begins to work, with an error that names the
//! option and a valid alternative.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn train(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(words).current_dir(folder).env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "0");
    command.output().unwrap()
}

/// Runs `command` with the words of each case. It must fail with an error that contains the case's
/// second text, and neither panic nor print anything else.
fn refused(folder: &Path, command: &str, cases: &[(&str, &str)]) {
    for (words, part) in cases {
        let words: Vec<&str> = [command].into_iter().chain(words.split_whitespace()).collect();
        let output = train(folder, &words);
        let out = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(part), "{words:?}: {out}{error}");
        assert!(out.is_empty() && error.lines().count() <= 6, "{words:?}: {out}{error}");
    }
}

#[test]
fn impossible_sizes_and_numbers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.toml"), "widht = 3\n").unwrap();
    fs::write(folder.path().join("zero.toml"), "width = 0\n").unwrap();
    fs::write(folder.path().join("short.txt"), "To be, or not to be. ".repeat(20)).unwrap();
    refused(
        folder.path(),
        "run",
        &[
            ("--width 0", "--width 0: a model has at least 1"),
            ("--config zero.toml", "--width 0: a model has at least 1"),
            ("--config bad.toml", "widht"),
            ("--context 0", "--context 0"),
            ("--heads 0", "--heads 0"),
            ("--rows 0", "--rows needs a positive number"),
            ("--micros 0", "--micros needs a positive number"),
            ("--save-every 0 --save saved", "--save-every needs a positive number"),
            ("--rebalance 0", "--rebalance needs a positive number"),
            ("--heads 5", "5 heads do not divide a width of 128: give --width 130 or --heads 4"),
            ("--width 18446744073709551615 --heads 3", "is the most: give less"),
            ("--experts 100000000000", "is the most: give less"),
            ("--rows 99999999999", "too many for a step"),
            ("--mesh dp=4294967296,ep=4294967296", "has too many ranks"),
            ("--pipeline interleaved:99999999999", "--pipeline interleaved:99999999999 makes"),
            ("--bucket 99999999999999999", "--bucket 99999999999999999"),
            ("--bpe 100", "bytes alone are 256 tokens"),
            ("--capacity=-1 --experts 4", "--capacity -1 is no share"),
            ("--capacity nan --experts 4", "--capacity NaN is no share"),
            ("--rate nan", "--rate NaN: give a number from 0 on"),
            ("--clip=-1", "--clip -1: give a number from 0 on"),
            (
                "--experts 1",
                "each token goes to 2 experts, and there is 1: give --experts 2 or more",
            ),
            ("--data nowhere", "cannot read nowhere"),
            ("--model lama", "'lama' is no model; there are gpt, llama"),
            ("--model llama --kv-heads 0", "--kv-heads 0: as many queries use each head"),
            ("--model llama --kv-heads 3", "4 heads are no multiple of it: give --kv-heads 2"),
            ("--model llama --experts 4", "leave out --experts, or give --model gpt"),
            ("--model llama --width 12", "a head of 3 has an odd number of them"),
            ("--model llama --mesh tp=4", "give --kv-heads 4, or tp=2 in --mesh"),
            ("--temperature=-1", "--temperature -1: give a number from 0 on"),
            (
                "--data short.txt",
                "rows of 64 do not fit in its last tenth: give --context 41 or less, or a longer text",
            ),
        ],
    );
    refused(
        folder.path(),
        "bench",
        &[
            ("--width 0", "--width 0"),
            ("--width 30", "4 heads do not divide a width of 30: give --width 32 or --heads 3"),
            ("--rows 0", "--rows 0"),
            ("--context 0", "--context 0"),
            ("--steps 0", "--steps 0: there is nothing to measure"),
        ],
    );
    refused(
        folder.path(),
        "tour",
        &[(
            "--only nothing",
            "no row has this text in its name; the rows are data, sums overlapped; ",
        )],
    );
}

#[test]
fn choices_that_do_not_go_together_are_refused() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    refused(
        folder.path(),
        "run",
        &[
            ("--mesh xp=2", "'xp' is no axis"),
            (
                "--sharding zero9",
                "'zero9' is no sharding; there are replicated, zero1, zero2, fsdp",
            ),
            ("--sharding local:2 --precision bf16", "train in f32, or with another sharding"),
            ("--sharding local:4 --save saved", "a checkpoint has one state"),
            ("--rows-by-speed 5", "the mesh has one rank of them: see --mesh"),
            ("--rows-by-speed 0 --mesh dp=2", "'0' is no division of rows"),
            ("--rows-by-speed 5 --mesh dp=2 --deterministic", "leave out one of them"),
            ("--rows-by-speed 5:1,2 --mesh dp=4", "the speed of 2 ranks, and rows are divided"),
            ("--rows-by-speed 5 --mesh dp=2 --sharding local:4", "give another --sharding"),
            ("--stages 4", "--stages divides layers over pp, and the mesh has one rank"),
            ("--stages 3,2 --mesh pp=2", "give 2 positive numbers whose sum is 4"),
            ("--stages measured --mesh pp=2 --pipeline interleaved:2", "give --pipeline 1f1b"),
            ("--stages measured --mesh pp=2 --experts 4", "times layers without experts"),
            (
                "--mesh dp=2 --fault own-rows-mean",
                "it needs --rows-by-speed, with a rank that is slower",
            ),
            (
                "--mesh dp=3",
                "rows are divided over dp=3, and 16 is no multiple of 3: give --rows 18",
            ),
            (
                "--mesh pp=3 --rows 8",
                "6 micro-batches of pp=3, and 8 is no multiple of 6: give --rows 12 or --micros 4",
            ),
            (
                "--mesh cp=64 --context 32",
                "in 128 pieces, and a context of 32 is no multiple of 128: give --context 128 or cp=16",
            ),
            (
                "--mesh tp=3",
                "4 heads are no multiple of tp=3: give a multiple of 3 as --heads, or tp=2",
            ),
            (
                "--mesh cp=8 --exchange ulysses",
                "no multiple of cp=8: give --exchange ring, or cp=4",
            ),
            ("--mesh tp=2 --sequence --context 5 --rows 1", "tp=2: give --context 6"),
            ("--mesh ep=3 --experts 4 --rows 18", "no multiple of ep=3: give --experts 6 or ep=2"),
            ("--mesh cp=2 --context 24 --experts 4", "not cut into groups of 8: give --group 6"),
            ("--group 8 --context 12 --experts 4", "not cut into groups of 8: give --group 6"),
            (
                "--mesh pp=2 --pipeline interleaved:2 --micros 1",
                "as interleaved:2 needs: give --micros 2",
            ),
        ],
    );
    // The values that the sentences suggest are accepted.
    for words in [
        "--mesh pp=3 --rows 8 --micros 4 --context 12",
        "--mesh cp=2 --context 24 --experts 4 --group 6",
        "--context 12 --experts 4",
        "--mesh tp=2 --sequence --context 6 --rows 1",
    ] {
        let small = "run --steps 1 --sample 0 --width 16 --layers 3";
        let output =
            train(folder.path(), &small.split(' ').chain(words.split(' ')).collect::<Vec<_>>());
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn options_that_would_change_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sequence.toml"), "sequence = true\n").unwrap();
    refused(
        folder.path(),
        "run",
        &[
            ("--sequence", "--sequence divides tokens over the ranks of tp, and the mesh has one"),
            (
                "--config sequence.toml",
                "--sequence divides tokens over the ranks of tp, and the mesh has one",
            ),
            ("--exchange ring", "the ranks of cp exchange, and the mesh has one: see --mesh"),
            ("--division zig-zag", "--division divides positions over cp"),
            ("--capacity 1.5", "--capacity needs experts, and the model has none"),
            ("--group 4", "the model has none: see --experts"),
            ("--kv-heads 2", "leave it out, or give --model llama"),
            ("--temperature 0 --sample 0", "--sample 0 writes none"),
            (
                "--model llama --sequence --mesh tp=2 --rows 1 --fault positions-of-first",
                "it needs --model gpt, --sequence",
            ),
            ("--rebalance 5 --mesh ep=2", "the model has none: see --experts"),
            ("--rebalance 5 --experts 4", "the mesh has one: see --mesh"),
            ("--mesh ep=2", "ep divides experts, and the model has none"),
            ("--bucket 100 --sharding zero1 --mesh dp=2", "--bucket needs replicated gradients"),
            ("--save-every 5", "--save-every needs --save"),
            ("--shape constant --warm-up 5", "--shape constant keeps"),
            (
                "--fault local-mean",
                "--fault local-mean would change nothing: it needs a --mesh with ranks along dp",
            ),
            ("--fault gradients-alone --mesh tp=2", "a --mesh with ranks along dp or cp"),
            ("--fault norms-not-summed --mesh tp=2", "it needs --sequence"),
            ("--fault vocabulary-remainder --mesh tp=2", "that do not divide the vocabulary"),
            ("--fault micros-swapped --micros 2", "ranks along pp"),
            ("--fault activations-stacked --micros 2", "--pipeline gpipe"),
            ("--fault not-combined", "it needs --experts"),
            ("--fault router-left-behind --experts 4 --mesh ep=2", "it needs --rebalance"),
            ("--fault plain-positions --mesh cp=2 --division contiguous", "--division zig-zag"),
            ("--fault heads-swapped --mesh cp=2", "--exchange ulysses"),
        ],
    );
}

#[test]
fn paths_that_cannot_be_written_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    refused(
        folder.path(),
        "run",
        &[
            ("--losses no/where", "--losses: cannot write no/where: No such file or directory"),
            ("--save file/below", "--save: cannot write file/below: Not a directory"),
            (
                "--save file/below --processes --mesh dp=2",
                "--save: cannot write file/below: Not a directory",
            ),
        ],
    );
    refused(
        folder.path(),
        "tour",
        &[("--json no/where.json", "--json: cannot write no/where.json: No such file")],
    );
    refused(
        folder.path(),
        "plan",
        &[("--svg file/below", "--svg: cannot write file/below: Not a directory")],
    );
}

#[test]
fn other_launchers_and_checkpoints_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let launched = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        command
            .args(words)
            .env("MAYPOLE_RANK", "1")
            .env("MAYPOLE_WORLD", "2")
            .env("MAYPOLE_ADDRESS", "127.0.0.1");
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    for what in ["tour", "bench"] {
        let error = launched(&[what]);
        assert!(
            error.contains("a launcher started it 2 times: run it without a launcher"),
            "{error}"
        );
    }
    let error = launched(&["run", "--mesh", "dp=4"]);
    let give =
        "4 ranks, but 2 were started: start 4 (maypole run -n 4), or give a --mesh of 2, as dp=2";
    assert!(error.contains(give), "{error}");
    let small = [
        "run",
        "--steps",
        "1",
        "--sample",
        "0",
        "--context",
        "8",
        "--rows",
        "2",
        "--save",
        "saved",
    ];
    let run = |words: &[&str]| train(folder.path(), &[&small[..], words].concat());
    assert!(run(&["--width", "16", "--layers", "1"]).status.success());
    let other = run(&["--width", "32", "--layers", "1"]);
    let error = String::from_utf8(other.stderr).unwrap();
    let differ = [
        "blocks of width 16",
        "and this run 1 blocks of width 32",
        "give it the same, or a folder of its own",
    ];
    assert!(!other.status.success() && differ.iter().all(|part| error.contains(part)), "{error}");
    let exported = train(folder.path(), &["export", "saved", "no/where"]);
    let error = String::from_utf8(exported.stderr).unwrap();
    assert!(
        !exported.status.success() && error.contains("export: cannot write no/where: No such file"),
        "{error}"
    );
}

#[test]
fn counts_that_take_all_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = [
        ("--ranks 0", "at least one rank"),
        ("--ranks 99999999999", "at most 262144 ranks times micro-batches"),
        ("--ranks 4 --micros 18446744073709551615", "at most 262144 ranks times micro-batches"),
    ];
    refused(folder.path(), "plan", &plan);
    refused(folder.path(), "search", &[("--ranks 1000000", "from 1 to 1024 ranks")]);
}

#[test]
fn a_planted_mistake_is_told_with_the_way_to_find_it() {
    let folder = tempfile::tempdir().unwrap();
    let line = "run --steps 1 --sample 0 --layers 1 --width 8 --heads 2 --context 8 --rows 2 \
                --mesh tp=2 --sequence --fault norms-not-summed";
    let output = train(folder.path(), &line.split_whitespace().collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the mistake norms-not-summed is planted in this run"), "{said}");
    assert!(said.contains("--against one finds it"), "{said}");
}
