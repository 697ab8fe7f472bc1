//! What the tuner said beforehand.

use maypole::Communicator;
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::tuner::{CandidateVerdict, PlanOverride, Question, choose};

/// The tuner's words on one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// Microseconds that the algorithm which was measured would take.
    pub(crate) us: f64,
    /// The algorithm that it would have chosen.
    pub(crate) choice: Algorithm,
}

impl Prediction {
    /// For `algorithm` over `comm`, by the costs that it goes by. It prices every row, which takes
    /// a while.
    pub(crate) fn of(
        comm: &Communicator,
        collective: Collective,
        bytes: usize,
        algorithm: Algorithm,
    ) -> Option<Self> {
        let question =
            Question { collective, boards: comm.boards(), bytes, crowding: comm.crowding() };
        let asked = choose(&question, Some(PlanOverride::from(algorithm)), comm.costs()).ok()?;
        let chosen = asked
            .candidates
            .iter()
            .find(|candidate| candidate.verdict == CandidateVerdict::Chosen)?;
        // Ties go to the first.
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
                Prediction::of(&comm, Collective::AllReduce, bytes, Algorithm::Ring).unwrap();
            assert_eq!(
                said.choice,
                comm.algorithm(Collective::AllReduce, bytes / 4, DataType::F32).unwrap()
            );
            assert!(said.us > 0.0);
        }
    }
}
