//! How a call gets its program on the GPU.

use super::plan;
use super::programs::{Prepared, ProgramRoom, Way, load_aside};
use super::rank::{DeviceRank, IS_CONNECTED, Made};
use crate::algorithms::Algorithm;
use crate::engine::agree::named_call;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::device::DeviceLowered;
use crate::error::Result;
use crate::schedule::collective::Collective;
use crate::tuner::Plan;
use cudarc::driver::CudaStream;
use maypole_kernels::cuda::WalkKernels;
use maypole_transports::cuda::{BesideCapture, DeviceCode, DeviceError, DirectKind};
use std::sync::Arc;

impl DeviceRank {
    /// The program of `call`, made if the call is new.
    ///
    /// Where threads of a process share a GPU, all ranks wait for one another then: loading a kernel,
    /// allocating memory and freeing it may wait until no kernel runs on the GPU, so no rank starts one
    /// that waits for a rank which is not ready. Else nothing waits for another rank.
    pub(super) fn prepared(
        &mut self,
        call: CollectiveCall,
        is_captured: bool,
    ) -> Result<Arc<Prepared>> {
        if let Some(program) = self.captured.call(&call).filter(|_| is_captured) {
            return Ok(Arc::clone(program));
        }
        let key = CollectiveCall { in_place: false, ..call };
        if let Some(programs) = self.programs.get(&key) {
            let prepared = Arc::clone(&programs[usize::from(call.in_place)]);
            if is_captured {
                self.captured.keep_call(call, &prepared);
            }
            return Ok(prepared);
        }
        let _beside = is_captured.then(BesideCapture::begin);
        if is_captured {
            let prepared = Arc::new(self.prepare(call, true)?);
            self.captured.keep_call(call, &prepared);
            self.meet(call, 0)?;
            return Ok(prepared);
        }
        let apart = Arc::new(self.prepare(key, false)?);
        let in_place = Arc::new(self.prepare(CollectiveCall { in_place: true, ..key }, false)?);
        let prepared = Arc::clone(if call.in_place { &in_place } else { &apart });
        let room = self.meet(call, apart.bytes() + in_place.bytes())?;
        self.programs.add(key, [apart, in_place], room);
        Ok(prepared)
    }

    /// What the programs of a new call may take: what all ranks say that could hold one another up, else
    /// what this one has. All that meet drop the same programs.
    fn meet(&mut self, call: CollectiveCall, bytes: usize) -> Result<ProgramRoom> {
        let meets = self.connected().meets;
        let engine = self.comm.engine.get_mut();
        let room = ProgramRoom { bytes, budget: engine.settings().program_memory() };
        if !meets {
            return Ok(room);
        }
        let ready = named_call(&format!("{call}, made ready"));
        Ok(ProgramRoom::agreed(&engine.tell_all(ready, &room)?))
    }

    fn prepare(&mut self, call: CollectiveCall, is_captured: bool) -> Result<Prepared> {
        let (plan, longest) = self.comm.engine.get().plan_on_device(call, &self.machine)?;
        self.load(call, plan, longest, is_captured)
            .map_err(|why| self.comm.engine.get_mut().fail_on_device(call.to_string(), why))
    }

    /// Lowers `call`, whose longest chunk has `longest` bytes, and copies its program to the GPU.
    fn load(
        &mut self,
        call: CollectiveCall,
        plan: Plan,
        longest: usize,
        is_captured: bool,
    ) -> Made<Prepared> {
        let said = |error: DeviceError| error.to_string();
        let (room, slots) = plan::room(self.board().shapes(), longest);
        let plan = Plan { window: slots.bytes, ..plan };
        let (lowered, packed) =
            self.comm.engine.get().lower_on_device(call, plan, slots, &self.machine);
        let packed = packed.ok_or("its folds cut the same bytes into different parts")?;
        if lowered.divisor.is_some() || call.scales(self.comm.world()) {
            self.map(call.kind).map_err(said)?;
        }
        let kernels = self.kernels_of(call).map_err(said)?;
        if let Some(way) = self.way_without_program(call, &lowered, &kernels) {
            if !is_captured {
                self.make_room(&lowered, call, |_| Ok(())).map_err(said)?;
            }
            return Ok(Prepared { lowered, way });
        }
        let kernel = kernels.walk;
        let code = match is_captured {
            true => load_aside(&self.connected().aside, packed.bytes()),
            false => self.make_room(&lowered, call, |home| DeviceCode::load(home, packed.bytes())),
        };
        let way = Way::Walk { kernel, code: code.map_err(said)?, room };
        Ok(Prepared { lowered, way })
    }

    /// The way of a call that needs no program, because the ranks read what others have in one hop or two:
    /// from lines if there are few bytes, else from one another's buffers, where that can be. All ranks
    /// find the same way, whatever their buffers are.
    fn way_without_program(
        &self,
        call: CollectiveCall,
        lowered: &DeviceLowered,
        kernels: &WalkKernels,
    ) -> Option<Way> {
        let kind = direct_kind(call.collective)?;
        let is_alone = self.comm.world() == 1;
        // These combine the ranks in their order, as the kernels do. What is only moved has no order.
        let keeps_bits = match lowered.algorithm {
            Algorithm::OneShot | Algorithm::TwoShot => true,
            Algorithm::Direct => true,
            _ => !call.collective.reduces() && !self.is_named(call.collective),
        };
        if is_alone || !keeps_bits {
            return None;
        }
        let is_short = self.board().makes_short_calls(lowered.input);
        if is_short && matches!(kind, DirectKind::AllReduce | DirectKind::AllGather) {
            let kernel = kernels.short.clone();
            return Some(Way::Short { kernel, gathers: kind == DirectKind::AllGather });
        }
        // The root of a short broadcast waits for nobody, and here it would.
        let is_long = !matches!(kind, DirectKind::Broadcast(_))
            || lowered.record.bytes as usize > plan::LONGEST_LINES;
        let is_barrier = call.collective == Collective::Barrier;
        let is_direct = self.board().makes_direct_calls() && is_long && !is_barrier;
        is_direct.then(|| Way::Direct { kernel: kernels.direct.clone(), kind })
    }

    /// True if the program has named the algorithm of `collective`.
    fn is_named(&self, collective: Collective) -> bool {
        self.comm.engine.get().wanted_on_device(collective).is_some()
    }

    /// Makes sure that there is working memory for the call, unless a graph has its own, and does `work` on
    /// the rank's own stream.
    fn make_room<T>(
        &mut self,
        lowered: &DeviceLowered,
        call: CollectiveCall,
        work: impl FnOnce(&Arc<CudaStream>) -> std::result::Result<T, DeviceError>,
    ) -> std::result::Result<T, DeviceError> {
        let stages = lowered.stages_input || call.stages_scaled(self.comm.world());
        let staged = if stages { lowered.input } else { 0 };
        let Self { connected, programs, scratch, staging, stream, .. } = self;
        connected.as_mut().expect(IS_CONNECTED).board.at_home(|| {
            programs.free_dropped();
            scratch.grow(lowered.scratch)?;
            staging.grow(staged)?;
            work(stream)
        })
    }
}

/// What a call does that needs no program. A barrier is an all-reduce of nothing.
fn direct_kind(collective: Collective) -> Option<DirectKind> {
    match collective {
        Collective::AllReduce | Collective::Barrier => Some(DirectKind::AllReduce),
        Collective::AllGather => Some(DirectKind::AllGather),
        Collective::ReduceScatter => Some(DirectKind::ReduceScatter),
        Collective::Broadcast { root } => Some(DirectKind::Broadcast(root)),
        _ => None,
    }
}
