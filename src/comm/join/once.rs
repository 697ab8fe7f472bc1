//! A process joins the job that it was started for once.

use crate::error::{Error, Result};
use crate::world::bootstrap::JoinStop;
use crate::world::launch::Launch;
use maypole_transports::lock;
use std::sync::{Mutex, MutexGuard};

/// The job that this process has joined, or is joining.
static NOTE: Mutex<Option<JoinNote>> = Mutex::new(None);

struct JoinNote {
    /// A forked child has not joined.
    process: u32,
    job: String,
    rank: usize,
    /// Ends the pending join; `None` once it has succeeded.
    stop: Option<JoinStop>,
}

/// A pending join. Removes its note on drop, unless the process has joined.
pub(super) struct JoiningOnce(Option<JoinStop>);

impl JoiningOnce {
    /// Notes that this process joins the job of `launch`, until `stop` ends that. A world of one can
    /// be joined repeatedly.
    ///
    /// # Errors
    /// [`Error::Join`] if it has joined that job already, or joins it in another thread. Other
    /// ranks would take it for another process that claims its rank, and rank 0 would wait for
    /// ranks that are in the first world.
    pub(super) fn begin(launch: &Launch, stop: &JoinStop) -> Result<Self> {
        let (rank, world) = (launch.rank, launch.world);
        if world == 1 {
            return Ok(Self(None));
        }
        let process = std::process::id();
        let mut note = lock(&NOTE);
        let is_same =
            |it: &JoinNote| (it.process, &it.job, it.rank) == (process, &launch.job, rank);
        let goes_on = |it: &JoinNote| !it.stop.as_ref().is_some_and(JoinStop::is_stopped);
        if note.as_ref().is_some_and(|it| is_same(it) && goes_on(it)) {
            return Err(Error::wrong_setting(format!(
                "this process has joined job '{}' already, as rank {rank} of {world}, and joins it \
                 once: for another group use duplicate() or split() of that communicator",
                launch.job
            )));
        }
        *note = Some(JoinNote { process, job: launch.job.clone(), rank, stop: Some(stop.clone()) });
        Ok(Self(Some(stop.clone())))
    }

    /// Keeps the note: this process has joined.
    pub(super) fn joined(mut self) {
        if let Some(mut note) = self.own_note()
            && let Some(note) = &mut *note
        {
            note.stop = None;
        }
    }

    /// The note, if it is that of this join and not of a later one.
    fn own_note(&mut self) -> Option<MutexGuard<'static, Option<JoinNote>>> {
        let stop = self.0.take()?;
        let note = lock(&NOTE);
        note.as_ref().is_some_and(|it| it.stop.as_ref() == Some(&stop)).then_some(note)
    }
}

impl Drop for JoiningOnce {
    fn drop(&mut self) {
        if let Some(mut note) = self.own_note() {
            *note = None;
        }
    }
}
