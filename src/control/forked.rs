//! The control plane of a forked child: there is none. The parent is the rank, and the child must
//! not touch what it has inherited.

use crate::control::departures::Departures;
use crate::control::error::ControlError;
use crate::control::transport::Transport;
use crate::control::transport::VerbsOffer;
use crate::control::{Control, Straggler, SurvivingGroup};
use crate::execute::messages::Connector;
use crate::execute::{AnyStream, SlowWait};
use crate::topology::StreamLinks;
use crate::world::PortChoice;
use crate::world::calls::{CallMismatch, GroupActivity, RankStatus};
use crate::world::service::{Cause, Contribution, GroupId};
use maypole_transports::shm::Segment;
use maypole_transports::{Alarm, Board};
use std::sync::Arc;
use std::time::Instant;

/// Why nothing works.
const FORKED: &str = "the communicator was created before fork";

/// Stands for the control plane where a child cannot reach its parent's.
#[derive(Debug, Default)]
pub(crate) struct ForkedControl {
    alarm: Arc<Alarm>,
    departures: Arc<Departures>,
}

impl Connector for ForkedControl {
    fn dial(&self, _: usize, _: Instant) -> Result<AnyStream, String> {
        Err(FORKED.to_owned())
    }

    fn callers(&self) -> Vec<(usize, AnyStream)> {
        Vec::new()
    }

    fn has_left(&self, _: usize) -> bool {
        false
    }
}

impl Control for ForkedControl {
    fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.alarm)
    }

    fn identity(&self) -> (GroupId, usize) {
        (GroupId::WORLD, 0)
    }

    fn exchange(&self, _: Vec<u8>, _: Instant) -> Result<Vec<Vec<u8>>, ControlError> {
        Err(ControlError::Other(FORKED.to_owned()))
    }

    fn board(&self, _: &[usize], _: usize, _: Instant) -> Result<Board, ControlError> {
        Err(ControlError::Other(FORKED.to_owned()))
    }

    fn segment(&self, _: &[usize], _: u32, _: usize, _: Instant) -> Result<Segment, ControlError> {
        Err(ControlError::Other(FORKED.to_owned()))
    }

    fn stream(&self, _: usize, _: Instant) -> Result<AnyStream, ControlError> {
        Err(ControlError::Other(FORKED.to_owned()))
    }

    fn activity(&self) -> Arc<GroupActivity> {
        Arc::new(GroupActivity::new(GroupId::WORLD, vec![0], 0))
    }

    fn note_wait(&self, _: SlowWait) {}

    fn compare(&self, _: usize) -> Option<CallMismatch> {
        None
    }

    fn locate(&self, _: usize) -> Option<Straggler> {
        None
    }

    fn fail(&self, cause: Cause) -> Cause {
        cause
    }

    fn status(&self) -> RankStatus {
        let failure = Some(FORKED.to_owned());
        RankStatus { failure, ..RankStatus::of((0, 0), &[], false, None) }
    }

    fn abort(&self, _: &str) {}

    fn shrink(&self, _: Contribution, _: Instant) -> Result<SurvivingGroup, ControlError> {
        Err(ControlError::Other(FORKED.to_owned()))
    }

    fn cause(&self) -> Option<Cause> {
        None
    }

    fn offer_verbs(&self, _: Transport, _: PortChoice) -> VerbsOffer {
        Err(FORKED.to_owned())
    }

    fn subgroup(&self, _: &[usize], _: u64, _: &StreamLinks) -> Arc<dyn Control> {
        Arc::new(Self::default())
    }

    fn departures(&self) -> Arc<Departures> {
        Arc::clone(&self.departures)
    }

    fn leave(&self, _: u64, _: bool) {}
}
