//! A small fuzzer for every reader of network messages or files.
//!
//! It starts from a corpus of inputs (`tests/corpus/NAME/`, and inputs that a test makes), damages
//! them at random, and passes them to a reader. A reader must return a value or an error: it must
//! not panic, take long, or allocate more than its input accounts for. An input with a result of a
//! new kind joins the corpus, and later inputs are made from it, too.
//!
//! The random numbers are the same in each run. `FUZZ_SECONDS=60` runs each reader that long, from
//! another start (`FUZZ_SEED`, else the time). The message of a failure has the input in
//! hexadecimal: a file with these digits in `tests/corpus/NAME/` with the ending `.hex` makes it a
//! permanent test case.
#![allow(dead_code, reason = "not every test uses all of it")]

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The inputs of each reader in an ordinary run.
const INPUTS: u64 = 20_000;
/// How long a reader may take for one input. They take microseconds.
const LONGEST: Duration = Duration::from_secs(20);
/// Most inputs that are added to the corpus.
const MOST_FOUND: usize = 2000;
/// Longest input that the fuzzer makes from shorter ones.
const LONGEST_INPUT: usize = 64 << 10;

/// A reader under test: its name, and its inputs.
pub(crate) struct Fuzz {
    name: &'static str,
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    inputs: u64,
    /// Most bytes that a reader may have allocated at a time: the first number, and the second for
    /// each byte of its input.
    memory: (usize, usize),
}

impl Fuzz {
    /// A reader whose corpus is in `tests/corpus/NAME`, if that folder exists. It may allocate 2
    /// MiB, and 100 bytes for each byte of its input.
    pub(crate) fn new(name: &'static str) -> Self {
        let corpus = corpus(name);
        Self { name, corpus, words: Vec::new(), inputs: INPUTS, memory: (2 << 20, 100) }
    }

    /// Adds inputs to begin with.
    pub(crate) fn corpus(mut self, inputs: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.corpus.extend(inputs);
        self
    }

    /// Adds words that are inserted into inputs.
    pub(crate) fn words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| word.as_bytes().to_vec()));
        self
    }

    /// Sets the number of inputs of an ordinary run.
    pub(crate) fn inputs(mut self, inputs: u64) -> Self {
        self.inputs = inputs;
        self
    }

    /// Sets the most bytes that a reader may allocate: `bytes`, and `for_each` for each byte of its
    /// input.
    pub(crate) fn memory(mut self, bytes: usize, for_each: usize) -> Self {
        self.memory = (bytes, for_each);
        self
    }

    /// Passes all inputs to `read`, which returns the kind of its result in words.
    ///
    /// # Panics
    /// If it panics, takes long, or allocates too much, with the input.
    pub(crate) fn run(self, read: impl Fn(&[u8]) -> String + Send + 'static) {
        let name = self.name;
        let current = Arc::new(Mutex::new((0, Vec::new())));
        let shown = Arc::clone(&current);
        let (ended, end) = channel();
        thread::spawn(move || {
            let _ = ended.send(self.feed(&current, &read));
        });
        let mut last = 0;
        loop {
            let outcome = end.recv_timeout(LONGEST);
            let (count, input) = shown.lock().unwrap().clone();
            match outcome {
                Ok(Ok(())) => return,
                Ok(Err(fault)) => panic!("{name}: {fault}\ninput: {}", hexadecimal(&input)),
                Err(RecvTimeoutError::Timeout) if count == last => {
                    panic!("{name}: no answer in {LONGEST:?}\ninput: {}", hexadecimal(&input))
                }
                Err(RecvTimeoutError::Timeout) => last = count,
                Err(RecvTimeoutError::Disconnected) => panic!("{name}: the fuzzer panicked"),
            }
        }
    }

    /// Feeds all inputs. Returns the fault of the reader, if any.
    fn feed(
        mut self,
        current: &Mutex<(u64, Vec<u8>)>,
        read: &impl Fn(&[u8]) -> String,
    ) -> Result<(), String> {
        let (seed, budget) = budget(self.inputs);
        let mut rng = SplitMix64::seed_from_u64(seed);
        let mut kinds = HashSet::new();
        let given = self.corpus.len();
        let mut count = 0;
        while count < given as u64 || budget.allows(count) {
            let input = match self.corpus.get(count as usize) {
                Some(input) if count < given as u64 => input.clone(),
                _ => self.mutate(&mut rng),
            };
            count += 1;
            *current.lock().unwrap() = (count, input.clone());
            let kind = self.check(&input, read).map_err(|fault| format!("seed {seed}: {fault}"))?;
            let is_new = kinds.len() < MOST_FOUND && kinds.insert(kind);
            if is_new && count > given as u64 {
                self.corpus.push(input);
            }
        }
        Ok(())
    }

    /// Passes one input to the reader. Returns the kind of its result.
    fn check(&self, input: &[u8], read: &impl Fn(&[u8]) -> String) -> Result<String, String> {
        let mut answer = Ok(String::new());
        let used = allocation_counter::measure(|| {
            answer = catch_unwind(AssertUnwindSafe(|| read(input)));
        });
        let most = self.memory.0 + self.memory.1 * input.len();
        if used.bytes_max > most as u64 {
            let len = input.len();
            return Err(format!("allocates {} bytes for an input of {len}", used.bytes_max));
        }
        // Numbers differ from input to input; the kind of result does not.
        let kind =
            |answer: String| answer.chars().filter(|it| !it.is_numeric()).take(200).collect();
        answer.map(kind).map_err(|_| "panics".to_owned())
    }

    /// A new input: one of the corpus, damaged in a few places.
    fn mutate(&self, rng: &mut SplitMix64) -> Vec<u8> {
        let mut input = match self.corpus.len() {
            0 => Vec::new(),
            all => self.corpus[below(rng, all)].clone(),
        };
        if below(rng, 50) == 0 {
            input = (0..below(rng, 200)).map(|_| rng.next_u64() as u8).collect();
        }
        let most = 1 << below(rng, 5);
        for _ in 0..1 + below(rng, most) {
            self.damage(&mut input, rng);
        }
        input.truncate(LONGEST_INPUT);
        input
    }

    fn damage(&self, input: &mut Vec<u8>, rng: &mut SplitMix64) {
        let at = below(rng, input.len() + 1);
        let end = at + below(rng, (input.len() - at).min(64) + 1);
        match below(rng, 12) {
            0 => overwrite(input, at, &[rng.next_u64() as u8]),
            1 => flip(input, at, 1 << below(rng, 8)),
            2 => overwrite(input, at, &interesting(rng)),
            3 => insert(input, at, &interesting(rng)),
            4 => input.truncate(at),
            5 => drop(input.drain(at..end)),
            6 => {
                let piece = input[at..end].to_vec();
                let most = 1 << below(rng, 8);
                let count = 1 + below(rng, most);
                insert(input, at, &piece.repeat(count));
            }
            7 | 8 => self.splice(input, at, rng),
            9 if !self.words.is_empty() => insert(input, at, self.word(rng)),
            10 if !self.words.is_empty() => {
                input.drain(at..end);
                insert(input, at, self.word(rng));
            }
            _ => overwrite(input, at, &[[0, 1, 0x7f, 0x80, 0xff][below(rng, 5)]]),
        }
    }

    fn word(&self, rng: &mut SplitMix64) -> &[u8] {
        &self.words[below(rng, self.words.len())]
    }

    /// Inserts a part of another input at `at`. Keeps or drops the rest.
    fn splice(&self, input: &mut Vec<u8>, at: usize, rng: &mut SplitMix64) {
        let Some(other) = self.corpus.get(below(rng, self.corpus.len().max(1))) else { return };
        let from = below(rng, other.len() + 1);
        let len = below(rng, other.len() - from + 1);
        let rest = input.split_off(at);
        input.extend(&other[from..from + len]);
        if below(rng, 2) == 0 {
            input.extend(rest);
        }
    }
}

/// The duration of a run.
enum Budget {
    Inputs(u64),
    Until(Instant),
}

impl Budget {
    fn allows(&self, count: u64) -> bool {
        match self {
            Self::Inputs(most) => count < *most,
            Self::Until(end) => Instant::now() < *end,
        }
    }
}

/// The seed of a run, and its duration.
fn budget(inputs: u64) -> (u64, Budget) {
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let time = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos() as u64);
    match variable("FUZZ_SECONDS") {
        None => (variable("FUZZ_SEED").unwrap_or(1), Budget::Inputs(inputs)),
        Some(seconds) => {
            let end = Instant::now() + Duration::from_secs(seconds);
            (variable("FUZZ_SEED").unwrap_or_else(time), Budget::Until(end))
        }
    }
}

/// The files of `tests/corpus/NAME`, by name. Those that end in `.hex` are read as digits.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    // The tests of all packages share one corpus.
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().take(3);
    let folder = folders.map(|it| it.join("tests/corpus").join(name)).find(|it| it.is_dir());
    let entries = folder.into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let bytes = fs::read(path).unwrap();
        let digits = path.extension().is_some_and(|ending| ending == "hex");
        if digits { from_hexadecimal(&String::from_utf8(bytes).unwrap()) } else { bytes }
    };
    paths.iter().map(read).collect()
}

fn below(rng: &mut SplitMix64, end: usize) -> usize {
    (rng.next_u64() % end as u64) as usize
}

fn overwrite(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = input.len().max(at + bytes.len());
    input.resize(end, 0);
    input[at..at + bytes.len()].copy_from_slice(bytes);
}

fn flip(input: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= bits;
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if input.len() + bytes.len() <= LONGEST_INPUT {
        input.splice(at..at, bytes.iter().copied());
    }
}

/// A number that lengths and counts are tried with, in one of the ways in which it may be written.
fn interesting(rng: &mut SplitMix64) -> Vec<u8> {
    let edges = [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 1 << 20, 1 << 31, 1 << 40, 1 << 60];
    let number = match below(rng, edges.len() + 2) {
        at if at < edges.len() => edges[at],
        at if at == edges.len() => u64::MAX,
        _ => rng.next_u64() >> below(rng, 64),
    };
    match below(rng, 6) {
        0 => (number as u16).to_le_bytes().to_vec(),
        1 => (number as u32).to_le_bytes().to_vec(),
        2 => number.to_le_bytes().to_vec(),
        3 => number.to_string().into_bytes(),
        4 => format!("-{number}").into_bytes(),
        _ => variable_length(number),
    }
}

/// Seven bits a byte, least first, as postcard writes numbers.
fn variable_length(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn from_hexadecimal(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks_exact(2).map(byte).collect()
}
