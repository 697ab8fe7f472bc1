//! Where buffers begin within a page of memory.

use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Bytes past a page boundary at which buffers begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BufferOffset {
    /// As many for each buffer, on all ranks.
    Fixed(usize),
    /// Others for each buffer of each rank, the same in every run.
    Random,
}

impl BufferOffset {
    /// Where the buffer with the number `nth` of `rank` begins: at a multiple of `size`, which divides a page.
    pub(crate) fn of(self, rank: usize, nth: usize, size: usize) -> usize {
        match self {
            Self::Fixed(offset) => offset,
            Self::Random => {
                let random = maypole_kernels::mix((rank as u64) << 32 | nth as u64) as usize;
                random % PAGE / size * size
            }
        }
    }

    /// The most bytes.
    pub(crate) fn most(self) -> usize {
        match self {
            Self::Fixed(offset) => offset,
            Self::Random => PAGE,
        }
    }

    pub(crate) fn json(self) -> Value {
        match self {
            Self::Fixed(offset) => json!(offset),
            Self::Random => json!("random"),
        }
    }
}

impl FromStr for BufferOffset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(Self::Random),
            _ => text.parse().map(Self::Fixed).map_err(|_| {
                format!("'{text}' is neither a number of bytes below {PAGE} nor random")
            }),
        }
    }
}

impl fmt::Display for BufferOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(offset) => offset.fmt(f),
            Self::Random => f.pad("random"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_offsets_differ_from_rank_to_rank_and_from_buffer_to_buffer() {
        let of = |rank, nth| BufferOffset::Random.of(rank, nth, 8);
        let all: Vec<usize> =
            (0..4).flat_map(|rank| (0..3).map(move |nth| of(rank, nth))).collect();
        assert!(all.iter().all(|offset| *offset < PAGE && offset.is_multiple_of(8)));
        let mut different = all.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 10, "{all:?}");
        assert_eq!(all[4], of(1, 1), "the same in every run");
    }

    #[test]
    fn an_offset_is_a_number_or_random() {
        assert_eq!("16".parse(), Ok(BufferOffset::Fixed(16)));
        assert_eq!("random".parse(), Ok(BufferOffset::Random));
        assert!("-1".parse::<BufferOffset>().unwrap_err().contains("nor random"));
    }
}
