//! `train plan`: draws pipelines, also as a page to step through. `train combine`: prints the axes that combine.

use crate::output;
use crate::output::files;
use maypole_lab::combine;
use maypole_lab::replay::{TraceFigures, equal_stages, simulate};
use maypole_lab::report::draw::{LEGEND, svg, text};
use maypole_lab::report::page::{MOST_PLACES, TimedPlan, page};
use maypole_pictures::page::{MOST_BYTES, MOST_RANKS};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use std::path::{Path, PathBuf};

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
    /// A mesh, as dp=2,pp=4,tp=2, whose groups are shown too. The pipeline has its ranks of pp.
    #[arg(long, value_parser = Mesh::parse, conflicts_with = "ranks")]
    mesh: Option<Mesh>,
    /// A folder for the same pictures as SVG.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// A file for a page to step through, for a browser. It loads nothing.
    #[arg(long)]
    html: Option<PathBuf>,
}

pub(crate) fn draw(args: &PlanArgs) -> anyhow::Result<()> {
    let ranks = args.mesh.map_or(args.ranks, |mesh| mesh.size(MeshAxis::Pp));
    args.check(ranks)?;
    if let Some(mesh) = &args.mesh {
        output::line(mesh.map())?;
    }
    output::line(LEGEND)?;
    let mut plans = Vec::new();
    for schedule in args.schedules() {
        let timed = timed(schedule, ranks, args.micros)?;
        draw_one(schedule, &timed)?;
        if let Some(folder) = &args.svg {
            let name = &timed.name;
            let file = folder.join(format!("{}.svg", name.replace(':', "-")));
            let title = format!("{name}, {ranks} ranks, {} micro-batches", args.micros);
            files::write("--svg", &file, svg(&timed.trace, &title))?;
        }
        plans.push(timed);
    }
    args.html.as_deref().map_or(Ok(()), |file| args.write_page(file, ranks, &plans))
}

fn timed(schedule: PipelineSchedule, ranks: usize, micros: usize) -> anyhow::Result<TimedPlan> {
    let plan = schedule.plan(ranks, micros).map_err(anyhow::Error::msg)?;
    let trace = simulate(&plan, equal_stages(&plan)).map_err(anyhow::Error::msg)?;
    Ok(TimedPlan { name: schedule.name(), plan, trace })
}

fn draw_one(schedule: PipelineSchedule, timed: &TimedPlan) -> anyhow::Result<()> {
    let TimedPlan { name, plan, trace } = timed;
    let idle = trace.idle();
    let formula = schedule.idle(plan.ranks, plan.micros);
    output::line(format_args!(
        "{name}: idle {:.1} % (formula {:.1} %), rank 0 holds {:.1} micro-batches at most",
        100.0 * idle,
        100.0 * formula,
        trace.held(0)
    ))?;
    let columns = (trace.length() * plan.chunks as f64).round() as usize;
    Ok(output::line(text(trace, columns.clamp(1, 110)))?)
}

impl PlanArgs {
    /// Refuses what no picture shows, and files that cannot be written.
    fn check(&self, ranks: usize) -> anyhow::Result<()> {
        let micros = self.micros;
        anyhow::ensure!(
            ranks > 0 && micros > 0,
            "a pipeline needs at least one rank and one micro-batch"
        );
        anyhow::ensure!(
            ranks.saturating_mul(micros) <= MOST_PASSES,
            "--ranks {ranks} --micros {micros}: a picture has at most {MOST_PASSES} ranks times \
             micro-batches"
        );
        self.svg.as_deref().map_or(Ok(()), |folder| files::try_folder("--svg", folder))?;
        let Some(html) = &self.html else { return Ok(()) };
        anyhow::ensure!(
            ranks <= MOST_RANKS,
            "--ranks {ranks}: a page of --html shows at most {MOST_RANKS} ranks of a pipeline side \
             by side"
        );
        let places = self.mesh.map_or(1, |mesh| mesh.world());
        anyhow::ensure!(
            places <= MOST_PLACES,
            "--mesh has {places} ranks: a page of --html shows at most {MOST_PLACES}"
        );
        files::try_file("--html", html)
    }

    fn schedules(&self) -> Vec<PipelineSchedule> {
        let all = || {
            vec![
                PipelineSchedule::GPipe,
                PipelineSchedule::OneForwardOneBackward,
                PipelineSchedule::Interleaved(2),
            ]
        };
        self.schedule.map_or_else(all, |one| vec![one])
    }

    fn write_page(&self, file: &Path, ranks: usize, plans: &[TimedPlan]) -> anyhow::Result<()> {
        let title = match &self.mesh {
            Some(mesh) => format!("Pipelines and groups of the mesh {mesh}"),
            None => format!("Pipelines of {ranks} ranks"),
        };
        let page = page(&title, plans, self.mesh.as_ref());
        let bytes = page.len();
        anyhow::ensure!(
            bytes <= MOST_BYTES,
            "--html: the page would have {bytes} bytes of at most {MOST_BYTES}: give fewer --ranks or \
             --micros, or one --schedule"
        );
        files::write("--html", file, page)
    }
}

pub(crate) fn combinations() -> anyhow::Result<()> {
    Ok(output::print(combine::table().as_bytes())?)
}
