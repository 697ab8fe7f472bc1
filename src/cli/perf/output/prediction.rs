//! The time that the tuner predicts for a point.

use maypole::Communicator;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::tuner::{CandidateVerdict, PlanOverride, Question, choose};

/// The tuner's prediction for one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TunerPrediction {
    /// Predicted microseconds of the algorithm that was measured.
    pub(crate) us: f64,
    /// The algorithm that the tuner chooses.
    pub(crate) choice: Algorithm,
}

impl TunerPrediction {
    /// Predicts for `algorithm` over `comm`, by the communicator's costs. Prices every algorithm,
    /// which takes milliseconds.
    pub(crate) fn of(
        comm: &Communicator,
        collective: Collective,
        bytes: usize,
        algorithm: Algorithm,
    ) -> Option<Self> {
        let question = Question {
            collective,
            boards: comm.boards(),
            bytes,
            crowding: comm.crowding(),
            gpus: None,
        };
        let asked = choose(&question, Some(PlanOverride::from(algorithm)), &comm.costs()).ok()?;
        let chosen = asked
            .candidates
            .iter()
            .find(|candidate| candidate.verdict == CandidateVerdict::Chosen)?;
        // The tuner chooses the first of equally cheap candidates.
        let cheapest = asked.candidates.iter().min_by_key(|candidate| candidate.predicted_ns)?;
        Some(Self { us: chosen.predicted_ns as f64 / 1e3, choice: cheapest.plan.algorithm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::DataType;

    #[test]
    fn the_choice_is_the_communicators() {
        let comm = Communicator::local(4).remove(0);
        for bytes in [8, 4096, 1 << 20] {
            let said =
                TunerPrediction::of(&comm, Collective::AllReduce, bytes, Algorithm::Ring).unwrap();
            assert_eq!(
                said.choice,
                comm.algorithm(Collective::AllReduce, bytes / 4, DataType::F32).unwrap()
            );
            assert!(said.us > 0.0);
        }
    }
}
