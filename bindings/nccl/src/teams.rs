//! Teams: the groups of near ranks in NCCL's device interface. Programs that were built with its headers query
//! them on the host, even if they never launch such a kernel.

use crate::abi::{ncclComm_t, ncclInvalidUsage, ncclResult_t};
use crate::communicator;
use crate::error::{Failure, report};
use std::ffi::{c_int, c_void};

/// A team of `ranks` ranks, in which this rank has index `rank`. The ranks of neighbours in the communicator
/// differ by `stride`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ncclTeam_t {
    ranks: c_int,
    rank: c_int,
    stride: c_int,
}

#[derive(Clone, Copy)]
enum TeamKind {
    /// All ranks.
    World,
    /// The ranks whose memory this rank can access.
    Near,
    /// The ranks with this rank's local index on their hosts.
    Rail,
}

/// A team. It is empty if the communicator does not exist.
fn team(function: &str, comm: ncclComm_t, kind: TeamKind) -> ncclTeam_t {
    let communicator = match communicator::find(comm) {
        Ok(communicator) => communicator,
        Err(failure) => {
            report(function, &failure);
            return ncclTeam_t::default();
        }
    };
    let (rank, world) = (communicator.rank as c_int, communicator.world as c_int);
    // That of NVIDIA's library has an unavailable topology, and one of several hosts lends no memory.
    let is_near = communicator.comm().is_ok_and(|comm| !comm.spans_hosts());
    let near = if is_near { world } else { 1 };
    match kind {
        TeamKind::World => ncclTeam_t { ranks: world, rank, stride: 1 },
        TeamKind::Near => ncclTeam_t { ranks: near, rank: rank % near, stride: 1 },
        TeamKind::Rail => ncclTeam_t { ranks: world / near, rank: rank / near, stride: near },
    }
}

/// Translates rank `rank` of `team` to its rank in `of`. Returns -1 if there is none.
fn rank_in(of: ncclTeam_t, team: ncclTeam_t, rank: c_int) -> c_int {
    let far = i64::from(rank) - i64::from(team.rank);
    let found = i64::from(of.rank) + far * i64::from(team.stride);
    let exists = (0..team.ranks).contains(&rank) && (0..i64::from(of.ranks)).contains(&found);
    if exists { found as c_int } else { -1 }
}

/// Logs the failure of a function that describes memory for kernels, and returns its code.
fn refuse(function: &str) -> ncclResult_t {
    let text =
        "NCCL's interface for kernels is not there in Maypole: use the collectives of the host";
    report(function, &Failure { result: ncclInvalidUsage, text: text.to_owned() })
}

/// Makes `ncclX` and `pncclX` with the same body.
macro_rules! both {
    ($(
        $(#[$note:meta])*
        fn $name:ident, $profiled:ident($($argument:ident: $kind:ty),*) -> $result:ty $body:block
    )+) => { $(
        $(#[$note])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $kind),*) -> $result $body

        #[doc = concat!("As [`", stringify!($name), "`], for a profiler that has its own")]
        /// function of that name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $profiled($($argument: $kind),*) -> $result {
            $name($($argument),*)
        }
    )+ };
}

both! {
    /// All ranks of the communicator.
    fn ncclTeamWorld, pncclTeamWorld(comm: ncclComm_t) -> ncclTeam_t {
        team("ncclTeamWorld", comm, TeamKind::World)
    }

    /// The ranks whose memory this rank can access: all ranks of a communicator on one host.
    fn ncclTeamLsa, pncclTeamLsa(comm: ncclComm_t) -> ncclTeam_t {
        team("ncclTeamLsa", comm, TeamKind::Near)
    }

    /// The ranks of other hosts with this rank's local index: this rank alone.
    fn ncclTeamRail, pncclTeamRail(comm: ncclComm_t) -> ncclTeam_t {
        team("ncclTeamRail", comm, TeamKind::Rail)
    }

    /// Translates rank `rank` of `team` to its rank in the communicator. Returns -1 if there is none.
    fn ncclTeamRankToWorld, pncclTeamRankToWorld(
        comm: ncclComm_t, of: ncclTeam_t, rank: c_int
    ) -> c_int {
        rank_in(team("ncclTeamRankToWorld", comm, TeamKind::World), of, rank)
    }

    /// Translates rank `rank` of `team` to its rank in [`ncclTeamLsa`]. Returns -1 if there is none.
    fn ncclTeamRankToLsa, pncclTeamRankToLsa(
        comm: ncclComm_t, of: ncclTeam_t, rank: c_int
    ) -> c_int {
        rank_in(team("ncclTeamRankToLsa", comm, TeamKind::Near), of, rank)
    }

    /// Not supported: memory for barriers of kernels.
    fn ncclLsaBarrierCreateRequirement, pncclLsaBarrierCreateRequirement(
        _team: ncclTeam_t, _barriers: c_int, _handle: *mut c_void, _requirements: *mut c_void
    ) -> ncclResult_t {
        refuse("ncclLsaBarrierCreateRequirement")
    }

    /// Not supported: memory for barriers of kernels over a network.
    fn ncclGinBarrierCreateRequirement, pncclGinBarrierCreateRequirement(
        _comm: ncclComm_t, _team: ncclTeam_t, _barriers: c_int, _handle: *mut c_void,
        _requirements: *mut c_void
    ) -> ncclResult_t {
        refuse("ncclGinBarrierCreateRequirement")
    }

    /// Not supported: the number of slots for an exchange between kernels. Returns 0.
    fn ncclLLA2ACalcSlots, pncclLLA2ACalcSlots(_elements: c_int, _size: c_int) -> c_int {
        refuse("ncclLLA2ACalcSlots");
        0
    }

    /// Not supported: memory for an exchange between kernels.
    fn ncclLLA2ACreateRequirement, pncclLLA2ACreateRequirement(
        _blocks: c_int, _slots: c_int, _handle: *mut c_void, _requirements: *mut c_void
    ) -> ncclResult_t {
        refuse("ncclLLA2ACreateRequirement")
    }

    /// Not supported: send buffers of kernels for a network.
    fn ncclGinOutboxCreateRequirement, pncclGinOutboxCreateRequirement(
        _blocks: c_int, _size_log2: c_int, _handle: *mut c_void, _requirements: *mut c_void
    ) -> ncclResult_t {
        refuse("ncclGinOutboxCreateRequirement")
    }

    /// Not supported: receive buffers of kernels for a network.
    fn ncclGinInboxA2ACreateRequirement, pncclGinInboxA2ACreateRequirement(
        _team: ncclTeam_t, _blocks: c_int, _size_log2: c_int, _handle: *mut c_void,
        _requirements: *mut c_void
    ) -> ncclResult_t {
        refuse("ncclGinInboxA2ACreateRequirement")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_team_have_numbers_in_others() {
        let of = |ranks, rank, stride| ncclTeam_t { ranks, rank, stride };
        // Rank 5 of 8 on hosts of 4: the others with its place are rank 1.
        assert_eq!(rank_in(of(8, 5, 1), of(2, 1, 4), 0), 1);
        assert_eq!(rank_in(of(8, 5, 1), of(2, 1, 4), 1), 5);
        assert_eq!(rank_in(of(8, 5, 1), of(4, 1, 1), 3), 7);
        assert_eq!(rank_in(of(4, 1, 1), of(8, 5, 1), 4), 0);
        for rank in [-1, 2, c_int::MAX, c_int::MIN] {
            assert_eq!(rank_in(of(8, 5, 1), of(2, 1, 4), rank), -1, "{rank}");
        }
        assert_eq!(rank_in(of(0, 0, 0), of(2, 1, 4), 0), -1);
    }
}
