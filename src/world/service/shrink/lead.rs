//! A leader's part: it takes the connections of the followers, probes members that have not
//! arrived, and decides.

use super::agreement::{Agreement, FollowerMessage, LeaderMessage, NextStep, Proposal};
use super::follow::Followed;
use super::probe::Probe;
use super::{Agreed, Member, WHAT};
use crate::wire::decode;
use crate::world::service::message::MAX_MESSAGE;
use crate::world::service::{ControlConnection, ServiceError};
use maypole_transports::random;
use maypole_transports::watch::{Waker, Watch};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WAKER: u64 = 0;
/// Followers have the numbers from here on, by rank.
const FOLLOWERS: u64 = 1 << 40;

/// The time for members to arrive before the leader connects to them.
const PATIENCE: Duration = Duration::from_millis(50);
/// The most connections to members that have not arrived.
const MAX_PROBES: usize = 64;
/// The interval at which the leader polls the control plane for the end of a member.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Leader<'a> {
    member: &'a Member<'a>,
    agreement: Agreement,
    watch: Watch,
    waker: Arc<Waker>,
    followers: BTreeMap<usize, ControlConnection>,
    probes: BTreeMap<usize, Probe>,
    /// The first deadline of this rank and the arrived members for the list of missing members.
    until: Instant,
}

impl<'a> Leader<'a> {
    /// `gone` are the members before this one, `prepared` is the last proposal that this rank was
    /// ready for as a follower.
    pub(super) fn new(
        member: &'a Member<'a>,
        gone: BTreeSet<usize>,
        prepared: Option<Proposal>,
    ) -> io::Result<Self> {
        let watch = Watch::new()?;
        let waker = Arc::new(Waker::new()?);
        watch.add(&*waker, WAKER, false)?;
        let own = member.own.clone();
        let mut agreement = Agreement::new(member.rank(), member.members, own, gone);
        prepared.into_iter().for_each(|proposal| agreement.inherit(proposal));
        Ok(Self {
            member,
            agreement,
            watch,
            waker,
            followers: BTreeMap::new(),
            probes: BTreeMap::new(),
            until: member.deadline,
        })
    }

    /// Leads until there is a decision, or the patience of an arrived member has ended.
    pub(super) fn run(mut self) -> Result<Agreed, ServiceError> {
        let shared = &self.member.service.shared;
        let group = self.member.group;
        shared.update(|state| state.shrinks.lead(group, Some(Arc::clone(&self.waker))));
        let outcome = self.decide();
        shared.update(|state| state.shrinks.lead(group, None));
        outcome
    }

    fn decide(&mut self) -> Result<Agreed, ServiceError> {
        let patient_until = Instant::now() + PATIENCE;
        loop {
            self.take_calls();
            let session = random::bytes().map_err(super::refused)?;
            match self.agreement.next(session) {
                NextStep::Wait => {}
                NextStep::Inherit(proposal) => {
                    self.tell_all(&LeaderMessage::Decided(proposal.clone()));
                    return Ok(proposal.into());
                }
                NextStep::Prepare(proposal) => {
                    self.tell_all(&LeaderMessage::Prepare(proposal));
                    continue;
                }
                NextStep::Commit(proposal) => {
                    self.tell_all(&LeaderMessage::Commit(proposal.ballot));
                    let controls = self.controls(&proposal);
                    return Ok(Agreed { proposal, controls });
                }
            }
            let now = Instant::now();
            if now >= self.until {
                return Err(self.give_up());
            }
            self.look_after_missing(now, patient_until);
            self.wait(now, patient_until)?;
        }
    }

    /// Sleeps until the next event, and handles it.
    fn wait(&mut self, now: Instant, patient_until: Instant) -> Result<(), ServiceError> {
        let patience = Some(patient_until).filter(|until| *until > now);
        let first = patience.into_iter().chain([now + CHECK_INTERVAL]);
        let until = first.fold(self.until, Instant::min);
        let mut numbers = Vec::new();
        let length = until.saturating_duration_since(now);
        self.watch.wait(&mut numbers, length).map_err(super::refused)?;
        for number in numbers {
            match number {
                WAKER => {
                    self.waker.clear();
                    self.read_probes()?;
                }
                _ => self.read((number & (FOLLOWERS - 1)) as usize),
            }
        }
        Ok(())
    }

    /// Takes the connections of followers that have arrived.
    fn take_calls(&mut self) {
        let group = self.member.group;
        let calls = self.member.service.shared.update(|state| state.shrinks.take(group));
        for (rank, control) in calls {
            self.drop_follower(rank);
            if self.watch.add(&control.stream, FOLLOWERS | rank as u64, false).is_ok() {
                self.followers.insert(rank, control);
                // Its first message may have arrived together with the handshake.
                self.read(rank);
            }
        }
    }

    fn drop_follower(&mut self, rank: usize) {
        if let Some(old) = self.followers.remove(&rank) {
            self.watch.remove(&old.stream);
            self.agreement.lost(rank);
        }
    }

    fn read(&mut self, rank: usize) {
        let Some(control) = self.followers.get_mut(&rank) else { return };
        let (messages, ended) = control.read(MAX_MESSAGE);
        for bytes in messages {
            match decode(&bytes) {
                Ok(FollowerMessage::Hello { own, prepared, patience }) => {
                    self.agreement.hello(rank, *own, prepared);
                    let until = Instant::now().checked_add(patience);
                    self.until = until.map_or(self.until, |until| until.min(self.until));
                    self.probes.remove(&rank);
                }
                Ok(FollowerMessage::Ready(ballot)) => self.agreement.ready(rank, ballot),
                Err(_) => return self.drop_follower(rank),
            }
        }
        if ended.is_some() {
            self.drop_follower(rank);
        } else if let Some(control) = self.followers.get_mut(&rank) {
            control.flush(FOLLOWERS | rank as u64, &self.watch);
        }
    }

    fn tell_all(&mut self, message: &LeaderMessage) {
        for (rank, control) in &mut self.followers {
            control.push(message);
            control.flush(FOLLOWERS | *rank as u64, &self.watch);
        }
    }

    /// Connects to members that have not arrived, and removes those that are reported gone.
    fn look_after_missing(&mut self, now: Instant, patient_until: Instant) {
        for rank in self.agreement.missing() {
            if self.member.is_known_gone(rank) {
                self.agreement.gone(rank);
                self.probes.remove(&rank);
                continue;
            }
            let is_due = now >= patient_until && self.probes.len() < MAX_PROBES;
            if is_due
                && !self.probes.contains_key(&rank)
                && let Ok(probe) = Probe::start(self.member, rank, &self.waker)
            {
                self.probes.insert(rank, probe);
            }
        }
    }

    /// # Errors
    /// A member continued without this rank.
    fn read_probes(&mut self) -> Result<(), ServiceError> {
        let finding = |(rank, probe): (&usize, &Probe)| Some((*rank, probe.finding()?));
        for (rank, finding) in self.probes.iter().filter_map(finding).collect::<Vec<_>>() {
            match finding {
                Followed::LeftBehind => return Err(self.member.left_behind()),
                Followed::Decided(proposal) => self.agreement.inherit_decided(proposal),
                Followed::Gone => {
                    self.agreement.gone(rank);
                    self.probes.remove(&rank);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The connections to the members of `proposal`, by rank in the new world.
    fn controls(&mut self, proposal: &Proposal) -> BTreeMap<usize, ControlConnection> {
        let place = |world: usize| proposal.members.iter().position(|member| *member == world);
        let followers = std::mem::take(&mut self.followers).into_iter();
        let control = |(rank, control): (usize, ControlConnection)| {
            self.watch.remove(&control.stream);
            Some((place(rank)?, control))
        };
        followers.filter_map(control).collect()
    }

    /// Sends the list of missing members to all that have arrived.
    fn give_up(&mut self) -> ServiceError {
        let missing = self.agreement.missing();
        self.tell_all(&LeaderMessage::TimedOut(missing.clone()));
        self.followers.values_mut().for_each(ControlConnection::finish);
        ServiceError::TimedOut { what: WHAT, missing }
    }
}
