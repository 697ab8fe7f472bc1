//! Messages between two ranks: latency, bandwidth, and the matrix of all pairs.
//!
//! In reading order: this page lists the tests, [`settings`] reads the options, [`work`] makes the
//! messages (those between GPUs are in `device`), [`rounds`] has the order of the pairs,
//! [`measure`] leads one rank through all of them, [`matrix`] holds the figures of all pairs,
//! [`verdict`] names the slow links and the odd ranks, and [`row`] writes a result.

#[cfg(feature = "cuda")]
mod device;
pub(crate) mod matrix;
pub(crate) mod measure;
pub(crate) mod rounds;
pub(crate) mod row;
mod settings;
pub(crate) mod verdict;
pub(crate) mod work;

/// Messages in flight.
const WINDOW: usize = 64;
/// The most bytes of a window: it has fewer messages where they are long, but at least one.
const WINDOW_BYTES: usize = 64 << 20;

/// What is measured between ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MessageTest {
    /// A message there and one back.
    Latency,
    /// Windows of messages from one rank to the other.
    Bandwidth,
    /// Windows of messages in both directions at once.
    Bidirectional,
    /// Every rank sends to the next one and receives from the one before.
    SendRecv,
    /// Every rank sends to both neighbours and receives from both.
    Exchange,
}

/// The messages to measure over each transport.
#[derive(Clone, Debug)]
pub(crate) struct MessageBenchmark {
    pub(crate) tests: Vec<MessageTest>,
    /// Bytes of a message.
    pub(crate) sizes: Vec<usize>,
    /// Each pair alone, instead of pairs that send at the same time.
    pub(crate) all_pairs: bool,
    /// Bytes past a page boundary at which every buffer begins.
    pub(crate) offset: usize,
}

impl MessageTest {
    pub(crate) const ALL: [Self; 5] =
        [Self::Latency, Self::Bandwidth, Self::Bidirectional, Self::SendRecv, Self::Exchange];
    /// The tests of two ranks, which `p2p` stands for.
    pub(crate) const PAIRS: [Self; 3] = [Self::Latency, Self::Bandwidth, Self::Bidirectional];

    /// The name on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Bidirectional => "bidirectional",
            Self::SendRecv => "sendrecv",
            Self::Exchange => "exchange",
        }
    }

    /// True for tests of two ranks, false for those of a ring of all ranks.
    pub(crate) fn is_of_pairs(self) -> bool {
        Self::PAIRS.contains(&self)
    }

    /// True if both ranks of a pair do the same, so that the pair has one figure.
    pub(crate) fn is_symmetric(self) -> bool {
        self != Self::Bandwidth
    }

    /// Messages of `bytes` bytes that a rank sends before it waits for them.
    pub(crate) fn window(self, bytes: usize) -> usize {
        match self {
            Self::Bandwidth | Self::Bidirectional => (WINDOW_BYTES / bytes).clamp(1, WINDOW),
            _ => 1,
        }
    }

    /// The divisor of the time of a call: half a round trip, or one message of a window.
    pub(crate) fn parts(self, bytes: usize) -> f64 {
        match self {
            Self::Latency => 2.0,
            _ => self.window(bytes) as f64,
        }
    }

    /// Messages that all ranks together send in the time of a row.
    pub(crate) fn messages(self, pairs: usize, world: usize) -> f64 {
        let messages = match self {
            Self::Latency | Self::Bandwidth => pairs,
            Self::Bidirectional => 2 * pairs,
            Self::SendRecv => world,
            Self::Exchange => 2 * world,
        };
        messages as f64
    }

    /// What the column "time" is, for the lines below the table.
    pub(crate) fn definition(self) -> &'static str {
        match self {
            Self::Latency => "half a round trip of one message",
            Self::Bandwidth => "until a window is confirmed, divided by its messages",
            Self::Bidirectional => {
                "until a window each way is received, divided by the messages of one way"
            }
            Self::SendRecv => "every rank sends one message to the next rank of a ring",
            Self::Exchange => "every rank sends one message to each of its two neighbours",
        }
    }
}

impl MessageBenchmark {
    /// The most bytes that the buffers of a rank take.
    pub(crate) fn bytes_of_rank(&self) -> u128 {
        let of = |test: MessageTest, bytes: usize| {
            let sides = if test == MessageTest::Exchange { 2 } else { 1 };
            bytes as u128 * test.window(bytes) as u128 * (1 + 2 * sides)
        };
        let tests = self.tests.iter();
        tests.flat_map(|test| self.sizes.iter().map(|bytes| of(*test, *bytes))).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_64_messages_and_a_limit() {
        assert_eq!(MessageTest::Bandwidth.window(1), 64);
        assert_eq!(MessageTest::Bandwidth.window(1 << 20), 64);
        assert_eq!(MessageTest::Bidirectional.window(4 << 20), 16);
        assert_eq!(MessageTest::Bandwidth.window(1 << 30), 1);
        assert_eq!(MessageTest::Latency.window(8), 1);
    }

    #[test]
    fn times_are_those_of_one_message() {
        assert_eq!(MessageTest::Latency.parts(8), 2.0);
        assert_eq!(MessageTest::Bandwidth.parts(8), 64.0);
        assert_eq!(MessageTest::Bidirectional.messages(3, 6), 6.0);
        assert_eq!(MessageTest::Exchange.messages(0, 6), 12.0);
    }
}
