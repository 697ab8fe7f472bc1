//! What options choose among, and how a choice is read. Each error has the given value and the valid ones.

use crate::perf::messages::MessageTest;
use clap::ValueEnum;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;

/// What is measured: collectives, or messages. Of messages, all are those of two ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    Collectives(Selected<Collective>),
    Messages(Selected<MessageTest>),
}

/// The pairs of ranks between which messages are measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum PairSelection {
    Half,
    All,
}

/// One choice, or all that exist.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selected<T> {
    All,
    One(T),
}

/// The transports to measure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum TransportSelection {
    /// Shared memory; all ranks must be on one host.
    Shm,
    /// TCP between any two ranks, also on one host.
    Tcp,
    /// InfiniBand or RoCE between any two ranks, also on one host.
    Ib,
    /// Memory of GPUs: rank r is on GPU r, or shares one. Ranks that are threads (--threads) and share
    /// a GPU run at the same time; processes that share one take turns, which is slow.
    #[cfg(feature = "cuda")]
    Cuda,
    /// The library's default: shared memory within a host; between hosts InfiniBand or RoCE if all
    /// ranks have a port, else TCP.
    Auto,
    /// Every transport that joins these ranks, one after the other.
    All,
}

pub(super) fn subject(text: &str) -> Result<Subject, String> {
    let test = MessageTest::ALL.into_iter().find(|test| test.name() == text);
    match (text, test) {
        ("all", _) => Ok(Subject::Collectives(Selected::All)),
        ("p2p", _) => Ok(Subject::Messages(Selected::All)),
        (_, Some(test)) => Ok(Subject::Messages(Selected::One(test))),
        _ => text
            .parse()
            .map(|collective| Subject::Collectives(Selected::One(collective)))
            .map_err(|error| {
                format!(
                    "{error}; \"all\" means every collective, \"p2p\" messages between two ranks"
                )
            }),
    }
}

pub(super) fn selected_algorithm(text: &str) -> Result<Selected<Option<Algorithm>>, String> {
    match text {
        "all" => Ok(Selected::All),
        "auto" => Ok(Selected::One(None)),
        name => name.parse().map(|one| Selected::One(Some(one))).map_err(|error| {
            format!("{error}; \"auto\" means the tuner's choice, \"all\" every algorithm")
        }),
    }
}

/// Reads `all`, or what `one` reads.
pub(super) fn selected<T: Clone + Send + Sync + 'static>(
    one: impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<Selected<T>, String> + Clone + Send + Sync + 'static {
    move |text| match text {
        "all" => Ok(Selected::All),
        _ => one(text).map(Selected::One),
    }
}
