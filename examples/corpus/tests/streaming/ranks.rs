//! Several ranks prepare a text together.

use crate::files::{cut, play};
use maypole::Communicator;
use maypole_corpus::DataError;
use maypole_corpus::prepare::{DataProgress, prepare};
use maypole_corpus::sources::Sources;
use maypole_trainer::train::bpe::Bpe;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn one_rank_writes_and_all_of_them_compare() {
    let folder = tempfile::tempdir().unwrap();
    let data = cut(folder.path(), &play(), &[10, 20, 30]);
    let cache = folder.path().join("cache");
    let writers = AtomicUsize::new(0);
    let compared = Communicator::run_local(3, |mut comm| {
        let sources = Sources::list(&data).unwrap();
        let mut most = 0;
        let mut wrote = false;
        let mut say = |progress| match progress {
            DataProgress::Tokenising(_) => wrote = true,
            DataProgress::Comparing(bytes) => most = bytes,
        };
        let shards =
            prepare((&sources, &cache), &Bpe::default(), 10_000, Some(&mut comm), &mut say);
        writers.fetch_add(usize::from(wrote), Ordering::Relaxed);
        let shards = shards.unwrap();
        assert_eq!(shards.tokens() as u64, sources.bytes());
        (most, shards.bytes())
    });
    assert_eq!(writers.into_inner(), 1);
    let bytes = compared[0].1;
    assert_eq!(compared.iter().map(|it| it.0).sum::<u64>(), bytes, "each shard once");
    assert!(compared.iter().all(|it| it.0 <= bytes / 2), "{compared:?}");
}

#[test]
fn ranks_that_wait_for_a_slow_one_do_not_give_up() {
    crate::skip::takes_turns!(4);
    let folder = tempfile::tempdir().unwrap();
    let data = cut(folder.path(), &play().repeat(24), &[10, 20, 30]);
    let cache = folder.path().join("cache");
    Communicator::run_local(2, |mut comm| {
        comm.set_timeout(Duration::from_millis(1_500));
        let sources = Sources::list(&data).unwrap();
        // So many merges that all of the work takes longer than a rank waits for one call.
        let bpe = Bpe::learn(&play().as_bytes()[..20_000], 1_000);
        let start = Instant::now();
        prepare((&sources, &cache), &bpe, 1 << 20, Some(&mut comm), &mut |_| ()).unwrap();
        println!("rank {}: {:?}", comm.rank(), start.elapsed());
    });
}

#[test]
fn the_failure_of_one_rank_is_that_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let data = cut(folder.path(), &play(), &[10, 20, 30]);
    fs::write(data.join("z.txt"), [0xff]).unwrap();
    let cache = folder.path().join("cache");
    let errors = Communicator::run_local(3, |mut comm| {
        let sources = Sources::list(&data).unwrap();
        prepare((&sources, &cache), &Bpe::default(), 1 << 20, Some(&mut comm), &mut |_| ())
            .unwrap_err()
    });
    assert!(matches!(errors[0], DataError::NotUtf8 { .. }), "{}", errors[0]);
    for error in &errors[1..] {
        assert!(matches!(error, DataError::Rank { rank: 0, .. }), "{error}");
        assert!(error.to_string().contains("z.txt: byte 0 is not UTF-8"), "{error}");
    }
    // A shard that another rank than the first compares.
    fs::remove_file(data.join("z.txt")).unwrap();
    let run = |each: usize| {
        Communicator::run_local(3, |mut comm| {
            let sources = Sources::list(&data).unwrap();
            prepare((&sources, &cache), &Bpe::default(), each, Some(&mut comm), &mut |_| ())
        })
    };
    let shards = run(10_000).remove(0).unwrap();
    let path = shards.path(4);
    let mut bytes = fs::read(&path).unwrap();
    bytes[77] ^= 1;
    fs::write(&path, bytes).unwrap();
    for (rank, outcome) in run(10_000).into_iter().enumerate() {
        let error = outcome.unwrap_err();
        assert_eq!(matches!(error, DataError::Damaged { .. }), rank == 1, "{rank}: {error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn hosts_with_different_texts_are_refused() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for (folder, at) in folders.iter().zip([0, 100]) {
        cut(folder.path(), &play()[at..], &[10, 20, 30]);
    }
    let caches = &folders;
    let errors = Communicator::run_local(2, |mut comm| {
        // Both texts are in the cache of this host, so that each rank finds its own.
        let cache = caches[0].path().join("cache");
        let own = comm.rank();
        for folder in caches {
            crate::tokens(&folder.path().join("data"), &cache, &Bpe::default(), 1 << 20).unwrap();
        }
        let sources = Sources::list(&caches[own].path().join("data")).unwrap();
        prepare((&sources, &cache), &Bpe::default(), 1 << 20, Some(&mut comm), &mut |_| ())
            .unwrap_err()
    });
    assert!(errors.iter().all(|it| matches!(it, DataError::Unlike { rank: 1 })), "{errors:?}");
}
