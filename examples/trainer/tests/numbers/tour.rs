//! Every check of the tour trains as one process, and holds and sends what theory says.

use maypole_trainer::check::tour::checks;
use maypole_trainer::check::tour::list;
use maypole_trainer::check::tour::row::{TourRow, heading};
use maypole_trainer::faults::PlantedFault;
use std::collections::BTreeSet;

#[test]
fn every_row_of_the_tour_passes() {
    let rows: Vec<_> = checks().iter().map(|check| check.run().unwrap()).collect();
    println!("{}", heading());
    rows.iter().for_each(|row| println!("{}", row.line()));
    for row in &rows {
        assert!(row.pass, "{row:?}");
        let pipeline = row.mesh.contains("pp=");
        assert_eq!((row.bubble > 0.0, row.bubble_theory > 0.0), (pipeline, pipeline), "{row:?}");
    }
}

/// The row `axis` with `fault`, after two steps.
fn with_fault(axis: &str, fault: PlantedFault) -> TourRow {
    let mut check = list::checks().into_iter().find(|check| check.axis == axis).unwrap();
    check.setup.fault = Some(fault);
    check.run(2).unwrap()
}

/// A mistake on a single rank, or with a single token, is enough to fail a row.
#[test]
fn a_mistake_fails_its_row() {
    for (axis, fault) in [
        // Ranks do not divide this vocabulary. The mistake loses only its last token.
        ("tensor, byte pairs", PlantedFault::VocabularyRemainder),
        ("tensor, tokens divided", PlantedFault::NormsNotSummed),
        ("tensor, rows divided", PlantedFault::PositionsOfFirst),
        ("experts, clipped", PlantedFault::DenseCountedOften),
        ("experts, rows divided", PlantedFault::RouterSummed),
        ("context, Ulysses", PlantedFault::HeadsSwapped),
        ("data, pipeline, tensor", PlantedFault::MicrosSwapped),
        ("rows by speed", PlantedFault::RowsCutAlone),
        ("rows by speed, pipeline", PlantedFault::OwnRowsMean),
    ] {
        let row = with_fault(axis, fault);
        assert!(!row.pass && row.difference > row.bound, "{row:?}");
    }
}

/// A row of whole sequences has the same positions on every rank: it cannot see this mistake.
#[test]
fn rows_that_are_not_divided_do_not_see_positions() {
    let row = with_fault("tensor, tokens divided", PlantedFault::PositionsOfFirst);
    assert!(row.pass, "{row:?}");
}

#[test]
fn a_forward_pass_that_is_not_bitwise_is_enough_to_fail() {
    let mut check = list::checks().into_iter().find(|it| it.axis == "context, Ulysses").unwrap();
    check.setup.fault = Some(PlantedFault::HeadsSwapped);
    check.bound = f64::INFINITY;
    assert!(!check.run(1).unwrap().pass);
}

/// Mistakes of memory and of time: every loss and every weight is right.
#[test]
fn a_mistake_that_changes_no_number_fails_its_row() {
    for (axis, fault) in [
        ("pipeline, 1F1B", PlantedFault::PlannedAsGpipe),
        ("pipeline of four", PlantedFault::PlannedAsGpipe),
        ("tensor, recomputed", PlantedFault::ActivationsKept),
        ("ZeRO-3 and tensor", PlantedFault::UnitsKept),
        ("ZeRO-3 and tensor", PlantedFault::SumsAfterwards),
        ("data and tensor", PlantedFault::SumsAfterwards),
    ] {
        let row = with_fault(axis, fault);
        assert!(!row.pass && row.difference <= row.bound, "{fault:?}: {row:?}");
        match fault {
            PlantedFault::SumsAfterwards => assert!(row.overlapped < row.overlapped_theory),
            PlantedFault::UnitsKept => assert!(4 * row.units_bytes > 5 * row.units_bytes_theory),
            _ => assert!(2 * row.activations_bytes > 3 * row.activations_bytes_theory),
        }
    }
    let silent = PlantedFault::ALL.into_iter().filter(|fault| fault.changes_no_number());
    assert_eq!(silent.count(), 4, "each is above");
}

#[test]
fn json_rows_have_the_promised_names() {
    let row = checks().into_iter().find(|check| check.axis == "ZeRO-1").unwrap().run().unwrap();
    let value = serde_json::to_value(row).unwrap();
    let keys: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = "axis mesh ranks criterion bound difference pass params_bytes params_bytes_theory \
                  grads_bytes grads_bytes_theory optimizer_bytes optimizer_bytes_theory \
                  activations_bytes activations_bytes_theory units_bytes units_bytes_theory \
                  wire_bytes wire_bytes_theory bubble bubble_theory overlapped overlapped_theory \
                  passes seconds";
    assert_eq!(keys, wanted.split_whitespace().collect());
}
