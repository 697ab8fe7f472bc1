//! The text to train on: tokens, and which of them are in which row of which batch.
//!
//! Row `j` of a run is a function of the seed and of `j`, never of the rank or of the number of
//! ranks. So a batch of 8 rows is the same 8 rows on one rank, as 2 x 4 on two, and as 8
//! micro-batches; and a run that resumes at step `k` needs only the number `k`.
//!
//! Validation needs text that the model has not seen: [`Text::divided`] keeps the end of a text out
//! of training.
//!
//! A text is in memory, or wherever its [`Tokens`] are, such as in files of which each call reads the
//! rows that it returns. Equal tokens give equal rows from either.

use crate::model::batch::TokenBatch;
use crate::tensor::random::{RandomUse, fingerprint, random};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// A play by Shakespeare, for runs without a text of their own and for tests.
pub const HAMLET: &[u8] = include_bytes!("../../text/hamlet.txt");
/// Another one.
pub const RICHARD_III: &[u8] = include_bytes!("../../text/richard-iii.txt");

/// Fingerprints of the vocabulary and the text of a run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DataFingerprint {
    /// Of the vocabulary: a model is of no use with another one.
    pub vocabulary: u64,
    /// Of the text, as tokens: a run may resume with another text, but then its losses differ from
    /// those of a run that was not stopped.
    pub text: u64,
}

/// Tokens cannot be read: their file is gone, or damaged. Never of a text in memory.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TextError(pub Box<dyn Error + Send + Sync>);

/// Tokens of a text, wherever they are.
pub trait Tokens: Debug + Send + Sync {
    /// The number of all tokens.
    fn count(&self) -> usize;

    /// Appends the tokens in `range` to `to`.
    ///
    /// # Errors
    /// [`TextError`], if they are not in memory.
    fn read(&self, range: Range<usize>, to: &mut Vec<u32>) -> Result<(), TextError>;

    /// A number that stands for the tokens in `range`.
    fn fingerprint(&self, range: Range<usize>) -> u64;
}

impl<N: Copy + Debug + Into<u32> + Send + Sync> Tokens for Vec<N> {
    fn count(&self) -> usize {
        self.len()
    }

    fn read(&self, range: Range<usize>, to: &mut Vec<u32>) -> Result<(), TextError> {
        to.extend(self[range].iter().map(|token| (*token).into()));
        Ok(())
    }

    fn fingerprint(&self, range: Range<usize>) -> u64 {
        fingerprint(self[range].iter().map(|token| u64::from((*token).into())))
    }
}

/// A text as tokens, and how rows are drawn from it. A clone shares the tokens.
#[derive(Clone, Debug)]
pub struct Text {
    tokens: Arc<dyn Tokens>,
    /// The part of the tokens that this text is.
    part: Range<usize>,
    context: usize,
    seed: u64,
}

impl Text {
    /// Rows of `context` tokens, drawn by `seed`. Tokens are kept in as few bytes each as the largest
    /// of them needs: the text may be the largest object in memory.
    ///
    /// # Panics
    /// If the text is not longer than a row.
    pub fn new(tokens: Vec<u32>, context: usize, seed: u64) -> Self {
        let bytes = || tokens.iter().map(|token| *token as u8).collect::<Vec<_>>();
        let short = || tokens.iter().map(|token| *token as u16).collect::<Vec<_>>();
        match tokens.iter().max().copied().unwrap_or(0) {
            ..=0xff => Self::of(bytes(), context, seed),
            0x100..=0xffff => Self::of(short(), context, seed),
            _ => Self::of(tokens, context, seed),
        }
    }

    /// Rows of `context` of these tokens, drawn by `seed`.
    ///
    /// # Panics
    /// If the text is not longer than a row.
    pub fn of(tokens: impl Tokens + 'static, context: usize, seed: u64) -> Self {
        let part = 0..tokens.count();
        Self::part_of(Arc::new(tokens), part, context, seed)
    }

    fn part_of(tokens: Arc<dyn Tokens>, part: Range<usize>, context: usize, seed: u64) -> Self {
        let count = part.len();
        assert!(count > context, "a text of {count} tokens has no row of {context} and a target");
        Self { tokens, part, context, seed }
    }

    /// Bytes as tokens.
    ///
    /// # Panics
    /// If the text is not longer than a row.
    pub fn of_bytes(bytes: impl Into<Vec<u8>>, context: usize, seed: u64) -> Self {
        Self::of(bytes.into(), context, seed)
    }

    /// 400 sentences of one form with words drawn at random, for tests that need no file.
    pub fn invented(context: usize, seed: u64) -> Self {
        let mut text = String::new();
        for nth in 0..400 {
            let pick = |salt: u64, words: &[&'static str]| {
                words[(random(seed ^ salt, nth) % words.len() as u64) as usize]
            };
            let who = pick(1, &["rank", "ring", "tree", "chunk"]);
            let what = pick(2, &["sends", "sums", "waits for"]);
            text += &format!(
                "the {} {who} {what} the {who} of {}. ",
                pick(3, &["old", "new"]),
                pick(4, &["two", "four"])
            );
        }
        Self::of_bytes(text, context, seed)
    }

    /// The first nine tenths of the text, to train on, and the last tenth, to validate on: no
    /// row of the one has a token of the other. `None`, if the last tenth is not longer than a row.
    pub fn divided(self) -> Option<(Self, Self)> {
        let Self { tokens, part, context, seed } = self;
        let middle = part.end - part.len() / 10;
        (part.end - middle > context).then(|| {
            let held = Self::part_of(tokens.clone(), middle..part.end, context, seed);
            (Self::part_of(tokens, part.start..middle, context, seed), held)
        })
    }

    /// A hash of all tokens. A text in memory and the same text on disk have different hashes.
    pub fn fingerprint(&self) -> u64 {
        self.tokens.fingerprint(self.part.clone())
    }

    /// The first `count` tokens, or all of them.
    ///
    /// # Errors
    /// [`TextError`] if they are on disk and cannot be read.
    pub fn beginning(&self, count: usize) -> Result<Vec<u32>, TextError> {
        let end = self.part.end.min(self.part.start + count);
        let mut tokens = Vec::new();
        self.tokens.read(self.part.start..end, &mut tokens)?;
        Ok(tokens)
    }

    /// Rows number `rows` of the run; the weight of each token is `weight`.
    ///
    /// # Panics
    /// If the text is on disk and cannot be read: see [`part`](Self::part).
    pub fn batch(&self, rows: Range<u64>, weight: f64) -> TokenBatch {
        self.read_batch(rows, weight).unwrap_or_else(|why| panic!("{why}"))
    }

    fn read_batch(&self, rows: Range<u64>, weight: f64) -> Result<TokenBatch, TextError> {
        let stream = RandomUse::Rows.stream(self.seed);
        let starts: Vec<usize> =
            rows.map(|row| (random(stream, row) % self.places()) as usize).collect();
        self.rows_from(&starts, weight)
    }

    /// `rows` rows that begin at equal distances, in batches of at most `each`: the same for every
    /// seed. Weights are such that the losses of all batches add up to the mean.
    ///
    /// # Errors
    /// As [`part`](Self::part).
    ///
    /// # Panics
    /// If there are no rows, or none in a batch.
    pub fn spread(&self, rows: usize, each: usize) -> Result<Vec<TokenBatch>, TextError> {
        assert!(rows > 0, "a mean needs at least one row");
        let starts: Vec<usize> = (0..rows).map(|row| row * self.places() as usize / rows).collect();
        let weight = 1.0 / (rows * self.context) as f64;
        starts.chunks(each).map(|starts| self.rows_from(starts, weight)).collect()
    }

    /// Returns the number of places where a row can begin.
    fn places(&self) -> u64 {
        (self.part.len() - self.context) as u64
    }

    fn rows_from(&self, starts: &[usize], weight: f64) -> Result<TokenBatch, TextError> {
        let empty = || Vec::with_capacity(starts.len() * self.context);
        let mut tokens = empty();
        let mut targets = empty();
        let mut positions = empty();
        let mut row = Vec::new();
        for start in starts {
            let start = self.part.start + start;
            row.clear();
            // A row and the target of its last token.
            self.tokens.read(start..start + self.context + 1, &mut row)?;
            tokens.extend_from_slice(&row[..self.context]);
            targets.extend_from_slice(&row[1..]);
            positions.extend(0..self.context as u32);
        }
        Ok(TokenBatch { rows: starts.len(), tokens, targets, positions, weight })
    }

    /// The global batch of `rows` rows of step `step`, cut into `parts` batches of equally many
    /// rows: by data-parallel rank and then by micro-batch.
    ///
    /// # Panics
    /// If `parts` does not divide `rows`, or if the text is on disk and cannot be read.
    pub fn step(&self, step: u64, rows: usize, parts: usize) -> Vec<TokenBatch> {
        self.part(step, rows, 0..rows, parts).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The rows number `part` of the global batch of `rows` rows of step `step`, cut into `parts`
    /// batches of equally many rows.
    ///
    /// # Errors
    /// If the text is on disk and cannot be read any more: the error names the file. Never of a text
    /// in memory.
    ///
    /// # Panics
    /// If `parts` does not divide the number of these rows.
    pub fn part(
        &self,
        step: u64,
        rows: usize,
        part: Range<usize>,
        parts: usize,
    ) -> Result<Vec<TokenBatch>, TextError> {
        let own = part.len();
        assert!(own.is_multiple_of(parts), "{own} rows are no {parts} equal parts");
        let first = step * rows as u64 + part.start as u64;
        let each = (own / parts) as u64;
        let weight = 1.0 / (rows * self.context) as f64;
        (0..parts as u64)
            .map(|part| self.read_batch(first + part * each..first + (part + 1) * each, weight))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_do_not_depend_on_how_they_are_asked_for() {
        let text = Text::invented(16, 3);
        let whole = text.step(5, 8, 1).remove(0);
        let parts = text.step(5, 8, 4);
        assert_eq!(
            whole.tokens,
            parts.iter().flat_map(|part| part.tokens.clone()).collect::<Vec<_>>()
        );
        assert_eq!(whole.tokens[1..16], whole.targets[..15]);
        assert_ne!(whole.tokens, text.step(6, 8, 1)[0].tokens);
        let halves: Vec<TokenBatch> = [0, 8]
            .into_iter()
            .map(|from| whole.cut(&(from..from + 8).collect::<Vec<_>>()))
            .collect();
        assert_eq!(halves[1].positions[..9], [8, 9, 10, 11, 12, 13, 14, 15, 8]);
        assert_eq!(halves[1].tokens[8..], whole.cut(&(8..16).collect::<Vec<_>>()).tokens[8..]);
        assert_eq!(halves[0].tokens[8], whole.tokens[16]);
    }

    #[test]
    fn what_is_held_out_is_in_no_row_that_is_trained_on() {
        let context = 8;
        let tokens = (0..200).collect::<Vec<u32>>();
        let (train, held) = Text::new(tokens, context, 5).divided().unwrap();
        let batch = train.batch(0..2_000, 1.0);
        assert_eq!(batch.targets.iter().max(), Some(&179), "nine tenths, to their end");
        let judged = held.spread(4, 3).unwrap();
        assert_eq!(judged.iter().map(|batch| batch.rows).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(
            judged.iter().flat_map(|batch| batch.tokens[0..1].to_vec()).collect::<Vec<_>>(),
            [180, 189]
        );
        assert!(
            judged.iter().all(|batch| batch.targets.iter().all(|token| (180..200).contains(token)))
        );
        let weights: f64 =
            judged.iter().map(|batch| batch.weight * batch.tokens.len() as f64).sum();
        assert!((weights - 1.0).abs() < 1e-12);
        assert!(Text::new((0..80).collect(), context, 5).divided().is_none());
    }
}
