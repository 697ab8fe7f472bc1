//! The plan of a round: pure data, equal in every process, printed when the round fails.

use maypole::schedule::collective::Collective;
use maypole::{DataType, ReduceOp};
use std::time::Duration;

/// The disturbance of a round. Rounds of the first classes have no error in their ranks' steps, so
/// nothing in them may fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Class {
    /// Calls, messages, groups, late streams that are still in time.
    Calm,
    /// Two groups on a GPU with few multiprocessors.
    Crowded,
    /// Groups that each rank drops at its own time, while other groups continue.
    Drops,
    /// Short-lived groups concurrent with calls of others, also while the program captures; threads
    /// that have several ranks.
    Company,
    /// Ranks that pretend to be on several hosts.
    Hosts,
    /// Graphs that are replayed between calls, and after their group was dropped.
    Graphs,
    /// Graphs and calls of one group that may run at the same time.
    Overlap,
    /// A stream that comes later than the others' patience.
    Late,
    /// A rank that leaves in the middle.
    Leave,
    /// A rank that aborts the communicator.
    Abort,
    /// A rank that makes another call than the others.
    Mismatch,
    /// A process that is killed.
    Kill,
    /// A function of the driver, or a kernel, that fails.
    Fault,
    /// A call that cannot be captured, in a group that is dropped during a capture.
    Uncaptured,
}

impl Class {
    pub(crate) const ALL: [Self; 14] = [
        Self::Calm,
        Self::Crowded,
        Self::Drops,
        Self::Company,
        Self::Hosts,
        Self::Graphs,
        Self::Overlap,
        Self::Late,
        Self::Leave,
        Self::Abort,
        Self::Mismatch,
        Self::Kill,
        Self::Fault,
        Self::Uncaptured,
    ];

    /// The name in `TEST_CLASSES`.
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// True if calls may fail.
    pub(crate) fn is_disturbed(self) -> bool {
        use Class::{Calm, Company, Crowded, Drops, Graphs, Hosts};
        !matches!(self, Calm | Crowded | Drops | Company | Hosts | Graphs)
    }
}

/// How the ranks of a world are spread over processes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Layout {
    /// Threads of one process, which no control plane joins.
    Threads,
    /// The ranks of each process.
    Processes(Vec<Vec<usize>>),
}

/// The variables of the fake driver.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) devices: usize,
    pub(crate) processors: usize,
    pub(crate) threads: usize,
    /// Microseconds before each piece of work of a stream.
    pub(crate) delay: usize,
    pub(crate) has_peers: bool,
    /// Where mailboxes are: the variable's value.
    pub(crate) mailboxes: &'static str,
    /// A call that fails, as `FAKE_CUDA_FAIL` has it, and the rank in whose process.
    pub(crate) fails: Option<(usize, String)>,
}

/// The operation of the members of a group. Ranks are those of the group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Collective {
        collective: Collective,
        op: ReduceOp,
        in_place: bool,
    },
    /// Every rank sends to the rank `shift` after it.
    Ring {
        shift: usize,
    },
    /// One message.
    Pair {
        from: usize,
        to: usize,
    },
}

impl What {
    pub(crate) fn is_barrier(self) -> bool {
        matches!(self, Self::Collective { collective: Collective::Barrier, .. })
    }

    /// True if this rank of the group has a part in the call.
    pub(crate) fn needs(self, rank: usize) -> bool {
        match self {
            Self::Collective { .. } | Self::Ring { .. } => true,
            Self::Pair { from, to } => rank == from || rank == to,
        }
    }

    /// Of rank `me` of `world`: the sender of its received message, and the receiver of its sent message.
    pub(crate) fn peers(self, me: usize, world: usize) -> (Option<usize>, Option<usize>) {
        match self {
            Self::Collective { .. } => (None, None),
            Self::Ring { shift } => {
                (Some((me + world - shift) % world), Some((me + shift) % world))
            }
            Self::Pair { from, to } => ((me == to).then_some(from), (me == from).then_some(to)),
        }
    }

    /// True if a `cuda::Group` has this call.
    pub(crate) fn is_groupable(self) -> bool {
        use Collective as C;
        match self {
            Self::Ring { .. } | Self::Pair { .. } => true,
            Self::Collective { collective, in_place, .. } => match collective {
                C::AllReduce | C::Broadcast { .. } | C::Reduce { .. } => true,
                C::AllGather | C::ReduceScatter => !in_place,
                _ => false,
            },
        }
    }
}

/// A call, with all that its results follow from.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) group: usize,
    pub(crate) what: What,
    pub(crate) kind: DataType,
    /// Elements of the vector, of a rank's block, or of a message.
    pub(crate) count: usize,
    /// Of the numbers.
    pub(crate) seed: u64,
    /// How often a graph repeats it; 0 if no graph has it.
    pub(crate) replays: usize,
}

/// The next step of one rank. Numbers are those of groups, calls and graphs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Call(usize),
    /// Starts calls in one `cuda::Group`, which is ended, or dropped.
    Batch {
        calls: Vec<usize>,
        ends: bool,
    },
    /// Captures calls on the group's stream, or on a second one which that stream joins.
    Capture {
        graph: usize,
        calls: Vec<usize>,
        beside: bool,
    },
    /// Captures a call that was never made, in a `cuda::Group` that is dropped.
    CaptureNew {
        graph: usize,
        call: usize,
    },
    /// Launches a graph. A second stream waits for the group's, and the group's for it, unless they
    /// may overlap.
    Replay {
        graph: usize,
        nth: usize,
        overlaps: bool,
    },
    /// Launches a graph whose group is gone.
    ReplayStale(usize),
    /// Waits for the work of a group, and compares its results.
    Sync {
        group: usize,
        checks: bool,
    },
    /// Delays the stream of a group.
    Hold {
        group: usize,
        millis: u64,
    },
    /// The host does something else.
    Pause {
        millis: u64,
    },
    /// An all-reduce of the world, on the host.
    World,
    /// Makes a group of all ranks, calls it, and leaves it. Meanwhile the program may capture in global mode.
    Visit {
        captures: bool,
    },
    /// One thread has all ranks of a group of its own.
    OneThread {
        ranks: usize,
    },
    Drop(usize),
    Abort,
    /// Kills this rank's process.
    Kill,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) class: Class,
    pub(crate) world: usize,
    pub(crate) layout: Layout,
    /// By rank: its host.
    pub(crate) hosts: Vec<usize>,
    pub(crate) driver: Driver,
    /// True if cudarc records no events, which graphs need.
    pub(crate) quiet: bool,
    /// How long a call waits for another rank.
    pub(crate) patience: Duration,
    /// True if a rank continues after an error.
    pub(crate) goes_on: bool,
    /// A call that a rank does not make as the others do, as a sentence.
    pub(crate) mismatch: Option<String>,
    pub(crate) groups: Vec<Vec<usize>>,
    pub(crate) calls: Vec<Call>,
    /// By rank.
    pub(crate) steps: Vec<Vec<Step>>,
}

impl Plan {
    /// The processes, each by its ranks.
    pub(crate) fn processes(&self) -> Vec<Vec<usize>> {
        match &self.layout {
            Layout::Threads => vec![(0..self.world).collect()],
            Layout::Processes(processes) => processes.clone(),
        }
    }

    /// True if this process kills itself.
    pub(crate) fn kills(&self, ranks: &[usize]) -> bool {
        ranks.iter().any(|rank| self.steps[*rank].contains(&Step::Kill))
    }
}
