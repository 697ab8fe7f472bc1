//! Every stop of the tour is as one process, and holds and sends what theory says.

use maypole_trainer::tour::stops;
use maypole_trainer::tour_row::heading;
use std::collections::BTreeSet;

#[test]
fn every_stop_holds() {
    let rows: Vec<_> = stops().iter().map(|stop| stop.visit().unwrap()).collect();
    println!("{}", heading());
    rows.iter().for_each(|row| println!("{}", row.line()));
    for row in &rows {
        assert!(row.pass, "{row:?}");
        let pipeline = row.mesh.contains("pp=");
        assert_eq!((row.bubble > 0.0, row.bubble_theory > 0.0), (pipeline, pipeline), "{row:?}");
    }
}

#[test]
fn rows_have_the_names_that_readers_of_the_file_know() {
    let row = stops().into_iter().find(|stop| stop.axis == "ZeRO-1").unwrap().visit().unwrap();
    let value = serde_json::to_value(row).unwrap();
    let keys: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let wanted = "axis mesh ranks criterion difference pass params_bytes params_bytes_theory grads_bytes \
                  grads_bytes_theory optimizer_bytes optimizer_bytes_theory wire_bytes wire_bytes_theory bubble \
                  bubble_theory seconds";
    assert_eq!(keys, wanted.split_whitespace().collect());
}
