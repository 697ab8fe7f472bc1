//! `train` as a user runs it: real processes, files, and errors in a sentence.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs `train` with these words; its calls time out after 60 s.
fn train(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(words).current_dir(folder).env("MAYPOLE_TIMEOUT", "60").env("RUST_BACKTRACE", "0");
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn losses(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with("step "));
    lines
        .map(|line| line.split("loss ").nth(1).unwrap().split(' ').next().unwrap().to_owned())
        .collect()
}

/// The line with the validation loss in what `train` printed.
fn validation_line(text: &str) -> &str {
    text.lines().find(|line| line.starts_with("validation loss ")).expect("every run ends with it")
}

/// Steps and losses of a file of `--losses`.
fn recorded(path: &Path) -> Vec<(u64, f64)> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.map(|line| (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap())).collect()
}

const SETTINGS: &str = "\
width = 32
layers = 2
context = 16
rows = 8
rate = 0.002
shape = \"constant\"
warm-up = 0
deterministic = true
sample = 20
";

#[test]
fn threads_processes_and_a_resumed_run_on_another_mesh_print_the_same_losses() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("run.toml"), SETTINGS).unwrap();
    let base = ["run", "--config", "run.toml", "--mesh", "dp=2"];
    let run = |more: &[&str]| {
        let output = train(folder, &[&base[..], more].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    let threads = run(&["--steps", "6", "--losses", "threads.jsonl"]);
    assert_eq!(losses(&threads).len(), 6, "{threads}");
    assert!(threads.contains("mesh dp=2: 2 ranks") && threads.contains("KING."), "{threads}");
    let processes = run(&["--steps", "6", "--processes", "--sharding", "zero1"]);
    assert_eq!(losses(&processes), losses(&threads));
    assert_eq!(validation_line(&processes), validation_line(&threads));

    let save = ["--save", "saved", "--losses", "resumed.jsonl"];
    let first = run(&[&["--steps", "3", "--sharding", "fsdp"], &save[..]].concat());
    let second =
        run(&[&["--steps", "6", "--sharding", "zero2", "--processes"], &save[..]].concat());
    assert!(second.contains("from saved/step-00000003"), "{second}");
    assert_eq!([losses(&first), losses(&second)].concat(), losses(&threads));
    assert_eq!(validation_line(&second), validation_line(&threads));
    let resumed = recorded(&folder.join("resumed.jsonl"));
    let whole = recorded(&folder.join("threads.jsonl"));
    assert_eq!(whole.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(resumed, whole);
}

/// Both stages of a pipeline report their waits for one another: the last one too, which waits after
/// its last pass.
#[test]
fn idle_stages_are_a_bubble_and_not_communication() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let words = "run --mesh pp=2 --pipeline gpipe --micros 2 --steps 4 --sample 0";
    let output = train(folder.path(), &words.split(' ').collect::<Vec<_>>());
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let percent = |line: &str, what: &str| -> Option<f64> {
        line.split_once(what)?.1.split_whitespace().next()?.parse().ok()
    };
    let ranks: Vec<&str> =
        text.lines().filter(|line| line.starts_with("rank ") && !line.contains("in all")).collect();
    assert_eq!(ranks.len(), 2, "{text}");
    let cores = std::thread::available_parallelism().unwrap().get();
    for line in ranks {
        let what = if cores < 2 { "waiting for other stages " } else { "bubble " };
        let idle = percent(line, what).unwrap();
        let exposed = percent(line, "exposed communication ").unwrap();
        // A third by the formula; other processes may use the cores meanwhile.
        assert!(idle > 5.0 && idle > exposed, "{line}");
        assert_eq!(line.contains("time-shared"), cores < 2, "{line}");
    }
}

#[test]
fn experts_move_while_a_model_trains() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.toml"), SETTINGS).unwrap();
    let base = ["run", "--config", "run.toml", "--experts", "8", "--mesh", "ep=2"];
    let run = |more: &[&str]| {
        let output = train(folder.path(), &[&base[..], more].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    let stay = run(&["--steps", "6"]);
    let moving = run(&["--steps", "6", "--rebalance", "2", "--processes"]);
    assert_eq!(losses(&moving), losses(&stay));
    assert_eq!(validation_line(&moving), validation_line(&stay));
    assert_eq!(stay.lines().filter(|line| line.starts_with("expert ")).count(), 8, "{stay}");
    // A run that resumes from a step at which experts moved has the losses of an unbroken run.
    for (steps, folder, losses) in
        [("6", "whole", "whole"), ("4", "parts", "parts"), ("6", "parts", "parts")]
    {
        let losses = format!("{losses}.jsonl");
        run(&["--rebalance", "2", "--steps", steps, "--save", folder, "--losses", &losses]);
    }
    assert_eq!(
        recorded(&folder.path().join("parts.jsonl")),
        recorded(&folder.path().join("whole.jsonl"))
    );
    let told: Vec<&str> = moving
        .lines()
        .filter(|line| line.contains("rows of the busiest rank over the mean"))
        .collect();
    assert!(told.len() == 3 && told[0].starts_with("after step 2: "), "{moving}");
    assert!(told.iter().any(|line| line.contains("->")), "some experts move: {told:?}");
}

#[test]
fn unequal_ranks_train_with_the_losses_of_equal_ones() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.toml"), SETTINGS).unwrap();
    let run = |more: &[&str]| {
        let base = ["run", "--config", "run.toml", "--steps", "6"];
        let output = train(folder.path(), &[&base[..], more].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    let one = run(&[]);
    let rows = run(&["--mesh", "dp=2", "--rows-by-speed", "2:1,3", "--processes"]);
    assert_eq!(losses(&rows), losses(&one));
    assert!(rows.contains("after step 2: rows by speed: 4 4 -> 6 2"), "{rows}");
    assert_eq!(rows.matches("rows by speed").count(), 1, "once is enough: {rows}");
    let layers = run(&["--mesh", "pp=2", "--stages", "measured", "--layers", "4", "--micros", "4"]);
    assert!(layers.contains("layers of each stage, by what they cost: "), "{layers}");
    assert_eq!(losses(&layers), losses(&run(&["--layers", "4"])));
    // With measured times any division may follow, and the losses are the same.
    let clock = ["--mesh", "dp=2", "--rows-by-speed", "1", "--deterministic", "false"];
    assert_eq!(losses(&run(&clock)), losses(&one));
}

#[test]
fn the_tours_rows_are_one_json_array() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let output = train(folder.path(), &["tour", "--only", "ZeRO-2", "--json", "rows.json"]);
    assert!(
        output.status.success() && said(&output).contains("2 of 2 agree with one process"),
        "{}",
        said(&output)
    );
    let text = fs::read_to_string(folder.path().join("rows.json")).unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(
        rows.iter().map(|row| row["axis"].as_str().unwrap()).collect::<Vec<_>>(),
        ["ZeRO-2", "ZeRO-2, micro-batches"]
    );
    assert!(text.starts_with("[\n{\"axis\":\"ZeRO-2\",\"mesh\":\"dp=2\",\"ranks\":2,"), "{text}");
}

#[test]
fn a_run_that_was_killed_records_each_step_once_and_draws_all_of_them() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("run.toml"), SETTINGS).unwrap();
    let run = |losses: &str, more: &[&str]| {
        let output = train(
            folder,
            &[&["run", "--config", "run.toml", "--losses", losses][..], more].concat(),
        );
        assert!(output.status.success(), "{}", said(&output));
    };
    let file = folder.join("parts.jsonl");
    run("whole.jsonl", &["--steps", "6"]);
    run("parts.jsonl", &["--steps", "3", "--save", "saved"]);
    let three = fs::read_to_string(&file).unwrap();
    run("parts.jsonl", &["--steps", "5", "--save", "saved", "--save-every", "1000"]);
    // The files after a kill in the middle of step 6, when the last checkpoint is that of step 3.
    fs::remove_dir_all(folder.join("saved/step-00000005")).unwrap();
    let killed = fs::read_to_string(&file).unwrap() + "{\"step\":6,\"lo";
    assert!(killed.starts_with(&three) && killed.lines().count() == 6);
    fs::write(&file, killed).unwrap();
    run("parts.jsonl", &["--steps", "6", "--save", "saved"]);
    assert_eq!(recorded(&file), recorded(&folder.join("whole.jsonl")));
    let left = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.contains("partial")).count(), 0);
}

#[test]
fn a_loss_that_is_no_number_fails_and_skipped_steps_are_counted() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.toml"), SETTINGS).unwrap();
    let run = |more: &[&str]| {
        let base = ["run", "--config", "run.toml", "--sample", "0", "--steps", "4"];
        let output = train(folder.path(), &[&base[..], more].concat());
        (output.status.success(), said(&output))
    };
    let (good, text) = run(&["--precision", "f16"]);
    assert!(good && text.contains("0 of 4 steps had a gradient that was not finite"), "{text}");
    let (good, text) = run(&["--precision", "f16", "--rate", "1000"]);
    assert!(!good && text.contains("3 of 4 steps had a gradient that was not finite"), "{text}");
    assert!(
        text.contains(
            "the loss of step 4 is not a number: try a --rate below 1000.0, --precision f32"
        ),
        "{text}"
    );
    let (good, text) =
        run(&["--rate", "1e30", "--optimizer", "sgd", "--clip", "0", "--save", "saved"]);
    assert!(!good && text.contains("is not a number: try a --rate below 1e30, --clip 1"), "{text}");
    assert!(
        fs::read_dir(folder.path().join("saved")).unwrap().next().is_none(),
        "weights that are no numbers are not saved"
    );
}

/// AdamW with an absurd rate makes weights that no gradient is finite with: all steps after that are
/// skipped, and the run ends. The checkpoint that is kept has finite numbers.
#[test]
fn steps_that_are_skipped_in_a_row_end_a_run_and_replace_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.toml"), SETTINGS).unwrap();
    let run = |more: &[&str]| {
        let base =
            ["run", "--config", "run.toml", "--sample", "0", "--steps", "9", "--save", "saved"];
        let absurd = ["--rate", "1e18", "--shape", "constant", "--save-every", "1", "--keep", "1"];
        let output = train(folder.path(), &[&base[..], &absurd, more].concat());
        (output.status.success(), said(&output))
    };
    let (good, text) = run(&["--max-skipped", "3"]);
    assert!(!good && text.contains("not finite in 3 steps in a row, up to step "), "{text}");
    assert!(text.contains(": try a --rate below 1e18"), "{text}");
    assert_eq!(text.matches("its gradient is not finite, and no weight was updated").count(), 2);
    let places = fs::read_dir(folder.path().join("saved")).unwrap();
    let places: Vec<_> = places.map(|place| place.unwrap().path()).collect();
    assert_eq!(places.len(), 1, "{places:?}");
    let bytes = fs::read(places[0].join("rank-000.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (name, tensor) in tensors.tensors() {
        let numbers = tensor.data().as_chunks::<4>().0.iter();
        assert!(numbers.map(|bytes| f32::from_le_bytes(*bytes)).all(f32::is_finite), "{name}");
    }
    let (good, text) = run(&["--max-skipped", "0"]);
    assert!(!good && text.contains("--max-skipped needs a positive number"), "{text}");
}

#[test]
fn a_rank_that_fails_ends_all() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("saved")).unwrap();
    fs::write(folder.path().join("saved/step-00000002.partial"), "").unwrap();
    let start = Instant::now();
    // What is to be a folder is a file: rank 0 cannot write, and the others must not wait for it.
    let words = [
        "run",
        "--processes",
        "--mesh",
        "dp=2",
        "--width",
        "32",
        "--steps",
        "2",
        "--save",
        "saved",
    ];
    let output = train(folder.path(), &words);
    let text = said(&output);
    let cause = "Not a directory";
    assert!(!output.status.success() && text.contains("saved/step-00000002.partial"), "{text}");
    assert_eq!(text.matches(cause).count(), 1, "a cause is said once: {text}");
    assert!(start.elapsed() < Duration::from_secs(45));
}

#[test]
fn a_sample_follows_the_prompt_or_a_line_of_the_held_out_text() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let lines: String =
        (0..3000).map(|nth| format!("the ship leaves port {}\n", nth % 7)).collect();
    fs::write(folder.path().join("ships.txt"), &lines).unwrap();
    let sizes = ["run", "--data", "ships.txt", "--steps", "1", "--width", "16", "--sample", "5"];
    let sample = |more: &[&str]| {
        let output = train(folder.path(), &[&sizes[..], more].concat());
        let text = said(&output);
        assert!(output.status.success(), "{text}");
        text.rsplit_once("\n\n").expect("the sample comes last").1.to_owned()
    };
    let own = sample(&[]);
    assert!(own.starts_with("the ship leaves port ") && lines.contains(&own[..22]), "{own:?}");
    let given = sample(&["--prompt", "Ahoy, "]);
    assert!(given.starts_with("Ahoy, "), "{given:?}");
    for (words, why) in [(["", "5"], "--prompt is empty"), (["x", "0"], "--sample 0 writes none")] {
        let [prompt, count] = words;
        let output = train(folder.path(), &["run", "--prompt", prompt, "--sample", count]);
        assert!(!output.status.success() && said(&output).contains(why), "{}", said(&output));
    }
}
