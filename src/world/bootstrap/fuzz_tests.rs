//! Arbitrary messages of joining.

use super::JoinError;
use super::protocol::{JoinReply, JoinRequest, VERSION};
use crate::fuzz::Fuzz;
use crate::wire::{decode, encode};
use crate::world::peer::Peer;
use crate::world::service::AgreedWorld;

fn peer() -> Peer {
    Peer {
        listen: ([127, 0, 0, 1], 20_000).into(),
        host: "a host".to_owned(),
        pid: 77,
        pid_namespace: "pid:[1]".to_owned(),
        round_trip: None,
        bandwidth: None,
        report: Vec::new(),
    }
}

#[test]
fn requests_to_join() {
    let equal = [("MAYPOLE_TRANSPORT", "tcp"), ("MAYPOLE_WORLD", "4")];
    let equal = equal.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (equal, nonce) = (equal.to_vec(), [5; 16]);
    let request = JoinRequest { world: 4, equal, peer: peer(), nonce };
    let peer = Peer { report: vec![3; 40], ..peer() };
    let with_report = JoinRequest { peer, ..request.clone() };
    let sent = |request: &JoinRequest| encode(&(VERSION, request));
    let corpus = [sent(&request), sent(&with_report), encode(&"0.0.1"), encode(&VERSION)];
    Fuzz::new("join").corpus(corpus).memory(4 << 20, 100).run(|bytes| {
        match JoinRequest::decode(bytes) {
            None => "nothing".to_owned(),
            Some((version, request)) => format!("{} {}", version == VERSION, request.is_some()),
        }
    });
}

#[test]
fn answers_to_a_request() {
    let peer = Peer { report: vec![3; 40], ..peer() };
    let corpus = [
        encode(&JoinReply::OtherVersion("0.0.1".to_owned())),
        encode(&JoinReply::Welcome(AgreedWorld { session: [1; 16], peers: vec![peer; 3] })),
        encode(&JoinReply::Refused(JoinError::out_of_range(9, 3))),
    ];
    Fuzz::new("welcome").corpus(corpus).memory(4 << 20, 100).run(|bytes| {
        let kind = |reply| match reply {
            JoinReply::OtherVersion(_) => "another version",
            JoinReply::Refused(_) => "refused",
            JoinReply::Welcome(_) => "welcome",
        };
        decode(bytes).map_or("nothing", kind).to_owned()
    });
}
