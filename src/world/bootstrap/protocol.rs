//! The messages of joining: the request of a rank, the settings that must be equal on all ranks,
//! and rank 0's reply.

use super::{JoinConfig, JoinError, JoinStop};
use crate::wire::decode;
use crate::world::peer::Peer;
use crate::world::service::message::MAX_MESSAGE;
use crate::world::service::{AgreedWorld, DialedLink, is_timeout};
use maypole_transports::random;
use maypole_transports::secure::SecureError;
use maypole_transports::sockets::{self, Flight, NEAR};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The version of this library. Only ranks of equal versions can join one world.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The variable that turns encryption of data on.
const ENCRYPT: &str = "MAYPOLE_ENCRYPT";

/// The request of a joining rank. The encoded message begins with the version, so that every
/// version can read at least that.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct JoinRequest {
    pub(super) world: usize,
    pub(super) equal: Vec<(String, String)>,
    /// The process as a member of an agreement.
    pub(super) peer: Peer,
    /// Random, and chosen once in a process: distinguishes a reconnecting rank from another process
    /// that claims the same rank.
    pub(super) nonce: [u8; 16],
}

/// Rank 0's reply. The first variant keeps its position and encoding in every version.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum JoinReply {
    OtherVersion(String),
    Refused(JoinError),
    Welcome(AgreedWorld),
}

/// The error of `rank`, whose values differ from those of rank 0: for each, its name, the value on
/// rank 0 and that on the rank (`None`: unset).
fn differs(rank: usize, items: &[(&str, Option<&str>, Option<&str>)]) -> JoinError {
    let shown = |value: Option<&str>| value.map_or("unset".to_owned(), |it| format!("'{it}'"));
    let item = |(name, root, other): &(&str, Option<&str>, Option<&str>)| {
        format!("{name} is {} on rank 0 and {} on rank {rank}", shown(*root), shown(*other))
    };
    let items: Vec<String> = items.iter().map(item).collect();
    JoinError::setting(format!("{}; make them equal on all ranks", items.join("; ")))
}

/// The error of a rank of another version of maypole.
pub(super) fn other_version(rank: usize, root: &str, other: &str) -> JoinError {
    differs(rank, &[("the version of maypole", Some(root), Some(other))])
}

/// The differences between rank 0 and `rank`; `None` if there are none.
pub(super) fn differences(
    root: &JoinRequest,
    rank: usize,
    other: &JoinRequest,
) -> Option<JoinError> {
    let worlds = [root, other].map(|request| request.world.to_string());
    let value = |request: &'_ JoinRequest, name: &str| {
        let at = request.equal.iter().position(|(known, _)| known == name)?;
        Some(request.equal[at].1.clone())
    };
    let names: BTreeSet<&str> =
        root.equal.iter().chain(&other.equal).map(|(name, _)| name.as_str()).collect();
    let values = names.into_iter().map(|name| (name, value(root, name), value(other, name)));
    let [on_root, on_other] = worlds;
    let all = [("the world size", Some(on_root), Some(on_other))].into_iter().chain(values);
    let differing: Vec<_> = all.filter(|(_, on_root, on_other)| on_root != on_other).collect();
    let items: Vec<_> =
        differing.iter().map(|(name, a, b)| (*name, a.as_deref(), b.as_deref())).collect();
    (!items.is_empty()).then(|| differs(rank, &items))
}

/// The first byte of a message that measures the network and has no other meaning. Requests begin with the length of a
/// version.
pub(super) const FILLER: u8 = 0;

impl JoinRequest {
    /// The request of the process of `config`, which listens at `listen`. All ranks receive
    /// `report`.
    pub(super) fn new(config: &JoinConfig, listen: SocketAddr, report: &[u8]) -> io::Result<Self> {
        let peer = Peer {
            listen,
            host: host(config.host.as_deref())?,
            pid: std::process::id(),
            pid_namespace: namespace("pid"),
            round_trip: None,
            bandwidth: None,
            report: report.to_vec(),
        };
        Ok(Self { world: config.world, equal: equal(config), peer, nonce: random::bytes()? })
    }

    /// Sends the request to rank 0, and waits for the reply, until `stop` ends the wait.
    pub(super) fn ask(
        &self,
        link: &mut DialedLink,
        stop: &JoinStop,
        deadline: Instant,
    ) -> Result<JoinReply, SecureError> {
        let mut request = self.clone();
        let peer = &mut request.peer;
        peer.bandwidth = bandwidth(link, deadline)?;
        // Several went to and fro, and the kernel keeps the shortest.
        peer.round_trip = sockets::round_trip(&link.stream);
        link.send(&(VERSION, request), deadline)?;
        loop {
            let until = stop.pause(deadline);
            match link.receive(MAX_MESSAGE, until) {
                Err(error) if is_timeout(&error) && until < deadline && stop.check().is_ok() => {}
                answer => return answer,
            }
        }
    }

    /// The version, and the request if the version is ours. `None` if the version cannot be
    /// decoded.
    pub(super) fn decode(bytes: &[u8]) -> Option<(String, Option<Self>)> {
        let (version, rest) = postcard::take_from_bytes::<String>(bytes).ok()?;
        let request = if version == VERSION { decode(rest).ok() } else { None };
        Some((version, request))
    }
}

impl JoinReply {
    /// The world that the process of `config` has joined.
    ///
    /// # Errors
    /// Why it may not join.
    pub(super) fn accepted(self, config: &JoinConfig) -> Result<AgreedWorld, JoinError> {
        match self {
            Self::Welcome(world) => Ok(world),
            Self::Refused(why) => Err(why),
            Self::OtherVersion(version) => Err(other_version(config.rank, &version, VERSION)),
        }
    }
}

/// How long a filler may take, which no stop ends: it takes longer only below 1 Mbit/s.
const FILLER_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of a filler's frames, at most.
const SEALS: usize = 100;

/// Bytes a second of the path to rank 0, measured by a filler. `None` if it is a short one.
fn bandwidth(link: &mut DialedLink, deadline: Instant) -> Result<Option<u64>, SecureError> {
    let is_far = sockets::round_trip(&link.stream).is_some_and(|it| it >= NEAR);
    let Some(flight) = Flight::of(&link.stream).filter(|_| is_far) else { return Ok(None) };
    link.send(&(FILLER, vec![0u8; flight.bytes.saturating_sub(SEALS)]), deadline)?;
    Ok(flight.bandwidth(&link.stream, deadline.min(Instant::now() + FILLER_TIMEOUT)))
}

/// The settings that must be equal on all ranks: the variables, and encryption, which a program may
/// turn on without its variable.
fn equal(config: &JoinConfig) -> Vec<(String, String)> {
    let others = config.equal.iter().filter(|(name, _)| name != ENCRYPT);
    let encrypt = (ENCRYPT.to_owned(), u8::from(config.encrypt).to_string());
    others.cloned().chain([encrypt]).collect()
}

/// The random number that the kernel draws at each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The identity of this host. Processes with equal identities can share memory: they run on the
/// same boot of the same machine, in the same network namespace (to which the names of abstract
/// Unix sockets belong), as the same user.
pub(super) fn host(name: Option<&str>) -> io::Result<String> {
    let boot = std::fs::read_to_string(BOOT).map_err(|error| {
        let why = format!(
            "cannot read {BOOT}, by which ranks find who shares a host: {error}; mount /proc"
        );
        io::Error::new(error.kind(), why)
    })?;
    let user = maypole_transports::sockets::effective_user();
    Ok(format!("{} {} user:{user} {}", boot.trim(), namespace("net"), name.unwrap_or("")))
}

fn namespace(kind: &str) -> String {
    let link = std::fs::read_link(format!("/proc/self/ns/{kind}"));
    link.map_or_else(|_| format!("{kind}:?"), |link| link.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode;
    use proptest::prelude::*;

    #[test]
    fn hosts_of_one_boot_are_one_machine() {
        let boot = std::fs::read_to_string(BOOT).unwrap();
        for name in [None, Some("a"), Some("b")] {
            let peer = request(1, &[]).peer;
            let peer = Peer { host: host(name).unwrap(), ..peer };
            assert_eq!(peer.machine(), boot.trim());
        }
    }

    fn request(world: usize, equal: &[(&str, &str)]) -> JoinRequest {
        let peer = Peer {
            listen: ([127, 0, 0, 1], 1).into(),
            host: "h".to_owned(),
            pid: 1,
            pid_namespace: "p".to_owned(),
            round_trip: None,
            bandwidth: None,
            report: Vec::new(),
        };
        let equal =
            equal.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        JoinRequest { world, equal, peer, nonce: [0; 16] }
    }

    #[test]
    fn differences_are_printed_with_both_sides() {
        let root = request(4, &[("A", "1"), ("B", "2")]);
        let other = request(5, &[("B", "3"), ("C", "4")]);
        let text = differences(&root, 3, &other).unwrap().to_string();
        let expected = "the world size is '4' on rank 0 and '5' on rank 3; A is '1' on rank 0 and \
                        unset on rank 3; \
                        B is '2' on rank 0 and '3' on rank 3; C is unset on rank 0 and '4' on \
                        rank 3; make them equal on all ranks";
        assert_eq!(text, expected);
        assert_eq!(differences(&root, 3, &root), None);
    }

    #[test]
    fn another_version_is_read_as_far_as_its_version() {
        let bytes = [encode(&"9.9.9"), vec![1, 2, 3]].concat();
        let (version, request) = JoinRequest::decode(&bytes).unwrap();
        assert_eq!(version, "9.9.9");
        assert!(request.is_none());
        let text = other_version(2, VERSION, &version).to_string();
        assert_eq!(
            text,
            format!(
                "the version of maypole is '{VERSION}' on rank 0 and '9.9.9' on rank 2; make them \
                 equal on all ranks"
            )
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = JoinRequest::decode(&bytes);
            let _ = JoinRequest::decode(&[encode(&VERSION), bytes.clone()].concat());
            let _ = decode::<JoinReply>(&bytes);
        }
    }
}
