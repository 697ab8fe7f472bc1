//! The streams of a courier: one to each rank on another host and, where a rank's share of the RDMA ports of its
//! host is several ports, one by each of them. The ranks exchange the addresses and keys of their mailboxes,
//! so that adapters write from slot to slot.

use super::agreed::Found;
use crate::comm::Communicator;
use crate::error::Result;
use maypole_kernels::{View, ViewMut};
use maypole_transports::cuda::{CourierStream, DeviceBoard};
use maypole_transports::ib::{
    ConnectedVerbs, UnconnectedVerbs, VerbsEndpoint, VerbsError, VerbsStream,
};
use maypole_transports::stream::direct::{DirectWrites, RemoteMemory};
use maypole_transports::{AnyStream, Fault, HEAD, Stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::result::Result as Outcome;
use std::time::{Duration, Instant};

/// How long a connection by another port may take for its first bytes. An active port may be on another
/// network.
const TRIAL: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Most ports of a rank besides the first.
const MOST: usize = 63;

/// The address of a rank's mailboxes, and the key by which one of its ports lets others write there.
type OfferedMemory = Option<(u64, u32)>;

/// What a rank offers to others.
#[derive(Default, Deserialize, Serialize)]
struct CourierOffer {
    memory: OfferedMemory,
    /// Why there is none.
    refused: Option<String>,
    /// Ends of connections by other ports, by peer and port.
    ends: Vec<Vec<Vec<u8>>>,
}

impl CourierOffer {
    fn ends_to(&self, peer: usize) -> &[Vec<u8>] {
        self.ends.get(peer).map_or(&[], Vec::as_slice)
    }
}

/// A connection to a rank by the other port with this number.
struct Rail<T> {
    number: usize,
    peer: usize,
    end: T,
}

/// All streams of the courier of this rank, of which `streams` are the first ones; and a description of their ways.
/// There are no direct writes to or from a rank that does not want `direct`. If slots are in the memory of GPUs and the
/// adapters of some rank do not reach them: the reason, equal on all ranks. Collective.
///
/// # Errors
/// As every call.
pub(super) fn all_streams(
    comm: &mut Communicator,
    call: &str,
    board: &DeviceBoard,
    mut streams: Vec<(usize, AnyStream)>,
    direct: bool,
) -> Result<Found<(Vec<CourierStream>, String)>> {
    let me = comm.rank();
    let writers = streams.iter_mut().filter(|_| direct).filter_map(|(_, stream)| stream.direct());
    // All are by one port.
    let memory: Found<Vec<_>> = writers.map(|writer| offered(board, me, writer)).collect();
    let (memory, refused) = match memory.map(|all| all.last().copied()) {
        Ok(Some(memory)) => (Some(memory), None),
        Ok(None) => (None, Some("its streams have no RDMA writes".to_owned())),
        Err(why) => {
            tracing::warn!("rank {me} registers no memory for the writes of adapters: {why}");
            (None, Some(why))
        }
    };
    let sharing = comm.hosts().locals(me).len();
    let ends = if memory.is_some() { ends(&streams, sharing) } else { Ok(Vec::new()) };
    let ends = ends.unwrap_or_else(|error| {
        tracing::info!("couriers use one port of each rank: {error}");
        Vec::new()
    });
    let mut offer = CourierOffer { memory, refused, ends: vec![Vec::new(); comm.world()] };
    for Rail { peer, end, .. } in &ends {
        offer.ends[*peer].push(end.endpoint().to_bytes());
    }
    // Over the encrypted control plane.
    let offers = comm.agree_on(call, &offer)?;
    let refused =
        offers.iter().enumerate().find_map(|(rank, it)| Some((rank, it.refused.as_ref()?)));
    if let Some((rank, why)) = refused.filter(|_| board.has_slots_on_gpus()) {
        return Ok(Err(format!("rank {rank}: {why}")));
    }
    let first = |(peer, stream): (usize, AnyStream)| {
        let writes_to = memory.and(offers[peer].memory).map(remote);
        CourierStream { peer, stream, writes_to }
    };
    let mut all: Vec<_> = streams.into_iter().map(first).collect();
    all.extend(rails(comm, call, board, ends, &offers)?);
    let ways = described(board, &mut all);
    tracing::info!("publications of rank {me} reach other hosts: {ways}");
    Ok(Ok((all, ways)))
}

/// How publications reach the ranks of other hosts, in words.
fn described(board: &DeviceBoard, all: &mut [CourierStream]) -> String {
    let mut ways: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for stream in all {
        ways.entry(way(stream)).or_default().push(stream.peer.to_string());
    }
    let between = if board.has_slots_on_gpus() { " between GPUs" } else { "" };
    let of = |(way, peers): (&String, &Vec<String>)| {
        format!("ranks {} by {way}{between}", peers.join(", "))
    };
    ways.iter().map(of).collect::<Vec<_>>().join("; ")
}

fn remote((address, key): (u64, u32)) -> RemoteMemory {
    RemoteMemory { address, key }
}

/// Registers the mailboxes for `writer`.
fn offered(board: &DeviceBoard, me: usize, writer: &mut dyn DirectWrites) -> Found<(u64, u32)> {
    let RemoteMemory { address, key } =
        board.register(me, writer).map_err(|error| error.to_string())?;
    Ok((address, key))
}

fn way(CourierStream { stream, writes_to, .. }: &mut CourierStream) -> String {
    match (stream.direct(), writes_to) {
        (Some(writer), Some(_)) => format!("RDMA writes by {}", writer.port()),
        (Some(writer), None) => format!("messages by {}", writer.port()),
        (None, _) => "messages of a stream".to_owned(),
    }
}

/// Ends of connections by all other ports of this rank, to each rank that a stream leads to.
fn ends(
    streams: &[(usize, AnyStream)],
    sharing: usize,
) -> Outcome<Vec<Rail<UnconnectedVerbs>>, VerbsError> {
    let Some((_, AnyStream::Verbs(first))) = streams.first() else { return Ok(Vec::new()) };
    let mut ends = Vec::new();
    for (number, port) in first.adapter().rails(sharing)?.iter().take(MOST).enumerate() {
        for (peer, _) in streams {
            ends.push(Rail { number, peer: *peer, end: UnconnectedVerbs::new(port)? });
        }
    }
    Ok(ends)
}

/// The streams by other ports that all ranks have, and that reach all. Collective.
fn rails(
    comm: &mut Communicator,
    call: &str,
    board: &DeviceBoard,
    ends: Vec<Rail<UnconnectedVerbs>>,
    offers: &[CourierOffer],
) -> Result<Vec<CourierStream>> {
    let (me, hosts) = (comm.rank(), comm.hosts());
    let pairs = (0..offers.len()).flat_map(|rank| (0..offers.len()).map(move |peer| (rank, peer)));
    let far = pairs.filter(|(rank, peer)| !hosts.together(*rank, *peer));
    // Equal on all ranks.
    let count = far.map(|(rank, peer)| offers[rank].ends_to(peer).len()).min().unwrap_or(0);
    if count == 0 {
        return Ok(Vec::new());
    }
    let connect = |Rail { number, peer, end }: Rail<UnconnectedVerbs>| {
        let theirs = VerbsEndpoint::from_bytes(&offers[peer].ends_to(me)[number])?;
        Ok(Rail { number, peer, end: end.connect(&theirs)? })
    };
    let ends = ends.into_iter().filter(|rail| rail.number < count);
    let connected = ends.map(connect).collect::<Outcome<Vec<Rail<ConnectedVerbs>>, VerbsError>>();
    // Neither end sends before both have connected.
    let failed = connected.as_ref().err().map(ToString::to_string);
    let failed = comm.agree_on(call, &failed)?.into_iter().flatten().next();
    let (None, Ok(connected)) = (&failed, connected) else {
        tracing::info!("couriers use one port of each rank: {}", failed.unwrap_or_default());
        return Ok(Vec::new());
    };
    let mut memory = vec![None; count];
    let mut open = |Rail { number, peer, end }: Rail<ConnectedVerbs>| {
        let mut end = end.open();
        memory[number] = offered(board, me, &mut end).ok();
        Rail { number, peer, end }
    };
    let mut rails: Vec<_> = connected.into_iter().map(&mut open).collect();
    let told: Vec<(u64, Vec<OfferedMemory>)> =
        comm.agree_on(call, &(reaching(&mut rails), memory))?;
    let reaches = |number: usize| {
        told.iter()
            .all(|(reaching, memory)| reaching >> number & 1 == 1 && memory[number].is_some())
    };
    let usable = |Rail { number, peer, mut end }: Rail<VerbsStream>| {
        if !reaches(number) {
            end.abandon();
            return None;
        }
        let writes_to = told[peer].1[number].map(remote);
        Some(CourierStream { peer, stream: AnyStream::Verbs(Box::new(end)), writes_to })
    };
    Ok(rails.into_iter().filter_map(usable).collect())
}

/// The ports whose connections carry bytes both ways to all peers, by bits.
fn reaching(rails: &mut [Rail<VerbsStream>]) -> u64 {
    let until = Instant::now() + TRIAL;
    let mut moved = vec![(0, 0); rails.len()];
    let mut failed = 0;
    loop {
        let mut waiting = 0;
        for (Rail { number, end, .. }, moved) in rails.iter_mut().zip(&mut moved) {
            match greets(end, moved) {
                Ok(true) => {}
                Ok(false) => waiting |= 1 << *number,
                Err(_) => failed |= 1 << *number,
            }
        }
        if waiting & !failed == 0 || Instant::now() >= until {
            return !(waiting | failed);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Sends a greeting and receives the peer's, of which so many bytes have been sent and received. True once
/// both have arrived.
fn greets(end: &mut VerbsStream, (sent, received): &mut (usize, usize)) -> Outcome<bool, Fault> {
    if *sent < HEAD {
        *sent += end.send(&[0; HEAD], View::EMPTY, *sent)?;
    }
    if *received < HEAD {
        *received += end.receive(&mut [0; HEAD], ViewMut::EMPTY, *received)?;
    }
    Ok(*received == HEAD && end.is_delivered()?)
}
