//! Recording calls in a trace file.

use crate::comm::Communicator;
use crate::comm::join::host_name;
use crate::engine::agree::named_call;
use crate::error::Result;
use crate::execute::record::{Recorder, TraceFile};
use maypole_transports::clock::monotonic_ns;
use std::io::Write;
use std::path::PathBuf;

/// The placeholder for the rank in a file's name.
const RANK: &str = "{rank}";

impl Communicator {
    /// Records the calls that follow in `file`, step by step and wait by wait: calls of this
    /// communicator and of those that are [split](Self::split) from it.
    /// <https://ui.perfetto.dev> and `chrome://tracing` open the file. Collective.
    /// `MAYPOLE_TRACE=FILE` records from the beginning.
    ///
    /// All ranks of a host write into one file, which is made anew. With `{rank}` in its name, each
    /// rank writes a file of its own. Ranks write now and then between calls, and when they are
    /// dropped. The file is a whole trace whenever no rank is writing. See
    /// [`record`](crate::execute::record) for the recorded events, their cost and the end of the
    /// recording. Each host counts time from this call, so times of two hosts differ by as much as
    /// the hosts were apart in making this call.
    ///
    /// A file that cannot be written is no error: a warning goes to standard error, and nothing is
    /// recorded.
    ///
    /// ```
    /// use maypole::{Communicator, ReduceOp};
    /// let folder = tempfile::tempdir()?;
    /// let file = folder.path().join("trace.json");
    /// Communicator::run_local(2, |mut comm| {
    ///     comm.trace(&file.to_string_lossy()).unwrap();
    ///     comm.all_reduce(&mut [1.0f32; 100], ReduceOp::Sum).unwrap();
    /// });
    /// assert!(std::fs::read_to_string(file)?.contains("all_reduce(100 x f32, sum)"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if a rank makes another call instead;
    /// [`Error::TimedOut`](crate::Error::TimedOut) if not all ranks call it in time.
    pub fn trace(&mut self, file: &str) -> Result<()> {
        self.engine.get().health.check()?;
        let rank = self.rank();
        let has_own_file = file.contains(RANK);
        let path = PathBuf::from(file.replace(RANK, &rank.to_string()));
        let creates_file = has_own_file || self.hosts.index(rank) == 0;
        let created = if creates_file { TraceFile::create(&path) } else { Ok(()) };
        if let Err(error) = &created {
            // A closed standard error does not stop the program.
            let path = path.display();
            let _ = writeln!(std::io::stderr(), "maypole: {path}: nothing is traced: {error}");
        }
        // The boot id and the clock of each rank that can record. Ranks with equal boot ids read one clock,
        // and most likely write to one file system. Files are created before this exchange and written
        // after it.
        let boot =
            || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let reading = created.ok().map(|()| (boot(), monotonic_ns()));
        let engine = self.engine.get_mut();
        let readings: Vec<Option<(String, u64)>> =
            engine.tell_all(named_call("trace()"), &reading)?;
        // If a file could not be created on this host, the rank that creates it has warned.
        let is_missing = |other: usize| {
            readings[other].is_none() && self.hosts.together(other, rank) && !has_own_file
        };
        let Some((boot, _)) = &readings[rank] else { return Ok(()) };
        if (0..self.world()).any(is_missing) {
            return Ok(());
        }
        let first = readings.iter().flatten().find(|(other, _)| other == boot);
        let origin = first.expect("this rank reads its own clock").1;
        let host = format!("host {}", host_name());
        let recorded = TraceFile::new(path, origin, self.hosts.of(rank), host);
        self.engine.get_mut().record(Recorder::new(rank, file, recorded));
        Ok(())
    }
}
