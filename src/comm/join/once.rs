//! A process joins the job that it was started for once.

use crate::error::{Error, Result};
use crate::world::launch::Launch;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The job and the rank that this process has joined as, or joins as now, and its number: a forked
/// child has not joined.
static JOINED: Mutex<Option<(u32, String, usize)>> = Mutex::new(None);

/// Withdraws the note that this process joins, unless it has joined in the end.
pub(super) struct JoiningOnce(bool);

impl JoiningOnce {
    /// Notes that this process joins the job of `launch`. A world of one can be joined repeatedly.
    ///
    /// # Errors
    /// [`Error::Join`] if it has joined that job already. Other ranks would hold it for another process
    /// that claims its rank, and rank 0 would wait for ranks that are in the first world.
    pub(super) fn begin(launch: &Launch) -> Result<Self> {
        if launch.world == 1 {
            return Ok(Self(false));
        }
        let (rank, world) = (launch.rank, launch.world);
        let mine = (std::process::id(), launch.job.clone(), rank);
        let mut joined = joined();
        if joined.as_ref() == Some(&mine) {
            return Err(Error::wrong_setting(format!(
                "this process has joined job '{}' already, as rank {rank} of {world}, and joins it \
                 once: for another group use duplicate() or split() of that communicator",
                launch.job
            )));
        }
        *joined = Some(mine);
        Ok(Self(true))
    }

    /// Keeps the note: this process has joined.
    pub(super) fn joined(mut self) {
        self.0 = false;
    }
}

impl Drop for JoiningOnce {
    fn drop(&mut self) {
        if self.0 {
            *joined() = None;
        }
    }
}

fn joined() -> MutexGuard<'static, Option<(u32, String, usize)>> {
    JOINED.lock().unwrap_or_else(PoisonError::into_inner)
}
