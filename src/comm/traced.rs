//! Having calls recorded.

use super::Communicator;
use super::call::Call;
use super::engine::Engine;
use crate::error::Result;
use crate::lower::Program;
use crate::record::{Notes, Recorder, TraceFile};
use crate::tuner::Plan;
use maypole_transports::clock::monotonic_ns;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// What stands for the rank in a file's name.
const RANK: &str = "{rank}";

/// What a rank tells the others before they record.
struct Hello {
    /// Ranks with equal marks read one clock, and most likely one file system.
    boot: String,
    now: u64,
}

impl Communicator {
    /// Records what the calls that follow do, step by step and wait by wait, of this communicator and of those that are
    /// [split](Self::split) from it, in `file`, which <https://ui.perfetto.dev> and `chrome://tracing` open. Collective.
    /// `MAYPOLE_TRACE=FILE` does the same from the beginning.
    ///
    /// All ranks of a host write into one file, which is made anew; with `{rank}` in its name, each writes into its own.
    /// They do so between calls, now and then, and when they are dropped; what was written is whole at any time. See
    /// [`record`](crate::record) for what is recorded, what it costs and where it ends. Times of different hosts are only
    /// as comparable as it took them to come to this call at the same time.
    ///
    /// A file that cannot be written is no error: it is complained of on standard error, and nothing is recorded.
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
    /// [`Error::Connect`](crate::Error::Connect) if not all ranks call it in time.
    pub fn trace(&mut self, file: &str) -> Result<()> {
        self.engine.check()?;
        let (rank, own) = (self.rank(), file.contains(RANK));
        let path = PathBuf::from(file.replace(RANK, &rank.to_string()));
        let machine = self.machines[rank];
        let first = self.machines.iter().position(|other| *other == machine) == Some(rank);
        let made = if own || first { TraceFile::create(&path) } else { Ok(()) };
        if let Err(error) = &made {
            eprintln!("maypole: {}: nothing is traced: {error}", path.display());
        }
        let hellos = self.greet(made.is_ok())?;
        // Nobody complains of a file that another rank could not make.
        let unmade = |(other, hello): (usize, &Option<Hello>)| hello.is_none() && self.machines[other] == machine;
        let mine = &hellos[rank];
        if let Some(mine) = mine.as_ref().filter(|_| own || !hellos.iter().enumerate().any(unmade)) {
            let known = |hello: &&Hello| hello.boot == mine.boot;
            let origin = hellos.iter().flatten().find(known).expect("it is ours, or came before it").now;
            let file = TraceFile::new(path, origin, machine, format!("host {}", super::open::host_name()));
            self.engine.record(Recorder::new(rank, Arc::new(file)));
        }
        Ok(())
    }

    /// Tells all ranks what this one's clock shows, unless it cannot record. Files are made before and written after.
    fn greet(&mut self, records: bool) -> Result<Vec<Option<Hello>>> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut blob = monotonic_ns().to_le_bytes().to_vec();
        blob.extend(boot.as_bytes());
        let deadline = Instant::now() + self.engine.timeout;
        let exchanged = self.engine.control.exchange(if records { blob } else { Vec::new() }, deadline);
        let blobs = exchanged.map_err(|why| self.engine.unconnected("trace".to_owned(), why))?;
        let hello = |blob: &Vec<u8>| {
            let (now, boot) = blob.split_first_chunk()?;
            Some(Hello { now: u64::from_le_bytes(*now), boot: String::from_utf8_lossy(boot).into_owned() })
        };
        Ok(blobs.iter().map(hello).collect())
    }
}

impl Engine {
    /// Has calls recorded from now on.
    fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(Box::new(recorder));
        // What was made ready before has no notes.
        (self.ready, self.known, self.current) = (Vec::new(), HashMap::new(), usize::MAX);
    }

    /// Has the calls of a group that was split off recorded, too. `members` are ranks of the `parent`, and `number` is
    /// that of the split.
    pub(super) fn record_as(&mut self, parent: &Self, members: &[usize], number: u64) {
        let Some(recorder) = &parent.recorder else { return };
        let name = match recorder.name() {
            "" => format!("group {number}"),
            outer => format!("{outer}.{number}"),
        };
        // Groups of one split have disjoint members, so the first one tells them apart.
        let group = (number << 32) ^ members[0] as u64;
        self.recorder = Some(Box::new(recorder.of_group(group, &name)));
    }

    /// What a recorder wants to know of a call, if there is one.
    pub(super) fn notes(&self, call: Call, plan: Plan, bytes: usize, program: &Program) -> Option<Arc<Notes>> {
        self.recorder.as_ref()?;
        let (rank, hosts) = (self.rank, &self.hosts);
        let locals = (0..self.world).filter(|peer| hosts[*peer] == hosts[rank]).collect();
        let (operation, algorithm) = (call.to_string(), plan.algorithm.name());
        Some(Arc::new(Notes { operation, algorithm, bytes, rank, locals, program: program.clone() }))
    }
}
