//! What rank 0 knows beyond the others: who takes part in what, who asked, who is gone. Pure:
//! requests go in, notices come out, time is an argument.

use super::message::{ControlRequest, ExchangeRound, Notice};
use super::{Cause, CauseKind, ProgressReport};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// How long a survey waits for ranks that do not answer.
const SURVEY: Duration = Duration::from_millis(500);
/// How long the end of a process may precede the end of its connection.
const DOOMED: Duration = Duration::from_millis(200);

/// Whom a notice is for.
pub(super) type Notices = Vec<(usize, Notice)>;

#[derive(Debug)]
pub(super) struct Coordinator {
    world: usize,
    rounds: HashMap<ExchangeRound, BTreeMap<usize, Vec<u8>>>,
    surveys: BTreeMap<u64, Survey>,
    next_survey: u64,
    left: BTreeMap<usize, u64>,
    dead: BTreeSet<usize>,
    /// Ranks whose process has ended, and whose connection must show it by then.
    doomed: BTreeMap<usize, Instant>,
    /// The least cause that everybody was told.
    told: Option<Cause>,
}

#[derive(Debug)]
struct Survey {
    asker: usize,
    id: u64,
    places: Vec<Option<ProgressReport>>,
    awaited: BTreeSet<usize>,
    until: Instant,
}

impl Coordinator {
    pub(super) fn new(world: usize) -> Self {
        Self {
            world,
            rounds: HashMap::new(),
            surveys: BTreeMap::new(),
            next_survey: 0,
            left: BTreeMap::new(),
            dead: BTreeSet::new(),
            doomed: BTreeMap::new(),
            told: None,
        }
    }

    /// Everybody else has left or died.
    pub(super) fn is_alone(&self) -> bool {
        (1..self.world).all(|rank| self.is_gone(rank))
    }

    fn is_gone(&self, rank: usize) -> bool {
        self.left.contains_key(&rank) || self.dead.contains(&rank)
    }

    /// Takes a request of rank `from`, which is believed: it holds the key.
    pub(super) fn request(
        &mut self,
        from: usize,
        request: ControlRequest,
        now: Instant,
    ) -> Notices {
        match request {
            ControlRequest::Beat => Vec::new(),
            ControlRequest::Abort(cause) => self.abort(cause),
            ControlRequest::Offer { round, payload } => self.offer(from, round, payload),
            ControlRequest::Who { round } => {
                let given = self.rounds.get(&round);
                let missing = |rank: &usize| given.is_none_or(|given| !given.contains_key(rank));
                let ranks = round.members.iter().copied().filter(missing).collect();
                vec![(from, Notice::Missing { round, ranks })]
            }
            ControlRequest::Survey { id, group } => {
                let survey = self.next_survey;
                self.next_survey += 1;
                let awaited: BTreeSet<usize> =
                    (0..self.world).filter(|rank| !self.is_gone(*rank)).collect();
                let asked =
                    awaited.iter().map(|rank| (*rank, Notice::Ask { survey, group })).collect();
                let places = vec![None; self.world];
                self.surveys.insert(
                    survey,
                    Survey { asker: from, id, places, awaited, until: now + SURVEY },
                );
                asked
            }
            ControlRequest::Answer { survey, place } => self.answer(from, survey, place),
            ControlRequest::Ended { rank } => {
                if rank < self.world && !self.is_gone(rank) {
                    self.doomed.entry(rank).or_insert(now + DOOMED);
                }
                Vec::new()
            }
            ControlRequest::Goodbye { last } => self.goodbye(from, last),
        }
    }

    fn everybody(&self, notice: impl Fn() -> Notice) -> Notices {
        (0..self.world).filter(|rank| !self.is_gone(*rank)).map(|rank| (rank, notice())).collect()
    }

    fn abort(&mut self, cause: Cause) -> Notices {
        let news = match &self.told {
            None => true,
            // A failed rank soon ends, and then it looks dead to its peers: a consequence, not a
            // cause.
            Some(_) if cause.kind == CauseKind::Death => false,
            Some(told) => cause < *told,
        };
        if !news {
            return Vec::new();
        }
        self.told = Some(cause.clone());
        self.everybody(|| Notice::Abort(cause.clone()))
    }

    fn offer(&mut self, from: usize, round: ExchangeRound, payload: Vec<u8>) -> Notices {
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
            let notice = || Notice::Gathered { round: round.clone(), payloads: payloads.clone() };
            return members.iter().map(|member| (*member, notice())).collect();
        }
        let gone = members
            .iter()
            .copied()
            .find(|member| !given.contains_key(member) && self.left.contains_key(member));
        gone.map(|rank| self.unmet(&round, rank)).unwrap_or_default()
    }

    /// Tells those who gave their part that the round never completes.
    fn unmet(&mut self, round: &ExchangeRound, rank: usize) -> Notices {
        let given = self.rounds.get_mut(round).map(std::mem::take).unwrap_or_default();
        given
            .into_keys()
            .map(|member| (member, Notice::Unmet { round: round.clone(), rank }))
            .collect()
    }

    fn answer(&mut self, from: usize, number: u64, place: ProgressReport) -> Notices {
        let Some(survey) = self.surveys.get_mut(&number) else { return Vec::new() };
        survey.places[from] = Some(place);
        survey.awaited.remove(&from);
        if survey.awaited.is_empty() { self.conclude(number) } else { Vec::new() }
    }

    fn conclude(&mut self, number: u64) -> Notices {
        let survey = self.surveys.remove(&number);
        survey
            .map(|survey| (survey.asker, Notice::Surveyed { id: survey.id, places: survey.places }))
            .into_iter()
            .collect()
    }

    fn goodbye(&mut self, from: usize, last: u64) -> Notices {
        self.left.insert(from, last);
        let mut out = self.everybody(|| Notice::Left { rank: from, last });
        out.push((from, Notice::Farewell));
        let waits = |round: &ExchangeRound, given: &BTreeMap<usize, Vec<u8>>| {
            round.members.contains(&from) && !given.contains_key(&from)
        };
        let hopeless: Vec<ExchangeRound> = self
            .rounds
            .iter()
            .filter(|(round, given)| waits(round, given))
            .map(|(round, _)| round.clone())
            .collect();
        for round in hopeless {
            out.extend(self.unmet(&round, from));
        }
        out
    }

    /// The connection of `rank` has ended.
    pub(super) fn ended(&mut self, rank: usize, how: &str) -> Notices {
        self.doomed.remove(&rank);
        if self.is_gone(rank) {
            return Vec::new();
        }
        self.dead.insert(rank);
        self.abort(Cause::death(rank, how))
    }

    /// When [`pass`](Self::pass) has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.surveys.values().map(|survey| survey.until).chain(self.doomed.values().copied()).min()
    }

    /// Does what is due.
    pub(super) fn pass(&mut self, now: Instant) -> Notices {
        let due: Vec<u64> = self
            .surveys
            .iter()
            .filter(|(_, survey)| survey.until <= now)
            .map(|(number, _)| *number)
            .collect();
        let mut out: Notices = due.into_iter().flat_map(|number| self.conclude(number)).collect();
        let doomed: Vec<usize> =
            self.doomed.iter().filter(|(_, until)| **until <= now).map(|(rank, _)| *rank).collect();
        for rank in doomed {
            out.extend(self.ended(rank, "its process ended"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::service::GroupId;

    fn round(members: &[usize]) -> ExchangeRound {
        ExchangeRound { group: GroupId::WORLD, members: members.to_vec(), number: 1 }
    }

    fn cause(sequence: u64, kind: CauseKind, rank: usize) -> Cause {
        Cause { sequence, kind, rank, text: String::new(), culprit: None }
    }

    #[test]
    fn a_round_completes_in_the_order_of_its_members() {
        let (mut root, now) = (Coordinator::new(4), Instant::now());
        let mut offer = |from: usize| {
            root.request(
                from,
                ControlRequest::Offer { round: round(&[3, 1]), payload: vec![from as u8] },
                now,
            )
        };
        assert!(offer(1).is_empty());
        assert!(offer(0).is_empty());
        let out = offer(3);
        assert_eq!(out.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [3, 1]);
        let Notice::Gathered { payloads, .. } = &out[0].1 else { panic!("something else") };
        assert_eq!(payloads, &[vec![3], vec![1]]);
    }

    #[test]
    fn who_waits_for_one_that_left_is_told() {
        let (mut root, now) = (Coordinator::new(3), Instant::now());
        let offer =
            |from| (from, ControlRequest::Offer { round: round(&[0, 1, 2]), payload: Vec::new() });
        let mut say = |(from, request)| root.request(from, request, now);
        say(offer(0));
        let told = say((2, ControlRequest::Goodbye { last: 5 }));
        assert!(
            told.iter()
                .any(|(to, notice)| *to == 0 && matches!(notice, Notice::Unmet { rank: 2, .. }))
        );
        assert!(told.iter().any(|(to, notice)| *to == 2 && matches!(notice, Notice::Farewell)));
        assert!(matches!(say(offer(1))[..], [(1, Notice::Unmet { rank: 2, .. })]));
    }

    #[test]
    fn only_a_lesser_cause_is_told_and_no_death_after_the_first() {
        let (mut root, now) = (Coordinator::new(2), Instant::now());
        let mut tell = |cause| root.request(1, ControlRequest::Abort(cause), now).len();
        assert_eq!(tell(cause(5, CauseKind::Mismatch, 1)), 2);
        assert_eq!(tell(cause(5, CauseKind::Timeout, 0)), 0);
        assert_eq!(tell(cause(4, CauseKind::Timeout, 0)), 2);
        assert_eq!(tell(cause(0, CauseKind::Death, 1)), 0);
        assert!(root.ended(1, "gone").is_empty());
        assert!(root.is_alone());
    }

    #[test]
    fn the_end_of_a_process_is_its_death_unless_it_said_goodbye() {
        let (mut root, now) = (Coordinator::new(3), Instant::now());
        root.request(1, ControlRequest::Goodbye { last: 1 }, now);
        root.request(2, ControlRequest::Ended { rank: 1 }, now);
        assert_eq!(root.deadline(), None);
        root.request(1, ControlRequest::Ended { rank: 2 }, now);
        assert!(root.pass(now).is_empty());
        let out = root.pass(root.deadline().unwrap());
        assert!(matches!(
            &out[..],
            [(0, Notice::Abort(Cause { kind: CauseKind::Death, rank: 2, .. }))]
        ));
    }

    #[test]
    fn a_survey_does_not_wait_for_ever() {
        let (mut root, now) = (Coordinator::new(3), Instant::now());
        assert_eq!(
            root.request(1, ControlRequest::Survey { id: 7, group: GroupId::WORLD }, now).len(),
            3
        );
        for from in 0..2 {
            assert!(
                root.request(
                    from,
                    ControlRequest::Answer { survey: 0, place: ProgressReport::default() },
                    now
                )
                .is_empty()
            );
        }
        let out = root.pass(root.deadline().unwrap());
        let [(1, Notice::Surveyed { id: 7, places })] = &out[..] else { panic!("something else") };
        assert_eq!(places.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    }
}
