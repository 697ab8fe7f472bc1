//! Mixture of experts: the choice of experts for each token, the weight of each expert's output,
//! and the gradient of the router.
//!
//! What it does: a softmax gives each token a probability for each expert. Its `top` most probable
//! experts are its choices, and its output is the sum of their outputs, each multiplied by its
//! probability. An expert takes a limited number of tokens of a group ([`Router::limit`]). Later
//! choices are dropped: they add nothing to the residual stream. An auxiliary loss keeps the load
//! even.
//!
//! What is sharded: nothing here; [`crate::expert_parallel::dispatch`] puts experts on ranks.
//! Groups are consecutive positions of a sequence, and each group is routed by itself. So choices,
//! drops and the loss are the same on every mesh whose ranks hold whole groups. Which collective
//! runs where: none.
//!
//! Cost: `tokens * experts` probabilities. The matrix product that gives the logits is a linear
//! layer.
//!
//! Sources: Lepikhin et al., "GShard" (2020), for groups and capacity, first choices before second
//! ones; Fedus et al., "Switch Transformers" (2021), for the loss `experts * sum_e f_e P_e`.

use crate::tensor::math::Real;
use serde::{Deserialize, Serialize};

/// The rule by which tokens choose experts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Router {
    /// Experts of a layer.
    pub experts: usize,
    /// Choices of a token.
    pub top: usize,
    /// Consecutive tokens that share a capacity and a term of the auxiliary loss.
    pub group: usize,
    /// The most tokens that an expert takes of a group, as a multiple of the even share
    /// `group * top / experts`; no limit if `None`.
    pub capacity: Option<f32>,
    /// Weight of the auxiliary loss.
    pub balance: f32,
}

/// One choice of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertChoice<T> {
    /// The number of the token, from the first of those given.
    pub token: usize,
    /// The number of the expert.
    pub expert: usize,
    /// The weight of the expert's output: its probability.
    pub gate: T,
    /// False if the expert was full.
    pub kept: bool,
}

/// The router's choices for some tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Routed<T> {
    /// `tokens * experts` probabilities, token by token.
    pub probabilities: Vec<T>,
    /// `tokens * top` choices: by token, then from the most probable expert down.
    pub choices: Vec<ExpertChoice<T>>,
    /// The auxiliary loss, its weight included, summed over groups. Divided by all groups of the
    /// batch it is the mean.
    pub loss: f64,
}

impl Router {
    /// Returns the most tokens that an expert takes of a group.
    pub fn limit(&self) -> usize {
        let even = (self.group * self.top) as f32 / self.experts as f32;
        self.capacity.map_or(usize::MAX, |factor| (factor * even).ceil() as usize)
    }

    /// Routes tokens by `logits` (`tokens * experts`). Tokens after the last whole group, which
    /// occur when a model generates text, keep all their choices and add nothing to the loss.
    ///
    /// # Panics
    /// If there are fewer experts than choices.
    pub fn route<T: Real>(&self, logits: &[T]) -> Routed<T> {
        assert!(self.top <= self.experts, "{} choices of {} experts", self.top, self.experts);
        let probabilities: Vec<T> = logits.chunks_exact(self.experts).flat_map(softmax).collect();
        let rows = probabilities.chunks_exact(self.experts).enumerate();
        let mut choices: Vec<ExpertChoice<T>> =
            rows.flat_map(|(token, row)| self.choose(token, row)).collect();
        choices.chunks_exact_mut(self.group * self.top).for_each(|group| self.drop_surplus(group));
        let groups = probabilities.chunks_exact(self.group * self.experts);
        let groups = groups.zip(choices.chunks_exact(self.group * self.top));
        let loss =
            groups.map(|(probabilities, choices)| self.group_loss(probabilities, choices)).sum();
        Routed { probabilities, choices, loss }
    }

    /// Returns the gradient of the logits. `gates` are the gradients of the gates, one for each
    /// choice, zero for dropped choices. The auxiliary loss of each group is multiplied by `share`:
    /// one over all groups, for a mean.
    ///
    /// # Panics
    /// If there is not one gradient for each choice, or the tokens are not whole groups.
    pub fn backward<T: Real>(&self, routed: &Routed<T>, gates: &[T], share: f64) -> Vec<T> {
        assert_eq!(gates.len(), routed.choices.len(), "one gradient for each choice");
        assert!(
            routed.choices.len().is_multiple_of(self.group * self.top),
            "tokens come in groups of {}",
            self.group
        );
        let mut gradient = vec![T::zero(); routed.probabilities.len()];
        let each = self.group * self.top;
        for (group, slice) in gradient.chunks_exact_mut(self.group * self.experts).enumerate() {
            let shares = self.shares(&routed.choices[group * each..][..each]);
            let factor = f64::from(self.balance) * self.experts as f64 / self.group as f64 * share;
            for row in slice.chunks_exact_mut(self.experts) {
                row.iter_mut()
                    .zip(&shares)
                    .for_each(|(gradient, share)| *gradient = T::of(factor * share));
            }
        }
        for (choice, gate) in routed.choices.iter().zip(gates) {
            gradient[choice.token * self.experts + choice.expert] += *gate;
        }
        let rows = gradient
            .chunks_exact_mut(self.experts)
            .zip(routed.probabilities.chunks_exact(self.experts));
        for (row, probabilities) in rows {
            let mean = row
                .iter()
                .zip(probabilities)
                .fold(T::zero(), |sum, (gradient, p)| sum + *gradient * *p);
            row.iter_mut()
                .zip(probabilities)
                .for_each(|(gradient, p)| *gradient = *p * (*gradient - mean));
        }
        gradient
    }

    /// Returns the most probable experts of a token; of equally probable experts the first. If a
    /// layer overflowed, probabilities are NaN. The choices then have no meaning, but ranks still
    /// call the same collectives, and the loss is NaN.
    fn choose<T: Real>(&self, token: usize, row: &[T]) -> Vec<ExpertChoice<T>> {
        let mut order: Vec<usize> = (0..self.experts).collect();
        order.sort_by(|a, b| row[*b].wide().total_cmp(&row[*a].wide()));
        let choice = |expert| ExpertChoice { token, expert, gate: row[expert], kept: true };
        order.into_iter().take(self.top).map(choice).collect()
    }

    /// Drops choices beyond the limit of an expert. First choices come before second choices, and
    /// then earlier tokens before later tokens.
    fn drop_surplus<T>(&self, group: &mut [ExpertChoice<T>]) {
        let limit = self.limit();
        let mut taken = vec![0; self.experts];
        for rank in 0..self.top {
            for choice in group.iter_mut().skip(rank).step_by(self.top) {
                choice.kept = taken[choice.expert] < limit;
                taken[choice.expert] += usize::from(choice.kept);
            }
        }
    }

    /// Returns for each expert its share of all choices, dropped choices included.
    fn shares<T>(&self, group: &[ExpertChoice<T>]) -> Vec<f64> {
        let mut counts = vec![0u32; self.experts];
        group.iter().for_each(|choice| counts[choice.expert] += 1);
        counts.into_iter().map(|count| f64::from(count) / group.len() as f64).collect()
    }

    fn group_loss<T: Real>(&self, probabilities: &[T], choices: &[ExpertChoice<T>]) -> f64 {
        let mean = |expert: usize| {
            let column = probabilities.iter().skip(expert).step_by(self.experts);
            column.map(|p| p.wide()).sum::<f64>() / self.group as f64
        };
        let terms = self
            .shares(choices)
            .into_iter()
            .enumerate()
            .map(|(expert, share)| share * mean(expert));
        f64::from(self.balance) * self.experts as f64 * terms.sum::<f64>()
    }
}

impl<T> Routed<T> {
    /// Returns for each of `experts` experts the number of choices that it got, without dropped
    /// choices.
    pub fn load(&self, experts: usize) -> Vec<u64> {
        let mut load = vec![0; experts];
        self.choices
            .iter()
            .filter(|choice| choice.kept)
            .for_each(|choice| load[choice.expert] += 1);
        load
    }
}

fn softmax<T: Real>(row: &[T]) -> Vec<T> {
    let most = row.iter().copied().fold(T::min_value(), T::max);
    let powers: Vec<T> = row.iter().map(|logit| (*logit - most).exp()).collect();
    let sum = powers.iter().fold(T::zero(), |sum, power| sum + *power);
    powers.into_iter().map(|power| power / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped<T>(routed: &Routed<T>) -> usize {
        routed.choices.iter().filter(|choice| !choice.kept).count()
    }

    const ROUTER: Router = Router { experts: 4, top: 2, group: 8, capacity: None, balance: 0.1 };

    fn logits(tokens: usize) -> Vec<f32> {
        let noise =
            |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        (0..tokens as u64 * 4).map(noise).collect()
    }

    #[test]
    fn a_token_goes_to_its_most_probable_experts() {
        let routed = ROUTER.route(&logits(16));
        assert_eq!(routed.choices.len(), 32);
        for pair in routed.choices.chunks(2) {
            let row = &routed.probabilities[pair[0].token * 4..][..4];
            let better = |gate| row.iter().filter(|p| **p > gate).count();
            assert_eq!((better(pair[0].gate), better(pair[1].gate)), (0, 1));
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        }
        assert_eq!(routed.load(4).iter().sum::<u64>(), 32);
    }

    #[test]
    fn a_full_expert_drops_late_tokens_and_second_choices_first() {
        // The first choice of all tokens is expert 0, the second is expert 1.
        let wishes: Vec<f32> = (0..8).flat_map(|_| [3.0, 2.0, 1.0, 0.0]).collect();
        let router = Router { capacity: Some(1.0), ..ROUTER };
        assert_eq!(router.limit(), 4);
        let routed = router.route(&wishes);
        for choice in &routed.choices {
            assert_eq!(choice.kept, choice.token < 4);
        }
        assert_eq!((dropped(&routed), routed.load(4)), (8, vec![4, 4, 0, 0]));
        // The second choice of each half of the tokens is the first choice of the other half. First
        // choices are kept, though they are of later tokens.
        let wishes: Vec<f32> = (0..8)
            .flat_map(|i| if i < 4 { [2.0, 3.0, 0.0, 0.0] } else { [3.0, 2.0, 0.0, 0.0] })
            .collect();
        let routed = router.route(&wishes);
        assert!(routed.choices.chunks(2).all(|pair| pair[0].kept && !pair[1].kept));
    }

    #[test]
    fn capacity_and_loss_are_of_one_group() {
        let router = Router { capacity: Some(0.75), ..ROUTER };
        let together = router.route(&logits(24));
        let logits = logits(24);
        let mut loss = 0.0;
        for (group, logits) in logits.chunks(8 * 4).enumerate() {
            let alone = router.route(logits);
            loss += alone.loss;
            let part = &together.choices[group * 16..][..16];
            assert!(
                part.iter()
                    .zip(&alone.choices)
                    .all(|(a, b)| (a.expert, a.kept) == (b.expert, b.kept))
            );
        }
        assert_eq!(together.loss, loss);
        assert!(dropped(&together) > 0);
    }

    #[test]
    fn tokens_after_the_last_group_keep_their_choices() {
        let router = Router { capacity: Some(0.5), ..ROUTER };
        let whole = router.route(&logits(16));
        let more = router.route(&logits(19));
        assert!(
            more.choices[..32] == whole.choices[..]
                && more.loss == whole.loss
                && dropped(&whole) > 0
        );
        assert_eq!((more.choices.len(), dropped(&more)), (38, dropped(&whole)));
    }

    /// After an overflow: tokens with NaN or infinite logits get some choices, other groups get the
    /// same choices as without the overflow, and the loss is NaN.
    #[test]
    fn logits_of_nan_or_infinity_are_routed_too() {
        let router = Router { capacity: Some(0.75), group: 4, ..ROUTER };
        let numbers = logits(16);
        let mut struck = logits(16);
        struck[1] = f32::NAN;
        struck[6] = f32::INFINITY;
        struck[11] = f32::NEG_INFINITY;
        struck[12..16].fill(f32::NEG_INFINITY);
        let whole = router.route(&numbers);
        let routed = router.route(&struck);
        assert!(routed.choices.chunks(2).all(|pair| pair[0].expert != pair[1].expert));
        assert!(routed.choices[0].gate.is_nan() && routed.choices[2].gate.is_nan());
        assert_eq!(routed.choices[8..], whole.choices[8..], "other groups are routed as before");
        assert!(routed.loss.is_nan() && whole.loss.is_finite());
    }

    #[test]
    fn the_loss_is_least_when_the_load_is_even() {
        let even: Vec<f32> = (0..8)
            .flat_map(|i| (0..4).map(move |e| if (i + e) % 4 < 2 { 1.0 } else { 0.0 }))
            .collect();
        let skew: Vec<f32> = (0..8).flat_map(|_| [1.0, 1.0, 0.0, 0.0]).collect();
        let even = ROUTER.route(&even).loss;
        let skew = ROUTER.route(&skew).loss;
        assert!((even - 0.1).abs() < 1e-7, "balance * experts * experts / experts^2: {even}");
        assert!(skew > 1.3 * even);
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let router = Router { balance: 1.0, ..ROUTER };
        let logits: Vec<f64> = logits(16).into_iter().map(f64::from).collect();
        let pulls: Vec<f64> = (0..32).map(|i| (f64::from(i) * 0.7).sin()).collect();
        let value = |logits: &[f64]| {
            let routed = router.route(logits);
            let gates: f64 =
                routed.choices.iter().zip(&pulls).map(|(choice, pull)| choice.gate * pull).sum();
            let chosen: Vec<usize> = routed.choices.iter().map(|choice| choice.expert).collect();
            (gates + routed.loss / 2.0, chosen)
        };
        let gradient = router.backward(&router.route(&logits), &pulls, 0.5);
        let mut compared = 0;
        let step = 1e-5;
        for at in 0..logits.len() {
            let moved = |by: f64| {
                let mut logits = logits.clone();
                logits[at] += by;
                value(&logits)
            };
            let (up, chosen) = moved(step);
            let (down, same) = moved(-step);
            if chosen == same {
                compared += 1;
                let difference = (up - down) / (2.0 * step);
                assert!(
                    (difference - gradient[at]).abs() < 1e-8,
                    "{at}: {difference} {}",
                    gradient[at]
                );
            }
        }
        assert!(compared > 50, "{compared} of 64 compared");
    }
}
