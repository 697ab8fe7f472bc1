//! Prints a machine as one JSON object.

use super::facts::MachineFacts;
use super::transports;
use maypole::topology::transport::{RefusalReason, TransportChoice, TransportKind};
use serde_json::{Value, json};

/// With more ranks, pairs are left out: their number grows with the square.
const MOST_RANKS: usize = 256;

pub(super) fn object(facts: &MachineFacts) -> Value {
    let reported = &facts.reported;
    let nearest = |(class, nics): &(String, Vec<usize>)| json!({ "class": class, "nics": nics });
    let nearest = reported.nearest.as_ref().map(|all| all.iter().map(nearest).collect::<Vec<_>>());
    let ring = facts.ring();
    let rings: Vec<_> = facts.lanes.iter().map(|lane| &lane.order).collect();
    let trees: Vec<_> = facts.trees.iter().map(|tree| json!({ "parents": tree.parents })).collect();
    json!({
        "title": facts.title,
        "gpus": reported.gpus,
        "nics": reported.nics,
        "links": reported.links,
        "nvlinks": reported.nvlinks,
        "nearest_nics": nearest,
        "ranks": &facts.labels[..facts.ranks],
        "nic_names": &facts.labels[facts.ranks..],
        "ring": { "bottleneck": ring.bottleneck, "order": ring.order },
        "rings": rings,
        "trees": trees,
        "pairs": (facts.ranks <= MOST_RANKS).then(|| pairs(facts)),
        "bandwidths": "assumed",
        "by_couriers_busbw_GBps": facts.couriers,
        "notes": facts.notes,
    })
}

fn pairs(facts: &MachineFacts) -> Vec<Value> {
    let devices = facts.topology.devices();
    let pair = |(a, b, TransportChoice { transport, refused }): (usize, usize, TransportChoice)| {
        let refusal = |(transport, why): &(TransportKind, RefusalReason)| {
            let reason = why.to_string();
            json!({ "transport": transport.name(), "reason": reason })
        };
        let refused: Vec<Value> = refused.iter().map(refusal).collect();
        let bandwidth = facts.topology.path(devices[a], devices[b]).map(|path| path.bandwidth);
        json!({
            "ranks": [a, b],
            "class": facts.cells[a][b],
            "bandwidth": bandwidth,
            "transport": transport.name(),
            "refused": refused,
        })
    };
    transports::choices(&facts.offers).into_iter().map(pair).collect()
}
