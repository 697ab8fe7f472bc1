//! Text from a trained model: the next token drawn by its probability, again and again.
//!
//! A rank may have any part of the model, so the whole is put together first. Each rank writes its
//! weights where they belong in a buffer that is minus infinity elsewhere, and an all-reduce takes
//! the greatest of each number over ranks. Copies are equal to the bit, so the greatest is the
//! weight itself; a sum would count copies.
//!
//! * **Collective:** one all-reduce (maximum) of all weights.

use crate::model::batch::TokenBatch;
use crate::model::store::Store;
use crate::model::transformer::Transformer;
use crate::tensor::random::uniform;
use crate::train::trainer::Trainer;
use maypole::{ReduceOp, Result};

/// The weights of the whole model, on every rank. All ranks call it.
///
/// # Errors
/// As the collectives in it.
pub fn whole_weights(trainer: &mut Trainer<f32>) -> Result<Vec<f32>> {
    let world = trainer.groups.world.clone();
    let layout = trainer.parts.store.layout().clone();
    let mut whole = vec![f32::NEG_INFINITY; layout.config.parameters()];
    layout.scatter_into(&trainer.parts.store.all_weights()?, &mut whole);
    if world.world() > 1 {
        world.call(|comm| comm.all_reduce(&mut whole, ReduceOp::Max))?;
    }
    Ok(whole)
}

/// The rule by which tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The divisor of logits: below 1 is more certain, 0 takes the likeliest token.
    pub temperature: f64,
    /// The seed of the draws.
    pub seed: u64,
}

/// `count` tokens that follow `prompt`. The model sees the last `context` tokens.
///
/// # Errors
/// As the collectives of the model, if it has any.
///
/// # Panics
/// If the prompt is empty.
pub fn generate(
    gpt: &mut Transformer<f32>,
    store: &mut dyn Store<f32>,
    prompt: &[u32],
    count: usize,
    draw: Sampling,
) -> Result<Vec<u32>> {
    assert!(!prompt.is_empty(), "the prompt is empty");
    let vocab = gpt.config.vocab;
    let context = gpt.config.context;
    let mut tokens = prompt.to_vec();
    for nth in 0..count {
        let seen = &tokens[tokens.len().saturating_sub(context)..];
        let positions = (0..seen.len() as u32).collect();
        let batch = TokenBatch {
            rows: 1,
            tokens: seen.to_vec(),
            targets: Vec::new(),
            positions,
            weight: 0.0,
        };
        let logits = gpt.predict(store, &batch)?;
        tokens.push(pick(&logits[logits.len() - vocab..], draw, nth as u64));
    }
    Ok(tokens.split_off(prompt.len()))
}

/// One token by its logits.
fn pick(logits: &[f32], draw: Sampling, nth: u64) -> u32 {
    let likeliest = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap_or(0);
    if draw.temperature <= 0.0 {
        return likeliest as u32;
    }
    let most = f64::from(logits[likeliest]);
    let shares: Vec<f64> =
        logits.iter().map(|z| ((f64::from(*z) - most) / draw.temperature).exp()).collect();
    let mut left = uniform(draw.seed, nth) * shares.iter().sum::<f64>();
    let drawn = shares.iter().position(|share| {
        left -= share;
        left < 0.0
    });
    drawn.unwrap_or(likeliest) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_by_their_probability() {
        let logits = [0.0, 2f32.ln(), f32::NEG_INFINITY, 0.0];
        let mut counts = [0; 4];
        for seed in 0..4_000 {
            counts[pick(&logits, Sampling { temperature: 1.0, seed }, 3) as usize] += 1;
        }
        assert!(
            counts[2] == 0
                && (1_850..2_150).contains(&counts[1])
                && (880..1_120).contains(&counts[0]),
            "{counts:?}"
        );
        assert_eq!(pick(&logits, Sampling { temperature: 0.0, seed: 1 }, 0), 1);
    }
}
