//! Prices of calls on GPUs: choices follow the links of recorded machines. No GPU is needed.

use maypole::algorithms::Algorithm;
use maypole::schedule::Placement;
use maypole::schedule::collective::Collective;
use maypole::schedule::hosts::{Boards, Hosts};
use maypole::schedule::verify::verify;
use maypole::topology::{DeviceLinks, PathClass};
use maypole::tuner::{CostTable, Explanation, PlanOverride, schedules};
use maypole_cluster::Description;

/// A server of eight V100s, whose NVLinks make two crossed squares, as `nvidia-smi topo -m` prints
/// it with the GPUs numbered in another order. Two NVLinks join some neighbours, one joins others.
fn crossed_squares() -> String {
    const DOUBLE: [(usize, usize); 8] =
        [(0, 3), (3, 2), (2, 1), (1, 5), (5, 6), (6, 7), (7, 4), (4, 0)];
    const SINGLE: [(usize, usize); 8] =
        [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)];
    const NUMBERED: [usize; 8] = [0, 5, 3, 6, 1, 7, 2, 4];
    let joined =
        |pairs: &[(usize, usize)], a, b| pairs.contains(&(a, b)) || pairs.contains(&(b, a));
    let word = |a: usize, b: usize| match (NUMBERED[a], NUMBERED[b]) {
        (a, b) if a == b => " X ",
        (a, b) if joined(&DOUBLE, a, b) => "NV2",
        (a, b) if joined(&SINGLE, a, b) => "NV1",
        _ => "SYS",
    };
    let names: Vec<String> = (0..8).map(|gpu| format!("GPU{gpu}")).collect();
    let row = |a: usize| {
        let words: Vec<&str> = (0..8).map(|b| word(a, b)).collect();
        format!("GPU{a}\t{}\t0-19\n", words.join("\t"))
    };
    let rows: String = (0..8).map(row).collect();
    format!("\t{}\tCPU Affinity\n{rows}", names.join("\t"))
}

fn links(text: &str, gpus: &[usize]) -> DeviceLinks {
    DeviceLinks::new(&Description::read(text).unwrap().topology(), gpus).unwrap()
}

fn recorded(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/topologies");
    std::fs::read_to_string(format!("{folder}/{name}")).unwrap()
}

const ALL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn a_ring_goes_over_the_links_with_the_highest_bandwidth() {
    let links = links(&crossed_squares(), &ALL);
    assert!(links.to_string().contains("its slowest hop is NV2"), "a ring of double links exists");
    assert_ne!(links.order(), ALL, "and it is not in the order of the ranks");
    // The schedules follow the order: every message goes over a double link.
    let boards = Boards::new(&[0; 8]);
    for collective in Algorithm::Ring.collectives() {
        let of = |links| schedules(Algorithm::Ring, *collective, &boards, links).unwrap();
        assert!(verify(*collective, &of(Some(&links)), Placement::Apart).is_ok());
        let scans = matches!(collective, Collective::Scan | Collective::ExclusiveScan);
        if scans {
            assert_eq!(of(Some(&links)), of(None), "the order decides the result of a scan");
            continue;
        }
        for (from, schedule) in of(Some(&links)).iter().enumerate() {
            for step in &schedule.steps {
                if let maypole::schedule::Step::Send { to, .. } = step {
                    let class = links.between(from, *to).unwrap().class;
                    assert_eq!(class, PathClass::NvLink(2), "{collective:?}: {from} to {to}");
                }
            }
        }
    }
}

fn explain_on(links: &DeviceLinks, wanted: Option<PlanOverride>) -> Explanation {
    let (hosts, costs) = (Hosts::new(&vec![0; links.world()]), CostTable::BUILT_IN);
    maypole::cuda::explain(&hosts, links, &costs, Collective::AllReduce, 64 << 20, wanted)
}

#[test]
fn choices_follow_the_links() {
    let chosen = |links: &DeviceLinks| {
        let all = explain_on(links, None);
        all.chosen().unwrap().plan.algorithm
    };
    // Most pairs of this server are joined by no NVLink: only a ring stays on them.
    assert_eq!(chosen(&links(&crossed_squares(), &ALL)), Algorithm::Ring);
    // A switch joins all pairs alike.
    assert_ne!(chosen(&links(&recorded("dgx-h100.nvidia-smi-550.txt"), &ALL)), Algorithm::Ring);
    // All pairs of these two boards share the link between the sockets. Two shots cross it most.
    let boards = links(&recorded("two-boards.nvidia-smi-375.txt"), &[0, 1, 2, 3]);
    assert_eq!(chosen(&boards), Algorithm::HalvingDoubling);
}

/// No call is faster than the busiest link lets it be, and two ranks of a GPU cross a link twice.
#[test]
fn a_link_that_many_paths_cross_is_the_limit() {
    let text = recorded("two-boards.nvidia-smi-375.txt");
    let seconds = |gpus: &[usize]| {
        let wanted = Some(Algorithm::TwoShot.into());
        let links = links(&text, gpus);
        let all = explain_on(&links, wanted);
        all.chosen().unwrap().predicted_ns as f64 / 1e9
    };
    // In each direction, 2 ranks read 2 blocks of a quarter of 64 MiB, twice, at 10 GB/s.
    let least = 2.0 * 2.0 * 2.0 * f64::from(16 << 20) / 10e9;
    let found = seconds(&[0, 1, 2, 3]);
    assert!(found >= least && found < 1.1 * least, "{found} s, the link takes {least} s");
    assert!(seconds(&[0, 2, 0, 2]) >= least, "the same link, by two ranks of each GPU");
}
