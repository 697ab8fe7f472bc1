//! In which order the ranks are combined: what a call demands, and which algorithms give it.

use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::comm::engine::Engine;
use crate::comm::engine::call::Call;
use crate::schedule::Placement;
use crate::schedule::collective::Collective;
use crate::schedule::verify::{Proof, verify};

/// How the contributions of the ranks must be combined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Demand {
    /// In any order, grouped in any way.
    Nothing,
    /// In the order of the ranks, grouped in any way.
    RankOrder,
    /// `((x0 op x1) op x2) op ...`
    LeftToRight,
}

impl Demand {
    fn of(call: Call) -> Self {
        match call.deterministic && !call.op.is_exact(call.kind) {
            true => Self::LeftToRight,
            false if call.op.needs_order() => Self::RankOrder,
            false => Self::Nothing,
        }
    }

    fn is_met_by(self, proof: Proof) -> bool {
        match self {
            Self::Nothing => true,
            Self::RankOrder => proof.keeps_rank_order,
            Self::LeftToRight => proof.keeps_rank_order && proof.left_to_right,
        }
    }

    /// What `call` asks and is not given, said of who does not give it.
    fn lack(self, call: Call) -> String {
        match self {
            Self::LeftToRight => {
                "does not combine the ranks one by one from left to right, as a deterministic call needs".to_owned()
            }
            _ => format!("does not combine the ranks in their order, as {} needs", call.op),
        }
    }
}

/// Why schedules of which this is proved do not combine the ranks as `call` demands, if they do
/// not.
pub(crate) fn lack_of_order_in(proof: Proof, call: Call) -> Option<String> {
    let demand = Demand::of(call);
    if !call.collective.reduces() || demand.is_met_by(proof) {
        None
    } else {
        Some(demand.lack(call))
    }
}

impl Communicator {
    /// Says whether the calls that follow are *deterministic*: each element of a reduction is `((x0
    /// op x1) op x2) op ... x(n-1)`, the plain loop over the ranks, whatever the number of
    /// elements, the transport, the hosts and the version. All ranks must say the same: it is part
    /// of what calls are compared by. At first `MAYPOLE_DETERMINISTIC`, or false. Groups split off
    /// later inherit it.
    ///
    /// Without it, results are the same on every run and on all ranks too, but depend on which
    /// algorithm the tuner chooses: see [the contract](crate::comm::element#determinism), which
    /// also says what this costs.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let sums = Communicator::run_local(4, |mut comm| {
    ///     comm.set_deterministic(true);
    ///     let mut x = [[1e8f32, 1.0, -1e8, 1.0][comm.rank()]; 1000];
    ///     comm.all_reduce(&mut x, ReduceOp::Sum).unwrap();
    ///     x[0]
    /// });
    /// assert_eq!(sums, [((1e8 + 1.0) + -1e8) + 1.0; 4]);
    /// ```
    pub fn set_deterministic(&mut self, deterministic: bool) {
        self.engine.change(move |engine| engine.deterministic = deterministic);
    }

    /// True if reductions are the plain loop over the ranks.
    pub fn is_deterministic(&self) -> bool {
        self.engine.deterministic
    }
}

impl Engine {
    /// What a call of `collective` says of the mode; what does not combine is the same in both.
    #[inline]
    pub(crate) fn deterministic(&self, collective: Collective) -> bool {
        self.deterministic && collective.reduces()
    }

    /// Why `algorithm` does not combine the ranks as `call` demands, if it does not.
    pub(crate) fn lack_of_order(&self, call: Call, algorithm: Algorithm) -> Option<String> {
        let demand = Demand::of(call);
        if self.meets(call.collective, algorithm, demand) { None } else { Some(demand.lack(call)) }
    }

    /// True if `algorithm` may do sums of floats, as far as their order goes.
    pub(crate) fn is_fit(&self, collective: Collective, algorithm: Algorithm) -> bool {
        !self.deterministic || self.meets(collective, algorithm, Demand::LeftToRight)
    }

    /// Derived from the schedules of `algorithm`, not declared.
    fn meets(&self, collective: Collective, algorithm: Algorithm, demand: Demand) -> bool {
        if demand == Demand::Nothing || !collective.reduces() {
            return true;
        }
        let proof = verify(collective, &self.schedules(collective, algorithm), Placement::Apart);
        proof.is_ok_and(|proof| demand.is_met_by(proof))
    }
}
