//! Exchanges over the control plane: operations of the group, as collectives are, that gather a few
//! bytes of each rank on all ranks.

use crate::engine::Engine;
use crate::engine::calls::call::hash_of;
use crate::error::{CallMismatch, Result};
use crate::wire;
use crate::world::calls::CallRecord;
use crate::world::service::ServiceError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The record of a call without arguments, such as `split`.
pub(crate) fn named_call(name: &str) -> CallRecord {
    CallRecord::new(hash_of(name) | 1, name).with("call", name)
}

impl Engine {
    /// Exchanges `mine` within `call`, which all ranks make, and returns the values of all ranks, by
    /// rank. It is an operation with a number of its own, so a rank that makes another call meanwhile
    /// is an error on both ranks.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if a rank makes another call; else as every call.
    pub(crate) fn tell_all<T>(&mut self, call: CallRecord, mine: &T) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned,
    {
        self.check_usable(|| call.call.clone())?;
        let call = Arc::new(call);
        self.health.record(&call);
        self.health.enter();
        let told = self.exchange_checked(&call, wire::encode(mine));
        // The next collective is recorded anew, so that this call's entry ends.
        self.calls.forget_current();
        let told = told.map_err(|error| self.health.fail(error))?;
        self.health.exit();
        let read = told.iter().enumerate().map(|(rank, bytes)| {
            wire::decode(bytes)
                .map_err(|why| format!("what rank {rank} tells is unreadable: {why}"))
        });
        let read: std::result::Result<_, String> = read.collect();
        read.map_err(|why| self.health.fail_unconnected(call.call.clone(), why))
    }

    /// Exchanges `blob` together with `call`, and compares the calls of all ranks. Returns their blobs.
    fn exchange_checked(&mut self, call: &CallRecord, blob: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let mine = encode(self.health.sequence, call, &blob);
        let exchanged = self.health.control.exchange(mine, self.limits.deadline());
        let parts = match exchanged {
            Ok(parts) => parts,
            Err(error) => return Err(self.explain_control(call.call.clone(), error)),
        };
        let decoded = parts.iter().enumerate().map(|(rank, part)| decode(rank, part));
        match decoded.collect::<std::result::Result<Vec<_>, _>>() {
            Err(why) => Err(self.explain_control(call.call.clone(), ServiceError::Refused(why))),
            Ok(parts) => match first_mismatch(&parts) {
                Some(found) => Err(self.health.report_mismatch(call.call.clone(), found)),
                None => Ok(parts.into_iter().map(|part| part.blob).collect()),
            },
        }
    }

    /// Checks, before `call` begins, that all ranks make it.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) on every rank if they do not; else as every call.
    pub(super) fn check_call(&mut self, call: &CallRecord) -> Result<()> {
        self.health.enter();
        let checked = self.exchange_checked(call, Vec::new());
        checked.map(drop).map_err(|error| self.health.fail(error))
    }
}

/// One rank's part of an exchange.
#[derive(Debug, Deserialize, Eq, PartialEq)]
struct ExchangePart {
    sequence: u64,
    call: CallRecord,
    blob: Vec<u8>,
}

fn encode(sequence: u64, call: &CallRecord, blob: &[u8]) -> Vec<u8> {
    wire::encode(&(sequence, call, blob))
}

/// # Errors
/// The fault of the part of rank `rank`, in words.
fn decode(rank: usize, bytes: &[u8]) -> std::result::Result<ExchangePart, String> {
    wire::decode(bytes).map_err(|why| format!("rank {rank} sent no call and its data: {why}"))
}

/// The first call that differs from that of rank 0. Equal on all ranks.
fn first_mismatch(parts: &[ExchangePart]) -> Option<CallMismatch> {
    let first = parts.first()?;
    let differs = |part: &&ExchangePart| part.call.fingerprint != first.call.fingerprint;
    let (rank, other) = parts.iter().enumerate().find(|(_, part)| differs(part))?;
    let difference = first.call.difference(&other.call);
    let calls = [(0, first.call.call.as_str()), (rank, other.call.call.as_str())];
    Some(CallMismatch::new(first.sequence, calls, difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(sequence: u64, fingerprint: u64, blob: &[u8]) -> ExchangePart {
        let call = CallRecord::new(fingerprint, format!("call {fingerprint}"));
        ExchangePart { sequence, call, blob: blob.to_vec() }
    }

    #[test]
    fn the_first_rank_that_differs_from_rank_0_is_named() {
        assert_eq!(first_mismatch(&[part(3, 7, &[]), part(3, 7, &[1])]), None);
        let found = first_mismatch(&[part(3, 7, &[]), part(3, 7, &[]), part(3, 8, &[])]).unwrap();
        let said =
            "ranks do not match: rank 0 calls call 7 as operation 3, but rank 2 calls call 8";
        assert_eq!(found.to_string(), said);
    }

    proptest! {
        #[test]
        fn parts_are_read_back(sequence: u64, fingerprint: u64, blob: Vec<u8>) {
            let part = part(sequence, fingerprint, &blob);
            prop_assert_eq!(decode(0, &encode(sequence, &part.call, &blob)), Ok(part));
        }

        #[test]
        fn other_bytes_are_an_error_or_a_part(bytes: Vec<u8>) {
            if let Ok(ExchangePart { sequence, call, blob }) = decode(0, &bytes) {
                let again = decode(0, &encode(sequence, &call, &blob));
                prop_assert_eq!(again, Ok(ExchangePart { sequence, call, blob }));
            }
        }
    }
}
