//! Gather and scatter: the blocks of a subtree travel together.

use super::BinomialNode;
use crate::schedule::{Step, input, output, scratch};

impl BinomialNode {
    pub(super) fn gather(&self) -> Vec<Step> {
        let own = self.rank(self.place);
        let room = |place| {
            if self.is_root() { output(self.rank(place)) } else { scratch(self.rank(place)) }
        };
        let children =
            self.children().flat_map(|child| self.subtree(child).map(move |place| (child, place)));
        let receives =
            children.map(|(child, place)| Step::Recv { into: room(place), from: self.rank(child) });
        if self.is_root() {
            return std::iter::once(Step::Copy { from: input(own), into: output(own) })
                .chain(receives)
                .collect();
        }
        let block = |place| if place == self.place { input(own) } else { room(place) };
        let sends = self
            .subtree(self.place)
            .map(|place| Step::Send { from: block(place), to: self.parent() });
        receives.chain(sends).collect()
    }

    pub(super) fn scatter(&self) -> Vec<Step> {
        let own = self.rank(self.place);
        let block = |place| {
            if self.is_root() { input(self.rank(place)) } else { scratch(self.rank(place)) }
        };
        let mine = |place| if place == self.place { output(own) } else { block(place) };
        let receive = |place| Step::Recv { into: mine(place), from: self.parent() };
        let first: Vec<Step> = match self.is_root() {
            true => Vec::new(),
            false => self.subtree(self.place).map(receive).collect(),
        };
        let children = self
            .children()
            .rev()
            .flat_map(|child| self.subtree(child).map(move |place| (child, place)));
        let send = |(child, place): (usize, usize)| Step::Send {
            from: block(place),
            to: self.rank(child),
        };
        let last = self.is_root().then_some(Step::Copy { from: input(own), into: output(own) });
        first.into_iter().chain(children.map(send)).chain(last).collect()
    }
}
