//! The tour: every axis trained and compared with one process, and what it holds and sends beside
//! theory.
//!
//! A [`Stop`] trains one configuration and gives a [`Row`]. [`stops`] lists all of them; each axis
//! brings its own.

use crate::tour_row::Row;
use crate::{tour_data, tour_mesh};
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
    Mesh(Box<tour_mesh::Stop>),
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
    let mesh = |stop: tour_mesh::Stop| Stop { axis: stop.axis, show: Show::Mesh(Box::new(stop)) };
    tour_data::stops().into_iter().chain(tour_mesh::stops().into_iter().map(mesh)).collect()
}
