//! The division of rows and of layers over unequal ranks.

use super::TrainOptions;
use anyhow::{Context, Error, ensure};
use maypole_lab::unequal::rows::{RowDivision, SpeedClock};
use maypole_trainer::model::config::Config;
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::train::setup::Setup;

impl TrainOptions {
    /// What `--rows-by-speed` says.
    pub(super) fn row_division(&self) -> anyhow::Result<RowDivision> {
        let division = self.rows_by_speed.as_deref().map(RowDivision::parse);
        Ok(division.transpose().map_err(Error::msg)?.unwrap_or_default())
    }

    /// What `--stages` says; equal numbers where a measurement is still to come.
    pub(super) fn layer_counts(&self) -> anyhow::Result<Option<Vec<usize>>> {
        let given = self.stages.as_deref().filter(|_| !self.measures_layers());
        given.map(layer_counts).transpose()
    }

    /// True of `--stages measured`.
    pub(super) fn measures_layers(&self) -> bool {
        self.stages.as_deref() == Some("measured")
    }

    /// Refuses divisions by measured times where they would break a promise or cannot be measured.
    pub(super) fn check_division(&self, config: &Config, setup: &Setup) -> anyhow::Result<()> {
        let measured = matches!(
            self.row_division()?,
            RowDivision::BySpeed { clock: SpeedClock::Measured, .. }
        );
        ensure!(
            !(measured && self.deterministic == Some(true)),
            "--rows-by-speed divides rows by measured times, which differ from run to run, and \
             --deterministic promises equal bits: leave out one of them"
        );
        if self.measures_layers() {
            ensure!(
                setup.schedule.chunks() == 1,
                "--stages measured divides layers over one stage of each rank: \
                 give --pipeline 1f1b or gpipe, or the layers of each stage, as --stages 2,1,2,1"
            );
            ensure!(
                config.experts == 0,
                "--stages measured times layers without experts: \
                 give the layers of each stage, as --stages 3,1"
            );
            let stages = setup.mesh.size(MeshAxis::Pp);
            ensure!(
                stages <= config.layers,
                "--stages gives each of {stages} stages a layer, and there are {}: give --layers \
                 {stages}, or fewer ranks of pp",
                config.layers
            );
        }
        Ok(())
    }
}

/// Reads `3,1`: the layers of each stage.
fn layer_counts(text: &str) -> anyhow::Result<Vec<usize>> {
    let counts = text.split(',').map(|count| count.trim().parse().ok());
    counts.collect::<Option<Vec<usize>>>().with_context(|| {
        format!("'{text}' is no division of layers: give those of each stage, as 3,1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_of_layers_are_read() {
        assert_eq!(layer_counts("3, 1").unwrap(), [3, 1]);
        assert!(layer_counts("3,x").unwrap_err().to_string().contains("3,1"));
    }
}
