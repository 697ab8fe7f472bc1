//! Traces of simulated runs.

#[path = "../../../tests/traces/file.rs"]
#[expect(dead_code, reason = "calls of real runs name several ranks")]
mod file;

use file::TraceFile;
use maypole::algorithms::Algorithm;
use maypole::schedule::Layout;
use maypole::schedule::collective::Collective;
use maypole::schedule::trace::document;
use maypole_pictures::clocks::{Cost, Ports, activities, simulate};
use maypole_pictures::timeline::trace;

const ELEMENT: usize = 4;

#[test]
fn every_algorithm_is_traced_as_it_is_priced() {
    for ports in [Ports::Single, Ports::PerLink] {
        let cost = Cost { alpha: 3e-6, beta: 0.7e-9, gamma: 0.3e-9, ports };
        for algorithm in Algorithm::ALL {
            for collective in Collective::all(1).into_iter().filter(|it| algorithm.supports(*it)) {
                for (world, windows) in [(2, 1), (5, 3)] {
                    compare(algorithm, collective, world, windows, cost);
                }
            }
        }
    }
}

fn compare(algorithm: Algorithm, collective: Collective, world: usize, windows: usize, cost: Cost) {
    let schedules = algorithm.schedules(collective, world).unwrap();
    let layout = Layout::even(10_001, schedules[0].chunks);
    let run = activities(&schedules, &layout, ELEMENT, windows, cost).unwrap();
    let estimate = run.estimate;
    assert_eq!(
        estimate,
        simulate(&schedules, &layout, ELEMENT, windows, cost).unwrap(),
        "tracing does not change the estimate"
    );

    let file = TraceFile::read(&document(&trace(&run.activities)));
    for rank in 0..world {
        let bytes = |kind| {
            file.of(&format!("rank {rank} "), kind).iter().map(|it| it.number("bytes")).sum::<u64>()
        };
        assert_eq!(
            bytes("send"),
            estimate.bytes_sent[rank] as u64,
            "{algorithm} {collective:?} rank {rank}"
        );
        assert_eq!(
            bytes("combine"),
            estimate.bytes_reduced[rank] as u64,
            "{algorithm} {collective:?} rank {rank}"
        );
    }
    assert_eq!(
        file.arrows.len(),
        estimate.messages,
        "{algorithm} {collective:?}: an arrow a message"
    );
    let last = file.slices.iter().map(|slice| slice.end).fold(0.0, f64::max);
    assert!((last - estimate.seconds * 1e6).abs() <= 2e-3, "{algorithm} {collective:?}: {last} us");
}

#[test]
fn slices_name_the_peer_the_bytes_and_the_window() {
    let schedules = Algorithm::Ring.schedules(Collective::AllReduce, 3).unwrap();
    let cost = Cost { alpha: 1e-6, beta: 1e-9, gamma: 1e-9, ports: Ports::Single };
    let run = activities(&schedules, &Layout::even(3000, 3), 1, 2, cost).unwrap();
    let file = TraceFile::read(&document(&trace(&run.activities)));
    for sent in file.of("rank 1 sends", "send") {
        assert_eq!(
            (sent.name.as_str(), sent.number("peer"), sent.number("bytes")),
            ("send to 2", 2, 500)
        );
    }
    let windows: Vec<u64> =
        file.of("rank 1 receives", "receive").iter().map(|it| it.number("window")).collect();
    assert_eq!((windows.iter().sum::<u64>(), windows.len()), (4, 8));
}
