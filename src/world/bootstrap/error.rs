//! Why ranks could not join, in words.

use super::SPARE;
use super::protocol::{Differences, JoinRefusal};
use crate::world::sentence::{list, list_ranks};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Why the ranks could not join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The configuration contradicts itself. Correct it.
    #[error("{0}")]
    Config(String),
    /// There is no key, and the address is not loopback. Make a key for the job, or set
    /// [`JoinConfig::insecure_without_key`](super::JoinConfig::insecure_without_key).
    #[error(
        "rank 0 is at {address}, which other machines can reach, but the job has no key: make one \
         with 'maypole key new FILE' \
         and set MAYPOLE_JOB_KEY_FILE on all ranks"
    )]
    KeyNeeded {
        /// Where rank 0 listens.
        address: String,
    },
    /// The name of rank 0's host is unknown. Check the name.
    #[error("the address of rank 0, '{address}', cannot be resolved: {source}")]
    Unresolvable {
        /// The name.
        address: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// None of the ports could be listened on. Free one, or name others.
    #[error(
        "rank {rank} cannot listen on {address}, port {}: {source}; name a free port with \
         {variable}",
        list(ports)
    )]
    PortsTaken {
        /// The rank that could not listen.
        rank: usize,
        /// The host or address.
        address: String,
        /// The ports that were tried.
        ports: Vec<u16>,
        /// The error of the last port.
        source: io::Error,
        /// The variable that names other ports.
        variable: &'static str,
    },
    /// The address of rank 0 is none of the host where rank 0 runs. Correct it, or start rank 0 there.
    #[error(
        "rank 0 is to listen at {address}{}, which is no address of this host (it has {}): set \
         MAYPOLE_ADDRESS (or the launcher's MASTER_ADDR) to this host, or start rank 0 on the host \
         that it names",
        resolved(address, found),
        list(here)
    )]
    NotThisHost {
        /// The host or address.
        address: String,
        /// The addresses that it resolves to here.
        found: Vec<IpAddr>,
        /// The addresses of this host.
        here: Vec<IpAddr>,
    },
    /// The process may not open enough file descriptors. Raise its limit.
    #[error(
        "a world of {world} ranks needs up to {need} file descriptors in a process (two for each \
         rank, and {SPARE}), but \
         the hard limit is {limit}: raise it, with 'ulimit -Hn' or in the service's unit"
    )]
    Descriptors {
        /// How many ranks there are.
        world: usize,
        /// How many descriptors may be needed.
        need: u64,
        /// The process's hard limit.
        limit: u64,
    },
    /// No process accepted a connection at rank 0's address. Start rank 0, or check the address,
    /// the port and the firewall.
    #[error(
        "rank {rank} found no rank 0 at {address}{}, port {}, within {} s: is rank 0 running, and \
         its port open? ({last})",
        resolved(address, dialled), list(ports), waited.as_secs_f32()
    )]
    NobodyListening {
        /// The rank that could not join.
        rank: usize,
        /// The host or address of rank 0.
        address: String,
        /// The addresses that were tried.
        dialled: Vec<IpAddr>,
        /// The ports that were tried.
        ports: Vec<u16>,
        /// The time spent on attempts.
        waited: Duration,
        /// The error of the last attempt.
        last: String,
    },
    /// Rank 0 holds another key. Give all ranks of the job the same key.
    #[error(
        "rank {rank} was refused at {address}, because its job key differs from rank 0's (job \
         '{job}'): give all ranks \
         the same key"
    )]
    WrongKey {
        /// The rank that was refused.
        rank: usize,
        /// The address of rank 0.
        address: SocketAddr,
        /// The job's name.
        job: String,
    },
    /// Another program listens there. Check the port, or name another one.
    #[error(
        "rank {rank} found something other than rank 0 of job '{job}' at {address}: {what}; name \
         another port with {variable}"
    )]
    NotRankZero {
        /// The rank that could not join.
        rank: usize,
        /// The address of that program.
        address: SocketAddr,
        /// The job's name.
        job: String,
        /// Its description, from its reply.
        what: String,
        /// The variable that names the port.
        variable: &'static str,
    },
    /// Another process has joined as this rank. Give every process a rank of its own.
    #[error("rank {rank} has joined already, as {holder}: give every process a rank of its own")]
    Duplicate {
        /// The rank.
        rank: usize,
        /// The process that has joined as this rank.
        holder: String,
    },
    /// There is no such rank. Check the rank and the world size.
    #[error(
        "rank {rank} is not below the world size, {world}: check the rank and the world size of \
         every process"
    )]
    OutOfRange {
        /// The rank.
        rank: usize,
        /// How many ranks there are.
        world: usize,
    },
    /// Ranks differ in something that must be equal. Make it equal.
    #[error("{0}; make them equal on all ranks")]
    Differs(Differences),
    /// Some ranks did not join in time. Look for the reason on the ranks that are named.
    #[error("after {} s these ranks have not joined: \
             {}{}", waited.as_secs_f32(), list_ranks(ranks), note_of(note))]
    Missing {
        /// The missing ranks.
        ranks: Vec<usize>,
        /// The wait time of the others.
        waited: Duration,
        /// Which connections were refused, and why.
        note: String,
    },
    /// Rank 0 ended while other ranks were joining. Look at the output of rank 0.
    #[error("rank 0 at {address} went away while rank {rank} was joining: {why}")]
    Lost {
        /// The rank that was joining.
        rank: usize,
        /// The address of rank 0.
        address: SocketAddr,
        /// How the loss was detected.
        why: String,
    },
    /// The running ranks did not admit this process. Check that they call
    /// [`Communicator::admit`](crate::Communicator::admit), and that a rank is missing.
    #[error(
        "this process wanted to be rank {rank} of the ranks at {address}, and was not admitted: {why}"
    )]
    NotAdmitted {
        /// The rank that the process requested.
        rank: usize,
        /// Where the ranks are.
        address: SocketAddr,
        /// Why not.
        why: String,
    },
    /// [`JoinStop::stop`](super::JoinStop::stop) ended the join.
    #[error("joining was stopped by this process")]
    Stopped,
    /// The operating system refused a call.
    #[error("joining failed: {0}")]
    Io(#[from] io::Error),
}

/// Why a newcomer on another host is refused.
const OTHER_HOST: &str = "the ranks share memory alone, and this process is on another host: start it on theirs, or all \
     with MAYPOLE_TRANSPORT=auto";

/// ` (10.0.0.7, fd00::7)`, the addresses of a name; nothing for an address in digits.
fn resolved(name: &str, addresses: &[IpAddr]) -> String {
    match addresses {
        [only] if only.to_string() == name => String::new(),
        _ => format!(" ({})", list(addresses)),
    }
}

fn note_of(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(" ({note})") }
}

impl JoinError {
    /// True if the same process may join another time. False if a setting or a limit must change
    /// first.
    pub fn is_retryable(&self) -> bool {
        // Other errors are transient: another program may end, a name may resolve later, a rank may
        // start.
        !matches!(
            self,
            Self::Config(_)
                | Self::KeyNeeded { .. }
                | Self::NotThisHost { .. }
                | Self::Descriptors { .. }
                | Self::WrongKey { .. }
                | Self::OutOfRange { .. }
                | Self::Differs(_)
        )
    }

    pub(super) fn refused(refusal: JoinRefusal, waited: Duration) -> Self {
        match refusal {
            JoinRefusal::Duplicate { rank, holder } => Self::Duplicate { rank, holder },
            JoinRefusal::OutOfRange { rank, world } => Self::OutOfRange { rank, world },
            JoinRefusal::Differs(differences) => Self::Differs(differences),
            JoinRefusal::Missing { ranks, note } => Self::Missing { ranks, waited, note },
            JoinRefusal::OtherHost => Self::Config(OTHER_HOST.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_first_few_ranks() {
        assert_eq!(list_ranks(&[2]), "2");
        assert_eq!(list_ranks(&[1, 2, 3, 4, 5, 6, 7, 9]), "1, 2, 3, 4, 5, 6, 7, 9");
        let ranks: Vec<usize> = (1..3000).collect();
        let error =
            JoinError::Missing { ranks, waited: Duration::from_secs(2), note: String::new() };
        assert_eq!(
            error.to_string(),
            "after 2 s these ranks have not joined: 1, 2, 3, 4, 5, 6, 7, 8 and 2991 others"
        );
    }
}
