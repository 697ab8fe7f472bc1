//! Rails: where a rank's share of the RDMA ports of its host is several ports, its courier has a connection by
//! each to each rank on another host, and lanes take them in turn.

use crate::comm::Communicator;
use crate::error::Result;
use maypole_kernels::{View, ViewMut};
use maypole_transports::ib::{
    ConnectedVerbs, UnconnectedVerbs, VerbsEndpoint, VerbsError, VerbsStream,
};
use maypole_transports::{AnyStream, Fault, HEAD, Stream};
use std::time::{Duration, Instant};

/// How long a connection by another port may take for its first bytes. An active port may be on another
/// network.
const TRIAL: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Most ports of a rank besides the first.
const MOST: usize = 63;

/// A connection to a rank by the port with this number.
struct Rail<T> {
    number: usize,
    peer: usize,
    end: T,
}

/// The streams of a courier, and behind them those by other ports that reach all ranks. Without `wanted` this
/// rank, and so each, has no others. Collective.
///
/// # Errors
/// As every call.
pub(super) fn with_rails(
    comm: &mut Communicator,
    call: &str,
    mut streams: Vec<(usize, AnyStream)>,
    wanted: bool,
) -> Result<Vec<(usize, AnyStream)>> {
    let sharing = comm.hosts().locals(comm.rank()).len();
    let ends = if wanted { ends(&streams, sharing) } else { Ok(Vec::new()) };
    let ends = ends.unwrap_or_else(|error| {
        tracing::info!("couriers use one port of each rank: {error}");
        Vec::new()
    });
    let mut offers = vec![Vec::new(); comm.world()];
    ends.iter().for_each(|rail| offers[rail.peer].push(rail.end.endpoint().to_bytes()));
    // By rank, by peer and by rail. The exchange is encrypted.
    let offers: Vec<Vec<Vec<Vec<u8>>>> = comm.agree_on(call, &offers)?;
    let offer = |rank: usize, peer: usize| offers[rank].get(peer).map_or(&[][..], Vec::as_slice);
    let ranks = 0..comm.world();
    let pairs = ranks.clone().flat_map(|rank| ranks.clone().map(move |peer| (rank, peer)));
    let far = pairs.filter(|(rank, peer)| !comm.hosts().together(*rank, *peer));
    // Equal on all ranks.
    let count = far.map(|(rank, peer)| offer(rank, peer).len()).min().unwrap_or(0);
    if count == 0 {
        return Ok(streams);
    }
    let me = comm.rank();
    let ends = ends.into_iter().filter(|rail| rail.number < count);
    let connect = |Rail { number, peer, end }: Rail<UnconnectedVerbs>| {
        let theirs = VerbsEndpoint::from_bytes(&offer(peer, me)[number])?;
        Ok(Rail { number, peer, end: end.connect(&theirs)? })
    };
    let connected = ends.map(connect).collect::<std::result::Result<Vec<_>, VerbsError>>();
    // Neither end sends before both have connected.
    let failed = connected.as_ref().err().map(ToString::to_string);
    let failed = comm.agree_on(call, &failed)?.into_iter().flatten().next();
    let (None, Ok(connected)) = (&failed, connected) else {
        tracing::info!("couriers use one port of each rank: {}", failed.unwrap_or_default());
        return Ok(streams);
    };
    let open =
        |Rail { number, peer, end }: Rail<ConnectedVerbs>| Rail { number, peer, end: end.open() };
    let mut rails: Vec<Rail<VerbsStream>> = connected.into_iter().map(open).collect();
    let reaching = comm.agree_on(call, &reaching(&mut rails))?;
    let reaching = reaching.into_iter().fold(u64::MAX, |all, one| all & one);
    for Rail { number, peer, mut end } in rails {
        match reaching >> number & 1 {
            1 => streams.push((peer, AnyStream::Verbs(Box::new(end)))),
            _ => end.abandon(),
        }
    }
    Ok(streams)
}

/// Ends of connections by all other ports of this rank, to each rank that a stream leads to. None if a stream
/// is not over verbs.
fn ends(
    streams: &[(usize, AnyStream)],
    sharing: usize,
) -> std::result::Result<Vec<Rail<UnconnectedVerbs>>, VerbsError> {
    let adapter = |(_, stream): &(usize, AnyStream)| match stream {
        AnyStream::Verbs(stream) => Some(stream.adapter().clone()),
        _ => None,
    };
    let first =
        streams.iter().map(adapter).collect::<Option<Vec<_>>>().and_then(|mut all| all.pop());
    let Some(first) = first else { return Ok(Vec::new()) };
    let mut ends = Vec::new();
    for (number, port) in first.rails(sharing)?.iter().take(MOST).enumerate() {
        for (peer, _) in streams {
            ends.push(Rail { number, peer: *peer, end: UnconnectedVerbs::new(port)? });
        }
    }
    Ok(ends)
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
fn greets(
    end: &mut VerbsStream,
    (sent, received): &mut (usize, usize),
) -> std::result::Result<bool, Fault> {
    if *sent < HEAD {
        *sent += end.send(&[0; HEAD], View::EMPTY, *sent)?;
    }
    if *received < HEAD {
        *received += end.receive(&mut [0; HEAD], ViewMut::EMPTY, *received)?;
    }
    Ok(*received == HEAD && end.is_delivered()?)
}
