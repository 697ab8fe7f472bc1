//! Engines of groups that are made from a group.

use crate::control::Control;
use crate::engine::Engine;
use crate::execute::record::Recorder;
use crate::schedule::hosts::Boards;
use crate::topology::StreamLinks;
use crate::tuner::CostTable;
use std::sync::Arc;

impl Engine {
    /// Prices later calls by `costs`. All calls are prepared anew.
    pub(crate) fn set_costs(&mut self, costs: CostTable) {
        self.conditions.costs = costs;
        self.calls.clear();
    }

    /// Records calls from now on.
    pub(crate) fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(Box::new(recorder));
        // Calls that were prepared before have no notes.
        self.calls.clear();
    }

    /// The engine of this rank in the group of the ranks `members`, which was split off last and is
    /// joined by `boards` and `links`. It inherits the settings and the timeout.
    pub(crate) fn subgroup(&self, members: &[usize], boards: Boards, links: StreamLinks) -> Self {
        let control = self.health.control.subgroup(members, self.splits, &links);
        let mut group = self.group(members, boards, control);
        group.conditions.links = links;
        group
    }

    /// The engine of this rank in the group of the ranks `members`, which `control` and `boards`
    /// join. It inherits the settings and the timeout.
    pub(crate) fn group(
        &self,
        members: &[usize],
        boards: Boards,
        control: Arc<dyn Control>,
    ) -> Self {
        let rank = members.iter().position(|member| *member == self.rank);
        let rank = rank.expect("this rank is a member of the group");
        let mut conditions = self.conditions.clone();
        conditions.waiting = conditions.waiting.with_timeout(self.limits.timeout);
        let mut group = Self::new(rank, boards, control, conditions);
        group.settings = self.settings;
        let recorder = self.recorder.as_deref();
        group.recorder =
            recorder.map(|recorder| Box::new(recorder.of_group(self.splits, members[0])));
        group
    }
}
