//! Every stop of the tour holds what it says.

use maypole_trainer::tour_mesh::stops;
use maypole_trainer::tour_row::table;

#[test]
fn every_stop_holds() {
    let rows: Vec<_> = stops().iter().map(|stop| stop.run(4).unwrap()).collect();
    println!("{}", table(&rows));
    for row in &rows {
        assert!(row.holds(), "{row:?}");
        // What is measured of work is the bubble that stages have which are not quite equal.
        let near = row.bubble.is_none_or(|[_, work, formula]| (work - formula).abs() < 0.25);
        assert!(near, "{}: idle {:?}", row.axis, row.bubble);
    }
}
