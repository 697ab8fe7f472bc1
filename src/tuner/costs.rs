//! The costs of messages and bytes on a machine, in integers, and the text form of the table.

use super::Network;
use crate::schedule::simulate::LinkCost;
use maypole_transports::board::SlotClass;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The costs of one kind of link, as the literature counts them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Costs {
    /// Picoseconds from the start of a send to the end of its receive, for the shortest message.
    pub alpha: u64,
    /// Picoseconds a KiB, to send and to receive it.
    pub beta: u64,
    /// Picoseconds a KiB, to combine it rather than only receive it.
    pub gamma: u64,
}

/// The costs of a machine. Measured by `maypole tune`, or [built in](Self::BUILT_IN).
///
/// Printed, it is JSON.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct CostTable {
    /// Messages over a board that fit in the line of their header.
    pub tiny: Costs,
    /// Messages in a board's small slots.
    pub small: Costs,
    /// Messages in a board's large slots.
    pub chunk: Costs,
    /// Messages over TCP.
    pub tcp: Costs,
    /// Private memory that the kernel copies from process to process. `alpha` is the system call
    /// with the check after it. Nothing is combined, so `gamma` does not count.
    pub copy: Costs,
    /// Messages over InfiniBand or RoCE.
    pub verbs: Costs,
    /// Picoseconds for a core to change to another rank, where ranks outnumber cores.
    pub switch: u64,
    /// Picoseconds by which a message over TCP is noticed later where ranks outnumber cores.
    pub wake: u64,
    /// The network between the hosts of the ranks.
    pub network: Network,
}

/// The parts of `alpha` and `beta`, in hundredths, that occupy the sender's core and the
/// receiver's; during the rest of `alpha` the message is in flight. `look` is the cost of polling
/// one more link.
struct Shares {
    post: u64,
    take: u64,
    look: u64,
    post_kib: u64,
}

/// About half of `alpha` passes while a flag travels to another core.
const BOARD: Shares = Shares { post: 30, take: 22, look: 0, post_kib: 46 };
/// Most of `alpha` is spent in system calls.
const TCP: Shares = Shares { post: 42, take: 33, look: 4, post_kib: 50 };

/// The factor by which system calls take longer on crowded cores.
const COLD: (u64, u64) = (5, 2);

impl CostTable {
    /// The costs of a small virtual machine: two cores of a server of 2024 (AMD EPYC, Zen 5), and
    /// TCP over loopback. Those of verbs were not measured: 2 us and 12.5 GB/s are makers' figures
    /// for adapters of 100 Gbit/s, and each end also copies a byte once.
    pub const BUILT_IN: Self = Self {
        tiny: Costs { alpha: 100_000, beta: 90_000, gamma: 3_000 },
        small: Costs { alpha: 250_000, beta: 33_000, gamma: 6_000 },
        chunk: Costs { alpha: 350_000, beta: 28_000, gamma: 8_000 },
        tcp: Costs { alpha: 4_500_000, beta: 85_000, gamma: 80_000 },
        copy: Costs { alpha: 700_000, beta: 22_000, gamma: 0 },
        verbs: Costs { alpha: 2_000_000, beta: 140_000, gamma: 30_000 },
        switch: 1_200_000,
        wake: 5_000_000,
        network: Network { hop: 0, wire: 0, machines: 0 },
    };

    /// The costs of a link by shared memory, for messages of `bytes` bytes, where `crowding` ranks
    /// share a core: a message waits until its receiver runs.
    pub fn board(&self, bytes: usize, crowding: usize) -> LinkCost {
        let mut link = self.of_slot(bytes).shared(&BOARD);
        link.latency += self.switch * (crowding.max(1) - 1) as u64;
        link
    }

    fn of_slot(&self, bytes: usize) -> Costs {
        match SlotClass::holding(bytes) {
            Some(SlotClass::Tiny) => self.tiny,
            Some(SlotClass::Short | SlotClass::Small) => self.small,
            Some(SlotClass::Chunk) | None => self.chunk,
        }
    }

    /// Checks that a message over a board does not cost much less than a shorter one does. No machine
    /// has such costs; they are measured if ranks wait for a core meanwhile.
    ///
    /// ```
    /// use maypole::tuner::{CostTable, Costs};
    /// assert_eq!(CostTable::BUILT_IN.check(), Ok(()));
    /// let tiny = Costs { alpha: 57_800_000, beta: 0, gamma: 0 };
    /// let error = CostTable { tiny, ..CostTable::BUILT_IN }.check().unwrap_err();
    /// assert!(error.to_string().contains("a message of 48 bytes costs 57.8 us"));
    /// ```
    ///
    /// # Errors
    /// The two messages, and their costs.
    pub fn check(&self) -> Result<(), TableError> {
        const SIZES: [usize; 4] = [48, 256, 16 << 10, 32 << 10];
        let cost = |bytes: usize| {
            let Costs { alpha, beta, .. } = self.of_slot(bytes);
            alpha + beta * bytes as u64 / 1024
        };
        for (short, long) in SIZES.into_iter().zip(SIZES.into_iter().skip(1)) {
            let costs = [cost(short), cost(long)];
            if costs[1] * 3 < costs[0] * 2 {
                let [dear, cheap] = costs.map(|picoseconds| picoseconds as f64 / 1e6);
                return Err(TableError(format!(
                    "a message of {short} bytes costs {dear} us and one of {long} bytes only \
                     {cheap} us"
                )));
            }
        }
        Ok(())
    }

    /// The costs of a link by registered memory: a line signals that bytes are ready, and they are
    /// read directly. So a byte is moved once, and its owner does nothing.
    pub fn registered(&self, crowding: usize) -> LinkCost {
        let bytes = self.board(usize::MAX, crowding);
        let line = self.board(0, crowding);
        LinkCost { post_kib: 0, copy_kib: bytes.copy_kib, fold_kib: bytes.fold_kib, ..line }
    }

    /// The costs of a link by copies of the kernel from process to process. Each message takes a
    /// system call. The reader alone moves every byte; through slots, two ranks share that work.
    pub fn copied(&self, crowding: usize) -> LinkCost {
        let Costs { alpha, beta, .. } = self.copy;
        let line = self.registered(crowding);
        LinkCost { take: line.take + alpha, copy_kib: beta, fold_kib: beta, ..line }
    }

    /// The costs of a link by TCP, where `crowding` ranks share a core: with several ranks, every
    /// system call has cold caches, and waiting ranks keep calling.
    pub fn stream(&self, crowding: usize) -> LinkCost {
        let mut link = self.tcp.shared(&TCP);
        link.latency += self.network.hop;
        if crowding > 1 {
            link.latency += self.wake;
            for cost in [&mut link.post, &mut link.take, &mut link.look] {
                *cost = *cost * COLD.0 / COLD.1;
            }
        }
        link
    }

    /// The costs of ranks whose streams go over InfiniBand or RoCE: those of verbs replace those of
    /// TCP, and no message is delayed by a missed wake-up.
    #[must_use]
    pub fn with_streams_by_verbs(self) -> Self {
        Self { tcp: self.verbs, wake: 0, network: Network::default(), ..self }
    }
}

impl Costs {
    fn shared(self, shares: &Shares) -> LinkCost {
        let of = |whole: u64, hundredths: u64| whole * hundredths / 100;
        let post = of(self.alpha, shares.post);
        let take = of(self.alpha, shares.take);
        let post_kib = of(self.beta, shares.post_kib);
        LinkCost {
            post,
            latency: self.alpha - post - take,
            take,
            look: of(self.alpha, shares.look),
            post_kib,
            copy_kib: self.beta - post_kib,
            fold_kib: self.beta - post_kib + self.gamma,
        }
    }
}

/// The greatest cost that a table may state, in picoseconds: a tenth of a second. The limit keeps
/// sums from overflowing.
const MOST: u64 = 100_000_000_000;
/// The greatest length of a table in bytes.
pub(crate) const LONGEST: usize = 4096;

impl fmt::Display for CostTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string_pretty(self).expect("numbers can always be written"))
    }
}

/// Why a text or a file is no table of costs, or why a table has no file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct TableError(pub(super) String);

impl FromStr for CostTable {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        if text.len() > LONGEST {
            return Err(TableError(format!("it is longer than {LONGEST} bytes")));
        }
        let table: Self = serde_json::from_str(text)
            .map_err(|error| TableError(format!("it is no table of costs: {error}")))?;
        let Self { tiny, small, chunk, tcp, copy, verbs, switch, wake, network } = table;
        let links = [tiny, small, chunk, tcp, copy, verbs];
        let links = links.map(|Costs { alpha, beta, gamma }| [alpha, beta, gamma]);
        let others = [switch, wake, network.hop, network.wire];
        let is_great = links.as_flattened().iter().chain(&others).any(|cost| *cost > MOST);
        match is_great {
            true => Err(TableError(format!("one of its costs is greater than {MOST} picoseconds"))),
            false => Ok(table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn costs() -> impl Strategy<Value = Costs> {
        let cost = || 0..=MOST;
        (cost(), cost(), cost()).prop_map(|(alpha, beta, gamma)| Costs { alpha, beta, gamma })
    }

    proptest! {
        #[test]
        fn tables_are_read_back(
            rows in proptest::array::uniform6(costs()),
            others in proptest::array::uniform4(0..=MOST),
        ) {
            let [tiny, small, chunk, tcp, copy, verbs] = rows;
            let [switch, wake, hop, wire] = others;
            let network = Network { hop, wire, machines: 0 };
            let table = CostTable { tiny, small, chunk, tcp, copy, verbs, switch, wake, network };
            prop_assert_eq!(table.to_string().parse(), Ok(table));
        }

        #[test]
        fn no_text_makes_the_reader_panic(
            text in ".*",
            cut in 0usize..200,
            at in 0usize..200,
            byte in any::<u8>(),
        ) {
            let _ = text.parse::<CostTable>();
            let mut bytes = CostTable::BUILT_IN.to_string().into_bytes();
            let len = bytes.len();
            bytes[at % len] = byte;
            bytes.truncate(cut);
            let _ = String::from_utf8_lossy(&bytes).parse::<CostTable>();
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let text = CostTable::BUILT_IN.to_string();
        let error = |text: &str| text.parse::<CostTable>().unwrap_err().to_string();
        assert!(error("maypole costs 2").contains("line 1"));
        assert!(error(&text.replace("tcp", "tcq")).contains("missing field `tcp`"));
        let great = CostTable { wake: MOST + 1, ..CostTable::BUILT_IN };
        assert!(error(&great.to_string()).contains("greater than"));
    }
}
