//! Every mistake of the list is made, and the comparison with one process notices.

mod support;

use maypole_trainer::fault::Fault;
use maypole_trainer::optim::Rule;
use maypole_trainer::pp_plan::Schedule;
use maypole_trainer::setup::{Exchange, Setup};
use support::{Task, caught, mesh, router};

/// With a root that is kept away from zero, so that rounding in a gradient of nearly zero is not a whole step.
const ADAMW: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-4, decay: 0.1 };

/// A setup in which the fault does something: without that a test of it would show nothing.
fn habitat(fault: Fault) -> (Task, Setup) {
    let (task, pp) = (Task::small(), Setup { micros: 4, ..mesh("pp=2") });
    let even = || {
        let mut task = Task::small();
        task.config.vocab = 124;
        task
    };
    let experts = |text: &str| (Task::small().with_experts(4), Setup { router: Some(router(4)), ..mesh(text) });
    match fault {
        Fault::LocalMean | Fault::GradientsAlone | Fault::GradientsAveraged => (task, mesh("dp=2")),
        // Where ranks of tp have other lengths the library itself refuses.
        Fault::GradientsOverTensor => (even(), mesh("dp=2,tp=2")),
        Fault::NoSumAfterRow | Fault::NoSumBeforeColumn => (task, mesh("tp=2")),
        Fault::NormsNotSummed => (task, Setup { sequence: true, ..mesh("tp=2") }),
        Fault::VocabularyRemainder | Fault::VocabularyMaximum => (task, mesh("tp=2")),
        Fault::MicrosSwapped => (task, pp),
        Fault::ActivationsStacked => (task, Setup { schedule: Schedule::GPipe, ..pp }),
        Fault::ExpertsSummed | Fault::NotCombined | Fault::GatesForgotten | Fault::LocalBalance => experts("ep=2"),
        Fault::RouterLeftBehind | Fault::MomentsLeftBehind => {
            let (task, setup) = experts("ep=2");
            (Task { rebalance: Some(1), rule: ADAMW, rate: 0.01, ..task }, setup)
        }
        Fault::NotRescaled | Fault::NotSentHome | Fault::MaskOfFirst | Fault::PlainPositions => (task, mesh("cp=2")),
        Fault::HeadsSwapped => (task, Setup { exchange: Exchange::Ulysses, ..mesh("cp=2") }),
    }
}

#[test]
fn every_mistake_is_noticed() {
    let missed: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| {
            let (task, setup) = habitat(*fault);
            !caught(&task, &setup, *fault)
        })
        .collect();
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}

#[test]
fn without_a_mistake_nothing_is_noticed() {
    for fault in Fault::ALL {
        let (task, setup) = habitat(fault);
        assert!(!support::differs(&task, &setup, None), "{}: where {fault:?} lives", setup.mesh);
    }
}

/// A trainer that is watched by its loss alone would not have noticed most of them.
#[test]
fn the_loss_falls_in_spite_of_most_mistakes() {
    let falls = |fault: &Fault| {
        let (task, setup) = habitat(*fault);
        let task = Task { steps: 12, ..task };
        let run = support::train::<f64>(&task, &Setup { fault: Some(*fault), ..setup });
        run.losses.last() < run.losses.first()
    };
    let silent: Vec<Fault> = Fault::ALL.into_iter().filter(falls).collect();
    assert!(silent.len() * 3 > Fault::ALL.len() * 2, "only {silent:?}");
}
