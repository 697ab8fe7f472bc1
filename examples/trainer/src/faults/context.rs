//! Mistakes of ring attention: a softmax that is not rescaled, a mask of the wrong positions,
//! gradients that stay with the wrong rank.

use crate::context_parallel::ring::{RingAttention, RingRules};
use crate::model::axes::Attention;
use crate::ranks::exchange::shift;
use crate::tensor::attention::Heads;
use crate::tensor::device::Device;
use crate::tensor::math::Real;
use maypole::Result;

/// Earlier terms of the softmax keep their size when a later block has a greater score.
#[derive(Debug)]
pub(super) struct NoRescaling;

impl RingRules for NoRescaling {
    fn rescale<T: Real>(&self, _: T) -> T {
        T::one()
    }
}

/// Every rank masks as if its positions were the first ones.
#[derive(Debug)]
pub(super) struct FirstMask;

impl RingRules for FirstMask {
    fn positions_of(&self, _: usize) -> usize {
        0
    }
}

/// The gradients of keys and values stay with the rank that added the last term. The ring has sent
/// them on to their owner, so here they are shifted on until they are at the rank before the owner.
#[derive(Debug)]
pub(super) struct KeysNotReturned(pub(super) RingAttention);

impl<T: Real> Attention<T> for KeysNotReturned {
    fn forward(
        &mut self,
        device: &dyn Device<T>,
        heads: Heads,
        qkv: &[T],
    ) -> Result<(Vec<T>, Vec<Vec<T>>)> {
        self.0.forward(device, heads, qkv)
    }

    fn backward(
        &mut self,
        device: &dyn Device<T>,
        heads: Heads,
        qkv: &[T],
        kept: (&[T], &[Vec<T>]),
        dy: &[T],
    ) -> Result<Vec<T>> {
        let mut dqkv = self.0.backward(device, heads, qkv, kept, dy)?;
        let width = heads.width();
        let tokens = dqkv.chunks_exact(3 * width);
        let mut dkv: Vec<T> = tokens.flat_map(|token| &token[width..]).copied().collect();
        for _ in 1..self.0.group.world() {
            dkv = shift(&self.0.group, &dkv)?;
        }
        let tokens = dqkv.chunks_exact_mut(3 * width);
        for (token, dkv) in tokens.zip(dkv.chunks_exact(2 * width)) {
            token[width..].copy_from_slice(dkv);
        }
        Ok(dqkv)
    }
}
