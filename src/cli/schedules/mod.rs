//! Schedules on the command line: of an algorithm by its name, or of a file.

use crate::{input, names, output};
use anyhow::{Context, Result, bail, ensure};
use maypole::algorithms::Algorithm;
use maypole::schedule::Schedule;
use maypole::schedule::collective::Collective;
use maypole::schedule::verify::Flaw;
use maypole_pictures::file::ScheduleFile;
use maypole_pictures::text::StepText;
use std::path::{Path, PathBuf};

/// The schedules of a command, and their origin.
#[derive(Clone, Debug)]
pub(crate) struct NamedSchedules {
    pub(crate) collective: Collective,
    /// The name of an algorithm or of a file.
    pub(crate) by: String,
    pub(crate) schedules: Vec<Schedule>,
}

/// The most steps of all ranks together: some hundred megabytes. Up to 1,024 ranks, all algorithms have fewer.
const MOST_STEPS: usize = 1 << 23;

/// Which schedules a command is about.
#[derive(clap::Args)]
pub(crate) struct ScheduleArgs {
    #[arg(help = names::collective_help(), required_unless_present = "schedule")]
    collective: Option<Collective>,

    /// Take the schedules of all ranks from FILE instead: TOML, or JSON if its name ends so. It has
    /// `collective`, `root` if there is one, `chunks`, and `ranks`: a list of steps for each rank, such
    /// as "send in0 to 1", "recv out0 from 1", "recv-reduce out0 from 1" or "copy in0 to out0".
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["collective", "algorithm", "ranks", "root"]
    )]
    pub(crate) schedule: Option<PathBuf>,

    /// The algorithm [default: the first that implements the collective; to simulate, all].
    #[arg(short, long, value_name = "NAME")]
    pub(crate) algorithm: Option<Algorithm>,

    /// The number of ranks.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    pub(crate) ranks: usize,

    /// The root of broadcast, reduce, gather and scatter.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    root: usize,
}

impl ScheduleArgs {
    /// The collective among the ranks, of which there are at most `most`.
    pub(crate) fn collective(&self, most: usize) -> Result<Collective> {
        self.collective_among(self.ranks, most)
    }

    /// The collective among `ranks` ranks, of which there are at most `most`.
    pub(crate) fn collective_among(&self, ranks: usize, most: usize) -> Result<Collective> {
        let wanted = self.collective.context("no collective is named")?;
        names::rooted(wanted, self.root, ranks, most)
    }
}

impl NamedSchedules {
    /// The schedules of `algorithm`, or of the first that implements the collective.
    pub(crate) fn of_algorithm(
        collective: Collective,
        algorithm: Option<Algorithm>,
        hosts: &[usize],
    ) -> Result<Self> {
        let algorithm = algorithm.unwrap_or(names::algorithms_for(collective)[0]);
        let mut steps = 0;
        let mut schedules = Vec::new();
        for rank in 0..hosts.len() {
            let Some(schedule) = algorithm.schedule_on(collective, hosts, rank) else {
                bail!("{}", names::not_implemented(algorithm, collective));
            };
            steps += schedule.steps.len();
            ensure!(
                steps <= MOST_STEPS,
                "{algorithm} on {} ranks has more than {MOST_STEPS} steps, which do not follow from those of \
                 one rank",
                hosts.len()
            );
            schedules.push(schedule);
        }
        Ok(Self { collective, by: algorithm.to_string(), schedules })
    }

    /// Those of a file.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = input::text("--schedule", path, input::TEXT)?;
        let file = parsed(path, &text).with_context(|| format!("--schedule {name}"))?;
        let by = path.file_name().unwrap_or_default().to_string_lossy();
        let by = output::one_line(&by).into_owned();
        Ok(Self { collective: file.collective(), by, schedules: file.schedules().to_vec() })
    }

    /// `all-reduce by ring, 4 ranks`.
    pub(crate) fn title(&self) -> String {
        title(self.collective, &self.by, self.schedules.len())
    }

    /// Writes them to a file that `of_file` reads.
    pub(crate) fn save(self, option: &str, path: &Path) -> Result<()> {
        let file = ScheduleFile::new(self.collective, self.schedules);
        let text = match ends_in(path, "json") {
            true => serde_json::to_string_pretty(&file)?,
            false => toml::to_string_pretty(&file)?,
        };
        Ok(output::save(option, path, text)?)
    }
}

/// `all-reduce by ring, 4 ranks`.
pub(crate) fn title(collective: Collective, by: &str, ranks: usize) -> String {
    format!("{} by {by}, {ranks} ranks", collective.option_name())
}

/// A flaw, and the steps at which ranks are stuck.
pub(crate) fn in_words(flaw: &Flaw, schedules: &[Schedule]) -> String {
    let mut text = flaw.to_string();
    if let Flaw::Stuck(stuck) = flaw {
        for &(rank, step) in &stuck.waiting {
            text +=
                &format!("\nrank {rank}, step {step}: {}", StepText(schedules[rank].steps[step]));
        }
    }
    text
}

fn parsed(path: &Path, text: &str) -> Result<ScheduleFile> {
    Ok(if ends_in(path, "json") { serde_json::from_str(text)? } else { toml::from_str(text)? })
}

fn ends_in(path: &Path, kind: &str) -> bool {
    path.extension().is_some_and(|extension| extension == kind)
}
