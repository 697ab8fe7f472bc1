//! The table of axes that combine is true: each pair trains as one process, or is refused.

use crate::support::{Recipe, Run, alone, mesh, router, small, train, with_experts};
use maypole::Communicator;
use maypole_lab::combine::{AxisChoice, pair, refusal, table};
use maypole_trainer::model::config::Config;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::trainer::Trainer;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn pairs() -> impl Iterator<Item = (AxisChoice, AxisChoice)> {
    let all = AxisChoice::ALL.into_iter().enumerate();
    all.flat_map(|(nth, a)| AxisChoice::ALL[nth..].iter().map(move |b| (a, *b)))
}

#[test]
fn every_pair_that_combines_trains_as_one_process() {
    crate::skip::takes_turns!(4);
    let dense = Recipe { steps: 2, ..small() };
    let sparse = with_experts(dense.clone(), 4);
    let mut references: Vec<(Parallelism, Run<f64>)> = Vec::new();
    for (a, b) in pairs().filter(|(a, b)| refusal(*a, *b).is_none()) {
        let mut task = dense.clone();
        let (setup, form) = pair(a, b, &mut task.config);
        if setup.router.is_some() {
            task = sparse.clone();
        }
        let single = alone(&setup);
        if !references.iter().any(|(setup, _)| *setup == single) {
            references.push((single.clone(), train(&task, &single)));
        }
        let reference = &references.iter().find(|(setup, _)| *setup == single).unwrap().1;
        let averaging = form.diverges().then_some(form);
        let run = train(&Recipe { averaging, ..task }, &setup);
        let (loss, weights) = run.difference(reference);
        let a = a.name();
        let b = b.name();
        assert!(
            loss < 1e-11 && weights < 1e-11 && run.agreed,
            "{a} with {b}: loss {loss:e}, weights {weights:e}"
        );
    }
}

#[test]
fn local_sgd_with_context_parallelism_is_refused() {
    let mut config = small().config;
    for cp in [AxisChoice::Ring, AxisChoice::Ulysses] {
        let (setup, form) = pair(AxisChoice::LocalSgd, cp, &mut config);
        assert!(form.check(&setup).unwrap_err().contains("one model"));
    }
    println!("{}", table());
}

#[test]
fn setups_that_do_not_fit_the_model_are_refused_with_a_reason() {
    let config = small().config;
    let why = |text: &str, change: fn(&mut Parallelism)| {
        let mut setup = crate::support::mesh(text);
        change(&mut setup);
        setup.check(&config, 8).unwrap_err()
    };
    assert!(why("tp=3", |_| ()).contains("whole heads"));
    assert!(
        why("dp=3", |_| ())
            .contains("rows are divided over dp=3, and 8 is no multiple of 3: give --rows 9")
    );
    assert!(why("cp=16", |_| ()).contains("positions are divided"));
    assert!(
        why("cp=8", |setup| setup.exchange =
            maypole_trainer::train::parallelism::ContextExchange::Ulysses)
        .contains("Ulysses")
    );
    assert!(
        why("pp=2", |setup| {
            (setup.schedule, setup.micros) =
                (maypole_trainer::pipeline_parallel::plan::PipelineSchedule::Interleaved(2), 1);
        })
        .contains("groups of 2")
    );
    assert!(
        why("ep=2", |setup| setup.router = Some(crate::support::router(4)))
            .contains("the router has 4 experts")
    );
}

/// The sentence with which a trainer refuses a setup, on all ranks alike: as a panic when it is made,
/// or as an error of its first step on `rows` rows.
fn refused(config: &Config, setup: &Parallelism, rows: usize) -> String {
    let task = Recipe { config: config.clone(), ..small() };
    let text = task.text();
    let said = Communicator::run_local(setup.mesh.world(), |comm| {
        let make = || task.rank::<f64>(comm, setup).unwrap();
        let made = catch_unwind(AssertUnwindSafe(make));
        let step = |mut trainer: Trainer<f64>| trainer.step(&text, rows).unwrap_err().to_string();
        made.map_or_else(|panic| panic.downcast_ref::<String>().unwrap().clone(), step)
    });
    let [first, others] = [&said[..1], &said[1..]].map(|said| {
        said.iter().map(|said| said.trim_start_matches(|c| c != ':').to_owned()).collect::<Vec<_>>()
    });
    assert!(others.iter().all(|said| *said == first[0]), "{said:?}");
    said[0].clone()
}

/// What the command line refuses, the trainer refuses too: it trains on no row twice or never.
#[test]
fn a_trainer_refuses_what_it_cannot_divide() {
    let Config { context, vocab, .. } = small().config;
    let config = |change: fn(&mut Config)| {
        let mut config = small().config;
        change(&mut config);
        config
    };
    let sequence = |text| Parallelism { sequence: true, ..mesh(text) };
    let micros = |text, micros| Parallelism { micros, ..mesh(text) };
    let experts = Parallelism { router: Some(router(3)), ..mesh("ep=2") };
    for (config, setup, rows, why) in [
        (config(|it| it.context = 9), sequence("tp=2"), 1, "9 on a rank of cp are no multiple"),
        // The rank with three rows could divide them, and the one with two could not.
        (config(|it| it.context = 9), sequence("dp=2,tp=2"), 5, "27 on a rank of cp are no"),
        (config(|it| it.heads = 1), mesh("tp=2"), 8, "1 heads are no multiple of tp=2"),
        (config(|it| it.context = 6), mesh("cp=2"), 8, "a context of 6 is no multiple of 4"),
        (config(|it| it.experts = 3), experts, 8, "experts are divided over ep"),
        (config(|it| it.vocab = 3), mesh("tp=4"), 8, "a vocabulary of 3 has fewer than tp=4"),
        (config(|it| it.vocab = 0), mesh(""), 8, "a vocabulary of 0 has fewer than tp=1"),
        (config(|it| it.width = 0), mesh(""), 8, "--width 0"),
        (config(|_| ()), micros("", 4), 10, "10 rows cannot be divided into 4 micro-batches"),
        (config(|_| ()), micros("dp=2", 4), 10, "10 rows cannot be divided into 4 micro-batches"),
        (config(|_| ()), micros("pp=2", 4), 2, "2 rows cannot be divided into 4 micro-batches"),
        (config(|_| ()), micros("", 1), 0, "0 rows cannot be divided"),
        (config(|_| ()), mesh("dp=4"), 3, "3 rows cannot be divided into 1 micro-batches of 4"),
        (config(|_| ()), micros("", 0), 8, "--micros 0"),
    ] {
        let said = refused(&config, &setup, rows);
        assert!(said.contains(why), "{setup:?} on {rows} rows: {said}");
    }
    assert!(context.is_multiple_of(4) && vocab > 4, "what is not changed would fit");
}

/// Replicas with unequal rows train on all of them, and stages without layers forward their input.
#[test]
fn parts_of_unequal_size_and_empty_stages_train_as_one_process() {
    let mut task = Recipe { rows: 10, ..small() };
    task.config.layers = 1;
    for setup in [mesh("dp=4"), Parallelism { micros: 2, ..mesh("dp=3") }, mesh("pp=3")] {
        let reference = train::<f64>(&task, &alone(&setup));
        let follow = |mut trainer: Trainer<f64>| task.follow(&mut trainer, |_, _, _| Ok(()));
        let run = task.on_ranks(&setup, follow);
        for outcome in run.unwrap() {
            let losses = outcome.losses.iter().zip(&reference.outcome.losses);
            assert!(
                losses.clone().all(|(a, b): (&f64, &f64)| (a - b).abs() < 1e-11),
                "{}",
                setup.mesh
            );
        }
    }
}
