//! The tour: every axis trained and compared with one process, and what it holds and sends beside
//! theory.
//!
//! A [`AxisCheck`] trains one configuration and gives a [`TourRow`]. [`stops`] lists all of them; each axis
//! brings its own.

pub(crate) mod bits;
mod data_parallel;
pub mod meshes;
pub mod row;

use crate::check::tour::row::TourRow;
use maypole::Result;

/// One configuration.
#[derive(Clone, Debug)]
pub struct AxisCheck {
    /// What is shown.
    pub axis: &'static str,
    pub(crate) show: CheckKind,
}

/// Who trains it.
#[derive(Clone, Debug)]
pub(crate) enum CheckKind {
    /// A form of data parallelism.
    Data(fn(&'static str) -> TourRow),
    /// Axes that divide the model.
    Mesh(Box<meshes::MeshCheck>),
}

/// Steps of the stops that divide the model.
const STEPS: u64 = 10;

impl AxisCheck {
    /// Trains it and gives the row.
    ///
    /// # Errors
    /// As the collectives in it.
    pub fn visit(&self) -> Result<TourRow> {
        match &self.show {
            CheckKind::Data(show) => Ok(show(self.axis)),
            CheckKind::Mesh(stop) => stop.run(STEPS),
        }
    }
}

/// All configurations, in the order in which they are shown.
pub fn stops() -> Vec<AxisCheck> {
    let mesh = |stop: meshes::MeshCheck| AxisCheck { axis: stop.axis, show: CheckKind::Mesh(Box::new(stop)) };
    data_parallel::stops().into_iter().chain(meshes::stops().into_iter().map(mesh)).collect()
}
