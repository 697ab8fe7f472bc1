//! Trainings whose speed was published, to compare predictions with.
//!
//! | model | ranks | published | source |
//! |---|---|---|---|
//! | GPT 22B, 175B, 530B, 1T | 8 to 512 A100 | MFU 41.5, 51.4, 56.0, 56.3 % | Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), tables 3 and 5; also in Bekman, "Machine Learning Engineering" |
//! | Llama 3 405B | 8,192 and 16,384 H100 | MFU 43, 41, and 38 % with sequences of 131,072 | Grattafiori et al., "The Llama 3 Herd of Models" (2024), table 4 |
//! | DeepSeek-V3 | 2,048 H800 | 180,000 GPU hours for 10^12 tokens | DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024), section 1; schedule and mesh: section 3 |
//!
//! The GPT models used "selective" recomputation, whose scores go through memory, and the others a
//! fused kernel. The Llama report does not give the stages of a rank: here 7, with 1 or 2 layers
//! each. It shards gradients too; here they are summed once a step, as ZeRO-1 does. DeepSeek-V3 was
//! trained with 8-bit matrix products and two-way pipelines on H800, whose links are slower than
//! those of the H100 here; the prediction is for 16 bits and 1F1B.

use crate::cluster::AcceleratorCluster;
use crate::groups::GroupPrices;
use crate::price::StepPricing;
use crate::sizes::ModelSizes;
use crate::strategy::{NumberFormat, ParallelStrategy, Recomputation, ZeroStage};
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::Mesh;

#[derive(Clone, Copy, Debug)]
enum PublishedSpeed {
    /// Model FLOP utilisation.
    Utilisation(f64),
    /// Hours of one rank for 10^12 tokens.
    RankHours(f64),
}

/// A training that was published.
#[derive(Clone, Copy, Debug)]
pub struct PublishedTraining {
    /// Its name in tables.
    pub name: &'static str,
    /// The model, as TOML.
    model: &'static str,
    /// The cluster, by name.
    cluster: &'static str,
    mesh: &'static str,
    stage: ZeroStage,
    schedule: PipelineSchedule,
    micros: usize,
    rows: usize,
    recompute: Recomputation,
    speed: PublishedSpeed,
}

/// A prediction and the published figures.
#[derive(Clone, Debug)]
pub struct PredictedTraining {
    /// Predicted seconds of a step.
    pub predicted: f64,
    /// Published seconds of a step.
    pub published: f64,
    /// Predicted MFU.
    pub utilisation: f64,
    /// Published MFU, or the MFU that follows from the published hours.
    pub published_utilisation: f64,
    /// Predicted bytes of the fullest rank.
    pub bytes: f64,
}

const fn gpt(
    name: &'static str,
    model: &'static str,
    (cluster, mesh): (&'static str, &'static str),
    schedule: PipelineSchedule,
    (micros, rows): (usize, usize),
    percent: f64,
) -> PublishedTraining {
    PublishedTraining {
        name,
        model,
        cluster,
        mesh,
        stage: ZeroStage::Replicated,
        schedule,
        micros,
        rows,
        recompute: Recomputation::Attention,
        speed: PublishedSpeed::Utilisation(percent / 100.0),
    }
}

const fn llama(
    name: &'static str,
    model: &'static str,
    cluster: &'static str,
    mesh: &'static str,
    micros: usize,
    percent: f64,
) -> PublishedTraining {
    PublishedTraining {
        name,
        model,
        cluster,
        mesh,
        stage: ZeroStage::One,
        schedule: PipelineSchedule::Interleaved(7),
        micros,
        rows: 1,
        recompute: Recomputation::Fused,
        speed: PublishedSpeed::Utilisation(percent / 100.0),
    }
}

const GPT_22B: &str = "layers = 48\nwidth = 6144\nheads = 64\nvocabulary = 51200\n\
                       sequence = 2048\ntied = true\npositions = true\nbiases = true";
const GPT_175B: &str = include_str!("presets/175b.toml");
const GPT_530B: &str = "layers = 105\nwidth = 20480\nheads = 128\nvocabulary = 51200\n\
                        sequence = 2048\ntied = true\npositions = true\nbiases = true";
const GPT_1T: &str = "layers = 128\nwidth = 25600\nheads = 160\nvocabulary = 51200\n\
                      sequence = 2048\ntied = true\npositions = true\nbiases = true";
const LLAMA_405B: &str = include_str!("presets/405b.toml");
const LLAMA_LONG: &str = "layers = 126\nwidth = 16384\nheads = 128\nkey-value-heads = 8\n\
                          hidden = 53248\ngated = true\nvocabulary = 128256\nsequence = 131072";
const DEEPSEEK: &str = include_str!("presets/deepseek-v3.toml");

use PipelineSchedule::{Interleaved, OneForwardOneBackward};

/// The trainings that are compared.
pub const ALL: [PublishedTraining; 8] = [
    gpt("GPT 22B", GPT_22B, ("dgx-a100", "tp=8"), OneForwardOneBackward, (1, 4), 41.5),
    gpt("GPT 175B", GPT_175B, ("8xdgx-a100", "tp=8,pp=8"), Interleaved(3), (64, 1), 51.4),
    gpt("GPT 530B", GPT_530B, ("35xdgx-a100", "tp=8,pp=35"), Interleaved(3), (280, 1), 56.0),
    gpt("GPT 1T", GPT_1T, ("64xdgx-a100", "tp=8,pp=64"), OneForwardOneBackward, (512, 1), 56.3),
    llama("Llama 3 405B", LLAMA_405B, "1024xdgx-h100", "dp=64,pp=16,tp=8", 32, 43.0),
    llama("Llama 3 405B", LLAMA_405B, "2048xdgx-h100", "dp=128,pp=16,tp=8", 16, 41.0),
    llama("Llama 3 405B, 131k", LLAMA_LONG, "2048xdgx-h100", "dp=8,pp=16,cp=16,tp=8", 16, 38.0),
    PublishedTraining {
        name: "DeepSeek-V3",
        model: DEEPSEEK,
        cluster: "256xdgx-h100",
        mesh: "dp=2,pp=16,ep=64",
        stage: ZeroStage::One,
        schedule: OneForwardOneBackward,
        micros: 120,
        rows: 1,
        recompute: Recomputation::Fused,
        speed: PublishedSpeed::RankHours(180e3),
    },
];

impl PublishedTraining {
    /// The planner's prediction for this training, with the published figures.
    ///
    /// # Errors
    /// A sentence, if the training is not legal or its cluster has no path between two ranks.
    pub fn predict(&self) -> Result<PredictedTraining, String> {
        let model = ModelSizes::parse(self.model)?;
        let cluster = AcceleratorCluster::named(self.cluster)?;
        let mesh = Mesh::parse(self.mesh)?;
        let strategy = ParallelStrategy {
            mesh,
            sequence: true,
            stage: self.stage,
            schedule: self.schedule,
            rows: self.rows,
            micros: self.micros,
            recompute: self.recompute,
            format: NumberFormat::Bf16WideGradients,
        };
        strategy.check(&model)?;
        let prices = GroupPrices::new(&cluster);
        let price = StepPricing::new(&model, &strategy, &cluster, &prices).step()?;
        let utilisation = price.utilisation(&model, &strategy, &cluster.accelerator);
        let predicted = price.total();
        let tokens = strategy.global_rows() as f64 * model.sequence as f64;
        let published = match self.speed {
            PublishedSpeed::Utilisation(share) => predicted * utilisation / share,
            PublishedSpeed::RankHours(hours) => {
                hours * 3600.0 / 1e12 * tokens / strategy.mesh.world() as f64
            }
        };
        Ok(PredictedTraining {
            predicted,
            published,
            utilisation,
            published_utilisation: predicted * utilisation / published,
            bytes: crate::memory::RankBytes::of(&model, &strategy).total(),
        })
    }
}
