//! Prints a machine as one JSON object.

use super::facts::MachineFacts;
use super::transports;
use maypole::topology::NodeKind;
use maypole::topology::transport::{RefusalReason, TransportChoice, TransportKind};
use serde_json::{Value, json};

/// With more ranks, pairs are left out: their number grows with the square.
const MOST_RANKS: usize = 256;

pub(super) fn object(facts: &MachineFacts) -> Value {
    let ring = facts.ring();
    let rings: Vec<_> = facts.lanes.iter().map(|lane| &lane.order).collect();
    json!({
        "title": facts.title,
        "gpus": facts.topology.nodes_of(NodeKind::Gpu).len(),
        "nics": facts.labels.len() - facts.ranks,
        "matrix": facts.cells,
        "ranks": &facts.labels[..facts.ranks],
        "nic_names": &facts.labels[facts.ranks..],
        "ring": { "bottleneck": ring.bottleneck, "order": ring.order },
        "rings": rings,
        "pairs": (facts.ranks <= MOST_RANKS).then(|| pairs(facts)),
        "bandwidths": "assumed",
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
