//! The GPUs of a group's ranks, and their links.
//!
//! Rank 0 queries the links, and all ranks use its result: the order of a ring follows from it, and
//! must be equal on all ranks.

use super::options::CommOptions;
use super::place;
use super::plan::RankGpu;
use crate::comm::Communicator;
use crate::error::Result;
use crate::labels;
use crate::topology::detect::DetectedMachine;
use crate::topology::{DeviceLinks, PathClass, detect};
use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaContext, DriverError};
use maypole_kernels::cuda::uuid_of;
use maypole_transports::cuda::{ProcessName, ReservedBlocks};
use maypole_transports::random;
use std::sync::OnceLock;

/// A rank's announcement of its GPU, before mailboxes are made.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Introduction {
    pub(super) uuid: [u8; 16],
    pub(super) process: ProcessName,
    pub(super) processors: u32,
    /// Blocks that groups of its process have reserved.
    reserved: u32,
    /// The most lanes that it allows, and the least that it wants.
    pub(super) most: u32,
    pub(super) least: u32,
    /// The [rank](PathClass::rank) of the farthest GPUs whose memory it may use.
    farthest: u32,
    /// Where it [wants](place::wanted) mailboxes.
    pub(super) wanted: u32,
    /// Domain, bus and device of its PCI address.
    address: [u32; 3],
    /// A random number: that of rank 0 is the group's.
    pub(super) number: u32,
}

impl Introduction {
    pub(super) fn of(
        context: &CudaContext,
        options: &CommOptions,
    ) -> std::result::Result<Self, String> {
        let said = |error: DriverError| format!("the driver reports {error:?}");
        let number = |which| context.attribute(which).map(|it| it.max(0) as u32).map_err(said);
        let uuid = uuid_of(context).map_err(|error| error.to_string())?;
        let processors =
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1);
        Ok(Self {
            uuid,
            processors,
            reserved: ReservedBlocks::taken(uuid),
            least: options.least_lanes.unwrap_or(1).max(1),
            most: options.most_lanes.unwrap_or(u32::MAX).max(1),
            farthest: options.farthest_peers.map_or(0, PathClass::rank),
            wanted: place::wanted()?,
            process: ProcessName::current(),
            address: [
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
            ],
            number: random::bytes().map_or(0, u32::from_le_bytes),
        })
    }

    /// Its GPU, each of whose multiprocessors has room for `fitting` blocks, with the reservations of all
    /// groups, in all processes of these ranks.
    pub(super) fn gpu(&self, all: &[Self], fitting: u32) -> RankGpu {
        let here = all.iter().filter(|other| other.uuid == self.uuid);
        let mut processes: Vec<_> = here.map(|other| (other.process, other.reserved)).collect();
        processes.sort_unstable_by_key(|(process, reserved)| {
            (process.to_bytes(), std::cmp::Reverse(*reserved))
        });
        processes.dedup_by_key(|(process, _)| *process);
        let reserved: u32 = processes.iter().map(|(_, reserved)| reserved).sum();
        let places = self.processors * fitting;
        RankGpu { uuid: self.uuid, places, free: places.saturating_sub(reserved) }
    }

    /// True if the two ranks are threads of one process on one GPU.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        (self.process, self.uuid) == (other.process, other.uuid)
    }

    /// Its PCI address, as in `/sys`.
    fn bus(&self) -> String {
        let [domain, bus, device] = self.address;
        format!("{domain:04x}:{bus:02x}:{device:02x}.0")
    }
}

/// The links between the GPUs of `all` ranks of `comm`, as rank 0 finds them, and the reason, if
/// there is one, why some of these GPUs cannot use one another's memory. Those of several hosts are
/// unknown. Collective.
///
/// # Errors
/// As every call.
pub(super) fn find(
    comm: &mut Communicator,
    call: &str,
    all: &[Introduction],
) -> Result<(DeviceLinks, Option<String>)> {
    let gpus = numbers(all);
    let found = match comm.rank() {
        0 if comm.hosts().is_one() => {
            let (links, refused) = detected(all, &gpus);
            let refused = too_far(all, &links).or(refused);
            (links.to_bytes(), refused)
        }
        _ => (Vec::new(), None),
    };
    let mut told = comm.agree_on(call, &found)?;
    let (bytes, refused) = told.swap_remove(0);
    let links = DeviceLinks::from_bytes(&bytes, gpus.len());
    // All ranks have the same bytes, so all of them read them, or none.
    Ok((links.unwrap_or_else(|| DeviceLinks::unknown(&gpus)), refused))
}

/// Why some ranks use no memory of one another: a rank's setting excludes GPUs that are so far
/// away.
fn too_far(all: &[Introduction], links: &DeviceLinks) -> Option<String> {
    let farthest = all.iter().map(|one| one.farthest).max().filter(|farthest| *farthest > 0)?;
    let pairs = (0..all.len()).flat_map(|a| (0..a).map(move |b| (b, a)));
    let mut apart = pairs.filter(|(a, b)| all[*a].uuid != all[*b].uuid);
    let wanted = match farthest {
        of if of == PathClass::Same.rank() => "no GPU is to use the memory of another one",
        of if of > PathClass::Pix.rank() => "GPUs are to use the memory of others by NVLink alone",
        of if of == PathClass::Pix.rank() => "GPUs are to use memory across at most one PCI bridge",
        of if of == PathClass::Pxb.rank() => "GPUs are to use no memory across a host bridge",
        _ => "GPUs are to use no memory across NUMA nodes",
    };
    let is_far = |(a, b): &(usize, usize)| {
        links.between(*a, *b).is_none_or(|path| path.class.rank() < farthest)
    };
    apart.find(is_far).map(|(a, b)| {
        let joined = links.between(a, b);
        let joined =
            joined.map_or("in an unknown way".to_owned(), |path| format!("by {}", path.class));
        format!(
            "{wanted}, and those of ranks {a} and {b} are joined {joined} (NCCL_P2P_DISABLE, \
             NCCL_P2P_LEVEL, or CommOptions::farthest_peers)"
        )
    })
}

/// Numbers the GPUs in the order of their first ranks.
fn numbers(all: &[Introduction]) -> Vec<usize> {
    labels::numbers(all.iter().map(|one| one.uuid))
}

/// The links between `gpus` that this machine reports, and whether the GPUs use the memory of one
/// another. One GPU has none.
fn detected(all: &[Introduction], gpus: &[usize]) -> (DeviceLinks, Option<String>) {
    // One driver query for each pair of GPUs, while all ranks wait.
    static MACHINE: OnceLock<DetectedMachine> = OnceLock::new();
    if gpus.iter().all(|gpu| *gpu == 0) {
        return (DeviceLinks::unknown(gpus), None);
    }
    let buses: Vec<String> = all.iter().map(Introduction::bus).collect();
    let machine = MACHINE.get_or_init(detect::machine);
    let refused = machine.refused_peers(&buses).map(|(a, b, why)| {
        format!(
            "NVIDIA's driver says that the GPU of rank {a} does not use the memory of that of rank {b}: {why}"
        )
    });
    (machine.links(&buses).unwrap_or_else(|| DeviceLinks::unknown(gpus)), refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(uuid: u8, bus: u32) -> Introduction {
        Introduction {
            uuid: [uuid; 16],
            processors: 132,
            reserved: 32,
            most: 66,
            least: 1,
            farthest: 0,
            wanted: 0,
            process: ProcessName::current(),
            address: [0, bus, 0],
            number: 0,
        }
    }

    #[test]
    fn an_introduction_has_an_address() {
        assert_eq!(one(7, 0x9a).bus(), "0000:9a:00.0");
    }

    /// Two threads of this process are on the first GPU, and another process.
    #[test]
    fn a_gpu_has_free_what_no_process_has_reserved() {
        let process = bytemuck::cast([3u8; 16]);
        let other = |reserved| Introduction { process, reserved, ..one(9, 1) };
        let all = [one(9, 1), one(9, 1), other(42), one(4, 2)];
        let free: Vec<u32> = all.iter().map(|one| one.gpu(&all, 1).free).collect();
        assert_eq!(free, [58, 58, 58, 100], "32 and 42 of 132 are reserved on the first GPU");
        assert_eq!(one(9, 1).gpu(&all, 2).free, 190, "two blocks fit on a multiprocessor");
        let full = [other(112), one(9, 1)];
        assert_eq!(full.map(|one| one.gpu(&full, 1).free), [0, 0]);
    }

    #[test]
    fn ranks_with_one_uuid_share_a_gpu() {
        let all = [one(9, 1), one(4, 2), one(9, 1), one(5, 3)];
        assert_eq!(numbers(&all), [0, 1, 0, 2]);
        let alone = detected(&[one(9, 1); 3], &[0; 3]);
        assert_eq!(alone, (DeviceLinks::unknown(&[0; 3]), None));
    }

    #[test]
    fn gpus_that_are_too_far_away_are_not_used() {
        let far = |class: Option<PathClass>, uuids: [u8; 2]| {
            let of =
                |uuid| Introduction { farthest: class.map_or(0, PathClass::rank), ..one(uuid, 1) };
            let all = uuids.map(of);
            too_far(&all, &DeviceLinks::unknown(&numbers(&all)))
        };
        assert_eq!(far(None, [1, 2]), None);
        assert_eq!(far(Some(PathClass::Same), [1, 1]), None);
        let why = far(Some(PathClass::Same), [1, 2]).unwrap();
        assert!(why.contains("ranks 0 and 1") && why.contains("NCCL_P2P_DISABLE"), "{why}");
        assert!(far(Some(PathClass::NvLink(1)), [1, 2]).unwrap().contains("NVLink"));
    }
}
