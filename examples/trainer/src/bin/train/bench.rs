//! `train bench`.

use crate::output;
use maypole_trainer::check::bench::measure;
use maypole_trainer::model::config::Config;
use maypole_trainer::train::setup::Setup;

#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Width: numbers in the vector of a token.
    #[arg(long, default_value_t = 256)]
    width: usize,
    /// Tokens of a row.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Number of attention heads.
    #[arg(long, default_value_t = 4)]
    heads: usize,
    /// Number of blocks.
    #[arg(long, default_value_t = 4)]
    layers: usize,
    /// Rows of a batch.
    #[arg(long, default_value_t = 8)]
    rows: usize,
    /// Steps, of which the fastest counts.
    #[arg(long, default_value_t = 10)]
    steps: usize,
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let BenchArgs { width, context, heads, layers, rows, steps } = *args;
    let config =
        Config { vocab: 256, context, width, heads, layers, experts: 0, ..Config::default() };
    config
        .check()
        .and_then(|()| Setup::default().check(&config, rows))
        .map_err(anyhow::Error::msg)?;
    anyhow::ensure!(steps > 0, "--steps 0: there is nothing to measure");
    let speed = measure(&config, rows, steps);
    output::line(format_args!(
        "{} parameters, {rows} rows of {context} tokens, one thread, best of {steps} steps",
        config.parameters()
    ))?;
    output::line(format_args!(
        "matrix products of linear layers alone  {:>8.0} tokens a second of processor time",
        speed.products
    ))?;
    output::line(format_args!(
        "forward, backward and AdamW             {:>8.0} tokens a second of processor time",
        speed.training
    ))?;
    let share = 100.0 * speed.training / speed.products;
    Ok(output::line(format_args!("share of the ceiling                    {share:>8.0} %"))?)
}
