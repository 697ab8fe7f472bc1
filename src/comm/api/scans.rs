//! Scans: running totals over the ranks.

use crate::comm::Communicator;
use crate::element::{Element, Loan, ReduceOp, lend};
use crate::error::Result;
use crate::schedule::collective::Collective;
use maypole_kernels::{View, ViewMut};

impl Communicator {
    /// Combines the `data` (`count`) of ranks 0 to this one, in rank order, into this rank's
    /// `data`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if `op` is an average, whose divisor would differ
    /// from rank to rank; else as every call.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let totals = Communicator::run_local(3, |mut comm| {
    ///     let mut x = [10 * (comm.rank() as i32 + 1)];
    ///     comm.scan(&mut x, ReduceOp::Sum).unwrap();
    ///     x[0]
    /// });
    /// assert_eq!(totals, [10, 30, 60]);
    /// ```
    pub fn scan<T: Element>(&mut self, data: &mut [T], op: ReduceOp) -> Result<()> {
        self.check_scan("scan", op)?;
        let count = data.len();
        let mut loan = lend(data);
        let view = loan.view();
        self.issue::<T>(Collective::Scan, op, count, true, view.as_view(), view)
    }

    /// [`scan`](Self::scan) from `input` (`count`) to `output` (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the lengths differ or `op` is an average; else
    /// as every call.
    pub fn scan_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        self.check_scan("scan", op)?;
        self.check_len("scan", "output", output.len(), input.len())?;
        self.issue::<T>(
            Collective::Scan,
            op,
            input.len(),
            false,
            View::of(input),
            lend(output).view(),
        )
    }

    /// Combines the `data` (`count`) of the ranks before this one, in rank order, into this rank's
    /// `data`. The `data` of rank 0 does not change.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn exclusive_scan<T: Element>(&mut self, data: &mut [T], op: ReduceOp) -> Result<()> {
        self.check_scan("exclusive_scan", op)?;
        let count = data.len();
        let mut loan = lend(data);
        let view = loan.view();
        let output = if self.rank() == 0 { ViewMut::EMPTY } else { view };
        self.issue::<T>(
            Collective::ExclusiveScan,
            op,
            count,
            self.rank() > 0,
            view.as_view(),
            output,
        )
    }

    /// [`exclusive_scan`](Self::exclusive_scan) from `input` (`count`) to `output` (`count`).
    /// Rank 0's output is not used and may be empty.
    ///
    /// # Errors
    /// As [`scan_into`](Self::scan_into).
    pub fn exclusive_scan_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        self.check_scan("exclusive_scan", op)?;
        if self.rank() > 0 {
            self.check_len("exclusive_scan", "output", output.len(), input.len())?;
        }
        let mut loan = (self.rank() > 0).then(|| lend(output));
        let output = loan.as_mut().map_or(ViewMut::EMPTY, Loan::view);
        self.issue::<T>(Collective::ExclusiveScan, op, input.len(), false, View::of(input), output)
    }

    pub(crate) fn check_scan(&self, operation: &'static str, op: ReduceOp) -> Result<()> {
        if op != ReduceOp::Avg {
            return Ok(());
        }
        Err(self.invalid(
            operation,
            "an average of running totals means nothing; take the sum".to_owned(),
        ))
    }
}
