//! The state that only rank 0 has: open exchanges, and the ranks that have left or died. Pure:
//! requests are its inputs, messages its outputs, and time is an argument.

mod farewells;

use super::message::{AskedRank, ControlRequest, ExchangeRound, Notice, StatusQuestion};
use super::{Cause, FailureKind, GroupId};
use crate::world::calls::GroupStatus;
use farewells::Farewells;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The time after the end of a process during which its connection may still be open.
const CLOSING_TIME: Duration = Duration::from_millis(200);

/// Messages of rank 0, each with its receiver.
pub(super) type Notices = Vec<(usize, Notice)>;

#[derive(Debug, Default)]
pub(super) struct Coordinator {
    world: usize,
    rounds: HashMap<ExchangeRound, BTreeMap<usize, Vec<u8>>>,
    /// Ranks that have left, with the last calls of each in each of its groups.
    left: BTreeMap<usize, Vec<GroupStatus>>,
    /// Goodbyes that are not confirmed yet.
    farewells: Farewells,
    dead: BTreeSet<usize>,
    /// Ranks whose process has ended, each with the deadline after which it counts as dead.
    ending: BTreeMap<usize, Instant>,
    /// The least cause that was sent to all ranks.
    announced: Option<Cause>,
}

impl Coordinator {
    pub(super) fn new(world: usize) -> Self {
        Self { world, ..Self::default() }
    }

    /// True if all other ranks have left or died.
    pub(super) fn is_alone(&self) -> bool {
        (1..self.world).all(|rank| self.is_gone(rank))
    }

    fn is_gone(&self, rank: usize) -> bool {
        self.left.contains_key(&rank) || self.dead.contains(&rank)
    }

    /// Handles a request of rank `from`. Its content is trusted, because the rank holds the job's
    /// key.
    pub(super) fn request(
        &mut self,
        from: usize,
        request: ControlRequest,
        now: Instant,
    ) -> Notices {
        match request {
            ControlRequest::Heartbeat => Vec::new(),
            ControlRequest::Abort(cause) => {
                let mut out = self.confirmed_abort(from, cause);
                out.extend(self.release(now));
                out
            }
            ControlRequest::Contribute { round, payload } => self.contribute(from, round, payload),
            ControlRequest::AskMissing { round } => {
                let given = self.rounds.get(&round);
                let missing = |rank: &usize| given.is_none_or(|given| !given.contains_key(rank));
                let ranks = round.members.iter().copied().filter(missing).collect();
                vec![(from, Notice::Missing { round, ranks })]
            }
            ControlRequest::ProcessEnded { rank } => {
                if rank < self.world && !self.is_gone(rank) {
                    self.ending.entry(rank).or_insert(now + CLOSING_TIME);
                }
                Vec::new()
            }
            ControlRequest::Goodbye { last, calls, patient } => {
                let mut out = self.goodbye(from, calls);
                let had_failed = self.announced.is_some();
                if patient && !had_failed {
                    self.farewells.hold(from, last, now);
                }
                out.extend(self.compare_last_calls(from, last));
                if !self.farewells.holds(from) {
                    // Only the leaving rank can still report the mismatch.
                    let found = self.announced.clone().filter(|_| !had_failed);
                    out.extend(found.map(|found| (from, Notice::Abort(found))));
                    out.push((from, Notice::Farewell));
                }
                out.extend(self.release(now));
                out
            }
            ControlRequest::AskStatus { of, question } => self.ask_status(from, of, question),
            ControlRequest::TellStatus { to: None, status, .. } => {
                self.farewells.note(from, status.map_or(0, |status| status.completed));
                self.release(now)
            }
            ControlRequest::TellStatus { to: Some(to), question, status } if to < self.world => {
                vec![(to, Notice::Status { rank: Some(from), question, status })]
            }
            ControlRequest::TellStatus { .. } => Vec::new(),
        }
    }

    fn to_all(&self, notice: impl Fn() -> Notice) -> Notices {
        let hears = |rank: &usize| !self.is_gone(*rank) || self.farewells.holds(*rank);
        (0..self.world).filter(hears).map(|rank| (rank, notice())).collect()
    }

    /// Compares the last calls of a rank that has left with those of ranks that left before.
    fn compare_last_calls(&mut self, from: usize, last: u64) -> Notices {
        self.farewells.note(from, last);
        let differ = |calls: &GroupStatus| {
            let found = self.farewells.compare(calls)?;
            let members = if calls.group == GroupId::WORLD { &[] } else { &calls.members[..] };
            Some(Cause::mismatch(calls.group, members, from, found))
        };
        let found = self.left[&from].iter().filter_map(differ).min();
        found.map_or_else(Vec::new, |found| self.abort(found))
    }

    /// Confirms the goodbyes whose wait has ended.
    fn release(&mut self, now: Instant) -> Notices {
        let Self { farewells, left, dead, world, announced, .. } = self;
        let ranks = match announced {
            Some(_) => farewells.release_all(),
            None => farewells
                .release(*world, now, |rank| left.contains_key(&rank) || dead.contains(&rank)),
        };
        ranks.into_iter().map(|rank| (rank, Notice::Farewell)).collect()
    }

    /// Requests the operation counts of the remaining ranks, if a goodbye waits for them.
    fn ask_for_farewells(&mut self, now: Instant) -> Notices {
        if !self.farewells.is_question_due(now) {
            return Vec::new();
        }
        let here = (0..self.world).filter(|rank| !self.is_gone(*rank));
        let question = StatusQuestion { token: 0, group: GroupId::WORLD, end: 0 };
        here.map(|rank| (rank, Notice::AskStatus { asker: None, question })).collect()
    }

    /// As [`abort`](Self::abort). Rank `from` always receives a reply, which confirms that rank 0
    /// forwards the failure.
    fn confirmed_abort(&mut self, from: usize, cause: Cause) -> Notices {
        let out = self.abort(cause);
        match &self.announced {
            Some(announced) if out.is_empty() => vec![(from, Notice::Abort(announced.clone()))],
            _ => out,
        }
    }

    fn abort(&mut self, cause: Cause) -> Notices {
        if let Some(members) = cause.members() {
            return members.iter().map(|to| (*to, Notice::Abort(cause.clone()))).collect();
        }
        let is_first = match &self.announced {
            None => true,
            // A failed rank soon ends, which its peers see as a death. That death is a consequence.
            Some(_) if cause.kind == FailureKind::Death => false,
            Some(announced) => cause.precedes(announced),
        };
        if !is_first {
            return Vec::new();
        }
        self.announced = Some(cause.clone());
        self.to_all(|| Notice::Abort(cause.clone()))
    }

    fn contribute(&mut self, from: usize, round: ExchangeRound, payload: Vec<u8>) -> Notices {
        let members = &round.members;
        if !members.contains(&from) || members.iter().any(|member| *member >= self.world) {
            return Vec::new();
        }
        let given = self.rounds.entry(round.clone()).or_default();
        given.insert(from, payload);
        if members.iter().all(|member| given.contains_key(member)) {
            let given = self.rounds.remove(&round).expect("just filled");
            let payloads: Vec<Vec<u8>> =
                members.iter().map(|member| given[member].clone()).collect();
            let notice = || Notice::Exchanged { round: round.clone(), payloads: payloads.clone() };
            return members.iter().map(|member| (*member, notice())).collect();
        }
        let gone = members
            .iter()
            .copied()
            .find(|member| !given.contains_key(member) && self.left.contains_key(member));
        gone.map(|rank| self.incomplete(&round, rank)).unwrap_or_default()
    }

    /// Notifies the members that contributed that the exchange cannot complete.
    fn incomplete(&mut self, round: &ExchangeRound, rank: usize) -> Notices {
        let given = self.rounds.get_mut(round).map(std::mem::take).unwrap_or_default();
        given
            .into_keys()
            .map(|member| (member, Notice::Incomplete { round: round.clone(), rank }))
            .collect()
    }

    /// Forwards the query of `asker`, or replies for a rank that has left or died.
    fn ask_status(&self, asker: usize, of: AskedRank, question: StatusQuestion) -> Notices {
        let rank = match of {
            AskedRank::World(rank) => Some(rank),
            AskedRank::Missing => self.missing_member(asker, question.group),
        };
        let here = |rank: &usize| *rank < self.world && !self.is_gone(*rank);
        if let Some(rank) = rank.filter(here) {
            return vec![(rank, Notice::AskStatus { asker: Some(asker), question })];
        }
        let mut known = rank.and_then(|rank| self.left.get(&rank)).into_iter().flatten();
        let status = known.find(|status| status.group == question.group).cloned();
        vec![(asker, Notice::Status { rank, question, status })]
    }

    /// The first member whose part is missing in the exchange of `group` that `asker` waits for.
    fn missing_member(&self, asker: usize, group: GroupId) -> Option<usize> {
        let mut open = self.rounds.iter();
        let open = open.find(|(round, given)| round.group == group && given.contains_key(&asker));
        let (round, given) = open?;
        round.members.iter().copied().find(|member| !given.contains_key(member))
    }

    /// Keeps the last calls of a leaving rank for later queries, and informs the others.
    fn goodbye(&mut self, from: usize, calls: Vec<GroupStatus>) -> Notices {
        self.left.insert(from, calls);
        let mut out = self.to_all(|| Notice::Left { rank: from });
        let waits = |round: &ExchangeRound, given: &BTreeMap<usize, Vec<u8>>| {
            round.members.contains(&from) && !given.contains_key(&from)
        };
        let stuck: Vec<ExchangeRound> = self
            .rounds
            .iter()
            .filter(|(round, given)| waits(round, given))
            .map(|(round, _)| round.clone())
            .collect();
        for round in stuck {
            out.extend(self.incomplete(&round, from));
        }
        out
    }

    /// The connection of `rank` has ended.
    pub(super) fn ended(&mut self, rank: usize, how: &str) -> Notices {
        self.ending.remove(&rank);
        self.farewells.forget(&[rank]);
        if self.is_gone(rank) {
            return Vec::new();
        }
        self.dead.insert(rank);
        self.abort(Cause::death(rank, how))
    }

    /// The next deadline for [`pass`](Self::pass).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ending.values().copied().chain(self.farewells.deadline()).min()
    }

    /// Handles the deadlines that have passed.
    pub(super) fn pass(&mut self, now: Instant) -> Notices {
        let mut out = Notices::new();
        let overdue: Vec<usize> =
            self.ending.iter().filter(|(_, until)| **until <= now).map(|(rank, _)| *rank).collect();
        for rank in overdue {
            out.extend(self.ended(rank, "its process ended"));
        }
        out.extend(self.ask_for_farewells(now));
        out.extend(self.release(now));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::RankSentence;
    use crate::world::service::message::ExchangePurpose;

    fn round(members: &[usize]) -> ExchangeRound {
        let purpose = ExchangePurpose::Operation;
        ExchangeRound { group: GroupId::WORLD, purpose, members: members.to_vec(), number: 1 }
    }

    fn cause(sequence: u64, kind: FailureKind, rank: usize) -> Cause {
        Cause { sequence, kind, rank, text: RankSentence::default(), culprit: None, detail: None }
    }

    fn goodbye(last: u64) -> ControlRequest {
        let calls = vec![GroupStatus::default()];
        ControlRequest::Goodbye { last, calls, patient: false }
    }

    #[test]
    fn a_question_about_calls_reaches_its_rank_or_is_answered_for_it() {
        let mut root = Coordinator::new(3);
        let now = Instant::now();
        let question = StatusQuestion { token: 1, group: GroupId::WORLD, end: 9 };
        let ask = |of| ControlRequest::AskStatus { of, question };
        let told = root.request(1, ask(AskedRank::World(2)), now);
        assert!(matches!(told[..], [(2, Notice::AskStatus { asker: Some(1), .. })]));
        let answer = ControlRequest::TellStatus { to: Some(1), question, status: None };
        let told = root.request(2, answer, now);
        assert!(matches!(told[..], [(1, Notice::Status { rank: Some(2), status: None, .. })]));
        let offer = ControlRequest::Contribute { round: round(&[0, 1, 2]), payload: Vec::new() };
        root.request(1, offer, now);
        let told = root.request(1, ask(AskedRank::Missing), now);
        assert!(matches!(told[..], [(0, Notice::AskStatus { asker: Some(1), .. })]));
        root.request(2, goodbye(5), now);
        let told = root.request(1, ask(AskedRank::World(2)), now);
        assert!(matches!(told[..], [(1, Notice::Status { rank: Some(2), status: Some(_), .. })]));
        let told = root.request(1, ask(AskedRank::World(7)), now);
        assert!(matches!(told[..], [(1, Notice::Status { status: None, .. })]));
    }

    #[test]
    fn a_patient_goodbye_is_confirmed_once_the_others_tell_that_they_have_done_as_much() {
        let mut root = Coordinator::new(2);
        let now = Instant::now();
        let calls = vec![GroupStatus::default()];
        let said = root.request(1, ControlRequest::Goodbye { last: 3, calls, patient: true }, now);
        assert!(!said.iter().any(|(_, notice)| matches!(notice, Notice::Farewell)));
        let asked = root.pass(root.deadline().unwrap());
        let [(0, Notice::AskStatus { asker: None, question })] = asked[..] else {
            panic!("{asked:?}")
        };
        let mut tell = |completed| {
            let status = Some(GroupStatus { completed, ..GroupStatus::default() });
            root.request(0, ControlRequest::TellStatus { to: None, question, status }, now)
        };
        assert!(tell(2).is_empty());
        assert!(matches!(tell(3)[..], [(1, Notice::Farewell)]));
    }

    #[test]
    fn a_round_completes_in_the_order_of_its_members() {
        let mut root = Coordinator::new(4);
        let now = Instant::now();
        let mut offer = |from: usize| {
            root.request(
                from,
                ControlRequest::Contribute { round: round(&[3, 1]), payload: vec![from as u8] },
                now,
            )
        };
        assert!(offer(1).is_empty());
        assert!(offer(0).is_empty());
        let out = offer(3);
        assert_eq!(out.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [3, 1]);
        let Notice::Exchanged { payloads, .. } = &out[0].1 else { panic!("something else") };
        assert_eq!(payloads, &[vec![3], vec![1]]);
    }

    #[test]
    fn members_that_wait_for_a_rank_that_left_are_told() {
        let mut root = Coordinator::new(3);
        let now = Instant::now();
        let offer = |from| {
            (from, ControlRequest::Contribute { round: round(&[0, 1, 2]), payload: Vec::new() })
        };
        let mut say = |(from, request)| root.request(from, request, now);
        say(offer(0));
        let told = say((2, goodbye(5)));
        assert!(
            told.iter().any(
                |(to, notice)| *to == 0 && matches!(notice, Notice::Incomplete { rank: 2, .. })
            )
        );
        assert!(told.iter().any(|(to, notice)| *to == 2 && matches!(notice, Notice::Farewell)));
        assert!(matches!(say(offer(1))[..], [(1, Notice::Incomplete { rank: 2, .. })]));
    }

    #[test]
    fn only_a_lesser_cause_is_announced_and_no_death_after_the_first() {
        let mut root = Coordinator::new(2);
        let now = Instant::now();
        let mut tell = |cause| root.request(1, ControlRequest::Abort(cause), now).len();
        assert_eq!(tell(cause(5, FailureKind::Mismatch, 1)), 2);
        assert_eq!(tell(cause(5, FailureKind::Timeout, 0)), 1, "the teller gets an answer");
        assert_eq!(tell(cause(4, FailureKind::Timeout, 0)), 2);
        assert_eq!(tell(cause(0, FailureKind::Death, 1)), 1);
        assert!(root.ended(1, "gone").is_empty());
        assert!(root.is_alone());
    }

    #[test]
    fn the_end_of_a_process_is_its_death_unless_it_said_goodbye() {
        let mut root = Coordinator::new(3);
        let now = Instant::now();
        root.request(1, goodbye(1), now);
        root.request(2, ControlRequest::ProcessEnded { rank: 1 }, now);
        assert_eq!(root.deadline(), None);
        root.request(1, ControlRequest::ProcessEnded { rank: 2 }, now);
        assert!(root.pass(now).is_empty());
        let out = root.pass(root.deadline().unwrap());
        assert!(matches!(
            &out[..],
            [(0, Notice::Abort(Cause { kind: FailureKind::Death, rank: 2, .. }))]
        ));
    }
}
