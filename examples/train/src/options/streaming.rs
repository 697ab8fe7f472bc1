//! The text of a run: a folder, or a long file, turned into tokens on disk.

use super::data::DataOptions;
use crate::output;
use crate::ranks::{JoinedRanks, place};
use anyhow::{Context, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use maypole_corpus::prepare::{DataProgress, SHARD_TOKENS, prepare};
use maypole_corpus::sources::Sources;
use maypole_corpus::token_files::TokenFiles;
use maypole_trainer::train::bpe::{Bpe, LEARNT_FROM};
use std::env;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The length of the shortest file that streams unasked, in bytes.
const LONG: u64 = 64 << 20;

impl DataOptions {
    /// The path of a text that streams, if this one does.
    pub(super) fn streams(&self) -> anyhow::Result<Option<&Path>> {
        let Some(path) = self.data.as_deref() else {
            ensure!(
                self.data_cache.is_none(),
                "--data-cache is of a text that streams, and --data is missing"
            );
            return Ok(None);
        };
        // A path that is not there is an error where the text is read.
        let streams = fs::metadata(path).is_ok_and(|it| {
            it.is_dir() || it.is_file() && (it.len() > LONG || self.data_cache.is_some())
        });
        if !streams {
            return Ok(None);
        }
        Ok(Some(path))
    }

    /// The vocabulary, and the text at `path` as tokens. Collective under a launcher.
    pub(super) fn tokens(
        &self,
        path: &Path,
        ranks: &mut JoinedRanks,
    ) -> anyhow::Result<(Bpe, TokenFiles)> {
        let cache = self.cache()?;
        let sources = Sources::list(path).context("--data")?;
        let bpe = match self.bpe {
            Some(vocab) => {
                let most = (LEARNT_FROM as u64).min(sources.bytes() - sources.bytes() / 10);
                Bpe::learn(&sources.beginning(most as usize).context("--data")?, vocab)
            }
            None => Bpe::default(),
        };
        let speaks = place()?.0 == 0;
        let mut shown = ShownProgress::new(sources.bytes(), speaks);
        let comm = ranks.join()?;
        let mut say = |progress| shown.show(progress);
        let shards = prepare((&sources, &cache), &bpe, SHARD_TOKENS, comm, &mut say)?;
        shown.end(&sources, &shards, &cache)?;
        Ok((bpe, shards))
    }

    /// The folder for tokens.
    fn cache(&self) -> anyhow::Result<PathBuf> {
        if let Some(folder) = &self.data_cache {
            return Ok(folder.clone());
        }
        let set = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
        let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        match caches {
            Some(folder) => Ok(folder.join("maypole-trainer")),
            None => bail!("there is no $HOME to keep the tokens of --data in: give --data-cache"),
        }
    }
}

/// How far the preparation of a text is: a bar on a terminal, lines elsewhere.
struct ShownProgress {
    bytes: u64,
    bar: ProgressBar,
    /// Whether this is the rank that shows anything.
    speaks: bool,
    began: Instant,
    /// When the last line was printed.
    said: Instant,
    tokenised: bool,
}

impl ShownProgress {
    fn new(bytes: u64, speaks: bool) -> Self {
        let bar = if speaks && std::io::stderr().is_terminal() {
            ProgressBar::new(bytes)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}");
        bar.set_style(style.expect("the template is right"));
        let now = Instant::now();
        Self { bytes, bar, speaks, began: now, said: now, tokenised: false }
    }

    fn show(&mut self, progress: DataProgress) {
        let (what, done) = match progress {
            DataProgress::Tokenising(done) => ("tokenising --data", done),
            DataProgress::Comparing(done) => ("comparing tokens with their digests", done),
        };
        self.tokenised |= matches!(progress, DataProgress::Tokenising(_));
        self.bar.set_message(what);
        self.bar.set_position(done);
        let due = self.said.elapsed() > Duration::from_secs(2);
        if self.speaks && self.bar.is_hidden() && due {
            self.said = Instant::now();
            let [done, all] = [done, self.bytes].map(|bytes| bytes >> 20);
            // A closed pipe is found when the first step is printed.
            let _ = output::line(format_args!("{what}: {done} of {all} MiB"));
        }
    }

    fn end(&self, sources: &Sources, shards: &TokenFiles, cache: &Path) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        if !self.speaks {
            return Ok(());
        }
        let count = |number: usize, what: &str| {
            format!("{number} {what}{}", if number == 1 { "" } else { "s" })
        };
        let how = if self.tokenised { "tokenised" } else { "found the tokens of" };
        Ok(output::line(format_args!(
            "{how} {}, {:.1} MiB: {} tokens in {} in {}, {:.1} s",
            count(sources.files(), "file"),
            self.bytes as f64 / f64::from(1 << 20),
            shards.tokens(),
            count(shards.count(), "shard"),
            cache.display(),
            self.began.elapsed().as_secs_f64()
        ))?)
    }
}
