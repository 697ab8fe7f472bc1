//! Random numbers by position: number `index` of stream `seed`, with no state.
//!
//! A generator with a state gives what the calls before it left. Then rank 1 of a mesh, which draws
//! only its own slice of the weights, draws other numbers than a single process would, and the two
//! train different models: nothing can be compared. A number by position is the same on every rank.

use maypole_kernels::mix;

/// The `index`-th of the numbers that belong to `seed`: all 64 bits are equally good.
///
/// The finishing steps of SplitMix64 (Steele, Lea, Flood 2014), twice, so that neither argument is
/// favoured.
pub fn random(seed: u64, index: u64) -> u64 {
    mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ index.wrapping_mul(0xd129_42f1_f293_e1d3))
}

/// A number that stands for `numbers` in their order: others have another one, but for a chance of
/// 2^-64.
pub fn fingerprint(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, random)
}

/// Between 0 and 1, never 1.
pub fn uniform(seed: u64, index: u64) -> f64 {
    (random(seed, index) >> 11) as f64 / (1u64 << 53) as f64
}

/// Mean 0 and standard deviation 1, evenly between the two ends.
pub fn centred(seed: u64, index: u64) -> f64 {
    (uniform(seed, index) - 0.5) * 12f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checkpoints, and the comparison with PyTorch, rely on these numbers staying what they are.
    #[test]
    fn numbers_are_what_they_were() {
        let first = [0, 1, 2].map(|index| random(1, index));
        assert_eq!(first, [0xdce4_23fc_82c0_d5b8, 0x9c85_709c_1b62_c390, 0x0584_da02_c705_5b4c]);
    }

    #[test]
    fn streams_are_centred_and_unlike() {
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
            assert!((product / n as f64).abs() < 0.03, "seeds {seed} and {} go together", seed ^ 7);
        }
    }
}
