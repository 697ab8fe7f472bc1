//! The options of a run: from flags, else from a file, else defaults.

mod data;
mod job;
mod model;
mod sense;
mod sharding;
mod streaming;
mod survival;
mod unequal;

pub(crate) use data::read_text;
pub(crate) use job::TrainingJob;

use crate::output::files;
use crate::ranks::JoinedRanks;
use anyhow::{Context, bail};
use maypole_lab::averaging::DataForm;
use maypole_lab::mistakes::Mistake;
use maypole_lab::unequal::rows::RowDivision;
use maypole_trainer::context_parallel::zigzag::PositionDivision;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::{Config, divisor};
use maypole_trainer::pipeline_parallel::plan;
use maypole_trainer::ranks::group::SumOrder;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::{RateSchedule, RateShape};
use maypole_trainer::train::setup::{ContextExchange, Setup};
use serde::Deserialize;
use std::fs;
use std::path::PathBuf;
pub(crate) use survival::OnFailure;

#[derive(clap::Args)]
pub(crate) struct TrainArgs {
    /// A file of these options, with the names of the flags: `width = 128`. Flags overrule it.
    #[arg(long, value_name = "TOML")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: TrainOptions,
}

/// Makes the struct of options, and how one set of them overrules another.
macro_rules! options {
    ($($(#[$about:meta])* $name:ident: $kind:ty,)*) => {
        #[derive(clap::Args, Clone, Default, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        struct TrainOptions {
            $($(#[$about])* #[arg(long)] $name: Option<$kind>,)*
        }

        impl TrainOptions {
            fn or(self, other: Self) -> Self {
                Self { $($name: self.$name.or(other.$name),)* }
            }
        }
    };
}

options! {
    /// The text to train on; its last tenth is held out for the validation loss at the end. A file,
    /// or a folder of UTF-8 files, which may be larger than memory [default: two plays].
    data: PathBuf,
    /// Folder for the tokens of a --data that streams: a folder, or a file of more than 64 MiB, or
    /// any file if this is given [default: ~/.cache/maypole-trainer].
    data_cache: PathBuf,
    /// Learn this many tokens from the text instead of taking bytes.
    bpe: usize,
    /// What blocks are made of: gpt; llama (RMS norms, rotary positions, SwiGLU, grouped queries,
    /// no biases) [default: gpt].
    model: String,
    /// Heads of keys and values of a llama, each of which several heads of queries use [default: the
    /// most up to half of --heads that divide them].
    kv_heads: usize,
    /// Width of the model: numbers in the vector of a token [default: 128].
    width: usize,
    /// Tokens of a row [default: 64].
    context: usize,
    /// Number of attention heads [default: 4].
    heads: usize,
    /// Number of blocks [default: 4].
    layers: usize,
    /// Experts of each block; each token goes to two [default: none].
    experts: usize,
    /// Ranks along each axis, as dp=2,tp=2: dp, pp, ep, cp, tp [default: one rank].
    mesh: String,
    /// What ranks along dp share: replicated, zero1, zero2, fsdp; local:STEPS,
    /// diloco:STEPS, gossip:STEPS, once (weights averaged); stale:STEPS [default: replicated].
    sharding: String,
    /// The most KiB of a bucket of gradients [default: a quarter of the rank's gradients, and
    /// at most 25600].
    bucket: usize,
    /// Divide tokens over tp where layers are not divided.
    #[arg(num_args = 0..=1, default_missing_value = "true")]
    sequence: bool,
    /// How ranks along cp exchange: ring, ulysses [default: ring].
    exchange: String,
    /// How positions are divided over cp: zig-zag, contiguous [default: zig-zag].
    division: String,
    /// Tokens that an expert takes, as a multiple of the even share [default: all].
    capacity: f32,
    /// Tokens of a row over which capacity and the load of experts are reckoned [default: the most
    /// up to 8 that divide it].
    group: usize,
    /// Steps after which experts move to other ranks of ep, so that no rank has all the busy ones
    /// [default: never].
    rebalance: u64,
    /// Steps after which rows are divided over dp anew, by the measured speed of ranks; 25:1,2
    /// takes these seconds of a row instead of measuring [default: never].
    rows_by_speed: String,
    /// The layers of each stage of pp, as 3,1; measured divides them by what they cost each rank
    /// [default: equal numbers].
    stages: String,
    /// Make a mistake, to see that the loss falls all the same: norms-not-summed, not-rescaled ...;
    /// list explains all of them.
    fault: String,
    /// With `one`: train the same model in one process too, and print after each step which
    /// gradients differ.
    against: String,
    /// The schedule of pp: gpipe, 1f1b, interleaved:STAGES [default: 1f1b].
    pipeline: String,
    /// Micro-batches of a step [default: one, or two a stage].
    micros: usize,
    /// Number of steps [default: 200].
    steps: u64,
    /// Rows of a global batch [default: 16].
    rows: usize,
    /// adamw or sgd [default: adamw].
    optimizer: String,
    /// The highest learning rate [default: 0.003].
    rate: f64,
    /// How the rate changes: constant, cosine, wsd, linear, plateau (halved when the loss no longer
    /// falls) [default: cosine].
    shape: String,
    /// Steps until the highest rate [default: a tenth].
    warm_up: u64,
    /// The most that the gradient's norm may be; 0 for any [default: 1].
    clip: f64,
    /// f32, bf16 or f16 [default: f32].
    precision: String,
    /// What computes layers: cpu; cuda (NVIDIA GPUs, rank r on number r modulo how many there are);
    /// cuda:N. Activations are copied to the GPU and back on every layer: a check of kernels and
    /// axes, and not a fast trainer [default: cpu].
    device: String,
    /// Keep only the input of each block, and compute the rest again in the backward pass.
    #[arg(num_args = 0..=1, default_missing_value = "true")]
    recompute: bool,
    /// Sum in the order of ranks, so that equal runs give equal bits.
    #[arg(num_args = 0..=1, default_missing_value = "true")]
    deterministic: bool,
    /// Seed of the initial weights and of the rows [default: 1].
    seed: u64,
    /// Folder for checkpoints; a run resumes from the last complete one there.
    save: PathBuf,
    /// Steps between checkpoints [default: 100]; there is one at the end too.
    save_every: u64,
    /// Checkpoints to keep: older ones are removed when a new one is whole [default: all].
    keep: usize,
    /// What the other ranks do when one dies: stop, shrink (go on without it, in the same step and
    /// with every number) or wait (save a checkpoint after the last step, and end). The last two are
    /// of dp alone, replicated, zero1 or zero2. Under maypole run, shrink needs --replace, which also
    /// starts a process in its place, and wait needs --failure-grace [default: stop].
    on_failure: String,
    /// A file for the loss, norm and rate of each step, one JSON object a line; a resumed run
    /// continues the file from the step of its checkpoint.
    losses: PathBuf,
    /// Folder for pictures: loss.svg, timeline.svg and, of a pipeline, pipeline.svg.
    svg: PathBuf,
    /// Tokens to write at the end [default: 300].
    sample: usize,
    /// The divisor of logits when they are drawn; 0 takes the likeliest [default: 0.8].
    temperature: f64,
    /// What they follow [default: a line of the text that was held out].
    prompt: String,
    /// Start the ranks as processes instead of threads.
    #[arg(num_args = 0..=1, default_missing_value = "true")]
    processes: bool,
}

impl TrainArgs {
    /// True of `--fault list`, which explains the mistakes and trains nothing.
    pub(crate) fn lists_faults(&self) -> bool {
        self.options.fault.as_deref() == Some("list")
    }

    /// Fills in defaults, and refuses options that do not go together.
    pub(crate) fn resolve(self) -> anyhow::Result<(TrainingJob, JoinedRanks)> {
        let file = match &self.config {
            None => TrainOptions::default(),
            Some(path) => {
                let text = fs::read_to_string(path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                toml::from_str(&text).with_context(|| format!("in {}", path.display()))?
            }
        };
        self.options.or(file).settle()
    }
}

impl TrainOptions {
    fn settle(self) -> anyhow::Result<(TrainingJob, JoinedRanks)> {
        self.check_numbers()?;
        let steps = self.steps.unwrap_or(200);
        let seed = self.seed.unwrap_or(1);
        let rows = self.rows.unwrap_or(16);
        let mut config = self.sizes()?;
        config.check().map_err(anyhow::Error::msg)?;
        let setup = self.setup(&config)?;
        let fault = self.mistake()?;
        let (form, row_division) = self.divided(&config, &setup, rows)?;
        let rule =
            named(&self.optimizer, "optimizer", &[("adamw", Rule::ADAMW), ("sgd", Rule::Sgd)])?;
        self.check_effects(&config, &setup, rule)?;
        let precision = self.precision(form)?;
        let device = self.device()?;
        let on_failure = self.on_failure(&setup, precision)?;
        let schedule = self.schedule(steps)?;
        self.try_outputs()?;
        // The process that starts the others holds a copy of the text too.
        let processes =
            if self.processes == Some(true) { setup.mesh.world() as u64 + 1 } else { 1 };
        let mut ranks = JoinedRanks::new(setup.mesh);
        let (bpe, text, held_out) = self.text(config.context, seed, processes, &mut ranks)?;
        config.vocab = bpe.vocab();
        let job = TrainingJob {
            rule,
            fault,
            schedule,
            clip: Some(self.clip.unwrap_or(1.0)).filter(|clip| *clip > 0.0),
            precision,
            device,
            recompute: self.recompute.unwrap_or(false),
            rebalance: self.rebalance,
            measures_layers: self.measures_layers(),
            save: self.save,
            save_every: self.save_every.unwrap_or(100),
            keep: self.keep,
            svg: self.svg,
            sample: self.sample.unwrap_or(300),
            temperature: self.temperature.unwrap_or(0.8),
            // The text that is trained on without --data.
            prompt: self.prompt.or(self.data.is_none().then(|| "KING.\n".to_owned())),
            processes: self.processes.unwrap_or(false),
            on_failure,
            against: self.against.is_some(),
            losses: self.losses,
            text,
            held_out,
            config,
            setup,
            form,
            row_division,
            rows,
            seed,
            bpe,
        };
        Ok((job, ranks))
    }

    /// Checks that files and folders of results can be written. Only rank 0 writes them.
    fn try_outputs(&self) -> anyhow::Result<()> {
        if crate::ranks::place()?.0 > 0 {
            return Ok(());
        }
        for (flag, folder) in [("--save", &self.save), ("--svg", &self.svg)] {
            folder.as_deref().map_or(Ok(()), |folder| files::try_folder(flag, folder))?;
        }
        self.losses.as_deref().map_or(Ok(()), |file| files::try_file("--losses", file))
    }

    fn setup(&self, config: &Config) -> anyhow::Result<Setup> {
        let mesh = Mesh::parse(self.mesh.as_deref().unwrap_or("")).map_err(anyhow::Error::msg)?;
        let pipeline = self.pipeline.as_deref().unwrap_or("1f1b");
        let stages = mesh.size(MeshAxis::Pp);
        let group = self.group.unwrap_or_else(|| divisor(config.context, 8));
        let router = Router {
            experts: config.experts,
            top: 2,
            group,
            capacity: self.capacity,
            balance: 0.01,
        };
        Ok(Setup {
            mesh,
            sequence: self.sequence.unwrap_or(false),
            exchange: named(
                &self.exchange,
                "exchange",
                &[("ring", ContextExchange::Ring), ("ulysses", ContextExchange::Ulysses)],
            )?,
            schedule: plan::PipelineSchedule::parse(pipeline).map_err(anyhow::Error::msg)?,
            micros: self.micros.unwrap_or(if stages > 1 { 2 * stages } else { 1 }),
            layers: self.layer_counts()?,
            router: (config.experts > 0).then_some(router),
            sharding: self.form()?.sharding(),
            division: named(
                &self.division,
                "division",
                &[
                    ("zig-zag", PositionDivision::ZigZag),
                    ("contiguous", PositionDivision::Contiguous),
                ],
            )?,
            order: if self.deterministic.unwrap_or(false) {
                SumOrder::Ranks
            } else {
                SumOrder::Fast
            },
        })
    }

    /// How data-parallel ranks keep together and divide rows, if this model can be divided as
    /// `setup` says.
    fn divided(
        &self,
        config: &Config,
        setup: &Setup,
        rows: usize,
    ) -> anyhow::Result<(DataForm, RowDivision)> {
        let (form, division) = (self.form()?, self.row_division()?);
        Self::check_stages(config, setup)?;
        form.check(setup).map_err(anyhow::Error::msg)?;
        setup.check(config, rows).map_err(anyhow::Error::msg)?;
        division.check(config, setup, form).map_err(anyhow::Error::msg)?;
        Ok((form, division))
    }

    /// The deliberate mistake.
    fn mistake(&self) -> anyhow::Result<Option<Mistake>> {
        self.fault.as_deref().map(Mistake::parse).transpose().map_err(anyhow::Error::msg)
    }

    fn schedule(&self, steps: u64) -> anyhow::Result<RateSchedule> {
        let shapes = [
            ("cosine", RateShape::Cosine),
            ("constant", RateShape::Constant),
            ("wsd", RateShape::Wsd),
            ("linear", RateShape::Linear),
            ("plateau", RateShape::Plateau),
        ];
        let peak = self.rate.unwrap_or(3e-3);
        let warm_up = self.warm_up.unwrap_or(steps / 10);
        let shape = named(&self.shape, "shape", &shapes)?;
        let decay = if shape == RateShape::Plateau { steps / 20 } else { steps / 5 };
        Ok(RateSchedule { shape, peak, floor: peak / 10.0, warm_up, decay, steps })
    }
}

/// The choice of this name; the first, if none is named.
fn named<T: Copy>(name: &Option<String>, what: &str, choices: &[(&str, T)]) -> anyhow::Result<T> {
    let Some(name) = name else { return Ok(choices[0].1) };
    if let Some((_, choice)) = choices.iter().find(|(known, _)| known == name) {
        return Ok(*choice);
    }
    let known: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
    bail!("'{name}' is no {what}; there are {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole_trainer::tensor::random::random;

    /// A file of options, with every kind of value.
    const SEED: &str = "model = \"llama\"\nkv-heads = 2\nwidth = 128\ncontext = 64\nheads = 4\nlayers = 4\nexperts = 4\n\
        mesh = \"dp=2,pp=2\"\nsharding = \"local:4\"\nbucket = 25600\nsequence = true\n\
        capacity = 1.25\ngroup = 8\npipeline = \"interleaved:2\"\nmicros = 4\nsteps = 200\n\
        rows = 16\noptimizer = \"adamw\"\nrate = 3e-3\nshape = \"cosine\"\nwarm-up = 20\n\
        clip = 1.0\nprecision = \"bf16\"\nseed = 1\nfault = \"local-mean\"\nkeep = 3\n";

    const VALUES: [&str; 12] = [
        "0",
        "1",
        "-1",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "1e308",
        "nan",
        "inf",
        "true",
        "\"\"",
        "\"dp=1048576\"",
    ];

    /// Everything that is settled before a text is read.
    fn settle(text: &str) -> anyhow::Result<()> {
        let options: TrainOptions = toml::from_str(text)?;
        options.check_numbers()?;
        let config = options.sizes()?;
        config.check().map_err(anyhow::Error::msg)?;
        let setup = options.setup(&config)?;
        options.mistake()?;
        let (form, _) = options.divided(&config, &setup, options.rows.unwrap_or(16))?;
        options.check_effects(&config, &setup, Rule::ADAMW)?;
        options.precision(form)?;
        let schedule = options.schedule(options.steps.unwrap_or(200))?;
        assert!([0, 1, u64::MAX].iter().all(|step| schedule.rate(*step) >= 0.0));
        Ok(())
    }

    #[test]
    fn any_file_of_options_is_settled_or_refused() {
        let lines: Vec<&str> = SEED.lines().collect();
        let mut settled = 0;
        for nth in 0..20_000 {
            let mut draw = 0;
            let mut below = |end: usize| {
                draw += 1;
                (random(nth, draw) % end as u64) as usize
            };
            // Some of the lines, one or two of which have another value.
            let share = 1 + below(8);
            let mut chosen: Vec<String> =
                lines.iter().filter(|_| below(8) < share).map(|line| (*line).to_owned()).collect();
            for _ in 0..below(3) {
                let Some(at) = below(chosen.len() + 1).checked_sub(1) else { continue };
                let (name, _) = chosen[at].split_once('=').unwrap_or((&chosen[at], ""));
                chosen[at] = format!("{name}= {}", VALUES[below(VALUES.len())]);
            }
            let mut bytes = chosen.join("\n").into_bytes();
            if below(3) == 0 && !bytes.is_empty() {
                let at = below(bytes.len());
                bytes[at] = below(256) as u8;
            }
            settled += u32::from(settle(&String::from_utf8_lossy(&bytes)).is_ok());
        }
        assert!(settled > 200, "only {settled} files of options passed all checks");
    }
}
