//! Tokens travel to their experts and back: an all-to-all of blocks whose lengths no rank knows before.
//!
//! ```text
//! cargo build --release --example token_exchange
//! maypole run -n 4 target/release/examples/token_exchange
//! ```

use maypole::{Communicator, Result};

/// Stands for a router: the rank that has the expert of a token. Most tokens go to rank 0.
fn expert_of(token: u64, world: usize) -> usize {
    (token % 10).saturating_sub(4) as usize % world
}

/// Stands for an expert's layer.
fn expert(token: u64) -> u64 {
    token * token
}

fn main() -> Result<()> {
    let mut comm = Communicator::from_env()?;
    let (rank, world) = (comm.rank(), comm.world());

    // The tokens of this rank, in the order of the ranks that they go to.
    let mut tokens: Vec<u64> = (0..20 + rank as u64).map(|it| 1000 * rank as u64 + it).collect();
    tokens.sort_by_key(|token| expert_of(*token, world));
    let mut sent = vec![0; world];
    tokens.iter().for_each(|token| sent[expert_of(*token, world)] += 1);

    // Counts travel first: what I receive from a rank is what it sends to me.
    let mut received = vec![0; world];
    comm.all_to_all((&sent, &mut received))?;

    let mut mine = vec![0; received.iter().sum()];
    comm.all_to_all((&tokens, &sent, &mut mine, &received))?;
    assert!(mine.iter().all(|token| expert_of(*token, world) == rank));

    // Results go back by the same counts, the other way round, and arrive in the order of the tokens.
    let results: Vec<u64> = mine.iter().map(|token| expert(*token)).collect();
    let mut back = vec![0; tokens.len()];
    comm.all_to_all((&results, &received, &mut back, &sent))?;
    assert!(back.iter().zip(&tokens).all(|(result, token)| *result == expert(*token)));

    println!(
        "rank {rank} sent {sent:?} tokens to the ranks, and its expert computed {}",
        mine.len()
    );
    comm.close()
}
