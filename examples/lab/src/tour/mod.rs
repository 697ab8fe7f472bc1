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
mod survivors;

use crate::tour::row::TourRow;
use maypole::Result;
use maypole_trainer::ranks::memory::counted;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer_gpu::choice::RankDevices;

/// One configuration of the tour.
#[derive(Clone, Debug)]
pub struct AxisCheck {
    /// The title of the row.
    pub axis: &'static str,
    pub(crate) show: CheckKind,
}

#[derive(Clone, Debug)]
pub(crate) enum CheckKind {
    /// A check that trains in its own way.
    Own(fn(&'static str, &TourSettings) -> TourRow),
    /// A mesh compared with one process.
    Mesh(Box<meshes::MeshCheck>),
}

/// Changes a rank before its first step.
pub type Plant = fn(&mut Trainer<f32>) -> Result<()>;

/// How rows of the tour are trained.
#[derive(Clone, Debug, Default)]
pub struct TourSettings {
    /// Plants something in each rank of a row, but not in the one process that it is compared with.
    pub plant: Option<Plant>,
    /// What computes the layers of each rank. One process computes on that of rank 0.
    pub devices: RankDevices,
    /// The steps of each row, or more where the row needs them. `None`: 10.
    pub steps: Option<u64>,
}

impl AxisCheck {
    /// Trains the configuration on the processor and returns its row.
    ///
    /// # Errors
    /// As [`run_with`](Self::run_with).
    ///
    /// # Panics
    /// As there.
    pub fn run(&self) -> Result<TourRow> {
        self.run_with(&TourSettings::default())
    }

    /// Trains the configuration by `settings`, also in one process for comparison, and returns its row.
    /// The memory of a GPU is not counted.
    ///
    /// # Errors
    /// As the collectives in it.
    ///
    /// # Panics
    /// If the program does not count its memory: it needs a
    /// `CountingAllocator` of `maypole-trainer-kernels`.
    pub fn run_with(&self, settings: &TourSettings) -> Result<TourRow> {
        assert!(counted(), "the tour compares memory: the program needs a CountingAllocator");
        match &self.show {
            CheckKind::Own(show) => Ok(show(self.axis, settings)),
            CheckKind::Mesh(check) => {
                let devices = settings.devices.clone();
                let plant = settings.plant;
                let mut check = meshes::MeshCheck { plant, ..(**check).clone() };
                check.recipe.devices = devices;
                check.run(check.steps(settings.steps))
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
    let own = |axis, show| AxisCheck { axis, show: CheckKind::Own(show) };
    let others = [
        own("checkpoint, there and back", data_parallel::resharded),
        own("without a rank that died", survivors::without_a_rank),
    ];
    let data = data_parallel::checks().into_iter().map(mesh);
    data.chain(others).chain(list::checks().into_iter().map(mesh)).collect()
}
