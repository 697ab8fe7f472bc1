//! One function for each exercise: the solutions, or the solutions with one blank in place of its
//! solution.

use crate::chapters::{OnlineSoftmax, RegionEnd};
use crate::{blanks, solutions};
use maypole::Result;
use maypole_trainer::model::batch::TokenBatch;
use maypole_trainer::pipeline_parallel::plan::StagePass;
use maypole_trainer::ranks::group::RankGroup;
use std::ops::Range;

/// Updates a part of the weights. The arguments are the places of the part, its weights, and the
/// sums of its gradients.
pub type Update<'a> = &'a mut dyn FnMut(Range<usize>, &mut [f64], &[f64]);

/// Returns the result of an expert. The arguments are the number of the expert, and the token.
pub type Expert = fn(usize, f64) -> f64;

/// Sends tokens to the ranks of their experts, and returns the results.
type ThroughExperts = fn(&RankGroup, &[f64], &[usize], Expert) -> Result<Vec<f64>>;

/// Turns the vectors at an end of a region into those that the next layer needs.
pub type RegionAnswer = fn(&RankGroup, RegionEnd, Vec<f64>) -> Result<Vec<f64>>;

/// The functions that learners write, one for each chapter.
#[derive(Clone, Copy)]
pub struct Answers {
    pub data_parallel: fn(&RankGroup, &mut [f64]) -> Result<()>,
    pub zero: fn(&RankGroup, &mut [f64], &mut [f64], Update<'_>) -> Result<()>,
    pub tensor: RegionAnswer,
    pub sequence: RegionAnswer,
    pub pipeline: fn(usize, usize, usize) -> Vec<StagePass>,
    pub context: fn(&mut OnlineSoftmax, &[f64], &[f64]),
    pub experts: ThroughExperts,
    pub averaging: fn(&RankGroup, &mut [f64]) -> Result<()>,
    pub unequal: fn(&TokenBatch, usize, usize) -> f64,
}

impl Answers {
    pub fn solutions() -> Self {
        Self {
            data_parallel: solutions::data_parallel::sum_gradients,
            zero: solutions::zero::update_own_part,
            tensor: solutions::tensor::region,
            sequence: solutions::sequence::region,
            pipeline: solutions::pipeline::one_forward_one_backward,
            context: solutions::context::add_block,
            experts: solutions::experts::through_experts,
            averaging: solutions::averaging::average,
            unequal: solutions::unequal::weight_of_a_token,
        }
    }

    /// Returns these functions with that of the blank of `chapter`.
    pub fn with_blank(self, chapter: &str) -> Self {
        match chapter {
            "data_parallel" => Self { data_parallel: blanks::data_parallel::sum_gradients, ..self },
            "zero" => Self { zero: blanks::zero::update_own_part, ..self },
            "tensor" => Self { tensor: blanks::tensor::region, ..self },
            "sequence" => Self { sequence: blanks::sequence::region, ..self },
            "pipeline" => Self { pipeline: blanks::pipeline::one_forward_one_backward, ..self },
            "context" => Self { context: blanks::context::add_block, ..self },
            "experts" => Self { experts: blanks::experts::through_experts, ..self },
            "averaging" => Self { averaging: blanks::averaging::average, ..self },
            "unequal" => Self { unequal: blanks::unequal::weight_of_a_token, ..self },
            other => panic!("there is no chapter '{other}'"),
        }
    }
}
