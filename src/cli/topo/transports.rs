//! The transport that each pair of ranks would use, and why it is not a faster one.

use maypole::topology::detect::{DetectedMachine, PeerAccess};
use maypole::topology::transport::{RefusalReason, TransportChoice, TransportKind};
use maypole::topology::{LinkKind, NodeKind, Topology};
use maypole_cluster::build::offers::{TransportOffer, choose};

/// The transports that each rank offers in this build.
pub(super) fn offers(topology: &Topology, hosts: &[usize]) -> Vec<TransportOffer> {
    let devices = topology.devices();
    let offer = |(rank, host): (usize, &usize)| {
        let node = &topology.nodes()[devices[rank]];
        let gpu = (node.kind == NodeKind::Gpu).then(|| format!("host {host}, {}", node.name));
        let offer = TransportOffer { gpu, ..TransportOffer::new(format!("host {host}")) };
        // All ranks need a port, so this is decided when they join.
        offer.without(TransportKind::InfiniBand, RefusalReason::Undecided)
    };
    let mut offers: Vec<_> = hosts.iter().enumerate().map(offer).collect();
    if !cfg!(feature = "cuda") {
        refuse_gpus(&mut offers, "this build lacks the feature cuda");
    } else if topology.links().iter().any(|link| matches!(link.kind, LinkKind::Xgmi(_))) {
        refuse_gpus(&mut offers, OF_AMD);
    }
    offers
}

/// Why AMD's GPUs do not use CUDA.
pub(super) const OF_AMD: &str = "collectives on GPUs need GPUs of NVIDIA";

/// Says of every rank on a GPU why it does not use CUDA.
pub(super) fn refuse_gpus(offers: &mut [TransportOffer], why: &str) {
    for offer in offers.iter_mut().filter(|offer| offer.gpu.is_some()) {
        let refusal = RefusalReason::Other(why.to_owned());
        offer.refusals.entry(TransportKind::CudaPeer).or_insert(refusal);
    }
}

/// Adds the driver's report on peer access between GPUs.
pub(super) fn refuse_peers(offers: &mut [TransportOffer], machine: &DetectedMachine) {
    let names: Vec<Option<String>> = offers.iter().map(|offer| offer.gpu.clone()).collect();
    for (offer, row) in offers.iter_mut().zip(&machine.peers) {
        for (name, peer) in names.iter().zip(row) {
            if let (Some(name), PeerAccess::No(why)) = (name, peer) {
                offer.denied_peers.insert(name.clone(), why.clone());
            }
        }
    }
}

/// The choice of every pair, the lower rank first.
pub(super) fn choices(offers: &[TransportOffer]) -> Vec<(usize, usize, TransportChoice)> {
    let pairs = (0..offers.len()).flat_map(|a| (a + 1..offers.len()).map(move |b| (a, b)));
    pairs.map(|(a, b)| (a, b, choose(&offers[a], &offers[b]))).collect()
}

/// Groups the pairs with equal choices.
pub(super) fn alike(
    choices: Vec<(usize, usize, TransportChoice)>,
) -> Vec<(TransportChoice, Vec<(usize, usize)>)> {
    let mut groups: Vec<(TransportChoice, Vec<(usize, usize)>)> = Vec::new();
    for (a, b, choice) in choices {
        match groups.iter_mut().find(|(known, _)| *known == choice) {
            Some((_, pairs)) => pairs.push((a, b)),
            None => groups.push((choice, vec![(a, b)])),
        }
    }
    groups
}
