//! Scans: running totals over the ranks.

use super::comm::Comm;
use crate::element::{Element, ReduceOp};
use crate::error::Result;
use crate::schedule::collective::Collective;
use cudarc::driver::{DevicePtr, DevicePtrMut};
use maypole_transports::cuda::Lent;

impl Comm {
    /// [`scan_in_place`](Self::scan_in_place) from `send` (`count`) to `receive` (`count`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the lengths differ, or if `op` is an average;
    /// else as every call.
    pub fn scan<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.lock().comm.check_scan("scan", *op)?;
        self.check_len("scan", "output", receive.len(), send.len())?;
        self.apart::<T>(Collective::Scan, *op, send.len(), Some(send), Some(receive))
    }

    /// Combines the `data` (`count`) of ranks 0 to this one, in rank order, into this rank's
    /// `data`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if `op` is an average; else as every call.
    pub fn scan_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.lock().comm.check_scan("scan", *op)?;
        let count = data.len();
        let stream = self.stream();
        let (data, _guard) = self.written("scan", data, &stream)?;
        self.issue::<T>(Collective::Scan, *op, count, true, data, data)
    }

    /// [`exclusive_scan_in_place`](Self::exclusive_scan_in_place) from `send` (`count`) to
    /// `receive` (`count`). That of rank 0 is not used and may be empty.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn exclusive_scan<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Element>(
        &self,
        send: &S,
        receive: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.lock().comm.check_scan("exclusive_scan", *op)?;
        let has_output = self.rank() > 0;
        if has_output {
            self.check_len("exclusive_scan", "output", receive.len(), send.len())?;
        }
        let receive = has_output.then_some(receive);
        self.apart::<T>(Collective::ExclusiveScan, *op, send.len(), Some(send), receive)
    }

    /// Combines the `data` (`count`) of the ranks before this one, in rank order, into this rank's
    /// `data`. That of rank 0 does not change.
    ///
    /// # Errors
    /// As [`scan_in_place`](Self::scan_in_place).
    pub fn exclusive_scan_in_place<R: DevicePtrMut<T>, T: Element>(
        &self,
        data: &mut R,
        op: &ReduceOp,
    ) -> Result<()> {
        self.lock().comm.check_scan("exclusive_scan", *op)?;
        let count = data.len();
        let stream = self.stream();
        let (data, _guard) = self.written("exclusive_scan", data, &stream)?;
        let is_first = self.rank() == 0;
        let output = if is_first { Lent::EMPTY } else { data };
        self.issue::<T>(Collective::ExclusiveScan, *op, count, !is_first, data, output)
    }
}
