//! The tour: trains every axis, compares the run with one process, and compares the bytes held and
//! sent with theory.
//!
//! An [`AxisCheck`] trains one configuration and returns a [`TourRow`]. [`checks`] lists all of
//! them.

pub(crate) mod bits;
mod data_parallel;
pub mod list;
mod measure;
pub mod meshes;
pub mod page;
mod pipeline;
pub mod row;

use crate::check::tour::row::TourRow;
use crate::ranks::memory::counted;
use crate::tensor::device_choice::RankDevices;
use maypole::Result;

/// One configuration of the tour.
#[derive(Clone, Debug)]
pub struct AxisCheck {
    /// The title of the row.
    pub axis: &'static str,
    pub(crate) show: CheckKind,
}

/// The kind of a configuration.
#[derive(Clone, Debug)]
pub(crate) enum CheckKind {
    /// A form of data parallelism.
    Data(fn(&'static str, &RankDevices) -> TourRow),
    /// Axes that divide the model.
    Mesh(Box<meshes::MeshCheck>),
}

/// Steps of the checks that divide the model.
const STEPS: u64 = 10;

impl AxisCheck {
    /// Trains the configuration on the processor and returns its row.
    ///
    /// # Errors
    /// As [`run_on`](Self::run_on).
    ///
    /// # Panics
    /// As there.
    pub fn run(&self) -> Result<TourRow> {
        self.run_on(&RankDevices::default())
    }

    /// Trains the configuration with layers on `devices`, also in the one process that it is compared
    /// with, and returns its row. What a device has of memory of its own is not counted.
    ///
    /// # Errors
    /// As the collectives in it.
    ///
    /// # Panics
    /// If the program does not count its memory: it needs a
    /// [`CountingAllocator`](maypole_kernels::memory::counting::CountingAllocator).
    pub fn run_on(&self, devices: &RankDevices) -> Result<TourRow> {
        assert!(counted(), "the tour compares memory: the program needs a CountingAllocator");
        match &self.show {
            CheckKind::Data(show) => Ok(show(self.axis, devices)),
            CheckKind::Mesh(check) => {
                let check = meshes::MeshCheck { devices: devices.clone(), ..(**check).clone() };
                check.run(STEPS)
            }
        }
    }
}

/// All configurations, in the order in which they are shown.
pub fn checks() -> Vec<AxisCheck> {
    let mesh = |check: meshes::MeshCheck| AxisCheck {
        axis: check.axis,
        show: CheckKind::Mesh(Box::new(check)),
    };
    data_parallel::checks().into_iter().chain(list::checks().into_iter().map(mesh)).collect()
}
