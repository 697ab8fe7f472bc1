//! How a rank carries out each kind of step.

use crate::buffers::Buffers;
use crate::plan::Call;
use crate::rank::{Done, Graph, Member, Rank, Trouble};
use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaStream, DriverError};
use maypole::cuda::Comm;
use maypole::{Error, ReduceOp};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The folder for the marks of barriers, which all processes of a round share.
pub(crate) const MARKS: &str = "SOAK_MARKS";

impl Member {
    /// Records how a call ended: after an error none may succeed.
    fn noted(&mut self, done: Result<(), Error>) -> Done {
        match done {
            Ok(()) if self.has_failed => {
                Err(Trouble::Wrong("a call succeeds, and one before it had failed".to_owned()))
            }
            Ok(()) => Ok(()),
            Err(error) => {
                self.has_failed |= !error.is_harmless();
                Err(error.into())
            }
        }
    }

    /// The second stream comes after the first one, unless the two may overlap.
    fn fork(&self, overlaps: bool) -> Result<(), DriverError> {
        if overlaps { Ok(()) } else { self.beside.join(&self.stream) }
    }

    /// The first stream comes after the second one, unless the two may overlap.
    fn merge(&self, overlaps: bool) -> Result<(), DriverError> {
        if overlaps { Ok(()) } else { self.stream.join(&self.beside) }
    }
}

impl Rank<'_> {
    /// The group, if this rank has it still.
    fn comm(&self, group: usize) -> Result<Arc<Comm>, Trouble> {
        let member = self.members.get(group).and_then(Option::as_ref);
        let comm = member.and_then(|member| member.comm.clone());
        comm.ok_or_else(|| Trouble::Error(format!("there is no group {group}")))
    }

    fn member(&mut self, group: usize) -> &mut Member {
        self.members[group].as_mut().expect("the group was found")
    }

    fn buffers(&mut self, call: usize) -> Result<&mut Box<dyn Buffers>, Trouble> {
        let found = self.calls.get_mut(&call);
        found.ok_or_else(|| Trouble::Error(format!("call {call} has no buffers")))
    }

    pub(crate) fn call(&mut self, call: usize) -> Done {
        let Call { group, what, .. } = self.plan.calls[call];
        let comm = self.comm(group)?;
        if !what.needs(comm.rank()) {
            return Ok(());
        }
        let is_barrier = what.is_barrier();
        if is_barrier {
            let mark = mark(call, comm.rank());
            on_stream(self.member(group), move || drop(std::fs::write(mark, "")))?;
        }
        let done = self.buffers(call)?.issue(&comm);
        self.member(group).noted(done)?;
        self.member(group).pending.push((call, 0));
        if is_barrier {
            let marks: Vec<PathBuf> = (0..comm.world_size()).map(|rank| mark(call, rank)).collect();
            let passed_early = Arc::clone(&self.member(group).passed_early);
            let look = move || {
                let early = !marks.iter().all(|mark| mark.exists());
                passed_early.fetch_or(early, Ordering::SeqCst);
            };
            on_stream(self.member(group), look)?;
        }
        Ok(())
    }

    pub(crate) fn batch(&mut self, calls: &[usize], ends: bool) -> Done {
        let group = self.plan.calls[calls[0]].group;
        let comm = self.comm(group)?;
        // Each call in turn is borrowed by the batch.
        let mut taken = Vec::new();
        for call in calls {
            let buffers = self.calls.remove(call);
            let buffers = buffers.ok_or_else(|| format!("call {call} has no buffers"))?;
            taken.push((*call, buffers));
        }
        let mut batch = comm.group();
        let added = taken.iter_mut().try_for_each(|(_, buffers)| buffers.add(&mut batch));
        let done = match ends {
            true => added.and_then(|()| batch.end()),
            false => {
                drop(batch);
                added
            }
        };
        self.calls.extend(taken);
        let needs = calls.iter().any(|call| self.plan.calls[*call].what.needs(comm.rank()));
        let member = self.member(group);
        // A batch that is dropped reports no error; the next call does.
        if (ends && needs) || done.is_err() {
            member.noted(done)?;
        }
        member.pending.extend(calls.iter().map(|call| (*call, 0)));
        Ok(())
    }

    pub(crate) fn capture(&mut self, graph: usize, calls: &[usize], beside: bool) -> Done {
        let group = self.plan.calls[calls[0]].group;
        let comm = self.comm(group)?;
        self.captured(graph, (group, calls), beside, |rank| {
            for call in calls {
                if rank.plan.calls[*call].what.needs(comm.rank()) {
                    let done = rank.buffers(*call)?.issue(&comm);
                    rank.member(group).noted(done)?;
                }
            }
            Ok(())
        })
    }

    pub(crate) fn capture_new(&mut self, graph: usize, call: usize) -> Done {
        let group = self.plan.calls[call].group;
        let comm = self.comm(group)?;
        self.captured(graph, (group, &[call]), false, |rank| {
            let mut batch = comm.group();
            Ok(rank.buffers(call)?.add(&mut batch)?)
        })
    }

    /// Captures what `work` starts.
    fn captured(
        &mut self,
        graph: usize,
        (group, calls): (usize, &[usize]),
        beside: bool,
        work: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        let member = self.member(group);
        let (stream, second) = (Arc::clone(&member.stream), Arc::clone(&member.beside));
        let from = if beside { &second } else { &stream };
        from.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        if beside {
            self.member(group).merge(false)?;
        }
        let done = work(self);
        if beside {
            self.member(group).fork(false)?;
        }
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let made = from.end_capture(flags)?;
        done?;
        let made = made.ok_or_else(|| "nothing was captured".to_owned())?;
        let calls = calls.to_vec();
        self.graphs.insert(graph, Graph { graph: made, group, calls, beside });
        Ok(())
    }

    pub(crate) fn replay(&mut self, graph: usize, nth: usize, overlaps: bool) -> Done {
        let found = self.graphs.remove(&graph);
        let found = found.ok_or_else(|| format!("there is no graph {graph}"))?;
        let done = self.replay_of(&found, nth, overlaps);
        self.graphs.insert(graph, found);
        done
    }

    fn replay_of(&mut self, graph: &Graph, nth: usize, overlaps: bool) -> Done {
        let Graph { graph, group, calls, beside } = graph;
        self.comm(*group)?;
        let member = self.member(*group);
        let stream = Arc::clone(if *beside { &member.beside } else { &member.stream });
        if *beside {
            member.fork(overlaps)?;
        }
        for call in calls {
            self.buffers(*call)?.load(nth, &stream)?;
        }
        graph.launch()?;
        for call in calls {
            self.buffers(*call)?.save(nth, &stream)?;
        }
        let member = self.member(*group);
        if *beside {
            member.merge(overlaps)?;
        }
        member.pending.extend(calls.iter().map(|call| (*call, nth)));
        Ok(())
    }

    /// The launch and the later calls return; the numbers are unspecified.
    pub(crate) fn replay_stale(&mut self, graph: usize) -> Done {
        if let Some(Graph { graph, group, .. }) = self.graphs.get(&graph) {
            let _ = graph.launch();
            let member = self.members[*group].as_ref().expect("it has captured a graph");
            let _ = member.beside.synchronize();
            let _ = member.stream.synchronize();
        }
        Ok(())
    }

    pub(crate) fn sync(&mut self, group: usize, checks: bool) -> Done {
        let comm = self.comm(group)?;
        let member = self.member(group);
        let pending = std::mem::take(&mut member.pending);
        let stream = Arc::clone(&member.stream);
        let driven = member.beside.synchronize();
        let driven = if checks { driven.and(stream.synchronize()) } else { driven };
        member.noted(if checks { comm.check() } else { comm.synchronize() })?;
        driven?;
        if member.passed_early.load(Ordering::SeqCst) {
            return Err(Trouble::Wrong("the stream passed a barrier before all came".to_owned()));
        }
        for (call, nth) in pending {
            if let Some(wrong) = self.buffers(call)?.check(nth, &stream)? {
                return Err(Trouble::Wrong(format!("call {call}, replay {nth}: {wrong}")));
            }
        }
        Ok(())
    }

    pub(crate) fn hold(&mut self, group: usize, millis: u64) -> Done {
        let held = self.members.get(group).and_then(Option::as_ref);
        let hold = move || std::thread::sleep(Duration::from_millis(millis));
        Ok(held.map_or(Ok(()), |member| on_stream(member, hold))?)
    }

    pub(crate) fn all_reduce_on_host(&mut self) -> Done {
        let mut sum = [self.rank as u64 + 1];
        self.world.all_reduce(&mut sum, ReduceOp::Sum)?;
        let right: u64 = (1..=self.plan.world as u64).sum();
        match sum == [right] {
            true => Ok(()),
            false => Err(Trouble::Wrong(format!("the host sums {sum:?} and not {right}"))),
        }
    }

    /// Waits for all streams, and checks the margins of all buffers, after any failure.
    pub(crate) fn end(&mut self) -> Done {
        for member in self.members.iter().flatten() {
            let _ = member.beside.synchronize();
            let _ = member.stream.synchronize();
        }
        for (call, buffers) in &self.calls {
            let group = self.plan.calls[*call].group;
            let Some(member) = &self.members[group] else { continue };
            // A context that has failed copies nothing.
            if let Ok(Some(wrong)) = buffers.check_margins(&member.stream) {
                return Err(Trouble::Wrong(format!("call {call}: {wrong}")));
            }
        }
        Ok(())
    }
}

/// The file that signals that the stream of `rank` has reached the barrier `call`.
fn mark(call: usize, rank: usize) -> PathBuf {
    let folder = std::env::var_os(MARKS).expect("the test sets it");
    PathBuf::from(folder).join(format!("{call}.{rank}"))
}

/// Adds `work` on the host to the stream of a group.
fn on_stream(member: &Member, work: impl FnOnce() + Send + 'static) -> Result<(), DriverError> {
    unsafe extern "C" fn run(work: *mut std::ffi::c_void) {
        // SAFETY: the pointer is that of the box below, and the function is called once.
        let work = unsafe { Box::from_raw(work.cast::<Box<dyn FnOnce()>>()) };
        work();
    }
    let work: Box<dyn FnOnce()> = Box::new(work);
    let work = Box::into_raw(Box::new(work)).cast();
    let stream: &CudaStream = &member.stream;
    // SAFETY: `run` takes the pointer that it is given, and the work may run on any thread.
    unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(run), work) }.result()
}

/// Kills this process.
pub(crate) fn kill() -> Done {
    let pid = std::process::id().to_string();
    let killed = Command::new("kill").args(["-s", "KILL", &pid]).status();
    Err(Trouble::Wrong(format!("the process outlives its end: {killed:?}")))
}
