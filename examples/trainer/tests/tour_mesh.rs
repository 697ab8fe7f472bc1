//! Every stop of the tour holds what it says.

use maypole_trainer::tour_mesh::stops;
use maypole_trainer::tour_row::table;

#[test]
fn every_stop_holds() {
    let rows: Vec<_> = stops().iter().map(|stop| stop.run(4).unwrap()).collect();
    println!("{}", table(&rows));
    for row in &rows {
        assert!(row.holds(), "{row:?}");
    }
}
