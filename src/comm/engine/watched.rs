//! Calls that somebody looks at: timed for explanations, recorded for traces.
//!
//! All of it is off the path of other calls, which ask once whether there is anybody.

use crate::comm::Communicator;
use crate::comm::engine::Engine;
use crate::comm::engine::call::Call;
use crate::comm::error::Result;
use crate::execute::record::{ProgramNotes, Recorder, TraceFile};
use crate::lower::Program;
use maypole_kernels::{Scalar, View, ViewMut};
use maypole_transports::clock::monotonic_ns;
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
    /// Records what the calls that follow do, step by step and wait by wait, of this communicator
    /// and of those that are [split](Self::split) from it, in `file`, which
    /// <https://ui.perfetto.dev> and `chrome://tracing` open. Collective. `MAYPOLE_TRACE=FILE` does
    /// the same from the beginning.
    ///
    /// All ranks of a host write into one file, which is made anew; with `{rank}` in its name, each
    /// writes into its own. They do so between calls, now and then, and when they are dropped; what
    /// was written is whole at any time. See [`record`](crate::execute::record) for what is
    /// recorded, what it costs and where it ends. Times of different hosts are only as comparable
    /// as it took them to come to this call at the same time.
    ///
    /// A file that cannot be written is no error: it is complained of on standard error, and
    /// nothing is recorded.
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
        let machine = self.hosts.of(rank);
        let first = self.hosts.index(rank) == 0;
        let made = if own || first { TraceFile::create(&path) } else { Ok(()) };
        if let Err(error) = &made {
            eprintln!("maypole: {}: nothing is traced: {error}", path.display());
        }
        let hellos = self.greet(made.is_ok())?;
        // Nobody complains of a file that another rank could not make.
        let unmade = |(other, hello): (usize, &Option<Hello>)| {
            hello.is_none() && self.hosts.together(other, rank)
        };
        let mine = &hellos[rank];
        if let Some(mine) = mine.as_ref().filter(|_| own || !hellos.iter().enumerate().any(unmade))
        {
            let known = |hello: &&Hello| hello.boot == mine.boot;
            let origin =
                hellos.iter().flatten().find(known).expect("it is ours, or came before it").now;
            let file = TraceFile::new(
                path,
                origin,
                machine,
                format!("host {}", crate::comm::control::join::host_name()),
            );
            self.engine.record(Recorder::new(rank, Arc::new(file)));
        }
        Ok(())
    }

    /// Tells all ranks what this one's clock shows, unless it cannot record. Files are made before
    /// and written after.
    fn greet(&mut self, records: bool) -> Result<Vec<Option<Hello>>> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut blob = monotonic_ns().to_le_bytes().to_vec();
        blob.extend(boot.as_bytes());
        let deadline = self.engine.deadline();
        let exchanged =
            self.engine.control.exchange(if records { blob } else { Vec::new() }, deadline);
        let blobs = exchanged.map_err(|why| self.engine.unconnected("trace".to_owned(), why))?;
        let hello = |blob: &Vec<u8>| {
            let (now, boot) = blob.split_first_chunk()?;
            Some(Hello {
                now: u64::from_le_bytes(*now),
                boot: String::from_utf8_lossy(boot).into_owned(),
            })
        };
        Ok(blobs.iter().map(hello).collect())
    }
}

/// Who looks at the calls of a communicator.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Whether calls are timed.
    timed: bool,
    pub(crate) recorder: Option<Recorder>,
}

impl Engine {
    /// Has calls timed from now on.
    pub(crate) fn time(&mut self) {
        self.watching.get_or_insert_default().timed = true;
        self.forget_current();
    }

    /// Has calls recorded from now on.
    fn record(&mut self, recorder: Recorder) {
        self.watching.get_or_insert_default().recorder = Some(recorder);
        // What was made ready before has no notes.
        self.forget();
    }

    /// Has the calls of a group that was split off looked at as those of its `parent` are.
    /// `members` are ranks of the parent, and `number` is that of the split.
    pub(crate) fn watch_like(&mut self, parent: &Self, members: &[usize], number: u64) {
        let Some(Watching { timed, recorder }) = parent.watching.as_deref() else { return };
        let of_group = |recorder: &Recorder| {
            let name = match recorder.name() {
                "" => format!("group {number}"),
                outer => format!("{outer}.{number}"),
            };
            // Groups of one split have disjoint members, so the first one tells them apart.
            recorder.of_group((number << 32) ^ members[0] as u64, &name)
        };
        self.watching =
            Some(Box::new(Watching { timed: *timed, recorder: recorder.as_ref().map(of_group) }));
    }

    /// Performs the current call while it is looked at.
    #[cold]
    #[inline(never)]
    pub(crate) fn perform_watched(
        &mut self,
        call: Call,
        factor: Option<Scalar>,
        input: View<'_>,
        output: ViewMut<'_>,
    ) -> Result<()> {
        let (start, sequence) = (Instant::now(), self.sequence);
        self.pulse.enter(sequence);
        let at = self.current;
        let (executor, ready) = (&mut self.executor, &self.ready[at]);
        let buffers = ready.buffers(factor, input, output);
        let recorder = self.watching.as_mut().and_then(|watching| watching.recorder.as_mut());
        let done = match (recorder, &ready.notes) {
            (Some(recorder), Some(notes)) if recorder.is_recording() => {
                recorder.call(sequence, notes, |it| {
                    executor.run_observed(&ready.program, &ready.combine, &buffers, it)
                })
            }
            _ => executor.run(&ready.program, &ready.combine, &buffers),
        };
        self.finish(at, call, output, done)?;
        if self.watching.as_ref().is_some_and(|watching| watching.timed) {
            let nanoseconds = start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
            self.ready[at].measured.note(nanoseconds);
        }
        Ok(())
    }

    /// What a recorder wants to know of a call, if there is one.
    pub(crate) fn notes(
        &self,
        call: Call,
        algorithm: &'static str,
        bytes: usize,
        program: &Program,
    ) -> Option<Arc<ProgramNotes>> {
        self.watching.as_ref()?.recorder.as_ref()?;
        let rank = self.rank;
        let locals = self.boards.locals(rank);
        Some(Arc::new(ProgramNotes {
            operation: call.to_string(),
            algorithm,
            bytes,
            rank,
            locals,
            program: program.clone(),
        }))
    }
}
