//! The search on all ranks, and its journal.
//!
//! After each rung rank 0 writes the journal, `search.json`: the space, and the outcome of every
//! trial. Before that the promoted trials are saved as checkpoints, in a folder each. So a stopped
//! search resumes after the last complete rung, on any number of groups. Checkpoints of other trials
//! are removed.

use crate::halving::{groups_of, survivors};
use crate::space::SearchSpace;
use crate::trial::{TrialOutcome, TrialRun, TrialTexts, refused};
use maypole::Communicator;
use maypole_trainer::ranks::group::{RankGroup, SumOrder};
use maypole_trainer::tensor::device::Device;
use maypole_trainer::train::checkpoint::files::{remove_folder, replace};
use maypole_trainer::train::checkpoint::history::folder_name;
use maypole_trainer::train::checkpoint::load::load;
use maypole_trainer::train::checkpoint::save::save;
use maypole_trainer::train::checkpoint::{CheckpointError, agree, failed};
use maypole_trainer_gpu::choice::DeviceChoice;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the journal in its folder.
pub const JOURNAL: &str = "search.json";

/// The outcomes of all trials of a rung.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RungRecord {
    /// Tokens that each trial has seen at the end of the rung.
    pub tokens: u64,
    /// The number of each trial and its outcome, ascending by number.
    pub outcomes: Vec<(usize, TrialOutcome)>,
}

/// The state of a search.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SearchJournal {
    /// The space of the search.
    pub space: SearchSpace,
    /// The fingerprint of the training text.
    pub text: u64,
    /// The rungs that were finished.
    pub rungs: Vec<RungRecord>,
}

/// The reason why a search ended early.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] maypole::Error),
    /// A trial or the journal cannot be written or read.
    #[error(transparent)]
    File(#[from] CheckpointError),
    /// The ranks do not make whole groups.
    #[error("{world} ranks are no multiple of ranks-per-trial = {each}: change one of them")]
    Groups {
        /// Ranks of the world.
        world: usize,
        /// Ranks of a trial.
        each: usize,
    },
    /// A rank's device cannot be used.
    #[error("{0}")]
    Device(String),
    /// The folder has the journal of another search.
    #[error("{} is of another search: its {what} differs; give another folder", .path.display())]
    Other {
        /// The journal.
        path: PathBuf,
        /// The differing setting.
        what: &'static str,
    },
}

/// The arguments of a search.
#[derive(Clone, Copy)]
pub struct SearchJob<'a> {
    /// The space of the search.
    pub space: &'a SearchSpace,
    /// The texts that trials are trained on and compared on.
    pub texts: TrialTexts<'a>,
    /// Where the journal and the checkpoints are, if they are kept.
    pub folder: Option<&'a Path>,
    /// The device of each rank's layers.
    pub device: DeviceChoice,
    /// Called on rank 0 with one line of text for each event.
    pub say: &'a (dyn Fn(&str) + Sync),
}

impl RungRecord {
    /// The outcome of a trial, if it was in this rung.
    pub fn of(&self, trial: usize) -> Option<&TrialOutcome> {
        self.outcomes.iter().find(|(number, _)| *number == trial).map(|(_, outcome)| outcome)
    }
}

impl SearchJournal {
    /// The best trial of the last rung and its loss; none if every trial diverged or crashed.
    pub fn winner(&self) -> Option<(usize, f64)> {
        let last = self.rungs.last()?;
        let best = survivors(&scores(last), last.outcomes.len().max(1)).first().copied()?;
        Some((best, last.of(best)?.loss?))
    }

    /// The trials that the next rung begins with.
    fn living(&self) -> Vec<usize> {
        let Some(last) = self.rungs.last() else { return (0..self.space.trials).collect() };
        let mut living = survivors(&scores(last), self.space.keep);
        living.sort_unstable();
        living
    }
}

fn scores(rung: &RungRecord) -> Vec<(usize, f64)> {
    let score =
        |(trial, outcome): &(usize, TrialOutcome)| (*trial, outcome.loss.unwrap_or(f64::NAN));
    rung.outcomes.iter().map(score).collect()
}

/// Searches on all ranks of `comm`, which all call it, and returns the journal on every rank.
///
/// # Errors
/// [`SearchError`].
pub fn search(comm: Communicator, job: SearchJob) -> Result<SearchJournal, SearchError> {
    let opened = job.device.open::<f32>(comm.rank()).map_err(|why| {
        comm.abort(&why);
        SearchError::Device(why)
    })?;
    let world = RankGroup::new(comm, SumOrder::Ranks);
    let each = job.space.ranks_per_trial;
    if !world.world().is_multiple_of(each) {
        return Err(SearchError::Groups { world: world.world(), each });
    }
    let group = world.split(world.rank() / each, world.rank())?;
    let device = opened.device;
    let (runs, owners) = (BTreeMap::new(), HashMap::new());
    let mut ranks = SearchRanks { job, world, group, runs, owners, device };
    if !opened.about.is_empty() {
        ranks.say(&format!("rank 0 computes layers on {}", opened.about));
    }
    let mut journal = ranks.journal()?;
    for (nth, tokens) in job.space.rungs().into_iter().enumerate() {
        if nth < journal.rungs.len() {
            continue;
        }
        let living = journal.living();
        if living.is_empty() {
            break;
        }
        let outcomes = ranks.rung(&journal, &living, tokens)?;
        journal.rungs.push(RungRecord { tokens, outcomes });
        ranks.finish_rung(&journal)?;
    }
    Ok(journal)
}

/// The ranks of a search, seen from one of them.
struct SearchRanks<'a> {
    job: SearchJob<'a>,
    world: RankGroup,
    group: RankGroup,
    /// The trials of this rank's group.
    runs: BTreeMap<usize, TrialRun>,
    /// The group that holds each trial. A trial that no group holds yet is missing.
    owners: HashMap<usize, usize>,
    device: Arc<dyn Device<f32>>,
}

impl SearchRanks<'_> {
    fn groups(&self) -> usize {
        self.world.world() / self.job.space.ranks_per_trial
    }

    fn own_group(&self) -> usize {
        self.world.rank() / self.job.space.ranks_per_trial
    }

    /// The journal of the folder, or an empty one; the same on all ranks.
    fn journal(&self) -> Result<SearchJournal, SearchError> {
        let space = self.job.space.clone();
        let text = self.job.texts.text.fingerprint();
        let empty = SearchJournal { space, text, rungs: Vec::new() };
        let Some(folder) = self.job.folder else { return Ok(empty) };
        let path = folder.join(JOURNAL);
        let read = if self.world.rank() == 0 { read_journal(&path) } else { Ok(None) };
        let mine = agree(&self.world, read)?;
        let bytes = mine.map_or_else(Vec::new, |text| text.into_bytes());
        let bytes = self.world.broadcast_bytes(bytes, 0)?;
        if bytes.is_empty() {
            return Ok(empty);
        }
        let found: SearchJournal =
            serde_json::from_slice(&bytes).map_err(|why| failed(&path)(why.into()))?;
        if found.space != empty.space || found.text != empty.text {
            let what = if found.text == empty.text { "space" } else { "text" };
            return Err(SearchError::Other { path, what });
        }
        self.say(&format!("{} rungs were finished before", found.rungs.len()));
        Ok(found)
    }

    fn say(&self, text: &str) {
        if self.world.rank() == 0 {
            (self.job.say)(text);
        }
    }

    /// Trains the `living` trials until each has seen `tokens` tokens.
    fn rung(
        &mut self,
        journal: &SearchJournal,
        living: &[usize],
        tokens: u64,
    ) -> Result<Vec<(usize, TrialOutcome)>, SearchError> {
        let SearchJob { space, texts, .. } = self.job;
        let cost = |trial: &usize| {
            let config = space.config(&space.settings(*trial), texts.vocab);
            (*trial, config.check().map_or(0.0, |()| config.parameters() as f64))
        };
        let costs: Vec<(usize, f64)> = living.iter().map(cost).collect();
        let groups = groups_of(&costs, self.groups());
        let mut mine = Vec::new();
        for (trial, to) in living.iter().zip(groups) {
            let outcome = self.place(journal, *trial, to)?;
            mine.extend(outcome.map(|outcome| (*trial, outcome)));
        }
        for (trial, run) in &mut self.runs {
            let steps = space.steps(&space.settings(*trial), tokens);
            mine.push((*trial, run.advance(space, steps, texts)));
        }
        if let Some(why) = self.device.failure() {
            // The results of a failed device are invalid: no trial can be compared.
            self.world.abort(&why);
            return Err(SearchError::Device(format!("a device has failed: {why}")));
        }
        self.exchange(&mine)
    }

    /// Gives `trial` to group `to`: begins it, moves it from another group, or reads its
    /// checkpoint. All ranks call it. Returns an outcome if the settings of the trial make no
    /// model.
    fn place(
        &mut self,
        journal: &SearchJournal,
        trial: usize,
        to: usize,
    ) -> Result<Option<TrialOutcome>, SearchError> {
        let from = self.owners.insert(trial, to);
        if from == Some(to) {
            return Ok(None);
        }
        let bytes = match from {
            Some(from) => self.taken_from(trial, from)?,
            None => Vec::new(),
        };
        if to != self.own_group() {
            return Ok(None);
        }
        let SearchJob { space, texts, .. } = self.job;
        let mut run = match TrialRun::begin(space, trial, texts.vocab, &self.group)? {
            Ok(run) => run,
            Err(why) => return Ok(Some(refused(&why))),
        };
        run.trainer.parts.model.device = Arc::clone(&self.device);
        if !bytes.is_empty() {
            run.install(&bytes)?;
        } else if let Some((last, folder)) = journal.rungs.last().zip(self.job.folder) {
            let outcome = last.of(trial).expect("a trial that goes on was in the last rung");
            let place = trial_folder(folder, trial).join(folder_name(outcome.steps));
            load(&mut run.trainer, &place)?;
            run.began_with(outcome.first);
        }
        self.runs.insert(trial, run);
        Ok(None)
    }

    /// Takes `trial` from group `from`, and returns its numbers on all ranks.
    fn taken_from(&mut self, trial: usize, from: usize) -> Result<Vec<u8>, SearchError> {
        let mut bytes = Vec::new();
        if let Some(mut run) = self.runs.remove(&trial) {
            bytes = run.to_bytes()?;
        }
        let root = from * self.job.space.ranks_per_trial;
        Ok(self.world.broadcast_bytes(bytes, root)?)
    }

    /// The outcomes of the trials of all groups, by trial. The first rank of each group broadcasts
    /// those of its group.
    fn exchange(
        &self,
        mine: &[(usize, TrialOutcome)],
    ) -> Result<Vec<(usize, TrialOutcome)>, SearchError> {
        let mut all = Vec::new();
        for group in 0..self.groups() {
            let own = if group == self.own_group() { mine } else { &[] };
            let bytes = serde_json::to_vec(own).expect("numbers are written");
            let root = group * self.job.space.ranks_per_trial;
            let bytes = self.world.broadcast_bytes(bytes, root)?;
            let found: Vec<(usize, TrialOutcome)> =
                serde_json::from_slice(&bytes).expect("this program wrote it");
            all.extend(found);
        }
        all.sort_by_key(|(trial, _)| *trial);
        Ok(all)
    }

    /// Drops the trials that are not promoted, saves the others and writes the journal.
    fn finish_rung(&mut self, journal: &SearchJournal) -> Result<(), SearchError> {
        let last = journal.rungs.last().expect("a rung was finished");
        let living = journal.living();
        self.runs.retain(|trial, _| living.contains(trial));
        self.owners.retain(|trial, _| living.contains(trial));
        let best = journal.winner().map_or_else(
            || "none was trained to the end".to_owned(),
            |(trial, loss)| format!("the best is trial {trial} with loss {loss:.4}"),
        );
        self.say(&format!(
            "{} trials up to {} tokens: {best}; {} go on",
            last.outcomes.len(),
            last.tokens,
            if last.tokens == self.job.space.tokens { 0 } else { living.len() }
        ));
        let Some(folder) = self.job.folder else { return Ok(()) };
        let mut saved = Ok(());
        for (trial, run) in &mut self.runs {
            let place = trial_folder(folder, *trial);
            saved = saved.and(save(&mut run.trainer, &place).map(drop));
        }
        agree(&self.world, saved)?;
        let write = || {
            let bytes = serde_json::to_vec_pretty(journal).expect("numbers are written");
            replace(&folder.join(JOURNAL), &bytes)?;
            tidy(folder, journal, &living)
        };
        Ok(agree(&self.world, if self.world.rank() == 0 { write() } else { Ok(()) })?)
    }
}

fn trial_folder(folder: &Path, trial: usize) -> PathBuf {
    folder.join(format!("trial-{trial:04}"))
}

/// The journal's text; none if there is no journal.
fn read_journal(path: &Path) -> Result<Option<String>, CheckpointError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(failed(path)(why)),
    }
}

/// Removes the checkpoints that a resumed search does not need: those of trials that are not
/// promoted, and those of earlier rungs.
fn tidy(folder: &Path, journal: &SearchJournal, living: &[usize]) -> Result<(), CheckpointError> {
    for trial in 0..journal.space.trials {
        let place = trial_folder(folder, trial);
        if !living.contains(&trial) {
            remove_folder(&place)?;
            continue;
        }
        let last =
            journal.rungs.last().and_then(|rung| rung.of(trial)).map(|outcome| outcome.steps);
        for rung in journal.rungs.iter().rev().skip(1) {
            let steps = rung.of(trial).map(|outcome| outcome.steps);
            if let Some(steps) = steps.filter(|steps| Some(*steps) != last) {
                remove_folder(&place.join(folder_name(steps)))?;
            }
        }
    }
    Ok(())
}
