//! Why calls run as they do: the tuner's choice, its costs, and the settings that ranks share.

use crate::algorithms::Algorithm;
use crate::comm::Communicator;
use crate::element::DataType;
use crate::engine::calls::call::{CollectiveCall, Reduction};
use crate::engine::calls::counts::CallCount;
use crate::error::Result;
use crate::schedule::collective::Collective;
use crate::tuner::{CostTable, Explanation};

impl Communicator {
    /// The costs of messages and bytes by which the tuner chooses: rank 0's table, the same on
    /// every rank. Waits for requests in flight.
    pub fn costs(&self) -> CostTable {
        self.engine.get().conditions.costs
    }

    /// How many ranks share a core where they are most crowded, rounded up.
    pub fn crowding(&self) -> usize {
        self.conditions().crowding
    }

    /// Why `collective` of `bytes` bytes in all (of the vector, or of all blocks together) runs as
    /// it does: every candidate with its predicted time, the refused ones with the reason, and the
    /// winner.
    ///
    /// Not collective: any rank may call this alone.
    ///
    /// ```
    /// use maypole::{Communicator, schedule::collective::Collective};
    /// let explanations = Communicator::run_local(2, |mut comm| {
    ///     comm.explain(Collective::AllReduce, 4096)
    /// });
    /// println!("{}", explanations[0]);
    /// assert_eq!(explanations[0].bytes, 4096);
    /// ```
    ///
    /// # Panics
    /// If the collective's root is not one of the ranks.
    pub fn explain(&mut self, collective: Collective, bytes: usize) -> Explanation {
        self.engine.get_mut().explain(collective, bytes, &self.hosts)
    }

    /// The algorithm that `collective` runs by, for vectors or blocks of `count` elements of
    /// `kind`.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if an algorithm was named that does not implement it.
    pub fn algorithm(
        &self,
        collective: Collective,
        count: usize,
        kind: DataType,
    ) -> Result<Algorithm> {
        let engine = self.engine.get();
        let (settings, operands) = (&engine.settings, (kind, CallCount::Even(count)));
        let call = CollectiveCall::new(settings, collective, operands, Reduction::NONE, false);
        Ok(engine.chooser().plan(call)?.algorithm)
    }
}
