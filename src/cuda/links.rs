//! Which GPUs the ranks of a group have, and what joins these GPUs.
//!
//! Rank 0 looks, and all ranks use what it found: the order of a ring follows from it, and must be
//! equal on all ranks.

use super::plan::RankGpu;
use crate::comm::Communicator;
use crate::error::Result;
use crate::labels;
use crate::topology::{DeviceLinks, detect};
use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaContext, DriverError};
use maypole_transports::cuda::{ProcessName, ReservedBlocks};

/// What a rank tells the others about itself, before mailboxes are made.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Introduction {
    pub(super) uuid: [u8; 16],
    process: ProcessName,
    pub(super) processors: u32,
    /// Multiprocessors that no group of its process has reserved.
    pub(super) free: u32,
    /// Most lanes that it wants.
    pub(super) most: u32,
    /// Domain, bus and device of its PCI address.
    address: [u32; 3],
}

impl Introduction {
    pub(super) fn of(
        context: &CudaContext,
        most: Option<u32>,
    ) -> std::result::Result<Self, String> {
        let said = |error: DriverError| format!("the driver reports {error:?}");
        let number = |which| context.attribute(which).map(|it| it.max(0) as u32).map_err(said);
        let uuid = context.uuid().map_err(said)?.bytes.map(|byte| byte as u8);
        let processors =
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1);
        Ok(Self {
            uuid,
            processors,
            free: ReservedBlocks::left(uuid, processors),
            most: most.unwrap_or(u32::MAX).max(1),
            process: ProcessName::current(),
            address: [
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
            ],
        })
    }

    /// Its GPU, with what all groups have reserved, of whichever process of these ranks.
    pub(super) fn gpu(&self, all: &[Self]) -> RankGpu {
        let here = all.iter().filter(|other| other.uuid == self.uuid);
        let mut processes: Vec<_> = here.map(|other| (other.process, other.free)).collect();
        processes.sort_unstable_by_key(|(process, free)| (process.to_bytes(), *free));
        processes.dedup_by_key(|(process, _)| *process);
        let reserved: u32 = processes.iter().map(|(_, free)| self.processors - free).sum();
        let free = self.processors.saturating_sub(reserved);
        RankGpu { uuid: self.uuid, processors: self.processors, free }
    }

    /// True if another rank is a thread of the same process, on the same GPU.
    pub(super) fn shares_gpu(&self, all: &[Self]) -> bool {
        let alike = |other: &&Self| (other.uuid, other.process) == (self.uuid, self.process);
        all.iter().filter(alike).count() > 1
    }

    /// Its PCI address, as in `/sys`.
    fn bus(&self) -> String {
        let [domain, bus, device] = self.address;
        format!("{domain:04x}:{bus:02x}:{device:02x}.0")
    }
}

/// The links between the GPUs of `all` ranks of `comm`, as rank 0 finds them. Collective.
///
/// # Errors
/// As every call.
pub(super) fn find(
    comm: &mut Communicator,
    call: &str,
    all: &[Introduction],
) -> Result<DeviceLinks> {
    let gpus = numbers(all);
    let is_first = comm.rank() == 0;
    let found = if is_first { detected(all, &gpus).to_bytes() } else { Vec::new() };
    let told = comm.agree_on(call, &found)?;
    let links = DeviceLinks::from_bytes(&told[0], gpus.len());
    // All ranks have the same bytes, so all of them read them, or none.
    Ok(links.unwrap_or_else(|| DeviceLinks::unknown(&gpus)))
}

/// Numbers the GPUs in the order of their first ranks.
fn numbers(all: &[Introduction]) -> Vec<usize> {
    labels::numbers(all.iter().map(|one| one.uuid))
}

/// What this machine tells about the links between `gpus`. One GPU has none.
fn detected(all: &[Introduction], gpus: &[usize]) -> DeviceLinks {
    let unknown = || DeviceLinks::unknown(gpus);
    if gpus.iter().all(|gpu| *gpu == 0) {
        return unknown();
    }
    let buses: Vec<String> = all.iter().map(Introduction::bus).collect();
    detect::machine().links(&buses).unwrap_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(uuid: u8, bus: u32) -> Introduction {
        Introduction {
            uuid: [uuid; 16],
            processors: 132,
            free: 100,
            most: 66,
            process: ProcessName::current(),
            address: [0, bus, 0],
        }
    }

    #[test]
    fn an_introduction_has_an_address() {
        assert_eq!(one(7, 0x9a).bus(), "0000:9a:00.0");
    }

    /// Two threads of this process are on the first GPU, and another process.
    #[test]
    fn a_gpu_has_free_what_no_process_has_reserved() {
        let other = |free| Introduction { process: bytemuck::cast([3u8; 16]), free, ..one(9, 1) };
        let all = [one(9, 1), one(9, 1), other(90), one(4, 2)];
        let free: Vec<u32> = all.iter().map(|one| one.gpu(&all).free).collect();
        assert_eq!(free, [58, 58, 58, 100], "32 and 42 of 132 are reserved on the first GPU");
        let full = [other(20), one(9, 1)];
        assert_eq!(full.map(|one| one.gpu(&full).free), [0, 0]);
    }

    #[test]
    fn ranks_with_one_uuid_share_a_gpu() {
        let all = [one(9, 1), one(4, 2), one(9, 1), one(5, 3)];
        assert_eq!(numbers(&all), [0, 1, 0, 2]);
        let alone = detected(&[one(9, 1); 3], &[0; 3]);
        assert_eq!(alone, DeviceLinks::unknown(&[0; 3]));
    }
}
