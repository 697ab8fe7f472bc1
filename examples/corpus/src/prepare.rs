//! Tokenizes a text into the cache on all hosts, unless it is cached, and checks the tokens.

use crate::index::TextIndex;
use crate::sources::Sources;
use crate::token_files::{ShardFormat, TokenFiles};
use crate::tokenise::{Comparison, Tokenisation};
use crate::{DataError, failed};
use maypole::{Communicator, ReduceOp};
use maypole_trainer::ranks::exchange::first_failure;
use maypole_trainer::train::bpe::Bpe;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Tokens of a shard: 16 to 64 MiB.
pub const SHARD_TOKENS: usize = 1 << 24;

/// The time for which a rank works between two reports to the others.
const SLICE: Duration = Duration::from_millis(200);

/// The progress of a rank that prepares a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataProgress {
    /// This many bytes of text became tokens.
    Tokenising(u64),
    /// This many bytes of shards were compared with their names.
    Comparing(u64),
}

/// The text `sources` as tokens of `bpe`, in shards of `each` tokens in the folder `cache`. Cached text
/// is not read again. Collective for the ranks of `comm`; `None` for a single process. `say` is
/// called several times a second while this rank works.
///
/// Rank 0 writes tokens first. Then the first rank of every other host does, if it does not find
/// those of rank 0: hosts may have a cache each or share one. Last, ranks compare the shards on
/// their host with their names.
///
/// # Errors
/// A [`DataError`] on every rank, if one rank has one.
///
/// # Panics
/// If `each` is 0.
pub fn prepare(
    (sources, cache): (&Sources, &Path),
    bpe: &Bpe,
    each: usize,
    mut comm: Option<&mut Communicator>,
    say: &mut dyn FnMut(DataProgress),
) -> Result<TokenFiles, DataError> {
    let format = ShardFormat::new(bpe.fingerprint(), bpe.vocab(), each);
    let index = TextIndex::new(cache, sources, format);
    let place = HostPlace::of(comm.as_deref());
    for turn in [place.rank == 0, place.rank != 0 && place.index == 0] {
        let begin = || match turn {
            true => begin(&index, sources, bpe),
            false => Ok(None),
        };
        let mut work = agree(&mut comm, begin())?;
        together(&mut comm, || {
            let Some(work) = &mut work else { return Ok(true) };
            let done = work.work(SLICE)?;
            say(DataProgress::Tokenising(work.done));
            Ok(done)
        })?;
    }
    let open = || index.open()?.ok_or_else(|| DataError::Changed(sources.root().to_owned()));
    let shards = agree(&mut comm, open())?;
    let mut comparison = Comparison::new(&shards, place.index, place.ranks);
    together(&mut comm, || {
        let done = comparison.work(SLICE)?;
        say(DataProgress::Comparing(comparison.done));
        Ok(done)
    })?;
    same_text(comm, &shards)?;
    Ok(shards)
}

/// Tokenizes the text, unless it is cached.
fn begin<'a>(
    index: &'a TextIndex,
    sources: &'a Sources,
    bpe: &'a Bpe,
) -> Result<Option<Tokenisation<'a>>, DataError> {
    let root = sources.root();
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if root.is_dir() && whole(index.folder()).starts_with(whole(root)) {
        let (cache, data) = (index.folder().to_owned(), root.to_owned());
        return Err(DataError::CacheInside { cache, data });
    }
    fs::create_dir_all(index.folder()).map_err(failed(index.folder()))?;
    match index.open()? {
        Some(_) => Ok(None),
        None => Tokenisation::new(index, sources, bpe).map(Some),
    }
}

/// Which rank this is of those of its host.
struct HostPlace {
    rank: usize,
    index: usize,
    ranks: usize,
}

impl HostPlace {
    fn of(comm: Option<&Communicator>) -> Self {
        let Some(comm) = comm else { return Self { rank: 0, index: 0, ranks: 1 } };
        let rank = comm.rank();
        let locals = comm.hosts().locals(rank);
        Self { rank, index: comm.hosts().index(rank), ranks: locals.len() }
    }
}

/// Does the work of all ranks, a slice at a time, with an all-reduce after each, until all of them are
/// ready or one fails. No rank waits for another longer than for a slice.
fn together(
    comm: &mut Option<&mut Communicator>,
    mut slice: impl FnMut() -> Result<bool, DataError>,
) -> Result<(), DataError> {
    let mut ready = false;
    loop {
        let mine = if ready { Ok(true) } else { slice() };
        ready = agree(comm, mine)?;
        let Some(comm) = comm else {
            if ready {
                return Ok(());
            }
            continue;
        };
        let mut working = [u64::from(!ready)];
        comm.all_reduce(&mut working, ReduceOp::Sum)?;
        if working[0] == 0 {
            return Ok(());
        }
    }
}

/// All ranks continue, or all fail with the first cause: that rank returns its error, and every other
/// rank returns [`DataError::Rank`] with the sentence of that error.
fn agree<T>(
    comm: &mut Option<&mut Communicator>,
    mine: Result<T, DataError>,
) -> Result<T, DataError> {
    let Some(comm) = comm else { return mine };
    let sentence = mine.as_ref().err().map(ToString::to_string);
    match first_failure(comm, sentence) {
        Ok(Some((rank, why))) if rank != comm.rank() => Err(DataError::Rank { rank, why }),
        Ok(_) => mine,
        // A rank that has a cause of its own does not name the loss of its peers instead.
        Err(lost) => mine.and(Err(lost.into())),
    }
}

/// Refuses hosts that have different texts.
fn same_text(comm: Option<&mut Communicator>, shards: &TokenFiles) -> Result<(), DataError> {
    let Some(comm) = comm else { return Ok(()) };
    let mut all = vec![0u64; comm.world()];
    comm.all_gather((&[shards.fingerprint()], &mut all))?;
    match all.iter().position(|text| *text != all[0]) {
        Some(rank) => Err(DataError::Unlike { rank }),
        None => Ok(()),
    }
}
