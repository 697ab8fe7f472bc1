//! The search: the same winner on any number of ranks, also after failures of single trials.

#[path = "../../../../tests/common/skip.rs"]
mod skip;

use maypole::Communicator;
use maypole_search::run::{JOURNAL, SearchError, SearchJob, SearchJournal, search};
use maypole_search::space::{SearchSpace, SettingRange};
use maypole_search::table::{rows, text};
use maypole_search::trial::{TrialFate, TrialTexts};
use maypole_trainer::train::schedule::RateShape;
use maypole_trainer::train::text::Text;
use maypole_trainer_gpu::choice::DeviceChoice;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Eight trials of a tiny model: 8, then 4, then 2 train on 512, 1,024 and 2,048 tokens.
fn small() -> SearchSpace {
    SearchSpace {
        trials: 8,
        tokens: 2048,
        first_tokens: 512,
        keep: 2,
        seed: 3,
        layers: 1,
        heads: 2,
        context: 16,
        rate: SettingRange::Between { from: 1e-3, to: 1e-1 },
        width: vec![16, 32],
        rows: vec![4, 8],
        shape: vec![RateShape::Cosine, RateShape::Constant, RateShape::Linear],
        ..SearchSpace::default()
    }
}

fn on(
    ranks: usize,
    space: &SearchSpace,
    folder: Option<&Path>,
    before: &(dyn Fn(usize, u64) + Sync),
    say: &(dyn Fn(&str) + Sync),
) -> Vec<Result<SearchJournal, SearchError>> {
    let (text, held_out) = Text::invented(space.context, space.seed).divided().unwrap();
    let texts = TrialTexts { text: &text, held_out: &held_out, vocab: 256, before };
    let device = DeviceChoice::Cpu;
    let job = SearchJob { space, texts, folder, device, say };
    Communicator::run_local(ranks, |comm| search(comm, job))
}

fn plain(ranks: usize, space: &SearchSpace) -> SearchJournal {
    let mut all = on(ranks, space, None, &|_, _| (), &|_| ());
    let journal = all.remove(0).unwrap();
    for other in all {
        assert_eq!(other.unwrap(), journal, "every rank has the same journal");
    }
    journal
}

/// Trials move between groups from rung to rung. A trial that lost its averages, its schedule or its
/// step on the way would give another loss.
#[test]
fn the_same_trial_wins_on_any_number_of_ranks() {
    crate::skip::takes_turns!(4);
    let space = small();
    let one = plain(1, &space);
    let trials: Vec<usize> = one.rungs.iter().map(|rung| rung.outcomes.len()).collect();
    assert_eq!(trials, [8, 4, 2]);
    for ranks in [2, 3, 4] {
        assert_eq!(plain(ranks, &space), one, "{ranks} ranks");
    }
    let (winner, loss) = one.winner().unwrap();
    let first = one.rungs[0].outcomes.iter().filter_map(|(_, outcome)| outcome.loss);
    assert!(loss < first.fold(f64::INFINITY, f64::min), "it went on learning: trial {winner}");
}

#[test]
fn groups_of_several_ranks_train_one_trial_together() {
    let space = SearchSpace { ranks_per_trial: 2, ..small() };
    let found = plain(4, &space);
    assert_eq!(found.rungs.len(), 3);
    // Sums in another order differ in their last bits.
    let alone = plain(2, &SearchSpace { ranks_per_trial: 1, ..small() });
    let (one, other) = (alone.winner().unwrap(), found.winner().unwrap());
    assert!((one.1 / other.1 - 1.0).abs() < 1e-3, "{one:?} {other:?}");
    let wrong = on(3, &space, None, &|_, _| (), &|_| ());
    assert!(wrong.iter().all(|it| matches!(it, Err(SearchError::Groups { world: 3, each: 2 }))));
}

/// Two ranks train each trial. Both call `before` at the same time, and it fails on one of them.
#[test]
fn a_trial_that_crashes_on_one_of_its_ranks_is_a_row() {
    let space = SearchSpace { ranks_per_trial: 2, ..small() };
    let calls = AtomicU64::new(0);
    let crash = |trial: usize, step: u64| {
        let is_second = (trial, step) == (1, 2) && calls.fetch_add(1, Ordering::Relaxed) == 1;
        assert!(!is_second, "a disk was full");
    };
    for journal in on(4, &space, None, &crash, &|_| ()) {
        let journal = journal.unwrap();
        let (_, outcome) = &journal.rungs[0].outcomes[1];
        assert_eq!(outcome.fate, TrialFate::Crashed("a disk was full".to_owned()));
        assert_eq!(outcome.steps, 2);
        assert_eq!(journal.rungs.len(), 3, "the others go on");
    }
}

#[test]
fn a_trial_that_diverges_crashes_or_makes_no_model_is_a_row() {
    let space =
        SearchSpace { rate: SettingRange::OneOf(vec![1e-2, 1e4]), width: vec![16, 15], ..small() };
    let crash = |trial: usize, step: u64| {
        assert!(trial != 5 || step < 3, "a disk was full");
    };
    // Two heads do not divide a width of 15. The seed must let trial 5 train until it crashes, and
    // trial 0 train to the end.
    let trains = |space: &SearchSpace, trial: usize| {
        let settings = space.settings(trial);
        settings.width == 16 && settings.rate < 1.0
    };
    let seeds = (0..100).map(|seed| SearchSpace { seed, ..space.clone() });
    let mut fitting = seeds.filter(|space| trains(space, 5) && trains(space, 0));
    let space = fitting.next().unwrap();
    let journals =
        [1, 2, 4].map(|ranks| on(ranks, &space, None, &crash, &|_| ()).remove(0).unwrap());
    assert_eq!(journals[0], journals[1]);
    assert_eq!(journals[0], journals[2]);
    let journal = &journals[0];
    assert_eq!(rows(journal).len(), space.trials);
    for (trial, outcome) in &journal.rungs[0].outcomes {
        let settings = space.settings(*trial);
        match &outcome.fate {
            TrialFate::Refused(why) => {
                assert!(settings.width == 15 && why.contains("2 heads"), "{why}");
            }
            TrialFate::Crashed(why) => {
                assert!(*trial == 5 && outcome.steps == 3 && why.contains("a disk was full"));
            }
            TrialFate::Diverged => assert!(settings.rate > 1.0, "{trial}"),
            TrialFate::Trained => assert!(*trial != 5 && settings.rate < 1.0, "{trial}"),
        }
        assert_eq!(outcome.loss.is_some(), outcome.fate == TrialFate::Trained);
    }
    let shown = text(journal);
    for part in ["diverged at step", "crashed at step 3: a disk was full", "refused: 2 heads"] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn a_search_that_was_stopped_goes_on_after_the_last_finished_rung() {
    crate::skip::takes_turns!(4);
    let space = small();
    let whole = plain(2, &space);
    let folder = tempfile::tempdir().unwrap();
    // It is stopped when the second rung has been trained, before that is written.
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        on(1, &space, Some(folder.path()), &|_, _| (), &|said| {
            assert!(!said.starts_with("4 trials"), "stopped");
        })
    }));
    assert!(stopped.is_err());
    let kept = fs::read_to_string(folder.path().join(JOURNAL)).unwrap();
    let kept: SearchJournal = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept.rungs, whole.rungs[..1]);
    for ranks in [3, 2] {
        let steps = AtomicU64::new(0);
        let count = |_, _| {
            steps.fetch_add(1, Ordering::Relaxed);
        };
        let again = on(ranks, &space, Some(folder.path()), &count, &|_| ()).remove(0).unwrap();
        assert_eq!(again, whole);
        let trained: u64 = whole.rungs[0].outcomes.iter().map(|(_, outcome)| outcome.steps).sum();
        let rest = steps.into_inner();
        // The second time there is nothing left to do.
        assert!(if ranks == 3 { rest > 0 && rest < 2 * trained } else { rest == 0 }, "{rest}");
    }
    // One trial is left on disk, and the journal.
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 2);
    let other = SearchSpace { layers: 2, ..space };
    let refused = on(1, &other, Some(folder.path()), &|_, _| (), &|_| ()).remove(0);
    assert!(matches!(refused, Err(SearchError::Other { what: "space", .. })));
}

#[test]
fn settings_depend_on_the_seed_and_the_trial_alone() {
    let space = small();
    let more = SearchSpace { rows: vec![4, 8, 16], trials: 100, ..space.clone() };
    for trial in 0..8 {
        let [a, b] = [&space, &more].map(|space| space.settings(trial));
        assert_eq!((a.rate, a.width, a.shape), (b.rate, b.width, b.shape));
        assert!((1e-3..1e-1).contains(&a.rate));
    }
    let rates: Vec<f64> = (0..100).map(|trial| more.settings(trial).rate).collect();
    // Half of the rates are below the middle of their logarithms.
    let low = rates.iter().filter(|rate| **rate < 1e-2).count();
    assert!((35..=65).contains(&low), "{low}");
    assert_eq!(more.rungs(), [512, 1024, 2048]);
    assert_eq!(SearchSpace { keep: 3, ..more }.rungs(), [512, 1536, 2048]);
}

#[test]
fn impossible_spaces_are_named() {
    for (text, part) in [
        ("trials = 0", "trials = 0"),
        ("keep = 1", "keep = 1"),
        ("ranks-per-trial = 0", "needs a rank"),
        ("first-tokens = 0", "first-tokens = 0"),
        ("tokens = 10", "first-tokens = 16384 and tokens = 10"),
        ("rate = { from = 0.0, to = 1.0 }", "rate: give numbers"),
        ("rate = { from = 1.0, to = nan }", "rate: give numbers"),
        ("rate = []", "rate: give numbers"),
        ("warm-up = [-0.1]", "warm-up: give numbers"),
        ("width = []", "width: give at least one"),
        ("rows = [0]", "rows: give at least one"),
        ("shape = [\"square\"]", "square"),
        ("depth = 3", "depth"),
    ] {
        let why = SearchSpace::parse(text).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }
    let long = "#".repeat(1 << 20);
    assert!(SearchSpace::parse(&long).unwrap_err().contains("at most 64 KiB"));
}
