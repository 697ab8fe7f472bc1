//! The time that the tuner predicts for a point.

use maypole::Communicator;
use maypole::algorithms::Algorithm;
use maypole::schedule::Schedule;
use maypole::schedule::collective::Collective;
use maypole::tuner::{Choice, PlanOverride, Question, choose, price_of_schedules};

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
        let question = question(comm, collective, bytes);
        let asked = choose(&question, Some(PlanOverride::from(algorithm)), &comm.costs()).ok()?;
        Self::of_choice(&asked)
    }

    /// Predicts for the chosen plan.
    fn of_choice(choice: &Choice) -> Option<Self> {
        let chosen = choice.candidates.iter().find(|candidate| candidate.plan == choice.plan)?;
        let us = chosen.predicted_ns as f64 / 1e3;
        // The tuner chooses the first of equally cheap candidates.
        let cheapest = choice.candidates.iter().min_by_key(|candidate| candidate.predicted_ns)?;
        Some(Self { us, choice: cheapest.plan.algorithm })
    }

    /// Predicts by the prices by which the group `gpu` chooses, for the algorithm that it is given.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_gpus(
        gpu: &maypole::cuda::Comm,
        collective: Collective,
        bytes: usize,
    ) -> Option<Self> {
        Self::of_choice(gpu.explain(collective, bytes).choice.as_ref().ok()?)
    }

    /// Predicts for `schedules` of a user, one for each rank, by the same costs.
    pub(crate) fn of_schedules(
        comm: &Communicator,
        collective: Collective,
        bytes: usize,
        schedules: &[Schedule],
    ) -> Option<Self> {
        let question = question(comm, collective, bytes);
        let priced = price_of_schedules(&question, schedules, &comm.costs()).ok()?;
        let choice = choose(&question, None, &comm.costs()).ok()?.plan.algorithm;
        Some(Self { us: priced as f64 / 1e3, choice })
    }
}

fn question(comm: &Communicator, collective: Collective, bytes: usize) -> Question<'_> {
    let (boards, crowding) = (comm.boards(), comm.crowding());
    Question { collective, boards, bytes, crowding, gpus: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maypole::DataType;

    /// The library's own schedules cost as much in a file.
    #[test]
    fn schedules_of_a_file_are_priced_as_those_of_the_table() {
        let comm = Communicator::local(4).remove(0);
        let collective = Collective::AllReduce;
        for algorithm in [Algorithm::Ring, Algorithm::TwoShot] {
            let schedules = algorithm.schedules(collective, 4).unwrap();
            let priced = |bytes| {
                TunerPrediction::of_schedules(&comm, collective, bytes, &schedules).unwrap().us
            };
            let table =
                |bytes| TunerPrediction::of(&comm, collective, bytes, algorithm).unwrap().us;
            assert_eq!(priced(4096), table(4096), "{algorithm}");
            assert!(priced(1 << 22) > 10.0 * priced(4096));
        }
    }

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
