//! The fastest of several ways to move the bytes of a call, by measurement.
//!
//! Plan, steps and result are the same in every [`Datapath`], but not the time: it depends on the caches, on how far
//! apart the cores are, and on the state of a virtual machine, which changes while it runs. No table of
//! costs has these effects, so calls themselves are measured.
//!
//! The calls of a kind are made in *stretches*, each in one way. Between two stretches the ranks of
//! a board exchange the time of the last one. All of them compute the next stretch from the times
//! of the slowest rank, by the same [`Explorer`], so they agree without a vote. Which calls a group
//! makes is equal on all ranks, so all exchange in the same calls.
//!
//! | part | contents |
//! |---|---|
//! | [`Explorer`] | the choice for one kind of calls: rounds of trials, and their budget |
//! | [`StretchClock`] | the times of a stretch's calls on this rank |
//! | [`WayChoices`] | the state of all kinds of a group |

mod choices;
mod clock;
mod explorer;

use crate::execute::StoreWay;
use arrayvec::ArrayVec;
pub(crate) use choices::{CallTurn, CallWays, WayChoices};
pub(crate) use explorer::StretchTime;
use std::str::FromStr;

/// A way to move the bytes of a call between ranks that share a board.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Datapath {
    /// Through slots, which are stored in one of these ways.
    Slots(StoreWay),
    /// By copies from the private memory of other processes.
    Copied,
    /// In memory that all ranks have registered. The user has requested it, so no explorer leaves
    /// it.
    Registered,
}

impl Datapath {
    /// All of them, with the names for `MAYPOLE_WAY`. An explorer begins with the first possible
    /// one.
    const NAMES: [(Self, &'static str); 5] = [
        (Self::Registered, "registered"),
        (Self::Slots(StoreWay::DeepRing), "deep-ring"),
        (Self::Slots(StoreWay::PastCaches), "past-caches"),
        (Self::Slots(StoreWay::Ordinary), "ordinary"),
        (Self::Copied, "copied"),
    ];

    fn index(self) -> usize {
        let place = Self::NAMES.iter().position(|(way, _)| *way == self);
        place.expect("all ways have a name")
    }
}

impl FromStr for Datapath {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(way, _)| *way).ok_or_else(|| {
            let names = Self::NAMES.map(|(_, name)| name).join(", ");
            format!("'{name}' is no way to move bytes; there are {names}")
        })
    }
}

/// Ways that are possible, in the order of [`Datapath::NAMES`].
pub(crate) type Ways = ArrayVec<Datapath, { Datapath::NAMES.len() }>;

/// The ways in which calls move bytes of private memory: through slots, of which some ways need large ones or a
/// deep ring, and by copies. If one of them is `forced`, that one alone.
pub(crate) fn possible_ways(
    (has_large, has_deep_ring): (bool, bool),
    has_copies: bool,
    forced: Option<Datapath>,
) -> Ways {
    let is_possible = |way: &Datapath| match way {
        Datapath::Slots(StoreWay::Ordinary) => true,
        Datapath::Slots(StoreWay::PastCaches) => has_large,
        Datapath::Slots(StoreWay::DeepRing) => has_large && has_deep_ring,
        Datapath::Copied => has_copies,
        Datapath::Registered => false,
    };
    let ways: Ways = Datapath::NAMES.iter().map(|(way, _)| *way).filter(is_possible).collect();
    match forced.filter(|forced| ways.contains(forced)) {
        Some(forced) => [forced].into_iter().collect(),
        None => ways,
    }
}

/// How slots are stored in calls that no explorer serves: in the first of `ways` that uses them.
pub(crate) fn first_store(ways: &Ways) -> StoreWay {
    let store = |way: &Datapath| match way {
        Datapath::Slots(store) => Some(*store),
        _ => None,
    };
    ways.iter().find_map(store).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_way_is_the_only_one_where_it_is_possible() {
        let of = |forced: &str| possible_ways((true, true), true, forced.parse().ok());
        assert_eq!(of("copied").as_slice(), [Datapath::Copied]);
        assert_eq!(of("ordinary").as_slice(), [Datapath::Slots(StoreWay::Ordinary)]);
        assert_eq!(of("registered").len(), 4, "private memory is not registered");
        let why = "fast".parse::<Datapath>().unwrap_err();
        assert!(why.contains("'fast'") && why.contains("deep-ring, past-caches"), "{why}");
    }

    #[test]
    fn calls_without_large_slots_have_one_way_to_store() {
        let ways = possible_ways((false, true), false, None);
        assert_eq!(ways.as_slice(), [Datapath::Slots(StoreWay::Ordinary)]);
        assert_eq!(first_store(&ways), StoreWay::Ordinary);
        let deep = possible_ways((true, true), true, None);
        assert_eq!(first_store(&deep), StoreWay::DeepRing);
    }
}
