//! Every check of the tour is as one process, and holds and sends what theory says.

use maypole_trainer::check::faults::PlantedFault;
use maypole_trainer::check::tour::checks;
use maypole_trainer::check::tour::meshes;
use maypole_trainer::check::tour::row::heading;
use std::collections::BTreeSet;

#[test]
fn every_stop_holds() {
    let rows: Vec<_> = checks().iter().map(|check| check.run().unwrap()).collect();
    println!("{}", heading());
    rows.iter().for_each(|row| println!("{}", row.line()));
    for row in &rows {
        assert!(row.pass, "{row:?}");
        let pipeline = row.mesh.contains("pp=");
        assert_eq!((row.bubble > 0.0, row.bubble_theory > 0.0), (pipeline, pipeline), "{row:?}");
    }
}

/// What is wrong on one rank alone, or with one token alone, is not lost among the others.
#[test]
fn a_mistake_fails_its_row() {
    for (axis, fault) in [
        // The last of the tokens that were learnt, since ranks do not divide how many there are.
        ("tensor, byte pairs", PlantedFault::VocabularyRemainder),
        ("tensor, tokens divided", PlantedFault::NormsNotSummed),
        ("context, Ulysses", PlantedFault::HeadsSwapped),
        ("data, pipeline, tensor", PlantedFault::MicrosSwapped),
    ] {
        let mut check = meshes::checks().into_iter().find(|check| check.axis == axis).unwrap();
        check.setup.fault = Some(fault);
        let row = check.run(2).unwrap();
        assert!(!row.pass && row.difference > check.bound, "{row:?}");
        if fault == PlantedFault::HeadsSwapped {
            check.bound = f64::INFINITY;
            assert!(
                !check.run(1).unwrap().pass,
                "a forward pass that is not bitwise is enough to fail"
            );
        }
    }
}

#[test]
fn rows_have_the_names_that_readers_of_the_file_know() {
    let row = checks().into_iter().find(|check| check.axis == "ZeRO-1").unwrap().run().unwrap();
    let value = serde_json::to_value(row).unwrap();
    let keys: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = "axis mesh ranks criterion difference pass params_bytes params_bytes_theory grads_bytes \
                  grads_bytes_theory optimizer_bytes optimizer_bytes_theory wire_bytes wire_bytes_theory bubble \
                  bubble_theory seconds";
    assert_eq!(keys, wanted.split_whitespace().collect());
}
