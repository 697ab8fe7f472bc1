//! `train plan`: draws pipelines. `train combine`: prints the axes that combine.

use crate::output;
use crate::output::files;
use maypole_lab::combine;
use maypole_lab::replay::{TraceFigures, equal_stages, simulate};
use maypole_lab::report::draw::{LEGEND, svg, text};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use std::path::PathBuf;

/// The most ranks times micro-batches of a picture.
const MOST_PASSES: usize = 1 << 18;

#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// Number of ranks of the pipeline.
    #[arg(long, default_value_t = 4)]
    ranks: usize,
    /// Number of micro-batches.
    #[arg(long, default_value_t = 8)]
    micros: usize,
    /// gpipe, 1f1b or interleaved:STAGES; default: all three.
    #[arg(long, value_parser = PipelineSchedule::parse)]
    schedule: Option<PipelineSchedule>,
    /// A folder for the same pictures as SVG.
    #[arg(long)]
    svg: Option<PathBuf>,
}

pub(crate) fn draw(args: &PlanArgs) -> anyhow::Result<()> {
    let all = vec![
        PipelineSchedule::GPipe,
        PipelineSchedule::OneForwardOneBackward,
        PipelineSchedule::Interleaved(2),
    ];
    anyhow::ensure!(
        args.ranks > 0 && args.micros > 0,
        "a pipeline needs at least one rank and one micro-batch"
    );
    anyhow::ensure!(
        args.ranks.saturating_mul(args.micros) <= MOST_PASSES,
        "--ranks {} --micros {}: a picture has at most {MOST_PASSES} ranks times micro-batches",
        args.ranks,
        args.micros
    );
    args.svg.as_deref().map_or(Ok(()), |folder| files::try_folder("--svg", folder))?;
    output::line(LEGEND)?;
    for schedule in args.schedule.map_or(all, |one| vec![one]) {
        let plan = schedule.plan(args.ranks, args.micros).map_err(anyhow::Error::msg)?;
        let trace = simulate(&plan, equal_stages(&plan)).map_err(anyhow::Error::msg)?;
        let name = schedule.name();
        let idle = trace.idle();
        let formula = schedule.idle(args.ranks, args.micros);
        output::line(format_args!(
            "{name}: idle {:.1} % (formula {:.1} %), rank 0 holds {:.1} micro-batches at most",
            100.0 * idle,
            100.0 * formula,
            trace.held(0)
        ))?;
        let columns = (trace.length() * plan.chunks as f64).round() as usize;
        output::line(text(&trace, columns.clamp(1, 110)))?;
        if let Some(folder) = &args.svg {
            let file = folder.join(format!("{}.svg", name.replace(':', "-")));
            let title = format!("{name}, {} ranks, {} micro-batches", args.ranks, args.micros);
            files::write("--svg", &file, svg(&trace, &title))?;
        }
    }
    Ok(())
}

pub(crate) fn combinations() -> anyhow::Result<()> {
    Ok(output::print(combine::table().as_bytes())?)
}
