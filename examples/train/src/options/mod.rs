//! The options of a run: from flags, else from a file, else defaults.
//!
//! Each file is a section: one struct, shared by flags, files and checkpoints, with its checks and
//! the objects built from it.

mod changes;
mod data;
mod faults;
mod job;
mod lab;
mod model;
mod optimizer;
mod parallel;
mod run;
mod streaming;

pub(crate) use changes::{SettingChange, changes};
pub(crate) use data::read_text;
pub(crate) use job::TrainingJob;
pub(crate) use lab::OnFailure;

use crate::ranks::JoinedRanks;
use anyhow::{Context, bail, ensure};
use data::DataOptions;
use lab::LabOptions;
use maypole_lab::averaging::DataForm;
use maypole_lab::mistakes::Mistake;
use maypole_lab::unequal::rows::RowDivision;
use maypole_trainer::model::config::Config;
use maypole_trainer::tensor::precision::Precision;
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::parallelism::Parallelism;
use maypole_trainer::train::schedule::RateSchedule;
use model::ModelOptions;
use optimizer::OptimizerOptions;
use parallel::ParallelOptions;
use run::RunOptions;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct TrainArgs {
    /// A file of these options, with the names of the flags: `width = 128`. Flags overrule it.
    #[arg(long, value_name = "TOML")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: TrainOptions,
}

/// Makes the struct of a section of options, and how one set of them overrules another.
macro_rules! section {
    ($(#[$about:meta])* $section:ident { $($(#[$doc:meta])* $name:ident: $kind:ty,)* }) => {
        #[derive(clap::Args, Clone, Default, Deserialize, Serialize)]
        $(#[$about])*
        #[serde(default, rename_all = "kebab-case")]
        pub(crate) struct $section {
            $(
                $(#[$doc])*
                #[arg(long)]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(crate) $name: Option<$kind>,
            )*
        }

        impl $section {
            /// The fields.
            pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// These options; unset ones from `other`.
            pub(super) fn or(self, other: Self) -> Self {
                Self { $($name: self.$name.or(other.$name),)* }
            }
        }
    };
}
use section;

/// All sections. Their order is that of the help.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct TrainOptions {
    #[command(flatten)]
    pub(crate) data: DataOptions,
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    #[command(flatten)]
    pub(crate) parallel: ParallelOptions,
    #[command(flatten)]
    pub(crate) optimizer: OptimizerOptions,
    #[command(flatten)]
    pub(crate) lab: LabOptions,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

impl TrainArgs {
    /// True of `--fault list`, which explains the mistakes and trains nothing.
    pub(crate) fn lists_faults(&self) -> bool {
        self.options.lab.fault.as_deref() == Some("list")
    }

    /// Fills in defaults, and refuses options that do not go together.
    pub(crate) fn resolve(self) -> anyhow::Result<(TrainingJob, JoinedRanks)> {
        let file = match &self.config {
            None => TrainOptions::default(),
            Some(path) => {
                let text = fs::read_to_string(path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                TrainOptions::parse(&text).with_context(|| format!("in {}", path.display()))?
            }
        };
        self.options.or(file).settle()
    }
}

impl TrainOptions {
    /// Reads the options of all sections from a file, by the names of the flags.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let table: toml::Table = toml::from_str(text)?;
        let sections = [
            DataOptions::NAMES,
            ModelOptions::NAMES,
            ParallelOptions::NAMES,
            OptimizerOptions::NAMES,
            LabOptions::NAMES,
            RunOptions::NAMES,
        ];
        let known: Vec<String> = sections.concat().iter().map(|it| it.replace('_', "-")).collect();
        if let Some(name) = table.keys().find(|name| !known.contains(name)) {
            bail!("unknown option '{name}': there are those of train run --help, without dashes");
        }
        Ok(Self {
            data: section_of(&table, text)?,
            model: section_of(&table, text)?,
            parallel: section_of(&table, text)?,
            optimizer: section_of(&table, text)?,
            lab: section_of(&table, text)?,
            run: section_of(&table, text)?,
        })
    }

    fn or(self, other: Self) -> Self {
        Self {
            data: self.data.or(other.data),
            model: self.model.or(other.model),
            parallel: self.parallel.or(other.parallel),
            optimizer: self.optimizer.or(other.optimizer),
            lab: self.lab.or(other.lab),
            run: self.run.or(other.run),
        }
    }

    /// The options that decide the result of a run, by the names of the flags, for checkpoints. The
    /// text is recorded by its fingerprint.
    fn record(&self) -> Map<String, Value> {
        let mut optimizer = self.optimizer.clone();
        // These are recorded also where they are the defaults.
        optimizer.rows = Some(optimizer.rows());
        optimizer.seed = Some(optimizer.seed());
        optimizer.precision.get_or_insert_with(|| "f32".to_owned());
        [fields(&self.model), fields(&self.parallel), fields(&optimizer), fields(&self.lab)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The options recorded in a checkpoint. Options unknown to this build are ignored.
    fn recorded(options: &Map<String, Value>) -> Self {
        let options = Value::Object(options.clone());
        Self {
            model: Deserialize::deserialize(&options).unwrap_or_default(),
            parallel: Deserialize::deserialize(&options).unwrap_or_default(),
            optimizer: Deserialize::deserialize(&options).unwrap_or_default(),
            lab: Deserialize::deserialize(&options).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Checks each section, builds the job, and refuses options that do not combine. The text is still
    /// missing.
    fn settle(self) -> anyhow::Result<(TrainingJob, JoinedRanks)> {
        let Built { mut config, setup, form, row_division, fault, rule, schedule, precision } =
            self.build()?;
        let device = self.run.device(self.parallel.measures_layers())?;
        let save = self.run.save.as_deref();
        let on_failure = self.lab.on_failure((&setup, form), precision, save)?;
        self.run.try_outputs()?;
        // The process that starts the others holds a copy of the text too.
        let processes = if self.run.starts_processes() { setup.mesh.world() as u64 + 1 } else { 1 };
        let mut ranks = JoinedRanks::new(setup.mesh);
        let seed = self.optimizer.seed();
        let (bpe, text, held_out) = self.data.text(config.context, seed, processes, &mut ranks)?;
        config.vocab = bpe.vocab();
        let job = TrainingJob {
            options: self,
            config,
            setup,
            form,
            row_division,
            fault,
            rule,
            schedule,
            precision,
            device,
            on_failure,
            text,
            held_out,
            bpe,
        };
        Ok((job, ranks))
    }

    /// Everything that is settled before a text is read and a file is written.
    fn build(&self) -> anyhow::Result<Built> {
        let Self { data, model, parallel, optimizer, lab, run } = self;
        data.check()?;
        model.check()?;
        parallel.check()?;
        optimizer.check()?;
        lab.check()?;
        run.check()?;
        let config = model.build(data.vocab())?;
        let router = model.router(&config);
        let (setup, form) = parallel.build(&config, router, optimizer.steps())?;
        let fault = lab.mistake()?;
        setup.check(&config, optimizer.rows()).map_err(anyhow::Error::msg)?;
        let row_division = lab.row_division()?;
        row_division.check(&config, &setup, form).map_err(anyhow::Error::msg)?;
        let rule = optimizer.rule()?;
        let precision = optimizer.precision()?;
        model.check_effects(&config)?;
        lab.check_effects(&config, &setup, parallel.is_deterministic())?;
        parallel.check_effects(&config, (&setup, form))?;
        run.check_effects(form)?;
        optimizer.check_effects(form)?;
        lab.check_comparison(form, precision, run.save.as_deref(), data)?;
        fault.map_or(Ok(()), |fault| self.check_fault(fault, &config, (&setup, form), rule))?;
        let schedule = optimizer.schedule()?;
        Ok(Built { config, setup, form, row_division, fault, rule, schedule, precision })
    }
}

/// What options describe, without the text.
struct Built {
    config: Config,
    setup: Parallelism,
    form: DataForm,
    row_division: RowDivision,
    fault: Option<Mistake>,
    rule: Rule,
    schedule: RateSchedule,
    precision: Precision,
}

/// One section of a file, whose sections are all in `table`. An error gives the position in `text`.
fn section_of<T: DeserializeOwned>(table: &toml::Table, text: &str) -> Result<T, toml::de::Error> {
    T::deserialize(table.clone()).or_else(|_| toml::from_str(text))
}

/// The options of a section that are given, by the names of the flags.
fn fields(section: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(section) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a section is a struct of plain values"),
    }
}

/// Refuses a number that is not from 0 on.
fn check_number(name: &str, number: Option<f64>) -> anyhow::Result<()> {
    let number = number.unwrap_or(0.0);
    ensure!(number.is_finite() && number >= 0.0, "--{name} {number}: give a number from 0 on");
    Ok(())
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
        let schedule = TrainOptions::parse(text)?.build()?.schedule;
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
