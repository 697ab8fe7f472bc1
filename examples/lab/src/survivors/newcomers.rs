//! Broadcast of the state to newcomers, which replace dead ranks.
//!
//! What it does: the ranks that have kept states agree on one among themselves, as after any death,
//! and gather the whole optimizer. Then the first of them broadcasts it to all ranks.
//! What is sharded: nothing on the way; each rank takes its own part of the optimizer afterwards, for
//! the world that it is in now.
//! Which collective runs where: a split into those that have a state and those that have none, the
//! collectives of [`kept`](super::kept) in the first group, broadcasts to all.
//! Cost: the weights and two averages, once to each rank.

use crate::survivors::keeper::StepState;
use crate::survivors::kept::{KeptStates, RecoveryError, gather, same};
use maypole::{Communicator, Result};
use maypole_trainer::tensor::math::Real;
use maypole_trainer::train::checkpoint::load::Progress;
use maypole_trainer::train::optim::{Optimizer, Rule};

/// The place in the former world of a rank that was not there.
pub(super) const NEWCOMER: u64 = u64::MAX;

/// What a rank has that recovers: states of the former world, if it was there, and the state on
/// which all have agreed, if an attempt has come so far.
pub(super) struct HeldState<T> {
    pub(super) kept: Option<KeptStates<T>>,
    pub(super) whole: Option<StepState<T>>,
}

impl<T: Real> HeldState<T> {
    pub(super) fn of(mut kept: Option<KeptStates<T>>) -> Self {
        let whole = kept.as_mut().and_then(|kept| kept.whole.take());
        Self { kept, whole }
    }

    /// This rank in the former world.
    pub(super) fn place(&self) -> u64 {
        self.kept.as_ref().map_or(NEWCOMER, |kept| kept.rank as u64)
    }

    /// The state after the last step that all ranks of the former world have done that are left, with
    /// the whole optimizer. `places`: where each rank of `comm` was in that world, and `names` how its
    /// ranks are called.
    pub(super) fn whole_state(
        &self,
        comm: &mut Communicator,
        places: &[u64],
        names: &[usize],
    ) -> std::result::Result<StepState<T>, RecoveryError> {
        let has_whole = gather(comm, &[u64::from(self.whole.is_some())])?;
        if let Some(whole) = &self.whole
            && has_whole.iter().all(|has| *has == 1)
        {
            return same(comm, whole.clone());
        }
        let there = places.iter().filter(|place| **place != NEWCOMER);
        let members: Vec<usize> = there.map(|place| *place as usize).collect();
        let root = places.iter().position(|place| *place != NEWCOMER);
        let root = root.ok_or(RecoveryError::NoState)?;
        let whole = self.whole.as_ref();
        let Some(kept) = self.kept.as_ref().filter(|_| members.len() == places.len()) else {
            return self.among_some(comm, (&members, names), root);
        };
        kept.assemble(comm, (&members, names), whole)
    }

    /// As [`whole_state`](Self::whole_state), where some ranks of `comm` are newcomers.
    fn among_some(
        &self,
        comm: &mut Communicator,
        (members, names): (&[usize], &[usize]),
        root: usize,
    ) -> std::result::Result<StepState<T>, RecoveryError> {
        let color = u64::from(self.kept.is_some());
        let mut group = comm.split(Some(color), 0)?.expect("each rank has a color");
        let assemble =
            |kept: &KeptStates<T>| kept.assemble(&mut group, (members, names), self.whole.as_ref());
        let found = self.kept.as_ref().map(assemble).transpose();
        if let Err(RecoveryError::Collective(why)) = found {
            return Err(why.into());
        }
        let found_all = gather(comm, &[u64::from(found.is_ok())])?;
        let found = found?;
        if found_all.contains(&0) {
            return Err(RecoveryError::NoState);
        }
        Ok(send_to_all(comm, found, root)?)
    }
}

/// The `state` of rank `root`, on all ranks. Ranks without a state pass none.
fn send_to_all<T: Real>(
    comm: &mut Communicator,
    state: Option<StepState<T>>,
    root: usize,
) -> Result<StepState<T>> {
    let mut state = state.unwrap_or_else(|| {
        let nothing = Optimizer::new(Rule::Sgd);
        StepState { step: 0, weights: vec![], own: nothing.clone(), copy: nothing }
    });
    let StepState { step, weights, own, .. } = &state;
    let progress = Progress { step: *step, updates: own.steps };
    let lengths = [weights, &own.first, &own.second].map(Vec::len);
    let head = serde_json::to_vec(&(progress, lengths)).expect("numbers can be serialized");
    let head = comm.broadcast_bytes(head, root)?;
    let (progress, lengths): (Progress, [usize; 3]) =
        serde_json::from_slice(&head).expect("the root has serialized it just now");
    state.step = progress.step;
    state.own.steps = progress.updates;
    let all = [&mut state.weights, &mut state.own.first, &mut state.own.second];
    for (numbers, length) in all.into_iter().zip(lengths) {
        numbers.resize(length, T::zero());
        comm.broadcast(numbers, root)?;
    }
    Ok(state)
}
