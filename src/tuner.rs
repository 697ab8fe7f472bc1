//! Which algorithm for which call: a function of what is equal on all ranks, so that all choose alike.
//!
//! On a board, one-phase algorithms win while they are small, because every further phase costs a hop, or a context
//! switch where ranks outnumber cores; above that the direct two-phase ones move the fewest bytes. Over streams the same
//! holds with other limits, and rings take over where a rank would have to feed many links.

use crate::algorithms::Algorithm;
use crate::collective::Collective;

/// How a call is done; equal on all ranks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Plan {
    /// Which schedule.
    pub algorithm: Algorithm,
    /// Bytes of a window of the longest chunk, at most.
    pub window: usize,
}

/// What a choice may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// What is to be done.
    pub collective: Collective,
    /// By how many ranks.
    pub world: usize,
    /// Over how many hosts.
    pub hosts: usize,
    /// Bytes of the whole: of the vector, or of all blocks together.
    pub bytes: usize,
}

/// Windows over boards: four fit in a core's second-level cache with room to spare.
const BOARD_WINDOW: usize = 32 << 10;
/// Windows over streams: the addition of one overlaps the transfer of the next.
const STREAM_WINDOW: usize = 128 << 10;
/// No window is cut smaller to get more of them.
const SMALLEST_WINDOW: usize = 4 << 10;
/// Up to here, every peer sending everything at once beats two phases: on a board of two ranks, on a board of more, and
/// over streams. Over one stream the two phases of two ranks carry no fewer bytes, so one is always better.
const ONE_SHOT_PAIR: usize = 16 << 10;
const ONE_SHOT: usize = 8 << 10;
const ONE_SHOT_STREAMS: usize = 64 << 10;
/// Above so many hosts, a rank does not feed a link to each at once.
const DIRECT_HOSTS: usize = 8;
/// Rooted vectors up to here go down a binomial tree at once; longer ones are pipelined.
const BINOMIAL: usize = 16 << 10;

/// The plan for `question`; `wanted` overrides the algorithm.
///
/// # Errors
/// The algorithm that was wanted, if it has no answer to the collective.
pub fn choose(question: Question, wanted: Option<Algorithm>) -> Result<Plan, Algorithm> {
    let algorithm = match wanted {
        Some(algorithm) if !algorithm.supports(question.collective) => return Err(algorithm),
        Some(algorithm) => algorithm,
        None => preferred(question),
    };
    Ok(Plan { algorithm, window: window(question, algorithm) })
}

fn preferred(question: Question) -> Algorithm {
    let Question { collective, world, hosts, bytes } = question;
    let small = match (hosts, world) {
        (1, 2) => bytes <= ONE_SHOT_PAIR,
        (1, _) => bytes <= ONE_SHOT,
        (_, 2) => true,
        _ => bytes <= ONE_SHOT_STREAMS,
    };
    match collective {
        Collective::AllReduce if hosts > DIRECT_HOSTS && !small => Algorithm::Ring,
        Collective::AllReduce if small => Algorithm::OneShot,
        Collective::AllReduce => Algorithm::TwoShot,
        Collective::Broadcast { .. } if hosts == 1 => Algorithm::Linear,
        Collective::Broadcast { .. } | Collective::Reduce { .. } if bytes <= BINOMIAL => Algorithm::Binomial,
        Collective::Broadcast { .. } | Collective::Reduce { .. } => Algorithm::Ring,
        Collective::Gather { .. } | Collective::Scatter { .. } if hosts > DIRECT_HOSTS => Algorithm::Binomial,
        Collective::Gather { .. } | Collective::Scatter { .. } => Algorithm::Linear,
        Collective::AllGather | Collective::ReduceScatter => Algorithm::Ring,
        Collective::AllToAll => Algorithm::Pairwise,
        Collective::Scan | Collective::ExclusiveScan if bytes <= BINOMIAL => Algorithm::RecursiveDoubling,
        Collective::Scan | Collective::ExclusiveScan => Algorithm::Ring,
        Collective::Barrier => Algorithm::Dissemination,
    }
}

/// At least two windows to overlap, where that leaves them long enough.
fn window(question: Question, algorithm: Algorithm) -> usize {
    let mut window = if question.hosts == 1 { BOARD_WINDOW } else { STREAM_WINDOW };
    let chunks = algorithm.schedule(question.collective, question.world, 0).map_or(1, |schedule| schedule.chunks);
    let longest = question.bytes.div_ceil(chunks);
    if algorithm == Algorithm::OneShot {
        return window;
    }
    while window > SMALLEST_WINDOW && 2 * window > longest {
        window /= 2;
    }
    window
}
