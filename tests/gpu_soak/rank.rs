//! One rank carries out its steps, and reports how each one ended.

use crate::buffers::{Buffers, buffers};
use crate::plan::{Plan, Step};
use crate::spawn::say;
use crate::steps;
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, DriverError};
use maypole::cuda::{Comm, driver};
use maypole::{Communicator, Error};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a rank waits for another one while groups are made.
pub(crate) const LONGEST_START: Duration = Duration::from_secs(20);

/// How a step ended, if not well.
pub(crate) enum Trouble {
    Error(String),
    Wrong(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Error(error.to_string())
    }
}

impl From<DriverError> for Trouble {
    fn from(error: DriverError) -> Self {
        Self::Error(format!("the driver reports {:?}", error.0))
    }
}

impl From<String> for Trouble {
    fn from(error: String) -> Self {
        Self::Error(error)
    }
}

pub(crate) type Done = Result<(), Trouble>;

/// A group that this rank is in.
pub(crate) struct Member {
    /// `None` once it was dropped.
    pub(crate) comm: Option<Arc<Comm>>,
    pub(crate) rank: usize,
    pub(crate) stream: Arc<CudaStream>,
    /// A second stream, for graphs.
    pub(crate) beside: Arc<CudaStream>,
    /// Results that wait to be compared: calls, and the replays of those in graphs.
    pub(crate) pending: Vec<(usize, usize)>,
    pub(crate) has_failed: bool,
    /// Set by the stream when it passes a barrier before all members have reached it.
    pub(crate) passed_early: Arc<AtomicBool>,
}

pub(crate) struct Graph {
    pub(crate) graph: CudaGraph,
    pub(crate) group: usize,
    pub(crate) calls: Vec<usize>,
    pub(crate) beside: bool,
}

pub(crate) struct Rank<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) rank: usize,
    pub(crate) world: &'a mut Communicator,
    /// By group; `None` if this rank is no member.
    pub(crate) members: Vec<Option<Member>>,
    pub(crate) calls: HashMap<usize, Box<dyn Buffers>>,
    pub(crate) graphs: HashMap<usize, Graph>,
}

/// Carries out the steps of the rank that `world` is.
pub(crate) fn carry_out(plan: &Plan, mut world: Communicator) {
    let number = world.rank();
    let (members, calls, graphs) = (Vec::new(), HashMap::new(), HashMap::new());
    let world = &mut world;
    let mut rank = Rank { plan, rank: number, world, members, calls, graphs };
    let is_ready = rank.told("start", |rank| rank.prepare());
    let mut goes_on = is_ready;
    for (nth, step) in plan.steps[number].iter().enumerate() {
        // A rank that stops drops its resources.
        if goes_on || (is_ready && plan.goes_on) || matches!(step, Step::Drop(_)) {
            goes_on &= rank.told(&nth.to_string(), |rank| rank.step(step));
        }
    }
    rank.told("end", |rank| rank.end());
    say("ended", number);
}

impl Rank<'_> {
    /// Reports how `work` ended. True after success.
    fn told(&mut self, step: &str, work: impl FnOnce(&mut Self) -> Done) -> bool {
        let rank = self.rank;
        let trouble = match work(self) {
            Ok(()) => return true,
            Err(Trouble::Error(error)) => format!("error {error}"),
            Err(Trouble::Wrong(what)) => format!("wrong {what}"),
        };
        say("trouble", format!("rank {rank} step {step} {}", trouble.replace('\n', " | ")));
        false
    }

    /// Makes groups and buffers, and waits for the others: afterwards nothing is allocated.
    fn prepare(&mut self) -> Done {
        let plan = self.plan;
        self.world.set_timeout(plan.patience.max(LONGEST_START));
        let context = driver().map_err(|error| error.to_string())?;
        let context = context.context(self.rank % plan.driver.devices);
        let context = context.map_err(|error| error.to_string())?;
        context.bind_to_thread()?;
        if plan.quiet {
            // SAFETY: the steps order the streams that use a buffer.
            unsafe { context.disable_event_tracking() };
        }
        for group in &plan.groups {
            let member = self.join(group, &context)?;
            self.members.push(member);
        }
        for call in plan.steps[self.rank].iter().flat_map(calls_of) {
            let group = plan.calls[call].group;
            let ranks = plan.groups[group].len();
            if let Some(member) = &self.members[group] {
                let made = buffers(&plan.calls[call], member.rank, ranks, &member.stream)?;
                self.calls.insert(call, made);
            }
        }
        self.members.iter().flatten().try_for_each(|member| member.stream.synchronize())?;
        self.world.barrier()?;
        self.world.set_timeout(plan.patience);
        for comm in self.members.iter().flatten().filter_map(|member| member.comm.as_ref()) {
            comm.set_timeout(plan.patience);
        }
        Ok(())
    }

    /// Makes a group, unless this rank is no member.
    fn join(
        &mut self,
        group: &[usize],
        context: &Arc<CudaContext>,
    ) -> Result<Option<Member>, Trouble> {
        let color = group.contains(&self.rank).then_some(0);
        let Some(mut ranks) = self.world.split(color, 0)? else { return Ok(None) };
        let (stream, beside) = (context.new_stream()?, context.new_stream()?);
        let comm = Comm::new(&mut ranks, Arc::clone(&stream))?;
        Ok(Some(Member {
            rank: comm.rank(),
            comm: Some(Arc::new(comm)),
            stream,
            beside,
            pending: Vec::new(),
            has_failed: false,
            passed_early: Arc::default(),
        }))
    }

    fn step(&mut self, step: &Step) -> Done {
        match step {
            Step::Call(call) => self.call(*call),
            Step::Batch { calls, ends } => self.batch(calls, *ends),
            Step::Capture { graph, calls, beside } => self.capture(*graph, calls, *beside),
            Step::CaptureNew { graph, call } => self.capture_new(*graph, *call),
            Step::Replay { graph, nth, overlaps } => self.replay(*graph, *nth, *overlaps),
            Step::ReplayStale(graph) => self.replay_stale(*graph),
            Step::Sync { group, checks } => self.sync(*group, *checks),
            Step::Hold { group, millis } => self.hold(*group, *millis),
            Step::Pause { millis } => {
                std::thread::sleep(Duration::from_millis(*millis));
                Ok(())
            }
            Step::World => self.all_reduce_on_host(),
            Step::Visit { captures } => self.visit(*captures),
            Step::OneThread { ranks } => self.have_ranks(*ranks),
            Step::Drop(group) => {
                let member = self.members.get_mut(*group).and_then(Option::as_mut);
                drop(member.and_then(|member| member.comm.take()));
                Ok(())
            }
            Step::Abort => {
                self.world.abort_handle().abort("the plan says so");
                Ok(())
            }
            Step::Kill => steps::kill(),
        }
    }
}

/// The calls whose buffers a step needs.
fn calls_of(step: &Step) -> Vec<usize> {
    match step {
        Step::Call(call) | Step::CaptureNew { call, .. } => vec![*call],
        Step::Batch { calls, .. } | Step::Capture { calls, .. } => calls.clone(),
        _ => Vec::new(),
    }
}
