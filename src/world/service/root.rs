//! What rank 0 knows beyond the others: who takes part in what, who asked, who is gone. Pure:
//! requests go in, notices come out, time is an argument.

use super::message::{Notice, Request, Round};
use super::{Cause, CauseKind, Place};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// How long a survey waits for ranks that do not answer.
const SURVEY: Duration = Duration::from_millis(500);
/// How long the end of a process may precede the end of its connection.
const DOOMED: Duration = Duration::from_millis(200);

/// Whom a notice is for.
pub(super) type Outgoing = Vec<(usize, Notice)>;

#[derive(Debug)]
pub(super) struct Root {
    world: usize,
    rounds: HashMap<Round, BTreeMap<usize, Vec<u8>>>,
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
    places: Vec<Option<Place>>,
    awaited: BTreeSet<usize>,
    until: Instant,
}

impl Root {
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
    pub(super) fn request(&mut self, from: usize, request: Request, now: Instant) -> Outgoing {
        match request {
            Request::Beat => Vec::new(),
            Request::Abort(cause) => self.abort(cause),
            Request::Offer { round, payload } => self.offer(from, round, payload),
            Request::Who { round } => {
                let given = self.rounds.get(&round);
                let missing = |rank: &usize| given.is_none_or(|given| !given.contains_key(rank));
                let ranks = round.members.iter().copied().filter(missing).collect();
                vec![(from, Notice::Missing { round, ranks })]
            }
            Request::Survey { id, group } => {
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
            Request::Answer { survey, place } => self.answer(from, survey, place),
            Request::Ended { rank } => {
                if rank < self.world && !self.is_gone(rank) {
                    self.doomed.entry(rank).or_insert(now + DOOMED);
                }
                Vec::new()
            }
            Request::Goodbye { last } => self.goodbye(from, last),
        }
    }

    fn everybody(&self, notice: impl Fn() -> Notice) -> Outgoing {
        (0..self.world).filter(|rank| !self.is_gone(*rank)).map(|rank| (rank, notice())).collect()
    }

    fn abort(&mut self, cause: Cause) -> Outgoing {
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

    fn offer(&mut self, from: usize, round: Round, payload: Vec<u8>) -> Outgoing {
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
    fn unmet(&mut self, round: &Round, rank: usize) -> Outgoing {
        let given = self.rounds.get_mut(round).map(std::mem::take).unwrap_or_default();
        given
            .into_keys()
            .map(|member| (member, Notice::Unmet { round: round.clone(), rank }))
            .collect()
    }

    fn answer(&mut self, from: usize, number: u64, place: Place) -> Outgoing {
        let Some(survey) = self.surveys.get_mut(&number) else { return Vec::new() };
        survey.places[from] = Some(place);
        survey.awaited.remove(&from);
        if survey.awaited.is_empty() { self.conclude(number) } else { Vec::new() }
    }

    fn conclude(&mut self, number: u64) -> Outgoing {
        let survey = self.surveys.remove(&number);
        survey
            .map(|survey| (survey.asker, Notice::Surveyed { id: survey.id, places: survey.places }))
            .into_iter()
            .collect()
    }

    fn goodbye(&mut self, from: usize, last: u64) -> Outgoing {
        self.left.insert(from, last);
        let mut out = self.everybody(|| Notice::Left { rank: from, last });
        out.push((from, Notice::Farewell));
        let waits = |round: &Round, given: &BTreeMap<usize, Vec<u8>>| {
            round.members.contains(&from) && !given.contains_key(&from)
        };
        let hopeless: Vec<Round> = self
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
    pub(super) fn ended(&mut self, rank: usize, how: &str) -> Outgoing {
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
    pub(super) fn pass(&mut self, now: Instant) -> Outgoing {
        let due: Vec<u64> = self
            .surveys
            .iter()
            .filter(|(_, survey)| survey.until <= now)
            .map(|(number, _)| *number)
            .collect();
        let mut out: Outgoing = due.into_iter().flat_map(|number| self.conclude(number)).collect();
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

    fn round(members: &[usize]) -> Round {
        Round { group: GroupId::WORLD, members: members.to_vec(), number: 1 }
    }

    fn cause(sequence: u64, kind: CauseKind, rank: usize) -> Cause {
        Cause { sequence, kind, rank, text: String::new() }
    }

    #[test]
    fn a_round_completes_in_the_order_of_its_members() {
        let (mut root, now) = (Root::new(4), Instant::now());
        let mut offer = |from: usize| {
            root.request(
                from,
                Request::Offer { round: round(&[3, 1]), payload: vec![from as u8] },
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
        let (mut root, now) = (Root::new(3), Instant::now());
        let offer = |from| (from, Request::Offer { round: round(&[0, 1, 2]), payload: Vec::new() });
        let mut say = |(from, request)| root.request(from, request, now);
        say(offer(0));
        let told = say((2, Request::Goodbye { last: 5 }));
        assert!(
            told.iter()
                .any(|(to, notice)| *to == 0 && matches!(notice, Notice::Unmet { rank: 2, .. }))
        );
        assert!(told.iter().any(|(to, notice)| *to == 2 && matches!(notice, Notice::Farewell)));
        assert!(matches!(say(offer(1))[..], [(1, Notice::Unmet { rank: 2, .. })]));
    }

    #[test]
    fn only_a_lesser_cause_is_told_and_no_death_after_the_first() {
        let (mut root, now) = (Root::new(2), Instant::now());
        let mut tell = |cause| root.request(1, Request::Abort(cause), now).len();
        assert_eq!(tell(cause(5, CauseKind::Mismatch, 1)), 2);
        assert_eq!(tell(cause(5, CauseKind::Timeout, 0)), 0);
        assert_eq!(tell(cause(4, CauseKind::Timeout, 0)), 2);
        assert_eq!(tell(cause(0, CauseKind::Death, 1)), 0);
        assert!(root.ended(1, "gone").is_empty());
        assert!(root.is_alone());
    }

    #[test]
    fn the_end_of_a_process_is_its_death_unless_it_said_goodbye() {
        let (mut root, now) = (Root::new(3), Instant::now());
        root.request(1, Request::Goodbye { last: 1 }, now);
        root.request(2, Request::Ended { rank: 1 }, now);
        assert_eq!(root.deadline(), None);
        root.request(1, Request::Ended { rank: 2 }, now);
        assert!(root.pass(now).is_empty());
        let out = root.pass(root.deadline().unwrap());
        assert!(matches!(
            &out[..],
            [(0, Notice::Abort(Cause { kind: CauseKind::Death, rank: 2, .. }))]
        ));
    }

    #[test]
    fn a_survey_does_not_wait_for_ever() {
        let (mut root, now) = (Root::new(3), Instant::now());
        assert_eq!(root.request(1, Request::Survey { id: 7, group: GroupId::WORLD }, now).len(), 3);
        for from in 0..2 {
            assert!(
                root.request(from, Request::Answer { survey: 0, place: Place::default() }, now)
                    .is_empty()
            );
        }
        let out = root.pass(root.deadline().unwrap());
        let [(1, Notice::Surveyed { id: 7, places })] = &out[..] else { panic!("something else") };
        assert_eq!(places.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    }
}
