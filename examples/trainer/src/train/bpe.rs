//! Byte-pair encoding: a vocabulary of common strings, learnt from a text (Gage 1994; Sennrich et
//! al. 2016).
//!
//! Start with bytes. Merge the most frequent pair of adjacent tokens into one token, and repeat until the
//! vocabulary has its size. A larger vocabulary needs fewer tokens for a text, and a larger table: then
//! splitting the table over ranks saves more.

use crate::tensor::random::fingerprint;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Bytes that are encoded at a time, from the beginning of a text on. No token goes over the end of
/// such a piece, so a text that is read piece by piece has the same tokens as one in memory.
pub const PIECE: usize = 1 << 16;

/// How many bytes of a text a vocabulary is learnt from. More of them change it little.
pub const LEARNT_FROM: usize = 512 << 10;

/// A learnt vocabulary: the 256 bytes, then one token for each merge.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Bpe {
    /// The two tokens that token 256, 257 and so on are made of.
    merges: Vec<(u32, u32)>,
}

impl Bpe {
    /// Learns up to `vocab` tokens from the first [`LEARNT_FROM`] bytes of `text`; fewer if no pair of
    /// tokens is left that occurs twice.
    pub fn learn(text: &[u8], vocab: usize) -> Self {
        let mut tokens = bytes(&text[..text.len().min(LEARNT_FROM)]);
        let mut counts: HashMap<(u32, u32), isize> = HashMap::new();
        for pair in tokens.windows(2) {
            *counts.entry((pair[0], pair[1])).or_default() += 1;
        }
        let mut bpe = Self::default();
        while bpe.vocab() < vocab {
            let common = counts.iter().max_by_key(|(pair, count)| (**count, Reverse(**pair)));
            let Some((&pair, 2..)) = common else { break };
            // Only the counts of pairs beside a merge change.
            let change = |pair, by| *counts.entry(pair).or_default() += by;
            tokens = merge(&tokens, pair, bpe.vocab() as u32, change);
            counts.retain(|_, count| *count > 0);
            bpe.merges.push(pair);
        }
        bpe
    }

    /// Returns the number of tokens.
    pub fn vocab(&self) -> usize {
        256 + self.merges.len()
    }

    /// True if no token is more than a byte.
    pub fn is_bytes(&self) -> bool {
        self.merges.is_empty()
    }

    /// Checks that each merge is of tokens before it, so that every token has an end.
    ///
    /// # Errors
    /// A sentence that names the first merge that is not.
    pub fn check(&self) -> Result<(), String> {
        let mut merges = (256u32..).zip(&self.merges);
        let wrong = merges.find(|(token, (left, right))| left.max(right) >= token);
        wrong.map_or(Ok(()), |(token, (left, right))| {
            Err(format!("token {token} is made of {left} and {right}, which are not before it"))
        })
    }

    /// A hash of all merges, equal for equal vocabularies.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(
            self.merges.iter().flat_map(|(left, right)| [u64::from(*left), u64::from(*right)]),
        )
    }

    /// The text as tokens, in pieces of [`PIECE`] bytes: merges in the order in which they were
    /// learnt.
    pub fn encode(&self, text: &[u8]) -> Vec<u32> {
        let merges = || (256..).zip(&self.merges);
        let tokens = |piece| {
            merges()
                .fold(bytes(piece), |tokens, (token, pair)| merge(&tokens, *pair, token, |_, _| ()))
        };
        text.chunks(PIECE).flat_map(tokens).collect()
    }

    /// The bytes of these tokens. Numbers outside of the vocabulary are left out.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        let mut text = Vec::new();
        let mut open = tokens.iter().rev().copied().collect::<Vec<_>>();
        while let Some(token) = open.pop() {
            match (u8::try_from(token), self.merges.get((token as usize).wrapping_sub(256))) {
                (Ok(byte), _) => text.push(byte),
                (_, Some((left, right))) => open.extend([right, left]),
                _ => {}
            }
        }
        text
    }
}

fn bytes(text: &[u8]) -> Vec<u32> {
    text.iter().map(|byte| u32::from(*byte)).collect()
}

/// Replaces each `pair` by `token`, from left to right. `change` gets each pair of adjacent tokens that
/// becomes more or less frequent by 1 or -1.
fn merge(
    tokens: &[u32],
    pair: (u32, u32),
    token: u32,
    mut change: impl FnMut((u32, u32), isize),
) -> Vec<u32> {
    let mut merged: Vec<u32> = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while let [first, after @ ..] = rest {
        rest = after;
        let Some(second) = after.first().filter(|second| (*first, **second) == pair) else {
            merged.push(*first);
            continue;
        };
        rest = &after[1..];
        change(pair, -1);
        if let Some(before) = merged.last() {
            change((*before, *first), -1);
            change((*before, token), 1);
        }
        if let Some(next) = rest.first() {
            change((*second, *next), -1);
            change((token, *next), 1);
        }
        merged.push(token);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::text::HAMLET;

    #[test]
    fn the_commonest_pairs_become_tokens_and_every_text_comes_back() {
        let bpe = Bpe::learn(b"abababab abc", 258);
        assert_eq!(bpe.merges, [(97, 98), (256, 256)]);
        assert_eq!(bpe.encode(b"ababa"), [257, 97]);
        let play = HAMLET;
        let bpe = Bpe::learn(&play[..20_000], 300);
        assert_eq!(bpe.vocab(), 300);
        let tokens = bpe.encode(&play[20_000..40_000]);
        assert!(tokens.len() < 15_000, "{} tokens are hardly shorter", tokens.len());
        assert_eq!(bpe.decode(&tokens), &play[20_000..40_000]);
    }

    #[test]
    fn a_text_has_the_same_tokens_whole_and_in_pieces() {
        let text: Vec<u8> = HAMLET.iter().copied().cycle().take(3 * PIECE + 7).collect();
        for bpe in [Bpe::default(), Bpe::learn(&text[..20_000], 400)] {
            let pieces: Vec<u32> = text.chunks(PIECE).flat_map(|piece| bpe.encode(piece)).collect();
            assert_eq!(bpe.encode(&text), pieces);
            assert_eq!(bpe.decode(&pieces), text);
        }
    }

    /// Counts all pairs anew for each merge.
    fn learn_slowly(text: &[u8], vocab: usize) -> Bpe {
        let mut tokens = bytes(text);
        let mut bpe = Bpe::default();
        while bpe.vocab() < vocab {
            let mut counts: HashMap<(u32, u32), usize> = HashMap::new();
            for pair in tokens.windows(2) {
                *counts.entry((pair[0], pair[1])).or_default() += 1;
            }
            let common = counts.into_iter().max_by_key(|(pair, count)| (*count, Reverse(*pair)));
            let Some((pair, 2..)) = common else { break };
            tokens = merge(&tokens, pair, bpe.vocab() as u32, |_, _| ());
            bpe.merges.push(pair);
        }
        bpe
    }

    #[test]
    fn counts_that_are_kept_are_those_of_the_whole_text() {
        let play = HAMLET;
        assert_eq!(Bpe::learn(&play[..30_000], 500), learn_slowly(&play[..30_000], 500));
        for seed in 0..200u64 {
            let letters = 1 + seed % 4;
            let text: Vec<u8> =
                (0..3 * seed).map(|at| b'a' + (fingerprint([seed, at]) % letters) as u8).collect();
            assert_eq!(Bpe::learn(&text, 300), learn_slowly(&text, 300), "seed {seed}");
        }
    }

    /// With counts of the whole text for each merge this took a thousand times as long.
    #[test]
    fn a_large_vocabulary_is_learnt_in_seconds() {
        let play = HAMLET;
        let text: Vec<u8> = play.iter().copied().cycle().take(2 * LEARNT_FROM).collect();
        let begun = std::time::Instant::now();
        assert_eq!(Bpe::learn(&text, 600), Bpe::learn(&text[..LEARNT_FROM], 600));
        let took = begun.elapsed();
        assert!(took.as_secs() < 30, "{took:?}");
    }

    #[test]
    fn a_token_of_itself_is_refused() {
        let bpe = |merges: &str| serde_json::from_str::<Bpe>(merges).unwrap();
        assert_eq!(bpe("[[97,98],[256,256]]").check(), Ok(()));
        let why = bpe("[[97,98],[97,257]]").check().unwrap_err();
        assert_eq!(why, "token 257 is made of 97 and 257, which are not before it");
    }

    #[test]
    fn a_text_without_repetition_teaches_nothing() {
        assert_eq!(Bpe::learn(b"abc", 300).vocab(), 256);
        assert_eq!(Bpe::default().decode(&[104, 105, 999]), b"hi");
    }
}
