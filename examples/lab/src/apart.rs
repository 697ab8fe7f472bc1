//! One process in the place of ranks that train apart, or that update their weights late.
//!
//! [`averaging`](crate::averaging) has the algorithms. One process trains all ranks of one of
//! them in turn, with a store and an optimizer each, and averages them by sums in the order of ranks.
//! It is written from the formulas and shares no code with the stores, so both have to be right to be
//! bitwise equal. It shards nothing, calls no collective, and adds nothing to the cost of a run.

use crate::averaging::diloco::OuterStep;
use crate::compare::{Recipe, TrainingOutcome};
use crate::replicas::{SumFirst, model};
use maypole_trainer::model::layout::ParameterLayout;
use maypole_trainer::model::store::{FlatStore, Store};
use maypole_trainer::model::transformer::Transformer;
use maypole_trainer::train::optim::Optimizer;

struct ApartRank {
    store: FlatStore<f32>,
    optimizer: Optimizer<f32>,
}

/// All ranks of a recipe, and the one model that computes for them in turn.
struct ApartRanks {
    ranks: Vec<ApartRank>,
    gpt: Transformer<f32>,
}

impl ApartRanks {
    fn new(recipe: &Recipe, ranks: usize) -> Self {
        let layout = ParameterLayout::whole(&recipe.config);
        let rank = |_| ApartRank {
            store: FlatStore::new(layout.clone(), layout.initial(recipe.seed)),
            optimizer: Optimizer::new(recipe.rule),
        };
        Self { ranks: (0..ranks).map(rank).collect(), gpt: model(recipe, &layout) }
    }

    /// One step of each rank on its own rows. Returns the sum of their losses.
    fn step(&mut self, recipe: &Recipe, step: u64) -> f64 {
        let world = self.ranks.len();
        let batches = recipe.text().step(step, recipe.rows, world);
        let mut loss = 0.0;
        for (ApartRank { store, optimizer }, batch) in self.ranks.iter_mut().zip(batches) {
            loss += self.gpt.train(store, &batch, true).expect("one process calls no collective");
            store.gradients.iter_mut().for_each(|gradient| *gradient *= world as f32);
            optimizer.step(&mut store.local_shards(), recipe.schedule.rate(step), 1.0);
            store.publish().expect("one process calls no collective");
        }
        loss
    }

    fn layout(&self) -> ParameterLayout {
        self.ranks[0].store.layout().clone()
    }

    fn weights(&self) -> Vec<Vec<f32>> {
        self.ranks.iter().map(|rank| rank.store.weights.clone()).collect()
    }
}

/// The mean of the numbers at `at`, added in the order of ranks.
fn mean(of: impl Iterator<Item = f32>, ranks: usize) -> f32 {
    let sum = of.reduce(|sum, one| sum + one).expect("there is a rank");
    sum * (1.0 / ranks as f32)
}

impl Recipe {
    /// Trains `ranks` ranks by DiLoCo with the default outer step, in one process.
    pub fn diloco_alone(&self, ranks: usize, every: u64) -> TrainingOutcome {
        let mut all = ApartRanks::new(self, ranks);
        let mut anchor = all.ranks[0].store.weights.clone();
        let mut velocity = vec![0.0f32; anchor.len()];
        let OuterStep { rate, momentum } = OuterStep::default();
        let [rate, momentum] = [rate as f32, momentum as f32];
        let mut losses = Vec::new();
        for step in 0..self.steps {
            losses.push(all.step(self, step));
            if !(step + 1).is_multiple_of(every) {
                continue;
            }
            let own = all.weights();
            for (at, (anchor, velocity)) in anchor.iter_mut().zip(&mut velocity).enumerate() {
                let change = mean(own.iter().map(|own| *anchor - own[at]), ranks);
                *velocity = momentum * *velocity + change;
                *anchor -= rate * (change + momentum * *velocity);
            }
            all.ranks.iter_mut().for_each(|rank| rank.store.weights.copy_from_slice(&anchor));
        }
        TrainingOutcome::new(all.layout(), losses, anchor)
    }

    /// Trains `ranks` ranks that average with the previous rank of a ring, in one process. The weights
    /// are the mean of all ranks'.
    pub fn gossip_alone(&self, ranks: usize, every: u64) -> TrainingOutcome {
        let mut all = ApartRanks::new(self, ranks);
        let mut losses = Vec::new();
        for step in 0..self.steps {
            losses.push(all.step(self, step));
            if !(step + 1).is_multiple_of(every) {
                continue;
            }
            let before = all.weights();
            for (at, rank) in all.ranks.iter_mut().enumerate() {
                let previous = &before[(at + ranks - 1) % ranks];
                let both = rank.store.weights.iter_mut().zip(previous);
                both.for_each(|(own, previous)| *own = 0.5 * (*own + *previous));
            }
        }
        let own = all.weights();
        let weights = (0..own[0].len()).map(|at| mean(own.iter().map(|own| own[at]), ranks));
        TrainingOutcome::new(all.layout(), losses, weights.collect())
    }

    /// Trains in one process on the rows of `ranks` ranks. The gradients of a step update the weights
    /// `late` steps later; before the first of them come zeros.
    pub fn stale_alone(&self, ranks: usize, late: usize) -> TrainingOutcome {
        self.alone_late(&[(ranks, self.steps)], 1, SumFirst::MicroBatches, late)
    }
}
