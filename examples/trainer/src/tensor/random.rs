//! Random numbers by position: number `index` of stream `seed`, with no state.
//!
//! The numbers of a generator with a state depend on the calls before. Rank 1 of a mesh draws only
//! its own slice of the weights, so it would draw other numbers than a single process, and the two
//! models could not be compared. A number by position is the same on every rank.

use maypole_kernels::mix;

/// Returns number `index` of the stream `seed`: all 64 bits are equally random.
///
/// It applies the finishing steps of SplitMix64 (Steele, Lea, Flood 2014) twice, so that both
/// arguments are mixed equally well.
pub fn random(seed: u64, index: u64) -> u64 {
    mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ index.wrapping_mul(0xd129_42f1_f293_e1d3))
}

/// A use of random numbers. Each use of a seed has a stream of its own: with one stream, row `i` of a
/// batch would begin at a place that is a function of weight `i`.
#[derive(Clone, Copy, Debug)]
pub enum RandomUse {
    /// The initial weights.
    Weights = 1,
    /// The places of rows in a text.
    Rows = 2,
    /// The tokens of a sample.
    Sample = 3,
}

impl RandomUse {
    /// The stream of this use.
    pub fn stream(self, seed: u64) -> u64 {
        random(seed, self as u64)
    }
}

/// Returns a hash of `numbers` in their order. Two different sequences have the same hash with a
/// probability of about 2^-64.
pub fn fingerprint(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, random)
}

/// Returns number `index` of the stream `seed` as a uniform number of at least 0 and less than 1.
pub fn uniform(seed: u64, index: u64) -> f64 {
    (random(seed, index) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns number `index` of the stream `seed` as a uniform number with mean 0 and standard
/// deviation 1.
pub fn centred(seed: u64, index: u64) -> f64 {
    (uniform(seed, index) - 0.5) * 12f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Checkpoints, and the comparison with PyTorch, need these numbers unchanged.
    #[test]
    fn numbers_are_those_of_earlier_versions() {
        let first = [0, 1, 2].map(|index| random(1, index));
        assert_eq!(first, [0xdce4_23fc_82c0_d5b8, 0x9c85_709c_1b62_c390, 0x0584_da02_c705_5b4c]);
    }

    #[test]
    fn no_two_uses_of_a_seed_have_a_number_in_common() {
        for seed in [0, 1, 7, u64::MAX] {
            let uses = [RandomUse::Weights, RandomUse::Rows, RandomUse::Sample];
            let streams = uses.map(|it| it.stream(seed)).into_iter().chain([seed]);
            let numbers = streams.flat_map(|stream| (0..5_000).map(move |at| random(stream, at)));
            assert_eq!(numbers.collect::<HashSet<u64>>().len(), 20_000, "seed {seed}");
        }
    }

    #[test]
    fn streams_are_centred_and_uncorrelated() {
        let n = 20_000;
        for seed in [0, 1, u64::MAX] {
            let draws: Vec<f64> = (0..n).map(|i| centred(seed, i)).collect();
            let mean = draws.iter().sum::<f64>() / n as f64;
            let square = draws.iter().map(|x| x * x).sum::<f64>() / n as f64;
            assert!(
                mean.abs() < 0.03 && (square - 1.0).abs() < 0.03,
                "seed {seed}: {mean}, {square}"
            );
            let product =
                draws.iter().enumerate().map(|(i, x)| x * centred(seed ^ 7, i as u64)).sum::<f64>();
            assert!(
                (product / n as f64).abs() < 0.03,
                "seeds {seed} and {} are correlated",
                seed ^ 7
            );
        }
    }
}
