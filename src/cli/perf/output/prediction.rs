//! The time that the tuner predicts for a point.

use maypole::Communicator;
use maypole::algorithms::Algorithm;
use maypole::schedule::Schedule;
use maypole::schedule::collective::Collective;
use maypole::tuner::{Explanation, Question, choose, price_of_schedules};

/// The tuner's prediction for one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TunerPrediction {
    /// Predicted microseconds of the algorithm that was measured.
    pub(crate) us: f64,
    /// The algorithm that the tuner chooses.
    pub(crate) choice: Algorithm,
}

impl TunerPrediction {
    /// Predicts for the explained plan.
    pub(crate) fn of(explained: &Explanation) -> Option<Self> {
        let choice = explained.choice.as_ref().ok()?;
        let chosen = choice.candidates.iter().find(|candidate| candidate.plan == choice.plan)?;
        let us = chosen.predicted_ns as f64 / 1e3;
        // The tuner chooses the first of equally cheap candidates.
        let cheapest = choice.candidates.iter().min_by_key(|candidate| candidate.predicted_ns)?;
        Some(Self { us, choice: cheapest.plan.algorithm })
    }

    /// Predicts for `schedules` of a user, one for each rank, by the same costs.
    pub(crate) fn of_schedules(
        comm: &Communicator,
        collective: Collective,
        bytes: usize,
        schedules: &[Schedule],
    ) -> Option<Self> {
        let (boards, crowding) = (comm.boards(), comm.crowding());
        let question = Question { collective, boards, bytes, crowding, gpus: None };
        let priced = price_of_schedules(&question, schedules, &comm.costs()).ok()?;
        let choice = choose(&question, None, &comm.costs()).ok()?.plan.algorithm;
        Some(Self { us: priced as f64 / 1e3, choice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::DataType;

    /// The library's own schedules cost as much in a file.
    #[test]
    fn schedules_of_a_file_are_priced_as_those_of_the_table() {
        let mut comm = Communicator::local(4).remove(0);
        let collective = Collective::AllReduce;
        for algorithm in [Algorithm::Ring, Algorithm::TwoShot] {
            let schedules = algorithm.schedules(collective, 4).unwrap();
            let priced = |bytes| {
                TunerPrediction::of_schedules(&comm, collective, bytes, &schedules).unwrap().us
            };
            let [short, long] = [4096, 1 << 22].map(priced);
            assert!(long > 10.0 * short);
            comm.set_algorithm(Some(algorithm));
            let table = TunerPrediction::of(&comm.explain(collective, 4096)).unwrap();
            assert_eq!(short, table.us, "{algorithm}");
        }
    }

    #[test]
    fn the_choice_is_the_communicators() {
        let mut comm = Communicator::local(4).remove(0);
        for bytes in [8, 4096, 1 << 20] {
            let choice = comm.algorithm(Collective::AllReduce, bytes / 4, DataType::F32).unwrap();
            comm.set_algorithm(Some(Algorithm::Ring));
            let said = TunerPrediction::of(&comm.explain(Collective::AllReduce, bytes)).unwrap();
            comm.set_algorithm(None);
            assert_eq!(said.choice, choice);
            assert!(said.us > 0.0);
        }
    }
}
