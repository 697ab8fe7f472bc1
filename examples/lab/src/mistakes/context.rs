//! A mistake of ring attention: gradients that stay with the wrong rank.

use maypole::Result;
use maypole_trainer::context_parallel::ring::RingAttention;
use maypole_trainer::model::axes::Attention;
use maypole_trainer::ranks::exchange::shift;
use maypole_trainer::tensor::attention::Heads;
use maypole_trainer::tensor::device::Device;
use maypole_trainer::tensor::math::Real;

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
