//! The table of axes that combine is true: each pair trains as one process, or is refused.

use crate::support::{Recipe, Run, alone, small, train, with_experts};
use maypole_lab::combine::{AxisChoice, pair, refusal, table};
use maypole_trainer::train::parallelism::Parallelism;

fn pairs() -> impl Iterator<Item = (AxisChoice, AxisChoice)> {
    let all = AxisChoice::ALL.into_iter().enumerate();
    all.flat_map(|(nth, a)| AxisChoice::ALL[nth..].iter().map(move |b| (a, *b)))
}

#[test]
fn every_pair_that_combines_trains_as_one_process() {
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
