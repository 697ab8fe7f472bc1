//! `train tour`.

use anyhow::Context;
use maypole_trainer::tour::stops;
use maypole_trainer::tour_row::{NOTE, heading};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the rows to this file too: a JSON array with one object a row.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only what has this in its name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Fails if any comparison does.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (start, mut rows) = (Instant::now(), Vec::new());
    println!("{}", heading());
    let wanted = |axis: &str| args.only.as_deref().is_none_or(|text| axis.contains(text));
    for stop in stops().into_iter().filter(|stop| wanted(stop.axis)) {
        let row = stop.visit()?;
        println!("{}", row.line());
        rows.push(row);
    }
    println!("{NOTE}");
    if let Some(path) = &args.json {
        let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let array = format!("[\n{}\n]\n", lines.join(",\n"));
        fs::write(path, array).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let (all, good) = (rows.len(), rows.iter().filter(|row| row.pass).count());
    println!(
        "{good} of {all} are as one process, within what each criterion says; {:.0} s",
        start.elapsed().as_secs_f64()
    );
    anyhow::ensure!(good == all && all > 0, "{} comparisons failed", all - good);
    Ok(())
}
