//! Shared memory between the ranks of one host: the lowest rank makes a segment and passes it to the
//! others over Unix sockets. All of them exchange over the control plane whether they have it, so
//! that a missing one is an error on all ranks immediately.

use crate::wire::{decode, encode};
use crate::world::service::message::ExchangePurpose;
use crate::world::service::{GroupId, Service, ServiceError};
use maypole_transports::limits::with_limit;
use maypole_transports::shm::{Segment, SegmentOffer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::time::Instant;

/// The result of one rank's part in a segment, or its error.
type Part<T> = Result<T, String>;

/// A rank's end of a segment that is passed.
enum SegmentEnd {
    Made(Segment),
    Offered(SegmentOffer),
}

impl Service {
    /// A segment of `bytes` zeroed bytes that `local_members` (world ranks of one host, this one
    /// among them) share. All of them call it, with equal arguments, in the same order; the lowest
    /// rank makes it.
    ///
    /// The segment is sent over abstract Unix sockets, whose names and secret tokens go over the
    /// control plane, to processes of the same user.
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
        let is_maker = local_members.iter().min() == Some(&self.rank());
        let end = part(match is_maker {
            true => Segment::create(bytes).map(SegmentEnd::Made),
            false => SegmentOffer::new().map(SegmentEnd::Offered),
        });
        let offer = end.as_ref().map_err(Clone::clone).map(|end| match end {
            SegmentEnd::Made(_) => Vec::new(),
            SegmentEnd::Offered(offer) => offer.to_bytes(),
        });
        let offers = self.exchange_parts(group, local_members, &offer, deadline)?;
        let passed = match &end {
            Ok(SegmentEnd::Made(segment)) => {
                let mut others = offers.iter().filter(|offer| !offer.is_empty());
                part(others.try_for_each(|offer| segment.pass_to(offer)))
            }
            _ => Ok(()),
        };
        // Afterwards the segment is in the sockets of all.
        self.exchange_parts(group, local_members, &passed, deadline)?;
        let segment = end.and_then(|end| match end {
            SegmentEnd::Made(segment) => Ok(segment),
            SegmentEnd::Offered(mut offer) => {
                let lost = || io::Error::other("the segment was passed and has not come");
                part(offer.take(bytes).and_then(|segment| segment.ok_or_else(lost)))
            }
        });
        let mapped = segment.as_ref().map(drop).map_err(Clone::clone);
        self.exchange_parts(group, local_members, &mapped, deadline)?;
        segment.map_err(failed)
    }

    /// The parts of all members, in their order.
    ///
    /// # Errors
    /// As [`share`](Self::share); the error of the first member that has no part.
    fn exchange_parts<T: Serialize + DeserializeOwned>(
        &self,
        group: GroupId,
        members: &[usize],
        mine: &Part<T>,
        deadline: Instant,
    ) -> Result<Vec<T>, ServiceError> {
        let purpose = ExchangePurpose::SharedMemory;
        let told = self.exchange_for(purpose, group, members, encode(mine), deadline)?;
        let read = |(rank, told): (&usize, &Vec<u8>)| {
            let part = decode::<Part<T>>(told).unwrap_or_else(|why| Err(why.to_string()));
            part.map_err(|why| failed(format!("rank {rank}: {why}")))
        };
        members.iter().zip(&told).map(read).collect()
    }
}

fn part<T>(made: io::Result<T>) -> Part<T> {
    made.map_err(|error| with_limit(error).to_string())
}

fn failed(why: impl ToString) -> ServiceError {
    ServiceError::failed("sharing memory", why)
}
