//! Positions divided among ranks: attention forward and backward on its own, and training.

use crate::skip;
use crate::support::{Run, full, mesh, train};
use maypole::Communicator;
use maypole_lab::mistakes::Mistake;
use maypole_trainer::context_parallel::ring::RingAttention;
use maypole_trainer::context_parallel::ulysses::UlyssesAttention;
use maypole_trainer::context_parallel::zigzag::PositionDivision;
use maypole_trainer::model::axes::Attention;
use maypole_trainer::ranks::group::{RankGroup, SumOrder};
use maypole_trainer::tensor::attention::{self, Heads};
use maypole_trainer::tensor::device::CpuDevice;
use maypole_trainer::tensor::random::centred;
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};

const HEADS: Heads = Heads { rows: 2, heads: 4, size: 8 };
const TOKENS: usize = 32;

fn mine(all: &[f64], division: PositionDivision, rank: usize, ranks: usize) -> Vec<f64> {
    let each = all.len() / HEADS.rows / TOKENS;
    let positions = division.positions(rank, ranks, TOKENS);
    let tokens = (0..HEADS.rows)
        .flat_map(|row| positions.iter().map(move |position| row * TOKENS + position));
    tokens.flat_map(|token| &all[token * each..][..each]).copied().collect()
}

/// The greatest differences from one process: of the attended vectors, and of the gradient of q, k
/// and v.
fn far(
    exchange: ContextExchange,
    division: PositionDivision,
    ranks: usize,
    fault: Option<Mistake>,
) -> [f64; 2] {
    let numbers =
        |seed, n: usize| (0..n as u64).map(|i| 2.0 * centred(seed, i)).collect::<Vec<f64>>();
    let n = HEADS.rows * TOKENS * HEADS.width();
    let qkv = numbers(1, 3 * n);
    let dy = numbers(2, n);
    let (y, probabilities) = attention::forward(HEADS, &qkv);
    let dqkv = attention::backward(HEADS, &qkv, &probabilities, &dy);
    let apart =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let errors = Communicator::run_local(ranks, |comm| {
        let group = RankGroup::new(comm, SumOrder::Fast);
        let part = |all: &[f64]| mine(all, division, group.rank(), ranks);
        let my_qkv = part(&qkv);
        let my_dy = part(&dy);
        let expected = [part(&y), part(&dqkv)];
        let ring = RingAttention::new(group.clone(), division);
        let ulysses = UlyssesAttention { group, division };
        let mut attention: Box<dyn Attention<f64>> = match (exchange, fault) {
            (ContextExchange::Ring, Some(mistake)) => mistake.ring(ring),
            (ContextExchange::Ring, None) => Box::new(ring),
            (ContextExchange::Ulysses, Some(mistake)) => Box::new(mistake.ulysses(ulysses)),
            (ContextExchange::Ulysses, None) => Box::new(ulysses),
        };
        let (my_y, kept) = attention.forward(&CpuDevice, HEADS, &my_qkv).unwrap();
        let my_dqkv =
            attention.backward(&CpuDevice, HEADS, &my_qkv, (&my_y, &kept), &my_dy).unwrap();
        [apart(&my_y, &expected[0]), apart(&my_dqkv, &expected[1])]
    });
    errors.into_iter().fold([0.0, 0.0], |[a, b], [c, d]| [f64::max(a, c), f64::max(b, d)])
}

#[test]
fn the_ring_attends_and_learns_as_one_process() {
    for division in [PositionDivision::Contiguous, PositionDivision::ZigZag] {
        for ranks in [2, 4] {
            let [forward, backward] = far(ContextExchange::Ring, division, ranks, None);
            assert!(
                forward < 1e-13 && backward < 1e-12,
                "{division:?} {ranks}: {forward:e} {backward:e}"
            );
        }
    }
}

#[test]
fn ulysses_has_the_very_bits_of_one_process() {
    for division in [PositionDivision::Contiguous, PositionDivision::ZigZag] {
        for ranks in [2, 4] {
            assert_eq!(
                far(ContextExchange::Ulysses, division, ranks, None),
                [0.0, 0.0],
                "{division:?} {ranks}"
            );
        }
    }
}

/// Gradients are compared on their own, because a wrong backward pass can follow a correct forward
/// pass.
#[test]
fn mistakes_show_forward_or_only_backward() {
    let ring = |fault| far(ContextExchange::Ring, PositionDivision::ZigZag, 4, Some(fault));
    assert!(ring(Mistake::NotRescaled)[0] > 1e-3);
    assert!(ring(Mistake::MaskOfFirst)[0] > 1e-3);
    let [forward, backward] = ring(Mistake::NotSentHome);
    assert!(forward < 1e-13 && backward > 1e-3, "right forward, silently wrong backward");
    assert!(
        far(ContextExchange::Ulysses, PositionDivision::ZigZag, 2, Some(Mistake::HeadsSwapped))[0]
            > 1e-3
    );
}

#[test]
fn twenty_steps_end_where_one_process_ends() {
    crate::skip::takes_turns!(4);
    let task = full();
    let reference: Run<f32> = train(&task, &Parallelism::default());
    let setups =
        [ContextExchange::Ring, ContextExchange::Ulysses].into_iter().flat_map(|exchange| {
            [
                ("cp=2", PositionDivision::ZigZag),
                ("cp=4", PositionDivision::ZigZag),
                ("cp=2", PositionDivision::Contiguous),
            ]
            .map(|(text, division)| Parallelism { exchange, division, ..mesh(text) })
        });
    for setup in skip::every_nth(2, setups) {
        let run = train(&task, &setup);
        let (loss, weights) = run.difference(&reference);
        assert!(loss < 1e-5 && weights < 1e-5, "{setup:?}: loss {loss:e}, weights {weights:e}");
        assert!(run.agreed);
    }
}
