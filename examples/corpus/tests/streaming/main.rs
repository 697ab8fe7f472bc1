//! Text that streams from a folder: the same rows as from memory, in little memory, and no wrong
//! row after damage to its files.

use maypole_trainer_kernels::counting::CountingAllocator;

/// Counts the memory of each rank.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../../../lab/tests/support/mod.rs"]
mod support;

mod damage;
mod files;
mod memory;
mod ranks;
mod rows;

use maypole_corpus::DataError;
use maypole_corpus::prepare::prepare;
use maypole_corpus::sources::Sources;
use maypole_corpus::token_files::TokenFiles;
use maypole_trainer::train::bpe::Bpe;
use std::path::Path;

/// The text at `data` as tokens, in shards of `each`, by one process.
fn tokens(data: &Path, cache: &Path, bpe: &Bpe, each: usize) -> Result<TokenFiles, DataError> {
    prepare((&Sources::list(data)?, cache), bpe, each, None, &mut |_| ())
}
