//! What every description of a machine is asked: who is there, and how near are they.

use crate::topology::read::printed::PrintedClass;

/// The answers of one description. What it cannot know is `None`; what it knows to be nothing is
/// empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceSummary {
    /// How many GPUs.
    pub gpus: usize,
    /// How many network cards, if the description speaks of them at all.
    pub nics: Option<usize>,
    /// `links[i][j]`: the class between GPUs `i` and `j`.
    pub links: Vec<Vec<PrintedClass>>,
    /// `nvlinks[i][j]`: bonded direct links between GPUs `i` and `j`, if the description counts
    /// them.
    pub nvlinks: Option<Vec<Vec<u32>>>,
    /// For each GPU the network cards nearest to it; `None` if there are none.
    pub nearest_nics: Option<Vec<NearestNics>>,
}

/// The network cards nearest to one GPU.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NearestNics {
    /// How near they are.
    pub class: PrintedClass,
    /// All that are so near, by their place in the description.
    pub nics: Vec<usize>,
}

impl NearestNics {
    /// The least distance in `classes` and who has it; `None` without any.
    pub fn of(classes: &[PrintedClass]) -> Option<NearestNics> {
        let class = *classes.iter().rev().max_by_key(|class| class.class())?;
        let nics =
            (0..classes.len()).filter(|nic| classes[*nic].class() == class.class()).collect();
        Some(NearestNics { class, nics })
    }
}

/// The direct links of every pair.
pub(crate) fn direct_links(links: &[Vec<PrintedClass>]) -> Vec<Vec<u32>> {
    links.iter().map(|row| row.iter().map(|class| class.direct_links()).collect()).collect()
}
