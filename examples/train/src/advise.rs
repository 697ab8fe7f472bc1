//! `train memory`: the bytes of a rank. `train advise`: how to train a model on a cluster.

use crate::output;
use crate::output::files;
use anyhow::{Context, anyhow, ensure};
use maypole_cluster::Description;
use maypole_planner::cluster::{Accelerator, AcceleratorCluster};
use maypole_planner::memory::RankBytes;
use maypole_planner::picture;
use maypole_planner::published;
use maypole_planner::report::{advice_json, advice_text, memory_text, strategy_json};
use maypole_planner::search::{AdviceQuestion, advise};
use maypole_planner::sizes::ModelSizes;
use maypole_planner::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct MemoryArgs {
    /// The model: 7b, 8b, 70b, 405b, 175b, mixtral, deepseek-v3, or a TOML file of its sizes.
    #[arg(long, visible_alias = "preset", default_value = "7b")]
    model: String,
    /// Ranks along each axis, as dp=8,tp=2.
    #[arg(long, default_value = "", value_parser = Mesh::parse)]
    mesh: Mesh,
    /// replicated, zero1, zero2 or fsdp.
    #[arg(long, default_value = "replicated", value_parser = ZeroStage::parse)]
    sharding: ZeroStage,
    /// f32, bf16 or bf16-f32-gradients.
    #[arg(long, default_value = "bf16", value_parser = NumberFormat::parse)]
    precision: NumberFormat,
    /// The schedule of pp: gpipe, 1f1b, interleaved:STAGES.
    #[arg(long, default_value = "1f1b", value_parser = PipelineSchedule::parse)]
    pipeline: PipelineSchedule,
    /// Sequences of a micro-batch on a rank.
    #[arg(long, default_value_t = 1)]
    rows: usize,
    /// Micro-batches of a step [default: one, or two a stage].
    #[arg(long)]
    micros: Option<usize>,
    /// What is computed again: nothing, attention, fused (attention that stays on the chip), blocks.
    #[arg(long, default_value = "fused", value_parser = Recomputation::parse)]
    recompute: Recomputation,
    /// No sequence parallelism: do not divide tokens over tp where layers are not divided.
    #[arg(long)]
    no_sequence: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct AdviseArgs {
    /// The model: 7b, 8b, 70b, 405b, 175b, mixtral, deepseek-v3, or a TOML file of its sizes.
    #[arg(long, default_value = "7b")]
    model: String,
    /// A cluster by name, as 32xdgx-h100 (see maypole topo), or hosts that a file describes: @FILE
    /// for one, 4x@FILE for four.
    #[arg(long, default_value = "4xdgx-h100")]
    cluster: String,
    /// Tokens of a step; K and M are 2^10 and 2^20.
    #[arg(long, default_value = "4M", value_parser = count)]
    tokens: usize,
    /// The accelerator of a rank, for hosts from a file or instead of the named cluster's own:
    /// a100, h100, h200, b200, mi300x, a40, core.
    #[arg(long, value_parser = Accelerator::named)]
    accelerator: Option<Accelerator>,
    /// Tflop/s of a rank on dense matrices of 16-bit numbers.
    #[arg(long)]
    teraflops: Option<f64>,
    /// The part of these Tflop/s that large matrix products reach.
    #[arg(long)]
    efficiency: Option<f64>,
    /// GiB of memory of a rank.
    #[arg(long)]
    memory: Option<f64>,
    /// Bandwidth in Gbit/s of each network card, for hosts from a file.
    #[arg(long, default_value_t = 400.0)]
    gigabits: f64,
    /// Only this precision: f32, bf16, bf16-f32-gradients [default: all].
    #[arg(long, value_parser = NumberFormat::parse)]
    precision: Option<NumberFormat>,
    /// Only this sharding: replicated, zero1, zero2, fsdp [default: all].
    #[arg(long, value_parser = ZeroStage::parse)]
    sharding: Option<ZeroStage>,
    /// Only this recomputation: nothing, attention, fused (attention that stays on the chip), blocks
    /// [default: the last two, as the others never win].
    #[arg(long, value_parser = Recomputation::parse)]
    recompute: Option<Recomputation>,
    /// Meshes to show.
    #[arg(long, default_value_t = 10)]
    best: usize,
    /// A file for the picture of memory and time.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Print predictions beside published speeds instead.
    #[arg(long)]
    published: bool,
}

pub(crate) fn memory(args: &MemoryArgs) -> anyhow::Result<()> {
    let model = model(&args.model)?;
    let stages = args.mesh.size(MeshAxis::Pp);
    let strategy = ParallelStrategy {
        mesh: args.mesh,
        sequence: !args.no_sequence && args.mesh.size(MeshAxis::Tp) > 1,
        stage: args.sharding,
        schedule: args.pipeline,
        rows: args.rows,
        micros: args.micros.unwrap_or(if stages > 1 { 2 * stages } else { 1 }),
        recompute: args.recompute,
        format: args.precision,
    };
    strategy.check(&model).map_err(anyhow::Error::msg)?;
    let bytes = RankBytes::of(&model, &strategy);
    if args.json {
        let object = json!({
            "model": model,
            "parameters": model.parameters(),
            "strategy": strategy_json(&strategy),
            "bytes": bytes,
            "bytes_in_all": bytes.total(),
        });
        return Ok(output::line(object)?);
    }
    output::line(format_args!(
        "{}: {:.2} billion parameters, {} tokens a sequence\n{strategy}\nbytes of the fullest rank:",
        args.model,
        model.parameters() / 1e9,
        model.sequence
    ))?;
    Ok(output::print(memory_text(&bytes).as_bytes())?)
}

pub(crate) fn run(args: &AdviseArgs) -> anyhow::Result<()> {
    if args.published {
        return published();
    }
    let model = model(&args.model)?;
    let cluster = args.cluster()?;
    let formats = args.precision.map_or(NumberFormat::ALL.to_vec(), |one| vec![one]);
    let recompute = args.recompute.map_or(Recomputation::USUAL.to_vec(), |one| vec![one]);
    let stages = args.sharding.map_or(ZeroStage::ALL.to_vec(), |one| vec![one]);
    args.svg.as_deref().map_or(Ok(()), |file| files::try_file("--svg", file))?;
    let question = AdviceQuestion { tokens: args.tokens, formats, recompute, stages };
    let advice = advise(&model, &cluster, &question).map_err(anyhow::Error::msg)?;
    let title = format!(
        "{} on {}: {} ranks, {} tokens a step",
        args.model,
        args.cluster,
        cluster.ranks(),
        args.tokens
    );
    if let Some(file) = &args.svg {
        files::write("--svg", file, picture::svg(&advice, &title))?;
    }
    if args.json {
        return Ok(output::line(advice_json(&model, &cluster, &advice, args.best))?);
    }
    output::line(format_args!(
        "{title}\npredicted, not measured; the model: documentation of maypole_planner"
    ))?;
    Ok(output::print(advice_text(&advice, args.best).as_bytes())?)
}

/// Prints predictions with the published figures.
fn published() -> anyhow::Result<()> {
    output::line(format_args!(
        "{:<20} {:>9} {:>9} {:>7} {:>6} {:>6} {:>6}\n{:<20} {:>9} {:>9} {:>7} {:>6} {:>6} {:>6}",
        "",
        "predicted",
        "published",
        "error",
        "MFU",
        "MFU",
        "GB",
        "",
        "s",
        "s",
        "%",
        "pred.",
        "publ.",
        "pred."
    ))?;
    for training in published::ALL {
        let found = training.predict().map_err(anyhow::Error::msg)?;
        let error = 100.0 * (found.predicted / found.published - 1.0);
        output::line(format_args!(
            "{:<20} {:>9.2} {:>9.2} {error:>+7.1} {:>6.1} {:>6.1} {:>6.1}",
            training.name,
            found.predicted,
            found.published,
            100.0 * found.utilisation,
            100.0 * found.published_utilisation,
            found.bytes / 1e9
        ))?;
    }
    Ok(())
}

impl AdviseArgs {
    fn cluster(&self) -> anyhow::Result<AcceleratorCluster> {
        let (hosts, inner) =
            AcceleratorCluster::hosts(&self.cluster).map_err(anyhow::Error::msg)?;
        let mut cluster = match inner.strip_prefix('@') {
            None => AcceleratorCluster::named(&self.cluster).map_err(anyhow::Error::msg)?,
            Some(path) => {
                let accelerator = self.accelerator.with_context(|| {
                    format!("--cluster {}: give its kind of GPU as --accelerator", self.cluster)
                })?;
                let text = read("--cluster", path.as_ref(), Description::LONGEST)?;
                AcceleratorCluster::described(&text, hosts, self.gigabits, accelerator)
                    .map_err(|why| anyhow!("--cluster {}: {why}", self.cluster))?
            }
        };
        cluster.accelerator = self.overruled(self.accelerator.unwrap_or(cluster.accelerator))?;
        Ok(cluster)
    }

    /// The accelerator with the numbers that options give.
    fn overruled(&self, mut accelerator: Accelerator) -> anyhow::Result<Accelerator> {
        for (name, number) in [
            ("teraflops", self.teraflops),
            ("efficiency", self.efficiency),
            ("memory", self.memory),
            ("gigabits", Some(self.gigabits)),
        ] {
            let good = number.is_none_or(|number| number.is_finite() && number > 0.0);
            ensure!(good, "--{name} {}: give a number above 0", number.unwrap_or(0.0));
        }
        if let Some(tera) = self.teraflops {
            accelerator.wide *= tera * 1e12 / accelerator.narrow;
            accelerator.narrow = tera * 1e12;
        }
        if let Some(reached) = self.efficiency {
            ensure!(reached <= 1.0, "--efficiency {reached}: give a part of at most 1");
            accelerator.reached = reached;
        }
        if let Some(memory) = self.memory {
            accelerator.memory = memory * f64::from(1 << 30);
        }
        Ok(accelerator)
    }
}

fn model(name: &str) -> anyhow::Result<ModelSizes> {
    let path = Path::new(name);
    if path.extension().is_none() && !name.contains('/') {
        return ModelSizes::preset(name).map_err(|why| anyhow!("--model: {why}, and TOML files"));
    }
    let text = read("--model", path, ModelSizes::LONGEST)?;
    ModelSizes::parse(&text).map_err(|why| anyhow!("{name}: {why}"))
}

/// Reads a text file. Refuses one of more than `most` bytes, of which it reads `most + 1`.
fn read(flag: &str, path: &Path, most: usize) -> anyhow::Result<String> {
    let cannot = || format!("{flag}: cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).with_context(cannot)?;
    ensure!(
        bytes.len() <= most,
        "{flag}: {} has more than {} KiB, the most of such a file",
        path.display(),
        most >> 10
    );
    String::from_utf8(bytes)
        .with_context(|| format!("{flag}: {} is not UTF-8 text", path.display()))
}

/// Reads `4096`, `512K` or `4M`.
fn count(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 0), |digits| (digits, 20)),
    };
    let number = digits.parse::<usize>().ok().filter(|number| *number <= 1 << 40);
    let count = number.and_then(|number| number.checked_mul(1 << shift));
    count
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("'{text}' is no number of tokens: write 4194304, 4096K or 4M"))
}
