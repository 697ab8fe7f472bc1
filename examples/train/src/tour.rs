//! `train tour`.

use crate::output;
use crate::output::files;
use anyhow::{Error, anyhow};
use maypole_lab::tour::page::html;
use maypole_lab::tour::row::{NOTE, heading};
use maypole_lab::tour::{TourSettings, checks};
use maypole_trainer_gpu::choice::{DeviceChoice, RankDevices};
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct TourArgs {
    /// Write the rows to this file too: a JSON array with one object a row.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with the table and with pictures to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Run only the rows whose name contains TEXT.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// What computes layers, on ranks and in the one process that they are compared with: cpu, cuda or
    /// cuda:N, as for `train run`. Matrix products on a GPU are by the kernels of this project. The
    /// memory of a GPU is not counted.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Steps of each row, or more where a row needs them [default: 10; of plain gradient descent 20].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: Option<u64>,
}

/// The most ranks of a row.
const MOST_RANKS: usize = 8;

/// Runs the tour. Fails if any comparison fails.
pub(crate) fn run(args: &TourArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut rows = Vec::new();
    let wanted = |axis: &str| args.only.as_deref().is_none_or(|text| axis.contains(text));
    let names = || checks().iter().map(|check| check.axis).collect::<Vec<_>>().join("; ");
    anyhow::ensure!(
        checks().iter().any(|check| wanted(check.axis)),
        "--only: no row has this text in its name; the rows are {}",
        names()
    );
    args.json.as_deref().map_or(Ok(()), |path| files::try_file("--json", path))?;
    args.html.as_deref().map_or(Ok(()), |path| files::try_file("--html", path))?;
    let devices = DeviceChoice::parse(&args.device)
        .and_then(|choice| RankDevices::open(choice, MOST_RANKS))
        .map_err(Error::msg)?;
    if !devices.about().is_empty() {
        output::line(format_args!("rank 0 computes layers on {}", devices.about()))?;
    }
    let settings = TourSettings { devices, steps: args.steps, plant: None };
    output::line(heading())?;
    for check in checks().into_iter().filter(|check| wanted(check.axis)) {
        let row = check.run_with(&settings)?;
        let failed = |why| Err(anyhow!("the device that computes layers has failed: {why}"));
        settings.devices.failure().map_or(Ok(()), failed)?;
        output::line(row.line())?;
        rows.push(row);
    }
    output::line(NOTE)?;
    if let Some(path) = &args.json {
        let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let array = format!("[\n{}\n]\n", lines.join(",\n"));
        files::write("--json", path, array)?;
    }
    if let Some(path) = &args.html {
        files::write("--html", path, html(&rows))?;
    }
    let all = rows.len();
    let good = rows.iter().filter(|row| row.pass).count();
    output::line(format_args!(
        "{good} of {all} agree with one process, each within its criterion; {:.0} s",
        start.elapsed().as_secs_f64()
    ))?;
    anyhow::ensure!(good == all, "{} comparisons failed", all - good);
    Ok(())
}
