//! The flaws that the checker finds, in words for the author of the schedule.

use crate::schedule::Span;
use crate::schedule::collective::Symbol;
use crate::schedule::walk::Stuck;

/// A flaw of a set of schedules: the first one found, in the order of the proof.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The root is not among the ranks.
    #[error("the root is rank {root}, but there are only {world} ranks")]
    Root {
        /// The requested root.
        root: usize,
        /// How many schedules there are.
        world: usize,
    },
    /// Ranks disagree about the number of chunks, or a collective of blocks does not have one chunk
    /// for each rank.
    #[error(
        "rank {rank} cuts the whole into {chunks} chunks, but every rank must cut \
        it into {expected}"
    )]
    Chunks {
        /// The rank of the schedule.
        rank: usize,
        /// How many chunks it has.
        chunks: usize,
        /// How many it must have.
        expected: usize,
    },
    /// A step that no schedule of its collective may have, whatever the other ranks do: its peer or a
    /// span does not exist, it writes to the input, or it joins chunks that need not be equally long.
    #[error("rank {rank}, step {step}: {why}")]
    Form {
        /// The rank of the step.
        rank: usize,
        /// The step's place in the rank's list.
        step: usize,
        /// The reason in words.
        why: String,
    },
    /// A step expects one chunk of the whole, and the next message of its link carries another.
    #[error(
        "rank {rank}, step {step} expects chunk {expected}, but the next message from rank {from} \
        carries chunk {carried}; messages on one link arrive in sending order",
        expected = .into.chunk % .chunks,
        carried = .sent.chunk % .chunks
    )]
    Mismatch {
        /// The rank of the step.
        rank: usize,
        /// The step's place in the rank's list.
        step: usize,
        /// The rank that sent the message.
        from: usize,
        /// The span that was sent.
        sent: Span,
        /// The span that the step receives into.
        into: Span,
        /// The number of chunks of the whole.
        chunks: usize,
    },
    /// A step reads a span into which nothing was written yet.
    #[error("rank {rank}, step {step}: reads {span}, into which nothing was written yet")]
    Empty {
        /// The rank of the step.
        rank: usize,
        /// The step's place in the rank's list.
        step: usize,
        /// The span it reads.
        span: Span,
    },
    /// A reduction adds a contribution that is in the sum already.
    #[error(
        "rank {rank}, step {step}: {into} already holds {symbol}, and it is combined a second time"
    )]
    Twice {
        /// The rank of the step.
        rank: usize,
        /// The step's place in the rank's list.
        step: usize,
        /// Where the sum is.
        into: Span,
        /// The contribution.
        symbol: Symbol,
    },
    /// The steps cannot all be taken.
    #[error("stuck: {0}")]
    Stuck(#[source] Stuck),
    /// Nothing was ever written to a chunk of the output.
    #[error("rank {rank}: no step writes chunk {chunk} of the output")]
    Unwritten {
        /// The rank of the output.
        rank: usize,
        /// The chunk of the output.
        chunk: usize,
    },
    /// A chunk of the output ends with the wrong contributions.
    #[error("rank {rank} ends with a wrong chunk {chunk}: {}", difference(missing, surplus))]
    Wrong {
        /// The rank of the output.
        rank: usize,
        /// The chunk of the output.
        chunk: usize,
        /// Contributions that are missing.
        missing: Vec<Symbol>,
        /// Contributions that are too many.
        surplus: Vec<Symbol>,
    },
}

/// Contributions that are missing, and those that are too many, as a sentence.
fn difference(missing: &[Symbol], surplus: &[Symbol]) -> String {
    let part = |verb: &str, symbols: &[Symbol]| {
        let named: Vec<String> = symbols.iter().take(4).map(Symbol::to_string).collect();
        let more = match symbols.len() {
            0..=4 => String::new(),
            all => format!(" and {} more", all - 4),
        };
        (!symbols.is_empty()).then(|| format!("{verb} {}{more}", named.join(", ")))
    };
    let parts = [part("it lacks", missing), part("it should not have", surplus)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
