//! Who is there, and what lies between: the path of every pair through the tree of PCI devices.

use super::{Cpu, Gpu, Net, Pci, System};
use crate::topology::answers::{Answers, Nearest, direct_links};
use crate::topology::printed::Printed;

/// A switch that joins all GPUs linked to it, by its PCI class.
const NVSWITCH: u32 = 0x06_8000;

/// A device and the numbers of the CPU and the bridges above it, from the top.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) above: Vec<usize>,
    pub(crate) device: T,
}

/// Which GPU: its PCI device, and what only a GPU has, if the file says that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accelerator<'a> {
    pub(crate) pci: &'a Pci,
    pub(crate) gpu: Option<&'a Gpu>,
}

/// A network card: an interface, or a bare PCI device where the file names no interfaces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Card<'a> {
    Net(&'a Net, Option<&'a Pci>),
    Bare(&'a Pci),
}

impl Card<'_> {
    pub(crate) fn name(&self) -> &str {
        match self {
            Card::Net(net, _) => &net.name,
            Card::Bare(pci) => &pci.bus,
        }
    }
}

/// All devices of a system.
pub(crate) struct Devices<'a> {
    pub(crate) gpus: Vec<Placed<Accelerator<'a>>>,
    pub(crate) cards: Vec<Placed<Card<'a>>>,
    bare: Vec<Placed<Card<'a>>>,
    count: usize,
}

impl System {
    /// GPUs and network cards, in the order of their numbers where all have one, else in that of the file.
    pub(crate) fn devices(&self) -> Devices<'_> {
        let mut found = Devices { gpus: Vec::new(), cards: Vec::new(), bare: Vec::new(), count: 0 };
        for cpu in &self.cpus {
            found.visit_cpu(cpu);
        }
        in_order(&mut found.gpus, |it| it.gpu?.device);
        in_order(&mut found.cards, |card| match card {
            Card::Net(net, _) => net.device,
            Card::Bare(_) => None,
        });
        // A file that was written by hand names no interfaces: there the devices themselves are the cards.
        if found.cards.is_empty() {
            found.cards = std::mem::take(&mut found.bare);
        }
        found
    }

    /// The names of the network cards, in the order of [`answers`](System::answers).
    pub fn nic_names(&self) -> Vec<String> {
        self.devices().cards.iter().map(|card| card.device.name().to_owned()).collect()
    }

    /// What every description is asked.
    pub fn answers(&self) -> Answers {
        let devices = self.devices();
        let gpus = &devices.gpus;
        let class = |a: usize, b: usize| if a == b { Printed::Same } else { devices.class(a, b) };
        let links: Vec<Vec<_>> = (0..gpus.len()).map(|a| (0..gpus.len()).map(|b| class(a, b)).collect()).collect();
        let to_cards =
            |gpu: &Placed<Accelerator>| devices.cards.iter().map(|card| between(&gpu.above, &card.above)).collect();
        let to_cards: Vec<Vec<Printed>> = gpus.iter().map(to_cards).collect();
        let nearest_nics = match devices.cards.len() {
            0 => None,
            _ => to_cards.iter().map(|classes| Nearest::of(classes)).collect(),
        };
        let nics = Some(devices.cards.len());
        Answers { gpus: gpus.len(), nics, nvlinks: Some(direct_links(&links)), links, nearest_nics }
    }
}

impl<'a> Devices<'a> {
    fn visit_cpu(&mut self, cpu: &'a Cpu) {
        let above = vec![self.next()];
        let nets = cpu.nets.iter().map(|net| Placed { above: above.clone(), device: Card::Net(net, None) });
        self.cards.extend(nets);
        for pci in &cpu.devices {
            self.visit(pci, &above);
        }
    }

    fn visit(&mut self, pci: &'a Pci, above: &[usize]) {
        let above = above.to_vec();
        let card = |device| Placed { above: above.clone(), device };
        self.cards.extend(pci.nets.iter().map(|net| card(Card::Net(net, Some(pci)))));
        if pci.nets.is_empty() && pci.class.is_some_and(|class| class >> 16 == 0x02) {
            self.bare.push(card(Card::Bare(pci)));
        }
        let is_display = pci.class.is_some_and(|class| matches!(class >> 8, 0x0300 | 0x0302));
        let gpus = match pci.gpus.is_empty() {
            true => is_display.then_some(None).into_iter().collect::<Vec<_>>(),
            false => pci.gpus.iter().map(Some).collect(),
        };
        self.gpus.extend(gpus.into_iter().map(|gpu| Placed { above: above.clone(), device: Accelerator { pci, gpu } }));
        let below = [above, vec![self.next()]].concat();
        for device in &pci.devices {
            self.visit(device, &below);
        }
    }

    fn next(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// Direct links if there are any, else the way over PCIe.
    fn class(&self, a: usize, b: usize) -> Printed {
        let count = self.direct(a, b);
        match count {
            0 => between(&self.gpus[a].above, &self.gpus[b].above),
            _ if self.links(a).any(|link| link.xgmi) => Printed::Xgmi(Some(count)),
            _ => Printed::NvLink(count),
        }
    }

    /// Links from `a` to `b`, or through switches as many as the one with fewer has.
    fn direct(&self, a: usize, b: usize) -> u32 {
        let target = &self.gpus[b].device.pci.bus;
        let straight: u32 = self.links(a).filter(|link| link.target == *target).map(|link| link.count).sum();
        let to_switches = |gpu: usize| -> u32 {
            self.links(gpu).filter(|link| link.class == Some(NVSWITCH)).map(|link| link.count).sum()
        };
        if straight > 0 { straight } else { to_switches(a).min(to_switches(b)) }
    }

    fn links(&self, gpu: usize) -> impl Iterator<Item = &'a super::DirectLink> {
        self.gpus[gpu].device.gpu.into_iter().flat_map(|gpu| &gpu.links)
    }
}

fn in_order<T>(placed: &mut [Placed<T>], number: impl Fn(&T) -> Option<i64>) {
    if placed.iter().all(|it| number(&it.device).is_some()) {
        placed.sort_by_key(|it| number(&it.device));
    }
}

/// The class of a way up one path and down another: by the CPU if they have nothing nearer in common, else by how many
/// bridges they cross.
fn between(a: &[usize], b: &[usize]) -> Printed {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let bridges = a.len() + b.len() - 2 * common + 1;
    match (common, bridges) {
        (0, _) => Printed::Sys,
        (1, _) => Printed::Phb,
        (_, 0 | 1) => Printed::Pix,
        _ => Printed::Pxb,
    }
}
