//! The comparison of a run with one process, step by step, names the tensor that a mistake makes
//! wrong, and finds no difference without a mistake.

use crate::listed::setup_with_effect;
use crate::support::{Recipe, SEED};
use maypole::Communicator;
use maypole_lab::against::{OneProcess, StepComparison};
use maypole_lab::mistakes::Mistake;
use maypole_lab::rebalance::rebalance;
use maypole_trainer::train::parallelism::Parallelism;

/// Returns the comparisons of five steps, which are equal on all ranks.
fn compared(task: &Recipe, setup: &Parallelism) -> Vec<StepComparison> {
    let text = task.text();
    let optimizer = (task.rule, task.schedule);
    let rank = |comm| {
        let mut trainer = task.rank::<f32>(comm, setup).unwrap();
        let mut one =
            OneProcess::beside(&mut trainer, &task.config, SEED, optimizer, task.clip).unwrap();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let report = trainer.step(&text, task.rows).unwrap().report;
            seen.push(one.step(&mut trainer, report, &text, task.rows).unwrap());
            task.resume(&mut trainer).unwrap();
            if task.rebalance.is_some_and(|every| trainer.step.is_multiple_of(every)) {
                let by = Mistake::moves(task.mistake);
                one.moved(&rebalance(&mut trainer, by).unwrap()).unwrap();
            }
        }
        seen
    };
    let mut ranks = Communicator::run_local(setup.mesh.world(), rank);
    assert!(ranks.iter().all(|seen| *seen == ranks[0]), "ranks make different comparisons");
    ranks.swap_remove(0)
}

#[test]
fn every_mistake_is_found_within_five_steps_and_nothing_without_one() {
    for fault in crate::skip::every_nth(2, Mistake::ALL) {
        let (task, setup) = setup_with_effect(fault);
        if task.overflow.is_some() || task.scale {
            continue; // `--against` refuses them: the one process neither overflows nor scales losses.
        }
        let right = compared(&task, &setup);
        let alarm = right.iter().find(|step| !step.agrees());
        assert!(alarm.is_none(), "{} without {fault:?}: {}", setup.mesh, alarm.unwrap());
        let wrong = compared(&Recipe { mistake: Some(fault), ..task }, &setup);
        let named = wrong.iter().find(|step| !step.agrees());
        assert_eq!(named.is_some(), !fault.changes_no_number(), "{fault:?}");
        let Some(named) = named else { continue };
        // These mistakes make the norm for clipping wrong, which belongs to no tensor.
        let of_norm = matches!(fault, Mistake::DenseCountedOften | Mistake::NormOfPart);
        let of_norm = of_norm && named.norm > 0.01;
        assert!(named.wrong_tensor().is_some() || of_norm, "{fault:?}: {named}");
    }
}

#[test]
fn a_mistake_in_one_tensor_names_that_tensor() {
    for (fault, tensor) in [
        (Mistake::NormsNotSummed, "embed.position.weight"),
        (Mistake::RouterSummed, "block.0.router.weight"),
        (Mistake::PositionsOfFirst, "embed.token.weight"),
        (Mistake::ExpertsSummed, "block.0.expert.0.up.weight"),
    ] {
        let (task, setup) = setup_with_effect(fault);
        let seen = compared(&Recipe { mistake: Some(fault), ..task }, &setup);
        assert_eq!(seen[0].wrong_tensor(), Some(tensor), "{fault:?}: {}", seen[0]);
    }
}
