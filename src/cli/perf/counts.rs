//! Counts per rank: blocks of unequal lengths.
//!
//! The whole is cut into shares of equal length, and each rank's block has some of them. So rows of
//! equal size differ only in how their bytes lie on ranks.

use anyhow::{Result, ensure};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How many shares each rank's block has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CountRule {
    /// Rank r has r + 1.
    Linear,
    Listed(Vec<usize>),
}

impl CountRule {
    /// The shares of each of `world` ranks.
    ///
    /// # Errors
    ///
    /// If there are not as many listed as ranks, or if no rank has a share.
    pub(crate) fn shares(&self, world: usize) -> Result<Arc<[usize]>> {
        let shares = match self {
            Self::Linear => (1..=world).collect(),
            Self::Listed(shares) => shares.clone(),
        };
        ensure!(
            shares.len() == world,
            "--counts {self}: these are {} counts, and there are {world} ranks",
            shares.len()
        );
        let sum = shares.iter().try_fold(0usize, |sum, share| sum.checked_add(*share));
        ensure!(
            sum.is_some_and(|sum| (1..=usize::from(u16::MAX) * world).contains(&sum)),
            "--counts {self}: counts are shares of the whole, of which there are one or more, and \
             at most 65535 a rank"
        );
        Ok(shares.into())
    }
}

impl fmt::Display for CountRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linear => f.write_str("linear"),
            Self::Listed(shares) => f.write_str(&listed(shares)),
        }
    }
}

impl FromStr for CountRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "linear" {
            return Ok(Self::Linear);
        }
        let shares = text.split([':', ',']).map(str::parse).collect::<Result<_, _>>();
        shares.map(Self::Listed).map_err(|_| {
            format!(
                "{text:?} is neither linear nor a list of one count for each rank, such as 1:2:0:5"
            )
        })
    }
}

/// The shares as they are written on the command line.
pub(crate) fn listed(shares: &[usize]) -> String {
    shares.iter().map(ToString::to_string).collect::<Vec<_>>().join(":")
}

/// The line above the table.
pub(crate) fn describe(rule: &CountRule, shares: &[usize]) -> String {
    let shares = listed(shares);
    format!(
        "# blocks have {shares} shares (--counts {rule}); count is that of a share, and busbw \
         has the factor of\n#        equal blocks"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(text: &str, world: usize) -> Vec<usize> {
        text.parse::<CountRule>().unwrap().shares(world).unwrap().to_vec()
    }

    #[test]
    fn rules_give_every_rank_a_number_of_shares() {
        assert_eq!(shares("linear", 4), [1, 2, 3, 4]);
        assert_eq!(shares("2:0:1", 3), [2, 0, 1]);
        assert_eq!(shares("2,0,1", 3), [2, 0, 1]);
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in ["linear", "1:0:3"] {
            assert_eq!(text.parse::<CountRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_gives_no_counts_is_refused() {
        for text in ["", "even", "1:", "-1", "1:2:x"] {
            assert!(text.parse::<CountRule>().unwrap_err().contains("neither linear"), "{text}");
        }
        for (text, says) in [
            ("1:2", "2 counts, and there are 3 ranks"),
            ("0:0:0", "one or more"),
            ("18446744073709551615:1:1", "at most 65535"),
        ] {
            let error = text.parse::<CountRule>().unwrap().shares(3).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
