//! Byte-pair encoding: a vocabulary of common strings, learnt from a text (Gage 1994; Sennrich et
//! al. 2016).
//!
//! Start with bytes. Count which two tokens stand side by side most often, make one token of them,
//! and begin again, until there are as many tokens as wanted. A larger vocabulary needs
//! fewer tokens for a text, and a larger table: then splitting the table over ranks saves more.

use crate::tensor::random::fingerprint;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A learnt vocabulary: the 256 bytes, then one token for each merge.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Bpe {
    /// The two tokens that token 256, 257 and so on are made of.
    merges: Vec<(u32, u32)>,
}

impl Bpe {
    /// Learns up to `vocab` tokens from `text`; fewer if no pair of tokens is left that occurs
    /// twice.
    pub fn learn(text: &[u8], vocab: usize) -> Self {
        let mut tokens = bytes(text);
        let mut bpe = Self::default();
        while bpe.vocab() < vocab {
            let mut counts: HashMap<(u32, u32), usize> = HashMap::new();
            for pair in tokens.windows(2) {
                *counts.entry((pair[0], pair[1])).or_default() += 1;
            }
            // Of pairs that are equally common the one with the lowest numbers, so that every run
            // learns the same.
            let common =
                counts.into_iter().max_by_key(|(pair, count)| (*count, std::cmp::Reverse(*pair)));
            let Some((pair, 2..)) = common else { break };
            tokens = merge(&tokens, pair, bpe.vocab() as u32);
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

    /// The text as tokens: merges in the order in which they were learnt.
    pub fn encode(&self, text: &[u8]) -> Vec<u32> {
        let merges = (256..).zip(&self.merges);
        merges.fold(bytes(text), |tokens, (token, pair)| merge(&tokens, *pair, token))
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

/// Every `pair`, from the left, becomes `token`.
fn merge(tokens: &[u32], pair: (u32, u32), token: u32) -> Vec<u32> {
    let mut merged = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while let [first, after @ ..] = rest {
        if after.first().is_some_and(|second| (*first, *second) == pair) {
            merged.push(token);
            rest = &after[1..];
        } else {
            merged.push(*first);
            rest = after;
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_pairs_become_tokens_and_every_text_comes_back() {
        let bpe = Bpe::learn(b"abababab abc", 258);
        assert_eq!(bpe.merges, [(97, 98), (256, 256)]);
        assert_eq!(bpe.encode(b"ababa"), [257, 97]);
        let play = include_bytes!("../../text/hamlet.txt");
        let bpe = Bpe::learn(&play[..20_000], 300);
        assert_eq!(bpe.vocab(), 300);
        let tokens = bpe.encode(&play[20_000..40_000]);
        assert!(tokens.len() < 15_000, "{} tokens are hardly shorter", tokens.len());
        assert_eq!(bpe.decode(&tokens), &play[20_000..40_000]);
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
