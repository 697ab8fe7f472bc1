//! A status in plain words.

use super::{GroupStatus, PendingOperation, RankStatus};
use std::fmt;

/// How many of the last calls are printed.
const CALLS_SHOWN: usize = 3;

impl fmt::Display for RankStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, process, groups, network, failure, .. } = self;
        write!(f, "rank {rank} of {world} (process {process})")?;
        for group in groups {
            f.write_str("\n  ")?;
            write_group(f, group, self.is_inside())?;
        }
        if !network.left.is_empty() {
            write!(f, "\n  left: {}", numbered("rank", &network.left))?;
        }
        if !network.silent.is_empty() {
            write!(f, "\n  silent for 10 s or more: {}", numbered("rank", &network.silent))?;
        }
        if network.refused + network.half_open as u64 > 0 {
            let (refused, pending) = (network.refused, network.half_open);
            write!(f, "\n  connections of strangers: {refused} refused, {pending} pending")?;
        }
        match failure {
            Some(failure) => write!(f, "\n  failed: {failure}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for GroupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_group(f, self, false)
    }
}

/// Writes the activity of a rank in a group. `is_inside`: it is in a call in some group.
fn write_group(f: &mut fmt::Formatter<'_>, group: &GroupStatus, is_inside: bool) -> fmt::Result {
    let GroupStatus { members, rank, pending, recent, .. } = group;
    match members.iter().enumerate().all(|(at, member)| at == *member) {
        true => write!(f, "ranks 0 to {}: ", members.len() - 1)?,
        false => write!(f, "group of {}, as its rank {rank}: ", numbered("rank", members))?,
    }
    match pending {
        Some(pending) => write!(f, "in {pending}")?,
        None => f.write_str(&group.absence(is_inside))?,
    }
    let before = recent.iter().rev().skip(1).take(CALLS_SHOWN);
    for calls in before {
        let end = calls.first + calls.count - 1;
        match calls.count {
            1 => write!(f, "\n    before: {} (operation {end})", calls.call)?,
            _ => write!(f, "\n    before: {} (operations {} to {end})", calls.call, calls.first)?,
        }
    }
    Ok(())
}

impl fmt::Display for PendingOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, call, awaits, step, waiting_seconds, bytes, bytes_done, .. } = self;
        write!(f, "{call} (operation {sequence})")?;
        if let Some(seconds) = waiting_seconds {
            write!(f, ", waiting for {seconds:.1} s")?;
        }
        if self.in_background {
            f.write_str(", a request in the background")?;
        }
        if let Some(rank) = awaits {
            write!(f, ", awaits rank {rank} in step {step}")?;
        }
        match bytes {
            0 => Ok(()),
            _ => write!(f, ", {bytes_done} of {bytes} bytes done"),
        }
    }
}

/// `rank 3`, or `ranks 0 1 7`.
fn numbered(noun: &str, numbers: &[usize]) -> String {
    let plural = if numbers.len() == 1 { "" } else { "s" };
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("{noun}{plural} {}", numbers.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::calls::{GroupId, NetworkStatus, RecentCalls};

    fn calls(first: u64, count: u64, call: &str) -> RecentCalls {
        let (call, arguments, choices) = (call.to_owned(), Vec::new(), Vec::new());
        RecentCalls { first, count, call, fingerprint: 1, arguments, choices, seconds_ago: 0.0 }
    }

    #[test]
    fn a_status_is_read_as_a_sentence_for_each_group() {
        let pending = PendingOperation {
            sequence: 7,
            call: "all_reduce(1000 x f32, sum)".to_owned(),
            fingerprint: 1,
            awaits: Some(1),
            step: 2,
            waiting_seconds: Some(2.25),
            in_background: false,
            bytes: 4000,
            bytes_done: 1000,
        };
        let world = GroupStatus {
            group: GroupId::WORLD,
            left: false,
            members: vec![0, 1, 2],
            rank: 2,
            completed: 7,
            messages: 0,
            pending: Some(pending),
            recent: vec![
                calls(0, 5, "barrier()"),
                calls(5, 1, "split()"),
                calls(6, 2, "all_reduce(1000 x f32, sum)"),
            ],
        };
        let pair = GroupStatus {
            group: GroupId { parent_epoch: 1, counter: 1 },
            left: false,
            members: vec![2, 0],
            rank: 0,
            completed: 1,
            messages: 0,
            pending: None,
            recent: vec![calls(0, 1, "barrier()")],
        };
        let network = NetworkStatus { refused: 2, half_open: 1, left: vec![1], silent: Vec::new() };
        let status = RankStatus {
            rank: 2,
            world: 3,
            process: 77,
            unix_seconds: 0.0,
            groups: vec![world, pair],
            network,
            failure: Some("rank 1 died".to_owned()),
            culprit: None,
        };
        let expected = "\
rank 2 of 3 (process 77)
  ranks 0 to 2: in all_reduce(1000 x f32, sum) (operation 7), waiting for 2.2 s, awaits rank 1 in \
step 2, 1000 of 4000 bytes done
    before: split() (operation 5)
    before: barrier() (operations 0 to 4)
  group of ranks 2 0, as its rank 0: in a call in another group, here after 1 operation, the last of them barrier()
  left: rank 1
  connections of strangers: 2 refused, 1 pending
  failed: rank 1 died";
        assert_eq!(status.to_string(), expected);
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<RankStatus>(&json).unwrap(), status);
    }
}
