//! One page about all ranks of a job: their states, and the ranks to look at first. Pure: the
//! statuses go in, and text comes out.

use std::collections::BTreeMap;
use std::ops::Range;

use maypole::comm::status::{GroupStatus, PendingOperation, RankStatus};
use maypole::world::service::{AskError, Diagnosis};

use crate::run::started::names_of as ranks;

/// The reports of all ranks.
#[derive(Debug, Default)]
pub(super) struct JobStatus {
    pub(super) world: usize,
    /// The ranks of this launcher.
    pub(super) here: Range<usize>,
    /// Why the page is made, as the end of a sentence.
    pub(super) reason: String,
    /// The last status of each rank that has ever sent one.
    pub(super) statuses: BTreeMap<usize, RankStatus>,
    /// Ranks without a reply to the last request.
    pub(super) silent: Vec<usize>,
    /// Ranks whose connection to the launcher has ended.
    pub(super) gone: Vec<usize>,
}

impl JobStatus {
    /// The page, line by line.
    pub(super) fn page(&self) -> String {
        let mut page = format!("hang report, {}:\n", self.reason);
        for line in self.lines() {
            page += &format!("  {line}\n");
        }
        page
    }

    fn lines(&self) -> Vec<String> {
        let unknown = |rank: &usize| !self.statuses.contains_key(rank);
        let unknown: Vec<usize> = self.here.clone().filter(unknown).collect();
        let mut lines = Vec::new();
        if !unknown.is_empty() {
            lines.push(format!(
                "{}: not joined, or the program does not use maypole",
                ranks(&unknown)
            ));
        }
        let is_told = |rank: &usize| self.told(*rank).is_some();
        let (told, gone): (Vec<usize>, Vec<usize>) = self.gone.iter().copied().partition(is_told);
        if !gone.is_empty() {
            lines.push(format!("{}: the process has ended or left", ranks(&gone)));
        }
        if !told.is_empty() {
            let since = "the process has ended since it failed; what it was in then";
            lines.push(format!("{}: {since}:", ranks(&told)));
        }
        if !self.silent.is_empty() {
            lines.push(format!(
                "{}: no answer; the process is stopped, or gets no processor",
                ranks(&self.silent)
            ));
        }
        let groups = self.groups();
        for (members, positions) in &groups {
            lines.extend(self.group_lines(members, positions));
        }
        lines.extend(self.failures());
        lines.push(self.verdict(&unknown, &groups));
        lines
    }

    /// The positions of the ranks, by the members of their groups.
    fn groups(&self) -> BTreeMap<Vec<usize>, Vec<Position<'_>>> {
        let mut groups: BTreeMap<Vec<usize>, Vec<Position<'_>>> = BTreeMap::new();
        let tells = |rank: &usize| Some((*rank, self.told(*rank)?));
        for (rank, status) in self.statuses.keys().filter_map(tells) {
            for group in &status.groups {
                let of_group = groups.entry(group.members.clone()).or_default();
                let elsewhere = status.is_inside();
                let has_ended = self.gone.contains(&rank);
                of_group.push(Position { rank, group, elsewhere, has_ended });
            }
        }
        // A group that no rank is in has nothing to do with a hang, unless it is the world.
        let is_world = |members: &[usize]| members.len() == self.world;
        groups.retain(|members, positions| {
            is_world(members) || positions.iter().any(Position::is_inside)
        });
        groups
    }

    fn group_lines(&self, members: &[usize], positions: &[Position<'_>]) -> Vec<String> {
        let mut by_text: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for position in positions {
            by_text.entry(position.line()).or_default().push(position.rank);
        }
        let mut lines: Vec<(Vec<usize>, String)> =
            by_text.into_iter().map(|(text, ranks)| (ranks, text)).collect();
        lines.sort_unstable();
        let place = match members.len() == self.world {
            true => String::new(),
            false => format!("group of {}: ", ranks(members)),
        };
        lines.into_iter().map(|(who, text)| format!("{place}{}: {text}", ranks(&who))).collect()
    }

    fn failures(&self) -> Vec<String> {
        let mut by_text: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (rank, status) in &self.statuses {
            if let Some(failure) = &status.failure {
                by_text.entry(failure).or_default().push(*rank);
            }
        }
        let line = |(text, who): (&str, Vec<usize>)| format!("{} failed: {text}", ranks(&who));
        by_text.into_iter().map(line).collect()
    }

    /// Which ranks to look at first: those without a reply, those that call something else, those
    /// with fewer operations.
    fn verdict(
        &self,
        unknown: &[usize],
        groups: &BTreeMap<Vec<usize>, Vec<Position<'_>>>,
    ) -> String {
        if !self.silent.is_empty() {
            return format!("look first at {}: no answer", ranks(&self.silent));
        }
        let found = groups.values().find_map(|positions| {
            let late = || late(positions, &self.gone);
            different(positions).or_else(late).or_else(|| self.awaited(positions))
        });
        match found {
            Some(found) => format!("look first at {found}"),
            None if !unknown.is_empty() => {
                format!("look first at {}: not joined", ranks(unknown))
            }
            None => {
                let mut waiters = groups.values().flatten().filter_map(|it| self.follow(it));
                let circle = waiters.find(|it| matches!(it, Diagnosis::Cycle { .. }));
                let none = || "no rank is behind, and no rank calls something else".to_owned();
                circle.map_or_else(none, |circle| circle.to_string())
            }
        }
    }

    /// A rank for whose message another one waits in the group, and that waits for no other.
    fn awaited(&self, positions: &[Position<'_>]) -> Option<String> {
        positions.iter().find_map(|waiter| {
            let waits = waiter.pending().filter(|pending| is_message(pending))?;
            let found = self.follow(waiter)?;
            let (Diagnosis::Unreachable { rank, .. } | Diagnosis::Outside { rank, .. }) = found
            else {
                return None;
            };
            let (of, call) = (waiter.rank, &waits.call);
            Some(format!("rank {rank}, for which rank {of} waits in {call}: {found}"))
        })
    }

    /// Follows the chain of waits from `waiter` to its end. `None` if `waiter` waits for no rank.
    fn follow(&self, waiter: &Position<'_>) -> Option<Diagnosis> {
        let GroupStatus { group, members, .. } = waiter.group;
        let awaited = *members.get(waiter.pending()?.awaits?)?;
        Some(Diagnosis::follow(*group, awaited, |rank, _| match self.told(rank) {
            Some(status) => Ok(status.clone()),
            None if self.gone.contains(&rank) => Err(AskError::Unreachable("it ended".to_owned())),
            None => Err(AskError::NoTime),
        }))
    }

    /// The status of `rank`. That of a rank that has failed is kept after its process has ended.
    fn told(&self, rank: usize) -> Option<&RankStatus> {
        let status = self.statuses.get(&rank)?;
        let here = !self.silent.contains(&rank) && !self.gone.contains(&rank);
        (here || status.failure.is_some()).then_some(status)
    }
}

/// A message between two ranks is no call of the group.
fn is_message(pending: &PendingOperation) -> bool {
    pending.fingerprint == 0
}

/// A rank's place in one group.
#[derive(Debug)]
struct Position<'a> {
    rank: usize,
    group: &'a GroupStatus,
    /// The rank is in a call, in this group or in another one.
    elsewhere: bool,
    /// The process has ended since, after a failure.
    has_ended: bool,
}

impl Position<'_> {
    fn is_inside(&self) -> bool {
        self.group.pending.is_some()
    }

    /// The pending operation, unless it is a request during which the rank computes.
    fn pending(&self) -> Option<&PendingOperation> {
        self.group.pending.as_ref().filter(|pending| !pending.in_background)
    }

    /// True if the rank waits in a call of the group.
    fn waits_in_call(&self) -> bool {
        let pending = self.group.pending.as_ref().filter(|pending| !is_message(pending));
        pending.is_some_and(|pending| pending.waiting_seconds.is_some())
    }

    /// What the rank does, without what differs between ranks that do the same.
    fn text(&self) -> String {
        match &self.group.pending {
            Some(pending) => {
                let mut text = format!("in {} (operation {})", pending.call, pending.sequence);
                if let Some(seconds) = pending.waiting_seconds {
                    text += &format!(" for {seconds:.0} s");
                }
                if let Some(peer) = pending.awaits {
                    let peer = self.group.members.get(peer).copied().unwrap_or(peer);
                    text += &format!(", awaiting rank {peer} in step {}", pending.step);
                }
                text
            }
            None => self.group.absence(self.elsewhere),
        }
    }

    /// What the rank does or, if its process has ended, did last.
    fn line(&self) -> String {
        match self.has_ended {
            true => format!("has ended; it was {}", self.text()),
            false => self.text(),
        }
    }
}

/// The minority of ranks that are in another call than the others in the same operation.
fn different(positions: &[Position<'_>]) -> Option<String> {
    let mut calls: BTreeMap<u64, BTreeMap<u64, (&str, Vec<usize>)>> = BTreeMap::new();
    for position in positions {
        let Some(pending) = &position.group.pending else { continue };
        if is_message(pending) {
            continue;
        }
        let of_operation = calls.entry(pending.sequence).or_default();
        let call = of_operation.entry(pending.fingerprint);
        call.or_insert_with(|| (&pending.call, Vec::new())).1.push(position.rank);
    }
    let (sequence, calls) = calls.into_iter().find(|(_, calls)| calls.len() > 1)?;
    let (_, (call, minority)) = calls.iter().min_by_key(|(_, (_, who))| (who.len(), who[0]))?;
    let (_, (others, _)) = calls.iter().max_by_key(|(_, (_, who))| who.len())?;
    Some(format!(
        "{}: in {call} as operation {sequence}, where others are in {others}",
        ranks(minority)
    ))
}

/// The ranks with the fewest operations, for which ranks in a call of the group wait. A rank that
/// waits in another group is not the cause.
fn late(positions: &[Position<'_>], gone: &[usize]) -> Option<String> {
    let waiting = positions.iter().filter(|position| position.waits_in_call());
    let furthest = waiting.map(|position| position.group.completed).max()?;
    let is_absent = |position: &&Position<'_>| {
        let is_behind = !position.is_inside() && position.group.completed <= furthest;
        is_behind && !position.elsewhere
    };
    let absent: Vec<usize> =
        positions.iter().filter(is_absent).map(|position| position.rank).collect();
    if !absent.is_empty() {
        let text = format!("{}: operation {furthest} is not called there yet", ranks(&absent));
        return Some(text);
    }
    let behind =
        |position: &&Position<'_>| position.waits_in_call() && position.group.completed < furthest;
    let behind: Vec<usize> = positions.iter().filter(behind).map(|it| it.rank).collect();
    if !behind.is_empty() {
        return Some(format!("{}: behind the others", ranks(&behind)));
    }
    let members = &positions.first()?.group.members;
    let gone: Vec<usize> = gone.iter().copied().filter(|rank| members.contains(rank)).collect();
    (!gone.is_empty()).then(|| format!("{}: awaited, and ended", ranks(&gone)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The status of a rank of a world of `world`, which has done `completed` operations. `pending`
    /// is its call, a hash of it, and whom it awaits.
    fn status(
        rank: usize,
        world: usize,
        completed: u64,
        pending: Option<(&str, u64, Option<usize>)>,
    ) -> RankStatus {
        let pending = pending.map(|(call, fingerprint, awaits)| {
            json!({
                "sequence": completed, "call": call, "fingerprint": fingerprint, "awaits": awaits,
                "step": 0, "waiting_seconds": 12.0, "in_background": false, "bytes": 0,
                "bytes_done": 0,
            })
        });
        let recent = json!([{
            "first": 0, "count": completed, "call": "barrier()", "fingerprint": 5, "arguments": [],
            "choices": [], "seconds_ago": 1.0,
        }]);
        let group = json!({
            "group": { "parent_epoch": 0, "counter": 0 }, "left": false,
            "members": (0..world).collect::<Vec<_>>(), "rank": rank, "completed": completed,
            "messages": 0, "pending": pending, "recent": recent,
        });
        let network = json!({ "refused": 0, "half_open": 0, "left": [], "silent": [] });
        let status = json!({
            "rank": rank, "world": world, "process": 1, "unix_seconds": 0.0, "groups": [group],
            "network": network, "failure": null,
        });
        serde_json::from_value(status).unwrap()
    }

    fn job(statuses: Vec<RankStatus>) -> JobStatus {
        JobStatus {
            world: statuses[0].world,
            here: 0..statuses[0].world,
            reason: "on request".to_owned(),
            statuses: statuses.into_iter().map(|status| (status.rank, status)).collect(),
            ..JobStatus::default()
        }
    }

    #[test]
    fn the_rank_that_has_not_called_is_pointed_at() {
        let waits = |rank| status(rank, 4, 7, Some(("all_reduce(8 x f32, sum)", 5, Some(2))));
        let page = job(vec![waits(0), waits(1), status(2, 4, 7, None), waits(3)]).page();
        let expected = "\
hang report, on request:
  ranks 0 1 3: in all_reduce(8 x f32, sum) (operation 7) for 12 s, awaiting rank 2 in step 0
  rank 2: outside the library after 7 operations, the last of them barrier()
  look first at rank 2: operation 7 is not called there yet
";
        assert_eq!(page, expected);
    }

    #[test]
    fn the_minority_that_calls_something_else_is_pointed_at() {
        let barrier = |rank| status(rank, 3, 4, Some(("barrier()", 5, Some(1))));
        let other = status(1, 3, 4, Some(("split()", 6, None)));
        let page = job(vec![barrier(0), other, barrier(2)]).page();
        let verdict =
            "look first at rank 1: in split() as operation 4, where others are in barrier()";
        assert!(page.trim_end().ends_with(verdict), "{page}");
    }

    #[test]
    fn ranks_that_do_not_answer_come_first() {
        let waits = |rank| status(rank, 3, 4, Some(("barrier()", 5, Some(1))));
        let job = JobStatus { silent: vec![1], ..job(vec![waits(0), waits(1), waits(2)]) };
        let page = job.page();
        assert!(page.contains("rank 1: no answer; the process is stopped"), "{page}");
        assert!(page.trim_end().ends_with("look first at rank 1: no answer"), "{page}");
    }

    #[test]
    fn a_rank_that_is_behind_or_never_joined_is_pointed_at() {
        let ahead = |rank| status(rank, 3, 9, Some(("barrier()", 5, Some(1))));
        let behind = status(1, 3, 8, Some(("barrier()", 5, Some(0))));
        let page = job(vec![ahead(0), behind, ahead(2)]).page();
        assert!(page.trim_end().ends_with("look first at rank 1: behind the others"), "{page}");
        let mut missing = job(vec![status(0, 3, 0, None), status(2, 3, 0, None)]);
        (missing.world, missing.here) = (3, 0..3);
        let page = missing.page();
        assert!(page.contains("rank 1: not joined"), "{page}");
        assert!(page.trim_end().ends_with("look first at rank 1: not joined"), "{page}");
    }

    #[test]
    fn what_failed_ranks_did_counts_also_when_they_have_ended() {
        let failed = |rank, pending| {
            let failure = Some("rank 0 waited 2 s for rank 1".to_owned());
            let mut status = status(rank, 3, 4, pending);
            status.failure = failure;
            status
        };
        let waits = Some(("barrier()", 5, Some(1)));
        let job = job(vec![failed(0, waits), failed(1, None), failed(2, waits)]);
        let page = JobStatus { gone: vec![0, 1, 2], ..job }.page();
        assert!(page.contains("ranks 0-2 failed: rank 0 waited 2 s for rank 1"), "{page}");
        let verdict = "look first at rank 1: operation 4 is not called there yet";
        assert!(page.trim_end().ends_with(verdict), "{page}");
        // The page never shows an ended rank in a call.
        let then = "ranks 0-2: the process has ended since it failed; what it was in then:";
        assert!(page.contains(then) && !page.contains("ended or left"), "{page}");
    }

    /// Adds a group of the ranks `members`, in which the rank waits for its rank `awaits` in a message.
    fn receiving(mut status: RankStatus, members: &[usize], awaits: usize) -> RankStatus {
        let call = format!("recv(1 x u8, from rank {awaits}, tag 0)");
        let rank = members.iter().position(|member| *member == status.rank).unwrap();
        let group = json!({
            "group": { "parent_epoch": 1, "counter": members.len() }, "left": false,
            "members": members, "rank": rank, "completed": 0, "messages": 3, "recent": [],
            "pending": {
                "sequence": 0, "call": call, "fingerprint": 0, "awaits": awaits, "step": 0,
                "waiting_seconds": 9.0, "in_background": false, "bytes": 0, "bytes_done": 0,
            },
        });
        status.groups.push(serde_json::from_value(group).unwrap());
        status
    }

    #[test]
    fn a_rank_that_waits_in_another_group_is_not_pointed_at() {
        let waits = status(2, 3, 4, Some(("barrier()", 5, Some(1))));
        let elsewhere = receiving(status(1, 3, 4, None), &[1, 0], 1);
        let page = job(vec![status(0, 3, 5, None), elsewhere, waits]).page();
        let here = "rank 1: in a call in another group, here after 4 operations, the last of them";
        assert!(page.contains(here), "{page}");
        let verdict = "look first at rank 0, for which rank 1 waits in recv(1 x u8, from rank 1, \
                       tag 0): rank 0 is outside the library";
        assert!(page.contains(verdict), "{page}");
    }

    #[test]
    fn a_rank_that_waits_for_a_message_points_at_its_sender_alone() {
        let waits = receiving(status(2, 3, 4, None), &[0, 1, 2], 1);
        let page = job(vec![status(0, 3, 4, None), status(1, 3, 4, None), waits]).page();
        let verdict = "look first at rank 1, for which rank 2 waits in recv(";
        assert!(page.contains(verdict), "{page}");
    }

    #[test]
    fn ranks_that_wait_for_one_another_are_named() {
        let zero = receiving(status(0, 3, 4, None), &[0, 1], 1);
        let one = receiving(status(1, 3, 4, None), &[0, 1], 0);
        let page = job(vec![zero, one, status(2, 3, 4, None)]).page();
        assert!(page.contains("  ranks wait for one another: rank "), "{page}");
    }

    #[test]
    fn a_rank_that_failed_and_ended_is_told_of_once() {
        let failed = |rank: usize| {
            let mut status = status(rank, 3, 7, Some(("barrier()", 5, None)));
            status.failure = Some("rank 2 died".to_owned());
            status
        };
        let mut job = job(vec![failed(0), failed(1), status(2, 3, 7, None)]);
        job.gone = vec![0, 1, 2];
        let page = job.page();
        let line = "ranks 0 1: has ended; it was in barrier() (operation 7) for 12 s\n";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("  rank 2: the process has ended or left\n"), "{page}");
        assert!(!page.contains("ranks 0-2: the process"), "{page}");
    }
}
