//! `train bench`.

use crate::output;
use maypole_lab::bench::measure;
use maypole_trainer::model::config::Config;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer_gpu::choice::{DeviceChoice, RankDevices};

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
    /// What computes layers: cpu, cuda or cuda:N, as for `train run`. On a GPU, wall time counts, with
    /// the copies to the GPU and back.
    #[arg(long, default_value = "cpu")]
    device: String,
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let BenchArgs { width, context, heads, layers, rows, steps, .. } = *args;
    let config =
        Config { vocab: 256, context, width, heads, layers, experts: 0, ..Config::default() };
    config
        .check()
        .and_then(|()| Parallelism::default().check(&config, rows))
        .map_err(anyhow::Error::msg)?;
    anyhow::ensure!(steps > 0, "--steps 0: there is nothing to measure");
    let devices = DeviceChoice::parse(&args.device)
        .and_then(|choice| RankDevices::open(choice, 1))
        .map_err(anyhow::Error::msg)?;
    let speed = measure(&config, rows, steps, &devices);
    let failed = |why| Err(anyhow::anyhow!("the device that computes layers has failed: {why}"));
    devices.failure().map_or(Ok(()), failed)?;
    let unit = match devices.are_processors() {
        true => "tokens a second of processor time",
        false => "tokens a second",
    };
    if !devices.are_processors() {
        output::line(format_args!("layers on {}", devices.about()))?;
    }
    output::line(format_args!(
        "{} parameters, {rows} rows of {context} tokens, one thread, best of {steps} steps",
        config.parameters()
    ))?;
    output::line(format_args!(
        "matrix products of linear layers alone  {:>8.0} {unit}",
        speed.products
    ))?;
    output::line(format_args!(
        "forward, backward and AdamW             {:>8.0} {unit}",
        speed.training
    ))?;
    let share = 100.0 * speed.training / speed.products;
    Ok(output::line(format_args!("share of the ceiling                    {share:>8.0} %"))?)
}
