//! The tour: every axis trained and compared with one process, and what it holds and sends beside
//! theory.
//!
//! A [`Stop`] trains one configuration and gives a [`Row`]. [`stops`] lists all of them; each axis
//! brings its own.

pub(crate) mod bits;
mod data_parallel;
pub mod meshes;
pub mod row;

use crate::check::tour::row::Row;
use maypole::Result;

/// One configuration.
#[derive(Clone, Debug)]
pub struct Stop {
    /// What is shown.
    pub axis: &'static str,
    pub(crate) show: Show,
}

/// Who trains it.
#[derive(Clone, Debug)]
pub(crate) enum Show {
    /// A form of data parallelism.
    Data(fn(&'static str) -> Row),
    /// Axes that divide the model.
    Mesh(Box<meshes::Stop>),
}

/// Steps of the stops that divide the model.
const STEPS: u64 = 10;

impl Stop {
    /// Trains it and gives the row.
    ///
    /// # Errors
    /// As the collectives in it.
    pub fn visit(&self) -> Result<Row> {
        match &self.show {
            Show::Data(show) => Ok(show(self.axis)),
            Show::Mesh(stop) => stop.run(STEPS),
        }
    }
}

/// All configurations, in the order in which they are shown.
pub fn stops() -> Vec<Stop> {
    let mesh = |stop: meshes::Stop| Stop { axis: stop.axis, show: Show::Mesh(Box::new(stop)) };
    data_parallel::stops().into_iter().chain(meshes::stops().into_iter().map(mesh)).collect()
}
