//! Layers by cost: the layers of a pipeline are divided by the measured cost of each stage.
//!
//! * **Sharded:** layers over `pp`, one stage a rank, at least one layer a stage.
//! * **Collective:** before the first step an all-gather of three numbers of each rank.
//! * **Cost:** some passes of one layer on each rank, a fraction of a step.
//!
//! Equal numbers of layers are not equal work: the first stage also has the embedding, and the last
//! stage the head, which for a large vocabulary takes as long as several layers. And the speed of
//! ranks may differ. So each rank times the embedding, one layer and the head, forward and
//! backward, and each layer goes to the stage that would be done with it first.
//!
//! Layers do not move during a run. A run that resumes from a checkpoint measures again; a
//! checkpoint can be loaded with any division.

use crate::unequal::divide::{ShareCost, divide};
use maypole::{Communicator, Result};
use maypole_trainer::model::axes::Axes;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::FlatStore;
use maypole_trainer::model::transformer::Transformer;
use std::time::Instant;

/// The number of times that each part is timed. The median counts.
const TIMED: usize = 5;

/// The seconds that a rank takes for each part of the model, forward and backward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartSeconds {
    /// The embedding.
    pub embed: f64,
    /// One block.
    pub block: f64,
    /// The last norm, the logits and the loss.
    pub head: f64,
}

impl PartSeconds {
    /// Times the parts of a dense model with the sizes of `config` on this rank, without other
    /// ranks, for micro-batches of `rows` rows.
    ///
    /// # Panics
    /// If `rows` is zero.
    pub fn measure(config: &Config, rows: usize) -> Self {
        let config = Config { layers: 1, experts: 0, ..config.clone() };
        let layout = ParameterLayout::whole(&config);
        let mut gpt = Transformer::new(&layout, Axes::single_rank(&layout.config));
        let mut store = FlatStore::new(layout.clone(), layout.initial::<f32>(1));
        let tokens = rows * config.context;
        let batch = TokenBatch {
            rows,
            tokens: vec![0; tokens],
            targets: vec![0; tokens],
            positions: (0..config.context as u32).collect::<Vec<_>>().repeat(rows),
            weight: 1.0 / tokens as f64,
        };
        let mut times = [const { Vec::new() }; 3];
        // The first passes allocate buffers, and do not count.
        for nth in 0..=TIMED {
            let seconds = parts(&mut gpt, &mut store, &batch);
            if nth > 0 {
                times.iter_mut().zip(seconds).for_each(|(all, one)| all.push(one));
            }
        }
        let [embed, block, head] =
            times.map(|mut all| *all.select_nth_unstable_by(TIMED / 2, f64::total_cmp).1);
        Self { embed, block, head }
    }

    fn slower(self, other: &[f64]) -> Self {
        Self {
            embed: self.embed.max(other[0]),
            block: self.block.max(other[1]),
            head: self.head.max(other[2]),
        }
    }
}

/// Runs the three units of a model of one layer forward and backward, and returns the seconds of
/// each.
fn parts(gpt: &mut Transformer<f32>, store: &mut FlatStore<f32>, batch: &TokenBatch) -> [f64; 3] {
    let alone = "a single rank calls no collective";
    let mut seconds = [0.0; 3];
    let mut kept = Vec::new();
    let mut x = Vec::new();
    for (unit, seconds) in seconds.iter_mut().enumerate() {
        let start = Instant::now();
        let (y, activations) = gpt.forward(unit..unit + 1, store, batch, x).expect(alone);
        *seconds += start.elapsed().as_secs_f64();
        x = y;
        kept.push(activations);
    }
    let mut dx = Vec::new();
    for (unit, activations) in kept.into_iter().enumerate().rev() {
        let start = Instant::now();
        dx = gpt.backward(unit..unit + 1, store, batch, activations, dx).expect(alone);
        seconds[unit] += start.elapsed().as_secs_f64();
    }
    seconds
}

/// The layers of each stage of a pipeline of `layers` layers. Rank `r` is at stage `stages[r]` and
/// takes `seconds[r]`. Of the ranks of a stage the slowest counts.
///
/// # Panics
/// If `stages` is empty.
pub fn by_cost(layers: usize, stages: &[usize], seconds: &[PartSeconds]) -> Vec<usize> {
    let last = *stages.iter().max().expect("there is a rank");
    let mut costs = vec![ShareCost::default(); last + 1];
    for (stage, seconds) in stages.iter().zip(seconds) {
        let embed = if *stage == 0 { seconds.embed } else { 0.0 };
        let head = if *stage == last { seconds.head } else { 0.0 };
        let cost = &mut costs[*stage];
        cost.fixed = cost.fixed.max(embed + head);
        cost.each = cost.each.max(seconds.block);
    }
    divide(layers, &costs)
}

/// Measures all ranks of `comm`, and divides the layers of `config` by the result. Rank `r` is at
/// stage `stages[r]`. All ranks call it, and all get the same division.
///
/// # Errors
/// As the all-gather.
///
/// # Panics
/// If `stages` is empty, or `rows` is zero.
pub fn measured(
    comm: &mut Communicator,
    config: &Config,
    rows: usize,
    stages: &[usize],
) -> Result<Vec<usize>> {
    let PartSeconds { embed, block, head } = PartSeconds::measure(config, rows);
    let mut all = vec![0.0; 3 * comm.world()];
    comm.all_gather((&[embed, block, head], &mut all))?;
    let nothing = PartSeconds { embed: 0.0, block: 0.0, head: 0.0 };
    let seconds: Vec<_> = all.chunks_exact(3).map(|times| nothing.slower(times)).collect();
    Ok(by_cost(config.layers, stages, &seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: PartSeconds = PartSeconds { embed: 0.1, block: 1.0, head: 0.1 };

    #[test]
    fn a_slow_stage_and_a_large_head_get_fewer_layers() {
        let counts = |seconds: &[PartSeconds]| {
            let stages: Vec<usize> = (0..seconds.len()).collect();
            by_cost(8, &stages, seconds)
        };
        assert_eq!(counts(&[EVEN; 2]), [4, 4]);
        assert_eq!(counts(&[EVEN, PartSeconds { block: 3.0, ..EVEN }]), [6, 2]);
        assert_eq!(counts(&[PartSeconds { head: 3.0, ..EVEN }; 2]), [5, 3], "at the last stage");
        assert_eq!(counts(&[PartSeconds { embed: 2.0, ..EVEN }; 2]), [3, 5], "at the first stage");
        assert_eq!(counts(&[EVEN, PartSeconds { block: 99.0, ..EVEN }]), [7, 1]);
    }

    #[test]
    fn the_slowest_rank_of_a_stage_counts() {
        let slow = PartSeconds { block: 3.0, ..EVEN };
        assert_eq!(by_cost(8, &[0, 1, 0, 1], &[EVEN, EVEN, EVEN, slow]), [6, 2]);
    }

    #[test]
    fn ranks_measure_and_agree() {
        let config = Config { width: 16, context: 16, layers: 4, ..Config::default() };
        let ranks = Communicator::run_local(2, |mut comm| {
            measured(&mut comm, &config, 2, &[0, 1]).unwrap()
        });
        assert_eq!(ranks[0], ranks[1]);
        assert!(ranks[0].iter().sum::<usize>() == 4 && !ranks[0].contains(&0));
    }
}
