//! Where the mailboxes of a group are: in the memory of its GPUs, or in memory of their host.

use super::links::Introduction;

/// The variable by which a program or a user decides.
const VARIABLE: &str = "MAYPOLE_CUDA_MAILBOXES";

/// Where the mailboxes of a group are, equal on all ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MailboxPlace {
    /// In the memory of each rank's GPU, which all others reach.
    Gpus,
    /// In memory of the host, because some GPUs do not reach one another.
    Host,
}

/// What [`VARIABLE`] says on a rank. A later one overrules an earlier one that another rank has.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum WantedPlace {
    /// The GPUs, or the host where they do not reach one another.
    Auto,
    /// The GPUs, or none.
    Peer,
    /// The host.
    Host,
}

impl WantedPlace {
    const ALL: [Self; 3] = [Self::Auto, Self::Peer, Self::Host];

    /// What this process wants.
    pub(super) fn read() -> Result<Self, String> {
        Self::of(&std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy())
    }

    fn of(value: &str) -> Result<Self, String> {
        match value {
            "" | "auto" => Ok(Self::Auto),
            "peer" => Ok(Self::Peer),
            "host" => Ok(Self::Host),
            _ => Err(format!("{VARIABLE}: '{value}' is none of auto, peer and host")),
        }
    }

    /// What counts for the group of `all`.
    pub(super) fn of_group(all: &[Introduction]) -> Self {
        let is_wanted = |place: &&Self| all.iter().any(|one| one.wanted == **place as u32);
        *Self::ALL.iter().rev().find(is_wanted).unwrap_or(&Self::Auto)
    }

    /// Why mailboxes are not on GPUs, if that is wanted.
    pub(super) fn host_reason(self) -> Option<String> {
        (self == Self::Host).then(|| format!("{VARIABLE}=host"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_of_three() {
        for (value, place) in [
            ("", WantedPlace::Auto),
            ("auto", WantedPlace::Auto),
            ("peer", WantedPlace::Peer),
            ("host", WantedPlace::Host),
        ] {
            assert_eq!(WantedPlace::of(value), Ok(place));
        }
        let why = WantedPlace::of("gpu").unwrap_err();
        assert_eq!(why, "MAYPOLE_CUDA_MAILBOXES: 'gpu' is none of auto, peer and host");
    }
}
