//! Compares a run with the same training in one process: the first step and the first tensor that
//! differ, and whether ranks that have the same weights still agree.
//!
//! What it does: a falling loss proves little, because with nearly all mistakes of parallel training
//! it still falls. So rank 0 also trains the whole model, on the same rows, and broadcasts its
//! gradients. Each rank compares its own, which are sums over ranks by then, tensor by tensor. The
//! distance of a tensor is the norm of the difference over the norm of the tensor in one process.
//! Gradients are compared, not weights: AdamW makes a whole step of a gradient that is only
//! rounding error, so weights may be far apart in a correct run.
//!
//! Ranks that have the same part of a tensor must have the same bits of it after every step. An
//! all-gather exchanges a hash of every part.
//!
//! ```text
//! distance        in a run that is right     with most mistakes
//! of a tensor     1e-7 to 1e-4               0.01 to 1
//! of the loss     below 1e-6                 nothing at first, then 1e-4 and more
//! ```
//!
//! What is sharded: nothing. Which collective runs where: over all ranks, after each step, a
//! broadcast of all gradients, an all-reduce of a number a tensor and of two more, an all-gather of the hashes, and
//! the store's collectives for its weights.
//!
//! Cost: the training of one process on rank 0, for which the others wait.

use crate::compare::alone;
use crate::overlap::wrap;
use crate::rebalance::{ExpertMove, move_experts, rearrange};
use maypole::{Communicator, ReduceOp, Result};
use maypole_trainer::model::config::Config;
use maypole_trainer::model::layout::{LayoutEntry, ParameterLayout};
use maypole_trainer::model::store::{Store, forward_store};
use maypole_trainer::ranks::group::RankGroup;
use maypole_trainer::tensor::math::{FloatElement, Real};
use maypole_trainer::train::optim::Rule;
use maypole_trainer::train::schedule::RateSchedule;
use maypole_trainer::train::text::Text;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer::train::watch::StepReport;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// The greatest distance of a tensor's gradient in a correct run.
const TENSOR: f64 = 1e-3;
/// The greatest relative difference of a loss, or of a norm of the gradient.
const NUMBER: f64 = 1e-4;
/// A tensor whose norm is below this share of the whole gradient's is compared with that share,
/// because it consists of rounding errors.
const LEAST: f64 = 1e-4;

/// The gradients of a rank after all collectives: the offset of each run in its flat buffer, and the run.
type Gradients<T> = Rc<RefCell<Vec<(usize, Vec<T>)>>>;

/// A store that records the gradients of each step.
struct GradientProbe<T> {
    inner: Box<dyn Store<T>>,
    seen: Gradients<T>,
}

impl<T: FloatElement> GradientProbe<T> {
    fn wrap(store: &mut Box<dyn Store<T>>) -> Gradients<T>
    where
        T: 'static,
    {
        let seen = Gradients::default();
        let own = Rc::clone(&seen);
        wrap(store, |inner| Box::new(Self { inner, seen: own }));
        seen
    }
}

impl<T: FloatElement> Store<T> for GradientProbe<T> {
    forward_store!(T:
        layout, copies, diverges, weights, forward_done, pass_begins, weights_and_gradients,
        gradients, backward_done, local_shards, all_gather_params, publish, bytes, all_weights,
    );

    fn finish_grad_sync(&mut self) -> Result<()> {
        self.inner.finish_grad_sync()?;
        let runs = self.inner.local_shards().into_iter();
        *self.seen.borrow_mut() = runs.map(|run| (run.offset, run.gradients.to_vec())).collect();
        Ok(())
    }
}

/// A run and the same training in one process.
pub struct OneProcess<T> {
    /// On rank 0: the training, and its gradients.
    reference: Option<(Trainer<T>, Gradients<T>)>,
    own: Gradients<T>,
    whole: ParameterLayout,
    world: RankGroup,
}

/// The difference of two numbers as a share of the expected one; infinite if only that one is zero.
fn relative(own: f64, expected: f64) -> f64 {
    if own == expected { 0.0 } else { (own - expected).abs() / expected.abs() }
}

/// How far a step is from one process.
#[derive(Clone, Debug, PartialEq)]
pub struct StepComparison {
    /// The relative difference of the loss, on the rank where it is greatest.
    pub loss: f64,
    /// The relative difference of the gradient's norm, on the rank where it is greatest.
    pub norm: f64,
    /// The distance of each tensor's gradient, on the rank where it is greatest, in the order of
    /// the model.
    pub tensors: Vec<(String, f64)>,
    /// The hash of all weights, if ranks with the same part of a tensor have the same bits of it;
    /// otherwise the first tensor of which two ranks have other bits, and these ranks.
    pub replicas: std::result::Result<u64, (String, [usize; 2])>,
}

impl<T: Real> OneProcess<T> {
    /// Begins a training in one process that accompanies `trainer`, which has done no step, with the
    /// limit `clip` of the gradient's norm. All ranks call it, with the arguments of the trainer.
    ///
    /// # Errors
    /// As every collective.
    ///
    /// # Panics
    /// If the trainer has done a step.
    pub fn beside(
        trainer: &mut Trainer<T>,
        config: &Config,
        seed: u64,
        (rule, schedule): (Rule, RateSchedule),
        clip: Option<f64>,
    ) -> Result<Self> {
        assert_eq!(trainer.step, 0, "one process begins at the first step");
        let own = GradientProbe::wrap(&mut trainer.parts.store);
        let world = trainer.groups.world.clone();
        let reference = (world.rank() == 0).then(|| {
            let setup = alone(&trainer.parallelism);
            let comm = Communicator::local(1).remove(0);
            let mut one = Trainer::new(comm, config, setup, seed, (rule, schedule))?;
            one.parts.clip.limit = clip;
            let seen = GradientProbe::wrap(&mut one.parts.store);
            Ok::<_, maypole::Error>((one, seen))
        });
        let whole = ParameterLayout::whole(config);
        Ok(Self { reference: reference.transpose()?, own, whole, world })
    }

    /// Does in one process the step that `trainer` has just done on `rows` rows of `text`, with this
    /// `report`, and compares. All ranks call it.
    ///
    /// # Errors
    /// As every collective.
    pub fn step(
        &mut self,
        trainer: &mut Trainer<T>,
        report: StepReport,
        text: &Text,
        rows: usize,
    ) -> Result<StepComparison> {
        let mut numbers = Vec::new();
        if let Some((one, seen)) = &mut self.reference {
            let expected = one.step(text, rows)?.report;
            let gradients = seen.borrow();
            let gradients = gradients.iter().flat_map(|(_, run)| run).map(|g| g.wide());
            numbers = vec![expected.loss, expected.norm];
            numbers.extend(gradients);
        }
        let bytes = bytemuck::cast_slice(&numbers).to_vec();
        let bytes = self.world.broadcast_bytes(bytes, 0)?;
        let numbers: Vec<f64> = bytemuck::pod_collect_to_vec(&bytes);
        let (&[loss, norm], expected) = numbers.split_first_chunk().expect("two and gradients");
        let mut far = [relative(report.loss, loss), relative(report.norm, norm)];
        self.greatest(&mut far)?;
        Ok(StepComparison {
            loss: far[0],
            norm: far[1],
            tensors: self.distances(trainer, expected)?,
            replicas: self.replicas(trainer)?,
        })
    }

    /// Moves experts in the one process too, after they moved between ranks. All ranks call it.
    ///
    /// # Errors
    /// As every collective.
    pub fn moved(&mut self, moves: &[ExpertMove]) -> Result<()> {
        let reference = self.reference.as_mut();
        reference.map_or(Ok(()), |(one, _)| rearrange(one, move_experts, moves))
    }

    /// The distance of each tensor's gradient from `expected`, that of the whole model.
    fn distances(&self, trainer: &Trainer<T>, expected: &[f64]) -> Result<Vec<(String, f64)>> {
        let layout = trainer.parts.store.layout();
        let here = layout.gather_from(expected);
        let all = norm(expected.iter().copied());
        let own = self.own.borrow();
        let distance = |whole: &LayoutEntry| {
            let Some(entry) = layout.entry(&whole.name) else { return 0.0 };
            let length = norm(expected[whole.range()].iter().copied()).max(LEAST * all);
            let range = entry.range();
            let differences = own.iter().flat_map(|(offset, run)| {
                let start = range.start.max(*offset);
                let end = range.end.min(offset + run.len());
                (start..end).map(move |at| (at, run[at - offset].wide()))
            });
            let far = norm(differences.map(|(at, own)| own - here[at]));
            if far == 0.0 { 0.0 } else { far / length }
        };
        let mut distances: Vec<f64> = self.whole.entries.iter().map(distance).collect();
        self.greatest(&mut distances)?;
        let names = self.whole.entries.iter().map(|entry| entry.name.clone());
        Ok(names.zip(distances).collect())
    }

    /// Replaces each distance by the greatest of all ranks. One that is not a number counts as
    /// infinite.
    fn greatest(&self, distances: &mut [f64]) -> Result<()> {
        distances.iter_mut().filter(|it| it.is_nan()).for_each(|it| *it = f64::INFINITY);
        if self.world.world() > 1 {
            self.world.call(|comm| comm.all_reduce(distances, ReduceOp::Max))?;
        }
        Ok(())
    }

    /// Compares the hashes of the parts that several ranks have.
    fn replicas(
        &self,
        trainer: &mut Trainer<T>,
    ) -> Result<std::result::Result<u64, (String, [usize; 2])>> {
        let weights = trainer.parts.store.all_weights()?;
        let layout = trainer.parts.store.layout();
        let mut hashes = Vec::new();
        for (nth, whole) in self.whole.entries.iter().enumerate() {
            let Some(entry) = layout.entry(&whole.name) else { continue };
            let part = entry.cut.map_or(0, |(_, shard)| shard.index);
            let hash = hash(weights[entry.range()].iter().map(|weight| weight.wide().to_bits()));
            hashes.extend([nth as f64, part as f64, hash as f64]);
        }
        let all = self.world.gather_lists(&hashes)?;
        let mut known = BTreeMap::new();
        for (rank, list) in all.iter().enumerate() {
            for &[nth, part, hash] in list.as_chunks::<3>().0 {
                let key = (nth as usize, part as usize);
                let (first, other) = *known.entry(key).or_insert((hash, rank));
                if first != hash {
                    let name = self.whole.entries[key.0].name.clone();
                    return Ok(Err((name, [other, rank])));
                }
            }
        }
        Ok(Ok(hash(known.values().map(|(hash, _)| *hash as u64))))
    }
}

fn norm(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|number| number * number).sum::<f64>().sqrt()
}

/// A number of 48 bits, which an `f64` holds.
fn hash(bits: impl Iterator<Item = u64>) -> u64 {
    let mix =
        |hash: u64, bits: u64| (hash ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    bits.fold(1, mix) >> 16
}

impl StepComparison {
    /// The tensor whose gradient is farthest from one process.
    pub fn farthest(&self) -> Option<&(String, f64)> {
        self.tensors.iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The first tensor of the model whose gradient is not that of one process, or of which ranks
    /// have other bits.
    pub fn wrong_tensor(&self) -> Option<&str> {
        let wrong = self.tensors.iter().find(|(_, distance)| *distance > TENSOR);
        let unlike = self.replicas.as_ref().err().map(|(name, _)| name.as_str());
        wrong.map(|(name, _)| name.as_str()).or(unlike)
    }

    /// True if the step is that of one process, but for rounding.
    pub fn agrees(&self) -> bool {
        // A NaN loss or norm fails these comparisons.
        self.wrong_tensor().is_none() && self.loss <= NUMBER && self.norm <= NUMBER
    }
}

impl fmt::Display for StepComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let farthest = self.farthest().map_or(0.0, |(_, distance)| *distance);
        match &self.replicas {
            Ok(hash) => write!(f, "replicas {hash:012x}")?,
            Err((name, [a, b])) => write!(f, "replicas differ: {name} on ranks {a} and {b}")?,
        }
        write!(f, "; from one process: loss {:.0e}, norm {:.0e}", self.loss, self.norm)?;
        let wrong = self.tensors.iter().filter(|(_, distance)| *distance > TENSOR);
        let many = wrong.clone().count();
        match wrong.clone().next() {
            None => write!(f, ", gradients {farthest:.0e}"),
            Some((name, distance)) => {
                write!(f, "; WRONG gradient of {name}: {:.1} % off", 100.0 * distance)?;
                if many > 1 { write!(f, ", and of {} more", many - 1) } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::relative;

    #[test]
    fn a_number_beside_zero_is_as_far_as_can_be() {
        assert_eq!(relative(0.0, 0.0), 0.0);
        assert_eq!(relative(1e-9, 0.0), f64::INFINITY);
        assert_eq!(relative(3.0, 2.0), 0.5);
        assert!(relative(f64::NAN, 2.0).is_nan());
    }
}
