//! Shared memory between the ranks of one host: the lowest rank makes a segment and sends it to the
//! others over a Unix socket. Then all of them exchange over the control plane whether they have
//! it, so that a missing one is an error on all ranks immediately.

use super::segment_server::{SegmentServer, failed};
use crate::wire::{decode, encode};
use crate::world::service::message::ExchangePurpose;
use crate::world::service::{GroupId, Service, ServiceError, binding};
use maypole_transports::deadline::DeadlineSocket;
use maypole_transports::limits::with_limit;
use maypole_transports::secure::{Purpose, initiate};
use maypole_transports::shm::{Segment, receive_segment};
use maypole_transports::sockets::{connect_abstract, same_user};
use std::io;
use std::time::Instant;

/// The result of one rank's part in a segment, or its error.
type Part<T> = Result<T, String>;

impl Service {
    /// A segment of `bytes` zeroed bytes that `local_members` (world ranks of one host, this one
    /// among them) share. All of them call it, with equal arguments, in the same order; the lowest
    /// rank makes it.
    ///
    /// The segment is sent over an abstract Unix socket, whose name goes over the control plane,
    /// to processes of the same user that prove the job's key.
    ///
    /// # Errors
    /// If a member cannot make or map the segment: then it is the same error on all of them. If the
    /// deadline passes (the error names the missing ranks), a member left, or the world fails
    /// meanwhile or has failed.
    pub fn share(
        &self,
        group: GroupId,
        local_members: &[usize],
        bytes: usize,
        deadline: Instant,
    ) -> Result<Segment, ServiceError> {
        self.check_members(local_members)?;
        if local_members.len() == 1 {
            return Segment::create(bytes).map_err(failed);
        }
        let at = (0..local_members.len()).min_by_key(|at| local_members[*at]);
        let at = at.expect("this rank is a member");
        let maker = local_members[at];
        let purpose = ExchangePurpose::SharedMemory;
        let server = (maker == self.rank()).then(|| SegmentServer::new(bytes, local_members.len()));
        let mine: Part<Vec<u8>> = match &server {
            None => Ok(Vec::new()),
            Some(Ok(server)) => Ok(server.name.clone()),
            Some(Err(why)) => Err(why.to_string()),
        };
        let announced =
            self.exchange_for(purpose, group, local_members, encode(&mine), deadline)?;
        let name = part::<Vec<u8>>(maker, &announced[at])?;
        let (segment, parts) = match server {
            Some(server) => {
                let mut server = server.map_err(failed)?;
                // Complete once all receivers have contributed.
                let mine = encode(&Part::Ok(()));
                let round = self.contribute(purpose, group, local_members, mine)?;
                server.serve(self, group, local_members, &round, deadline)?;
                (Ok(server.segment), self.await_round(round, deadline)?)
            }
            None => {
                let segment = self.receive(group, maker, &name, bytes, deadline);
                let segment = segment.map_err(|error| error.to_string());
                let mine = encode(&segment.as_ref().map(drop));
                (segment, self.exchange_for(purpose, group, local_members, mine, deadline)?)
            }
        };
        for (member, told) in local_members.iter().zip(&parts) {
            part::<()>(*member, told)?;
        }
        segment.map_err(failed)
    }

    fn receive(
        &self,
        group: GroupId,
        maker: usize,
        name: &[u8],
        bytes: usize,
        deadline: Instant,
    ) -> io::Result<Segment> {
        let mut socket = connect_abstract(name).map_err(with_limit)?;
        if !same_user(&socket)? {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut timed = DeadlineSocket { socket: &mut socket, deadline };
        let binding = binding(Purpose::Segment, (group, 0), [self.rank(), maker]);
        initiate(&mut timed, &self.shared.settings.secret, &binding).map_err(io::Error::other)?;
        receive_segment(timed.socket, bytes)
    }
}

/// Reads the part of `rank`.
fn part<T: serde::de::DeserializeOwned>(rank: usize, told: &[u8]) -> Result<T, ServiceError> {
    let read = decode::<Part<T>>(told).unwrap_or_else(|why| Err(why.to_string()));
    read.map_err(|why| failed(format!("rank {rank}: {why}")))
}
