//! A hash of one word, for fingerprints and for numbers that look random but follow from their
//! arguments.

/// Mixes the bits of `word`: the finishing steps of SplitMix64 (Steele, Lea and Flood, 2014).
///
/// Every bit of the word changes about half of the bits of the result. Different words have
/// different results. Not for secrets.
///
/// ```
/// use maypole_kernels::mix;
/// assert_eq!(mix(0), 0);
/// assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
/// ```
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
