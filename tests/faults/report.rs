//! How a rank process reports the error that ended its calls.

use crate::spawn::say;
use maypole::{Communicator, Error, ReduceOp};
use std::time::{Duration, Instant};

/// How long a failed call, the calls after it and leaving may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Mismatch { .. } => "mismatch",
        Error::TimedOut { .. } => "timed out",
        Error::PeerLost { .. } => "lost",
        Error::Aborted { .. } => "aborted",
        Error::Connect { .. } => "connect",
        _ => "other",
    }
}

/// Reports how a rank failed. Asserts that later calls fail, too, and that it leaves in time.
pub(crate) fn report(mut comm: Communicator, error: &Error, since: Instant) {
    say("took", since.elapsed().as_millis());
    say("kind", kind(error));
    say("error", error);
    assert_eq!((error.rank(), error.operation().is_some()), (Some(comm.rank()), true), "{error}");
    let matched = !matches!(error, Error::Mismatch { .. });
    assert_eq!(
        error.is_retryable(),
        matched,
        "a death or a deadline may pass, a mismatch will not: {error}"
    );
    say("culprit", error.culprit().map_or("none".to_owned(), |rank| rank.to_string()));
    let since = Instant::now();
    for later in [
        comm.barrier(),
        comm.all_reduce(&mut [1.0f32], ReduceOp::Sum),
        comm.split(None, 0).map(drop),
    ] {
        assert!(
            matches!(&later, Err(Error::Failed { first, .. }) if *first == error.to_string()),
            "{later:?}"
        );
    }
    assert!(since.elapsed() < Duration::from_secs(2), "later calls fail at once");
    comm.close().unwrap();
    assert!(since.elapsed() < SOON, "leaving took {:?}", since.elapsed());
}
