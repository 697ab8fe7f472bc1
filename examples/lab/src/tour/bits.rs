//! Bitwise comparisons of the tour, in addition to those of whole runs with one process.
//!
//! What it does: two axes guarantee bitwise equality of a part of the computation. A whole run cannot
//! show it, because a run on more ranks adds gradients in another order. What is sharded, which
//! collective runs where, cost: in the file of each axis.

use crate::tour::meshes::MeshCheck;
use maypole::{Communicator, Result};
use maypole_trainer::context_parallel::ulysses::UlyssesAttention;
use maypole_trainer::model::axes::Attention;
use maypole_trainer::ranks::group::{RankGroup, SumOrder};
use maypole_trainer::ranks::mesh::MeshAxis;
use maypole_trainer::tensor::attention::Heads;
use maypole_trainer::tensor::random::centred;
use maypole_trainer::train::parallelism::Parallelism;

/// Compares runs with and without sequence parallelism, both with sums in the order of ranks. The
/// losses and the weights of the divided matrices must be bitwise equal. Gradients of norms and
/// biases are left out: they are sums over tokens in another order.
pub(crate) fn tokens_divided_or_not(check: &MeshCheck) -> Result<bool> {
    let train = |sequence| {
        check.train(&Parallelism { sequence, order: SumOrder::Ranks, ..check.setup.clone() }, 1)
    };
    let whole = train(false)?;
    let divided = train(true)?;
    Ok(whole.iter().zip(&divided).all(|(whole, divided)| {
        let (whole, divided) = (&whole.outcome, &divided.outcome);
        let mut cut = whole.layout.entries.iter().filter(|entry| entry.cut.is_some());
        let same = cut.all(|entry| whole.weights[entry.range()] == divided.weights[entry.range()]);
        same && whole.losses == divided.losses
    }))
}

/// Compares the forward pass of Ulysses attention with one process. Each rank computes whole heads,
/// so the outputs must be bitwise equal.
pub(crate) fn heads_anywhere(check: &MeshCheck) -> Result<bool> {
    let config = &check.recipe.config;
    let ranks = check.setup.mesh.size(MeshAxis::Cp);
    let Parallelism { division, .. } = check.setup;
    let heads = Heads { rows: 2, heads: config.heads, size: config.width / config.heads };
    let numbers = (heads.rows * config.context * 3 * config.width) as u64;
    let qkv: Vec<f32> = (0..numbers).map(|i| centred(1, i) as f32).collect();
    let y = check.recipe.devices.of(0).attention(heads, &qkv).0;
    let rank = |comm| {
        let group = RankGroup::new(comm, SumOrder::Fast);
        let device = check.recipe.devices.of(group.rank());
        let positions = division.positions(group.rank(), ranks, config.context);
        let part = |all: &[f32]| {
            let rows = all.chunks_exact(all.len() / heads.rows);
            let token = |row: &[f32], at: usize| {
                row.chunks_exact(row.len() / config.context).nth(at).unwrap().to_vec()
            };
            rows.flat_map(|row| positions.iter().flat_map(move |at| token(row, *at)))
                .collect::<Vec<f32>>()
        };
        let right = UlyssesAttention { group, division };
        let mut attention = match check.recipe.mistake {
            Some(mistake) => mistake.ulysses(right),
            None => right,
        };
        let mine = attention.forward(&*device, heads, &part(&qkv))?.0;
        Ok(mine == part(&y))
    };
    let same: Vec<bool> =
        Communicator::run_local(ranks, rank).into_iter().collect::<Result<_>>()?;
    Ok(same.into_iter().all(|same| same))
}
