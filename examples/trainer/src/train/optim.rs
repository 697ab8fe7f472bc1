//! Optimizers: the update of each parameter by its gradient.
//!
//! Both work on each number alone. So a rank that updates a part of the parameters needs the
//! optimizer's state of that part only, which is why ZeRO can shard it.

use crate::model::store::{ParamShard, Store};
use crate::tensor::math::{Real, vectorized};
use maypole::Result;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;

/// The rule of an update, with its constants.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Rule {
    /// `w -= rate * g`: no state.
    Sgd,
    /// Two averages a parameter, of gradients and of their squares; weight decay is separate from
    /// them (Loshchilov and Hutter 2019).
    AdamW {
        /// The share of the average of gradients that stays.
        beta1: f64,
        /// The share of the average of squares that stays.
        beta2: f64,
        /// A number that is added to the root, so that the divisor is not zero.
        epsilon: f64,
        /// The share of a weight, times the rate, that is subtracted from it. All weights decay,
        /// those of norms and biases too.
        decay: f64,
    },
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sgd => write!(out, "plain SGD"),
            Self::AdamW { beta1, beta2, epsilon, decay } => {
                write!(
                    out,
                    "AdamW with beta1 {beta1}, beta2 {beta2}, epsilon {epsilon} and a decay of {decay}"
                )
            }
        }
    }
}

impl Rule {
    /// AdamW with the usual constants.
    pub const ADAMW: Self = Self::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, decay: 0.1 };

    /// Numbers of state a parameter.
    pub fn states(self) -> usize {
        match self {
            Self::Sgd => 0,
            Self::AdamW { .. } => 2,
        }
    }
}

/// A rule and its state for the parameters that this rank owns.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer<T> {
    /// The rule.
    pub rule: Rule,
    /// Steps done.
    pub steps: u64,
    /// Averages of gradients of the owned parameters, in order; empty if the rule needs none or before
    /// the first step.
    pub first: Vec<T>,
    /// Averages of squares.
    pub second: Vec<T>,
}

impl<T: Real> Optimizer<T> {
    /// An optimizer before its first step.
    pub fn new(rule: Rule) -> Self {
        Self { rule, steps: 0, first: Vec::new(), second: Vec::new() }
    }

    /// Bytes of state.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.first) + size_of_val(&*self.second)
    }

    /// Makes room for the state of `parameters`, if there is none.
    pub fn reserve(&mut self, parameters: usize) {
        if self.rule.states() > 0 {
            self.first.resize(parameters, T::zero());
            self.second.resize(parameters, T::zero());
        }
    }

    /// One step at this rate. Gradients are multiplied by `factor` first: clipping, and the
    /// inverse of a loss scale.
    pub fn step(&mut self, owned: &mut [ParamShard<'_, T>], rate: f64, factor: f64) {
        self.steps += 1;
        self.reserve(owned.iter().map(|run| run.weights.len()).sum());
        let mut at = 0;
        for run in owned {
            let states = at..at + run.weights.len();
            at = states.end;
            match self.rule {
                Rule::Sgd => sgd(run, T::of(rate * factor)),
                Rule::AdamW { .. } => {
                    let first = &mut self.first[states.clone()];
                    let second = &mut self.second[states];
                    adamw(
                        run,
                        first,
                        second,
                        &AdamWConstants::new(self.rule, self.steps, rate, factor),
                    );
                }
            }
        }
    }
}

/// What a step does with the gradients.
pub trait Update<T: Real>: Any {
    /// Called before the update number `step`, when all gradients are summed.
    ///
    /// # Errors
    /// As the store.
    fn before(&mut self, step: u64, store: &mut dyn Store<T>) -> Result<()> {
        let _ = (step, store);
        Ok(())
    }

    /// Updates the parameters of `owned`, whose gradients are multiplied by `factor` first. Without
    /// a factor some gradient of the step was not finite, and nothing is updated.
    ///
    /// # Errors
    /// As the collectives in it, if there are any.
    fn step(
        &mut self,
        owned: &mut [ParamShard<'_, T>],
        rate: f64,
        factor: Option<f64>,
    ) -> Result<()>;

    /// The optimizer and its averages.
    fn optimizer(&self) -> &Optimizer<T>;

    /// The same, to be changed.
    fn optimizer_mut(&mut self) -> &mut Optimizer<T>;
}

impl<T: Real> Update<T> for Optimizer<T> {
    fn step(
        &mut self,
        owned: &mut [ParamShard<'_, T>],
        rate: f64,
        factor: Option<f64>,
    ) -> Result<()> {
        if let Some(factor) = factor {
            self.step(owned, rate, factor);
        }
        Ok(())
    }

    fn optimizer(&self) -> &Optimizer<T> {
        self
    }

    fn optimizer_mut(&mut self) -> &mut Optimizer<T> {
        self
    }
}

fn sgd<T: Real>(run: &mut ParamShard<'_, T>, rate: T) {
    vectorized(|| run.weights.iter_mut().zip(&*run.gradients).for_each(|(w, g)| *w -= rate * *g));
}

/// The constants of one step of AdamW, as the type that is trained.
struct AdamWConstants<T> {
    factor: T,
    keep: [T; 2],
    take: [T; 2],
    /// Factors that correct averages for their start at zero.
    begun: [T; 2],
    epsilon: T,
    rate: T,
    decay: T,
}

impl<T: Real> AdamWConstants<T> {
    fn new(rule: Rule, steps: u64, rate: f64, factor: f64) -> Self {
        let Rule::AdamW { beta1, beta2, epsilon, decay } = rule else {
            unreachable!("only AdamW has constants")
        };
        let betas = [beta1, beta2];
        Self {
            factor: T::of(factor),
            keep: betas.map(T::of),
            take: betas.map(|beta| T::of(1.0 - beta)),
            begun: betas.map(|beta| T::of(1.0 / (1.0 - beta.powf(steps as f64)))),
            epsilon: T::of(epsilon),
            rate: T::of(rate),
            decay: T::of(rate * decay),
        }
    }
}

fn adamw<T: Real>(
    run: &mut ParamShard<'_, T>,
    first: &mut [T],
    second: &mut [T],
    c: &AdamWConstants<T>,
) {
    vectorized(|| {
        let states = first.iter_mut().zip(second);
        for ((w, g), (first, second)) in run.weights.iter_mut().zip(&*run.gradients).zip(states) {
            let g = *g * c.factor;
            *first = c.keep[0] * *first + c.take[0] * g;
            *second = c.keep[1] * *second + c.take[1] * g * g;
            let step = *first * c.begun[0] / ((*second * c.begun[1]).sqrt() + c.epsilon);
            *w = *w - c.decay * *w - c.rate * step;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rule: Rule, gradients: &[f64]) -> f64 {
        let mut optimizer = Optimizer::new(rule);
        let mut w = [1.0];
        for g in gradients {
            optimizer.step(
                &mut [ParamShard { offset: 0, weights: &mut w, gradients: &mut [*g] }],
                0.1,
                1.0,
            );
        }
        w[0]
    }

    #[test]
    fn steps_are_those_of_the_definitions() {
        assert_eq!(after(Rule::Sgd, &[2.0, -1.0]), 1.0 - 0.1 * 2.0 + 0.1);
        let rule = Rule::AdamW { beta1: 0.5, beta2: 0.75, epsilon: 0.0, decay: 0.0 };
        // The first step of Adam is the sign of the gradient, whatever its size.
        assert!((after(rule, &[1e-3]) - 0.9).abs() < 1e-12);
        let m = (0.5 * 0.5 * 2.0 - 0.5) / 0.75;
        let v = (0.75 * 0.25 * 4.0 + 0.25) / (1.0 - 0.5625);
        assert!((after(rule, &[2.0, -1.0]) - (0.9 - 0.1 * m / f64::sqrt(v))).abs() < 1e-12);
        let decays = Rule::AdamW { beta1: 0.5, beta2: 0.75, epsilon: 1.0, decay: 0.5 };
        assert!((after(decays, &[0.0]) - 0.95).abs() < 1e-12);
    }
}
