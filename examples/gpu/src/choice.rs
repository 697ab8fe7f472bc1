//! The choice of the device that computes a run's layers: this processor, or NVIDIA GPUs.

use crate::device::GpuDevice;
use maypole_kernels::cuda::driver;
use maypole_trainer::tensor::device::{CpuDevice, Device};
use maypole_trainer::tensor::math::Real;
use maypole_trainer_kernels::layers::{Float, Gpu};
use std::sync::Arc;

/// The device of each rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DeviceChoice {
    /// The processor that runs the rank.
    #[default]
    Cpu,
    /// GPUs: that of rank r is number r modulo the number of GPUs that its process sees.
    EachRank,
    /// The GPU with this number, for all ranks.
    Gpu(usize),
}

/// A device and its description.
#[derive(Clone, Debug)]
pub struct OpenDevice<T> {
    /// The device.
    pub device: Arc<dyn Device<T>>,
    /// Its name; empty for the processor.
    pub about: String,
}

impl DeviceChoice {
    /// Reads `cpu`, `cuda` or `cuda:N`.
    ///
    /// # Errors
    /// A sentence that lists the valid forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().map(Self::Gpu);
        let choice = match text {
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::EachRank),
            text => text.strip_prefix("cuda:").and_then(number),
        };
        choice.ok_or_else(|| {
            format!("'{text}' is no device: give cpu, cuda, or cuda:N for GPU number N, from 0")
        })
    }

    /// The number of the GPU of rank `rank`; `None` for the processor.
    ///
    /// # Errors
    /// A sentence with the reason why the GPU is missing, and a remedy.
    pub fn gpu(self, rank: usize) -> Result<Option<usize>, String> {
        if self == Self::Cpu {
            return Ok(None);
        }
        let devices = driver().map_err(unavailable)?.devices();
        match self {
            _ if devices == 0 => Err(unavailable("the driver finds no GPU")),
            Self::Gpu(number) if number >= devices => {
                let last = devices - 1;
                Err(format!(
                    "CUDA unavailable: there is no GPU {number}; this process sees {devices}, \
                     numbered from 0 to {last} (CUDA_VISIBLE_DEVICES hides others)"
                ))
            }
            Self::Gpu(number) => Ok(Some(number)),
            Self::EachRank | Self::Cpu => Ok(Some(rank % devices)),
        }
    }

    /// Opens the device of rank `rank`.
    ///
    /// # Errors
    /// A sentence with the reason why the device is unusable, and a remedy.
    pub fn open<T: Real + Float>(self, rank: usize) -> Result<OpenDevice<T>, String> {
        let Some(number) = self.gpu(rank)? else {
            return Ok(OpenDevice { device: Arc::new(CpuDevice), about: String::new() });
        };
        let gpu = Gpu::open(number).map_err(unavailable)?;
        let about = format!("GPU {number}, {}", gpu.name().map_err(unavailable)?);
        Ok(OpenDevice { device: Arc::new(GpuDevice::new(gpu)), about })
    }
}

/// The devices of ranks that are threads of this process, opened once for many trainings.
#[derive(Clone, Debug)]
pub struct RankDevices {
    opened: Arc<[OpenDevice<f32>]>,
}

impl Default for RankDevices {
    /// The processor.
    fn default() -> Self {
        Self { opened: [OpenDevice { device: Arc::new(CpuDevice), about: String::new() }].into() }
    }
}

impl RankDevices {
    /// Opens the devices of `ranks` ranks.
    ///
    /// # Errors
    /// As [`DeviceChoice::open`].
    pub fn open(choice: DeviceChoice, ranks: usize) -> Result<Self, String> {
        Ok(Self {
            opened: (0..ranks.max(1)).map(|rank| choice.open(rank)).collect::<Result<_, _>>()?,
        })
    }

    /// The device of rank `rank`.
    pub fn of(&self, rank: usize) -> Arc<dyn Device<f32>> {
        Arc::clone(&self.opened[rank % self.opened.len()].device)
    }

    /// The name of rank 0's device; empty for the processor.
    pub fn about(&self) -> &str {
        &self.opened[0].about
    }

    /// True if no rank computes on a GPU.
    pub fn are_processors(&self) -> bool {
        self.about().is_empty()
    }

    /// What made the first device fail that has failed: its results are not those of the layers.
    pub fn failure(&self) -> Option<String> {
        self.opened.iter().find_map(|one| one.device.failure())
    }
}

fn unavailable(why: impl std::fmt::Display) -> String {
    format!("CUDA unavailable: {why}; without --device, layers run on the processor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_or_refused() {
        let choices = ["cpu", "cuda", "cuda:3"].map(|text| DeviceChoice::parse(text).unwrap());
        assert_eq!(choices, [DeviceChoice::Cpu, DeviceChoice::EachRank, DeviceChoice::Gpu(3)]);
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", "cuda0"] {
            let error = DeviceChoice::parse(text).unwrap_err();
            assert!(error.contains("give cpu, cuda, or cuda:N"), "{error}");
        }
    }

    #[test]
    fn every_rank_may_compute_on_the_processor() {
        assert_eq!(DeviceChoice::Cpu.gpu(7), Ok(None));
        assert!(DeviceChoice::Cpu.open::<f32>(7).unwrap().about.is_empty());
    }
}
