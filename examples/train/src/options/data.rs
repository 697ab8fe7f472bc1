//! The text of a run: read whole from a file that fits in memory.
//!
//! Rows begin anywhere in the text, so all of it stays in memory: a byte per byte, or the size of a
//! token. A text that exceeds the memory of the machine is refused before it is read, with an error that
//! gives the sizes, because the kernel would kill the run without a message. A folder or a long file
//! is not read into memory: see `streaming`.

use super::section;
use crate::ranks::JoinedRanks;
use anyhow::{Context, bail, ensure};
use maypole_trainer::train::bpe::Bpe;
use maypole_trainer::train::text::{HAMLET, RICHARD_III, Text};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Bytes of memory that a byte of text takes: itself, and as much while a pipe is read.
const OF_BYTES: u64 = 2;
/// The same with a vocabulary to learn: [`OF_BYTES`], and a token of 4 bytes both before and after
/// a merge.
const OF_TOKENS: u64 = 10;

section! {
    #[command(next_help_heading = "The text")]
    DataOptions {
        /// The text to train on; its last tenth is held out for the validation loss at the end. A file,
        /// or a folder of UTF-8 files, which may be larger than memory [default: two plays].
        data: PathBuf,
        /// Folder for the tokens of a --data that streams: a folder, or a file of more than 64 MiB, or
        /// any file if this is given [default: ~/.cache/maypole-trainer].
        data_cache: PathBuf,
        /// Learn this many tokens from the text instead of taking bytes.
        bpe: usize,
    }
}

impl DataOptions {
    /// Refuses numbers that are impossible with any other options.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(vocab) = self.bpe {
            ensure!(
                vocab > 256,
                "--bpe {vocab}: bytes alone are 256 tokens; give more, or leave it out"
            );
        }
        Ok(())
    }

    /// The vocabulary size of `--bpe`; a short text gives fewer tokens.
    pub(super) fn vocab(&self) -> usize {
        self.bpe.unwrap_or(256)
    }

    /// Returns the vocabulary, the text to learn from, and the text to validate on. Each of
    /// `processes` holds a copy, unless the text streams.
    pub(super) fn text(
        &self,
        context: usize,
        seed: u64,
        processes: u64,
        ranks: &mut JoinedRanks,
    ) -> anyhow::Result<(Bpe, Text, Text)> {
        if let Some(path) = self.streams()? {
            let (bpe, shards) = self.tokens(path, ranks)?;
            let length = shards.tokens();
            ensure!(length > context, too_short(length, context));
            let text = Text::of(shards, context, seed);
            let (text, held_out) = text.divided().with_context(|| too_short(length, context))?;
            return Ok((bpe, text, held_out));
        }
        self.in_memory(context, seed, processes)
    }

    fn in_memory(
        &self,
        context: usize,
        seed: u64,
        processes: u64,
    ) -> anyhow::Result<(Bpe, Text, Text)> {
        let factor = if self.bpe.is_some() { OF_TOKENS } else { OF_BYTES };
        let bytes = match &self.data {
            Some(path) => read(path, factor.saturating_mul(processes), available_memory())?,
            None => [HAMLET, RICHARD_III].concat(),
        };
        let seen = &bytes[..bytes.len() - bytes.len() / 10];
        let bpe = self.bpe.map_or_else(Bpe::default, |vocab| Bpe::learn(seen, vocab));
        let tokens = if self.bpe.is_some() { Some(bpe.encode(&bytes)) } else { None };
        let length = tokens.as_ref().map_or(bytes.len(), Vec::len);
        ensure!(length > context, too_short(length, context));
        let text = match tokens {
            Some(tokens) => Text::new(tokens, context, seed),
            None => Text::of_bytes(bytes, context, seed),
        };
        let (text, held_out) = text.divided().with_context(|| too_short(length, context))?;
        Ok((bpe, text, held_out))
    }
}

/// Returns the text to learn from and the text to validate on: bytes of a file, or of the plays.
pub(crate) fn read_text(
    data: Option<&Path>,
    context: usize,
    seed: u64,
) -> anyhow::Result<(Text, Text)> {
    if let Some(path) = data.filter(|path| path.is_dir()) {
        bail!(
            "--data {}: it is a folder, and a search reads its text into memory: give a file",
            path.display()
        );
    }
    let options = DataOptions { data: data.map(Path::to_owned), ..DataOptions::default() };
    let (_, text, held_out) = options.in_memory(context, seed, 1)?;
    Ok((text, held_out))
}

fn too_short(length: usize, context: usize) -> String {
    let most = (length / 10).saturating_sub(1);
    let give = if most > 0 { format!(" --context {most} or less, or") } else { String::new() };
    let what =
        format!("the text has {length} tokens, and rows of {context} do not fit in its last tenth");
    format!("{what}: give{give} a longer text as --data")
}

/// The bytes of a text, each of which takes `factor` bytes of the `available` memory.
fn read(path: &Path, factor: u64, available: u64) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let metadata = file.metadata().with_context(cannot)?;
    let kind = metadata.file_type();
    ensure!(
        !kind.is_char_device() && !kind.is_block_device(),
        "--data {}: it is a device and has no end that could be held out: give a file",
        path.display()
    );
    let most = available / factor;
    let too_long = |bytes: &str| {
        let [need, there] = [factor, available >> 20];
        format!(
            "--data {}: it has {bytes} MiB, of which each takes {need} MiB of memory, \
             and {there} MiB are available: give a part of it",
            path.display()
        )
    };
    ensure!(metadata.len() <= most, too_long(&(metadata.len() >> 20).to_string()));
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).with_context(cannot)?;
    // The length of a pipe is unknown until its end.
    ensure!(bytes.len() as u64 <= most, too_long(&format!("more than {}", most >> 20)));
    Ok(bytes)
}

/// Bytes of memory that are available on this machine or in the control group of this process, the
/// smaller of the two; `u64::MAX` where the system gives no number.
fn available_memory() -> u64 {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let machine = text("/proc/meminfo");
    let group =
        ["memory.max", "memory.current"].map(|name| text(&format!("/sys/fs/cgroup/{name}")));
    available(&machine, [&group[0], &group[1]])
}

fn available(machine: &str, [most, used]: [&str; 2]) -> u64 {
    let line = machine.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let machine = kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let group = number(most).map(|most| most.saturating_sub(number(used).unwrap_or(0)));
    machine.min(group.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_the_smaller_of_machine_and_control_group() {
        let machine = "MemTotal: 9 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n";
        assert_eq!(available(machine, ["", ""]), 2 << 20);
        assert_eq!(available(machine, ["max\n", "77\n"]), 2 << 20);
        assert_eq!(available(machine, ["1048676\n", "100\n"]), 1 << 20);
        assert_eq!(available(machine, ["5\n", "100\n"]), 0);
        assert_eq!(available("", ["", ""]), u64::MAX);
        assert_eq!(available("MemAvailable: x kB", ["4096", ""]), 4096);
    }

    #[test]
    fn a_text_that_does_not_fit_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read(&path, 2, 1 << 40).unwrap_err().to_string();
        let said = "it has 1048576 MiB, of which each takes 2 MiB of memory, \
                    and 1048576 MiB are available: give a part of it";
        assert!(error.contains(said), "{error}");
        fs::write(&path, "a text").unwrap();
        assert_eq!(read(&path, 2, 12).unwrap(), b"a text");
        assert!(read(&path, 2, 11).is_err());
        let error = read(Path::new("/dev/zero"), 2, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("it is a device"), "{error}");
        let (reader, mut writer) = std::io::pipe().unwrap();
        let pipe = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let writing = std::thread::spawn(move || {
            // The reader goes away before the end.
            let _ = std::io::Write::write_all(&mut writer, &vec![b'x'; 1 << 20]);
        });
        let error = read(Path::new(&pipe), 2, 64 << 10).unwrap_err().to_string();
        assert!(error.contains("it has more than 0 MiB"), "{error}");
        drop(reader);
        writing.join().unwrap();
    }
}
