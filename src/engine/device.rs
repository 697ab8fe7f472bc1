//! Calls whose buffers are in the memory of GPUs. They are planned, recorded and compared as all
//! calls; a kernel runs them.

use crate::algorithms::Algorithm;
use crate::engine::Engine;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::calls::choice::PlanChooser;
use crate::engine::calls::prepare::LoweringLabel;
use crate::engine::conditions::RunConditions;
use crate::engine::failure::FailedWait;
use crate::engine::health::Health;
use crate::error::{Error, Result};
use crate::execute::LinkError;
use crate::execute::messages::AllowedTime;
use crate::lower::{
    BufferPlaces, DeviceProgram, DeviceSlots, LoweringInput, Program, lower_for_device,
};
use crate::schedule::collective::Collective;
use crate::schedule::hosts::Boards;
use crate::schedule::{Layout, Placement, Schedule};
use crate::topology::DeviceLinks;
use crate::tuner::{self, CostTable, DeviceQuestion, Plan};
use crate::world::calls::{CallRecord, GroupActivity};
use maypole_kernels::mix;
use maypole_kernels::packed::ShortProgram;
use maypole_transports::AnyStream;
use maypole_transports::cuda::{LostLink, Reason, Report};
use std::sync::Arc;
use std::time::Duration;

/// The machine model of calls on GPUs: all ranks reach one another's mailboxes, or a copy of them on their
/// own host.
#[derive(Debug)]
pub(crate) struct DeviceMachine {
    /// The hosts of the ranks, by which algorithms are chosen and schedules made.
    pub(crate) boards: Boards,
    /// Programs read all mailboxes in place.
    all: Boards,
    conditions: RunConditions,
    /// The bytes that the costs count as one, and nanoseconds of a call without its messages.
    unit: usize,
    start_ns: u64,
    /// The links of the GPUs, equal on all ranks.
    pub(crate) links: DeviceLinks,
}

/// A call that was lowered for the memory of a GPU, but for its program.
#[derive(Debug)]
pub(crate) struct DeviceLowered {
    pub(crate) algorithm: Algorithm,
    pub(crate) fingerprint: u32,
    pub(crate) record: Arc<CallRecord>,
    pub(crate) stages_input: bool,
    /// Bytes of this rank's input.
    pub(crate) input: usize,
    /// Bytes of working memory.
    pub(crate) scratch: usize,
    /// The program as one exchange, if it is one. It needs no staged input.
    pub(crate) exchange: Option<ShortProgram>,
}

/// Why two calls of a rank cannot run at the same time, and what to do.
const OVERLAP: &str = "it ran on the GPU while another call of the communicator had not ended: a graph \
                       was launched beside a call or another graph; let the stream of one wait for the \
                       other, by an event";

/// The rank that the aborted kernel waited for, and how the wait failed. `None` if it did not wait.
fn wait(reason: Reason) -> Option<(Option<usize>, LinkError)> {
    match reason {
        Reason::TimedOut(peer) => Some((Some(peer), LinkError::TimedOut)),
        Reason::Mismatch(peer) => Some((Some(peer), LinkError::Mismatch)),
        Reason::Aborted => Some((None, LinkError::Aborted)),
        Reason::Overlap => None,
        Reason::Left(peer) => Some((Some(peer), LinkError::PeerLeft)),
    }
}

/// Reads whether a group has failed, and reports an aborted kernel to it. It needs no lock that
/// calls hold.
#[derive(Debug)]
pub(crate) struct DeviceWitness(Health, usize);

impl DeviceWitness {
    /// True in a forked child, and once the group has failed, on any rank.
    pub(crate) fn has_failed(&self) -> bool {
        !self.0.owner.is_current() || self.0.is_alarmed()
    }

    /// Which ranks have left the group, by bits from the lowest on.
    pub(crate) fn left(&self) -> u64 {
        let control = &self.0.control;
        (0..self.1).filter(|rank| control.has_left(*rank)).fold(0, |bits, rank| bits | 1 << rank)
    }

    /// Reports to all ranks why a kernel aborted whose waits may take `allowed`. The rank itself
    /// later reads the same failure.
    pub(crate) fn tell(&mut self, report: Report, allowed: Duration) {
        self.0.catch_up();
        let allowed = AllowedTime { time: allowed, is_own: false };
        let error = self.0.explain_report(report, allowed);
        tracing::debug!(%error, "a kernel gave up");
    }

    /// Reports to all ranks that the stream to a rank on another host is lost.
    pub(crate) fn lose(&mut self, LostLink { peer, fault }: LostLink) {
        self.0.catch_up();
        let operation = self.0.activity.title();
        let allowed = AllowedTime { time: Duration::ZERO, is_own: false };
        let wait = FailedWait { operation, step: 0, peer: Some(peer), allowed };
        let error = self.0.explain_wait(wait, LinkError::Lost(fault));
        tracing::debug!(%error, "a courier gave up");
    }
}

impl Health {
    /// The error of the call that a kernel aborted whose waits may take `allowed`.
    fn explain_report(&mut self, Report { number, reason }: Report, allowed: AllowedTime) -> Error {
        let operation = self.go_back_to(number);
        match wait(reason) {
            Some((peer, error)) => {
                self.explain_wait(FailedWait { operation, step: 0, peer, allowed }, error)
            }
            None => self.device_failed(operation, OVERLAP.to_owned()),
        }
    }
}

impl DeviceMachine {
    /// The ranks of `engine` on the hosts `boards`, on GPUs that `links` join, where messages, and units of
    /// `unit` bytes, have the costs `costs`, and a call without any takes `start_ns` nanoseconds.
    pub(crate) fn new(
        engine: &Engine,
        boards: Boards,
        costs: CostTable,
        (unit, start_ns): (usize, u64),
        links: DeviceLinks,
    ) -> Self {
        let all = Boards::new(&vec![0; boards.world()]);
        let conditions = RunConditions { costs, crowding: 1, ..engine.conditions.clone() };
        Self { boards, all, conditions, unit, start_ns, links }
    }

    fn question(&self) -> DeviceQuestion<'_> {
        DeviceQuestion { links: &self.links, unit: self.unit, start_ns: self.start_ns }
    }

    /// Those of all ranks, if the algorithm implements the collective.
    fn schedules(&self, algorithm: Algorithm, collective: Collective) -> Option<Vec<Schedule>> {
        tuner::schedules(algorithm, collective, &self.boards, Some(&self.links))
    }
}

impl Engine {
    /// The plan of `call`, and the bytes of its longest chunk.
    pub(crate) fn plan_on_device(
        &self,
        call: CollectiveCall,
        machine: &DeviceMachine,
    ) -> Result<(Plan, usize)> {
        call.check_operation(self.rank)?;
        let plan = self.chooser_on(machine).plan(call)?;
        let schedules = machine.schedules(plan.algorithm, call.collective);
        let chunks = schedules.expect("the tuner's algorithm implements the collective")[0].chunks;
        let layout = call.layout(self.boards.world(), chunks, &self.calls.counts);
        Ok((plan, layout.longest() * call.kind.size()))
    }

    /// Chooses plans for calls on the memory of `machine`'s GPUs.
    pub(crate) fn chooser_on<'a>(&'a self, machine: &'a DeviceMachine) -> PlanChooser<'a> {
        self.chooser_of(&machine.boards, &machine.conditions, Some(machine.question()))
    }

    /// Lowers `call` by `plan` for mailboxes with these `slots`.
    ///
    /// # Errors
    /// Why there is no such program, on no rank.
    pub(crate) fn lower_on_device(
        &self,
        call: CollectiveCall,
        plan: Plan,
        slots: DeviceSlots,
        machine: &DeviceMachine,
    ) -> std::result::Result<(DeviceLowered, DeviceProgram), &'static str> {
        let schedules = machine.schedules(plan.algorithm, call.collective);
        let schedules = schedules.ok_or("the algorithm does not implement the collective")?;
        let label = self.label(call, plan);
        // Ranks with different links would run different rings.
        let order = machine.links.order().iter();
        let fingerprint = order.fold(label.fingerprint, |hash, rank| mix(hash ^ *rank as u64)) | 1;
        let label = LoweringLabel { fingerprint, ..label };
        let lowered =
            self.lower_by(call, (&schedules, &machine.all), label, |input, rank, placement| {
                lower_for_device(input, slots, rank, placement).ok()
            });
        let (layout, program) = lowered.ok_or("ranks would wait for one another")?;
        let element = call.kind.size();
        let input = layout.held(call.collective.input(self.rank));
        let output = layout.held(call.collective.output(self.rank));
        let places = |apart| match apart {
            // Far enough from each other, wherever the output begins.
            true => BufferPlaces { input: 0, output: usize::MAX / 2 },
            false => BufferPlaces { input: input.start * element, output: output.start * element },
        };
        let lowered = DeviceLowered {
            algorithm: plan.algorithm,
            fingerprint: (program.fingerprint ^ program.fingerprint >> 32) as u32,
            record: Arc::new(self.record_of(call, label, layout.count() * element)),
            stages_input: program.stages_input,
            input: input.len() * element,
            scratch: program.scratch,
            exchange: DeviceProgram::exchange(&program, self.rank, places(!call.in_place)),
        };
        let packed =
            DeviceProgram::new(&program, self.rank, places(!call.in_place || program.stages_input));
        Ok((lowered, packed.ok_or("its folds cut the same bytes into different parts")?))
    }

    /// Begins the operation that `record` describes, and returns its number.
    ///
    /// # Errors
    /// As every call: the communicator has failed, or this is a forked child.
    pub(crate) fn begin_on_device(&mut self, record: &Arc<CallRecord>) -> Result<u32> {
        self.check_usable(|| record.call.clone())?;
        self.calls.forget_current();
        self.health.record(record);
        self.health.enter();
        Ok(GroupActivity::number_of(self.health.sequence))
    }

    /// Begins the message that `text` describes, between this rank and `peer`, and returns its number.
    ///
    /// # Errors
    /// As [`begin_on_device`](Self::begin_on_device).
    pub(crate) fn begin_message_on_device(&mut self, text: &str, peer: usize) -> Result<u32> {
        self.check_usable(|| text.to_owned())?;
        self.health.begin_message(text.to_owned(), Some(peer), 0);
        Ok(self.health.activity.number_message(text))
    }

    /// Lowers a message of `bytes` bytes for the rank that sends it or for the one that receives
    /// it, which are the ranks 0 and 1 of a broadcast.
    pub(crate) fn lower_message(bytes: usize, slots: DeviceSlots, sends: bool) -> Program {
        // The sender's output is its input, which the broadcast leaves as it is.
        let placement = if sends { Placement::InPlace } else { Placement::Apart };
        let what = (Collective::Broadcast { root: 0 }, Algorithm::Linear, placement);
        Self::lower_blocks(what, bytes, slots, (usize::from(!sends), 2))
    }

    /// Lowers an all-gather of `bytes` bytes a rank, in which each rank reads from all others, for the
    /// first rank of `place`, among as many as the second.
    pub(crate) fn lower_probe(bytes: usize, slots: DeviceSlots, place: (usize, usize)) -> Program {
        let what = (Collective::AllGather, Algorithm::Direct, Placement::Apart);
        Self::lower_blocks(what, bytes, slots, place)
    }

    /// Lowers a collective of chunks of `bytes` bytes for rank `me` of `world`.
    fn lower_blocks(
        (collective, algorithm, placement): (Collective, Algorithm, Placement),
        bytes: usize,
        slots: DeviceSlots,
        (me, world): (usize, usize),
    ) -> Program {
        let schedules = algorithm.schedules(collective, world).expect("it implements it");
        let chunks = schedules[0].chunks;
        let request = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &Layout::even(bytes * chunks, chunks),
            element: 1,
            boards: &Boards::new(&vec![0; world]),
            window: slots.bytes,
            fingerprint: mix(bytes as u64) | 1,
        };
        lower_for_device(&request, slots, me, placement)
            .expect("schedules that the checker accepts complete")
    }

    /// The error of the operation or message whose kernel aborted with this report. The
    /// communicator has failed.
    pub(crate) fn explain_on_device(&mut self, report: Report) -> Error {
        let error = self.health.explain_report(report, self.limits.allowed());
        self.health.fail(error)
    }

    /// Reports aborted kernels to the other ranks, from a thread of its own.
    pub(crate) fn device_witness(&self) -> DeviceWitness {
        DeviceWitness(self.health.beside(), self.boards.world())
    }

    /// Streams to `peers`, each of which makes one to this rank, for the couriers of their GPUs.
    ///
    /// # Errors
    /// As every call.
    pub(crate) fn streams_of_device(
        &mut self,
        call: &str,
        peers: &[usize],
    ) -> Result<Vec<AnyStream>> {
        let streams = self.health.control.streams(peers, self.limits.deadline());
        streams.map_err(|error| self.explain_control(call.to_owned(), error))
    }
}
