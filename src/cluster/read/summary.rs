//! A summary that every description of a machine has: its GPUs, their links and their network
//! cards.

use crate::read::printed::PrintedClass;

/// The devices of one description. A field is `None` if the description does not have this
/// information. It is empty if the machine has no such devices by the description.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceSummary {
    /// The number of GPUs.
    pub gpus: usize,
    /// The number of network cards; `None` if the format has no network cards.
    pub nics: Option<usize>,
    /// `links[i][j]`: the class of the path between GPUs `i` and `j`.
    pub links: Vec<Vec<PrintedClass>>,
    /// `nvlinks[i][j]`: the number of bonded direct links between GPUs `i` and `j`; `None` if the
    /// format does not count them.
    pub nvlinks: Option<Vec<Vec<u32>>>,
    /// By GPU: the network cards nearest to it; `None` if there are no network cards.
    pub nearest_nics: Option<Vec<NearestNics>>,
}

/// The network cards nearest to one GPU.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NearestNics {
    /// The class of the path to them.
    pub class: PrintedClass,
    /// All network cards of that class, by their position in the description.
    pub nics: Vec<usize>,
}

impl NearestNics {
    /// Returns the best class in `classes`, one class a card, and the cards that have it. `None`
    /// for an empty list.
    pub fn of(classes: &[PrintedClass]) -> Option<NearestNics> {
        let class = *classes.iter().rev().max_by_key(|class| class.class())?;
        let nics =
            (0..classes.len()).filter(|nic| classes[*nic].class() == class.class()).collect();
        Some(NearestNics { class, nics })
    }
}

/// The number of direct links of every pair.
pub(crate) fn direct_links(links: &[Vec<PrintedClass>]) -> Vec<Vec<u32>> {
    links.iter().map(|row| row.iter().map(|class| class.direct_links()).collect()).collect()
}
