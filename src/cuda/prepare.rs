//! How a call gets its program on the GPU.

use super::plan;
use super::programs::{Prepared, Way, load_aside};
use super::rank::{DeviceRank, IS_CONNECTED, Made};
use crate::algorithms::Algorithm;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::device::DeviceLowered;
use crate::error::Result;
use crate::schedule::collective::Collective;
use crate::tuner::Plan;
use cudarc::driver::CudaStream;
use maypole_kernels::cuda::WalkKernels;
use maypole_transports::cuda::{
    BesideCapture, ContextWork, DeviceCode, DeviceError, DirectKind, ShortKind,
};
use std::sync::Arc;

impl DeviceRank {
    /// The program of `call`, made if the call is new. Nothing of it is agreed on with other ranks.
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
        // A stream may capture on this thread or, in global mode, on another one.
        let _beside = BesideCapture::begin();
        if is_captured {
            let prepared = Arc::new(self.prepare(call, true)?);
            self.captured.keep_call(call, &prepared);
            return Ok(prepared);
        }
        let apart = Arc::new(self.prepare(key, false)?);
        let in_place = Arc::new(self.prepare(CollectiveCall { in_place: true, ..key }, false)?);
        let prepared = Arc::clone(if call.in_place { &in_place } else { &apart });
        let bytes = apart.bytes() + in_place.bytes();
        let budget = self.comm.engine.get().settings().program_memory();
        self.programs.add(key, [apart, in_place], bytes, budget);
        Ok(prepared)
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
        let window = plan::window(self.board().shapes().of(room), longest);
        let plan = Plan { window, ..plan };
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
        let way = Way::Walk { kernel, code: code.map_err(said)?, room, longest: longest as u64 };
        Ok(Prepared { lowered, way })
    }

    /// The way of a call that needs no program, because the ranks read the others' data in one hop
    /// or two: from lines if there are few bytes, else from one another's buffers, where that can
    /// be. All ranks compute the same way, independent of their buffers.
    fn way_without_program(
        &self,
        call: CollectiveCall,
        lowered: &DeviceLowered,
        kernels: &WalkKernels,
    ) -> Option<Way> {
        let is_alone = self.comm.world() == 1;
        // These combine the ranks in their order, as the kernels do. Data that is only moved has no
        // order.
        let keeps_bits = match lowered.algorithm {
            Algorithm::OneShot | Algorithm::TwoShot => true,
            Algorithm::Direct => true,
            _ => !call.collective.reduces() && !self.is_named(call.collective),
        };
        if is_alone || !keeps_bits {
            return None;
        }
        let (short, blocks) = match call.collective {
            Collective::AllReduce | Collective::Barrier => (Some(ShortKind::Combine), 1),
            Collective::AllGather => (Some(ShortKind::Gather), 1),
            Collective::AllToAll => (Some(ShortKind::Exchange), self.comm.world()),
            _ => (None, 1),
        };
        let is_short = self.board().makes_short_calls(lowered.input / blocks);
        if let Some(kind) = short.filter(|_| is_short) {
            return Some(Way::Short { kernel: kernels.short.clone(), kind });
        }
        let kind = direct_kind(call.collective)?;
        // The root of a short broadcast waits for no rank, and here it would.
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

    /// Grows the working memory for the call, unless a graph has its own, and does `work` on the
    /// rank's own stream.
    fn make_room<T>(
        &mut self,
        lowered: &DeviceLowered,
        call: CollectiveCall,
        work: impl FnOnce(&Arc<CudaStream>) -> std::result::Result<T, DeviceError>,
    ) -> std::result::Result<T, DeviceError> {
        let stages = lowered.stages_input || call.stages_scaled(self.comm.world());
        let staged = if stages { lowered.input } else { 0 };
        let Self { connected, programs, scratch, staging, stream, .. } = self;
        let context = stream.context();
        let has_pools = context.has_async_alloc();
        if !has_pools {
            // The driver waits for all kernels of the GPU when it frees memory that is not of a pool.
            ContextWork::of(context).while_idle(|| programs.free_dropped());
        }
        connected.as_mut().expect(IS_CONNECTED).board.at_home(|| {
            for (memory, bytes) in [(scratch, lowered.scratch), (staging, staged)] {
                if !memory.has(bytes) {
                    programs.drop_later(memory.take());
                    memory.grow(bytes)?;
                }
            }
            if has_pools {
                programs.free_dropped();
            }
            work(stream)
        })
    }
}

/// The operation of a call without a program. A barrier is an all-reduce of nothing.
fn direct_kind(collective: Collective) -> Option<DirectKind> {
    match collective {
        Collective::AllReduce | Collective::Barrier => Some(DirectKind::AllReduce),
        Collective::AllGather => Some(DirectKind::AllGather),
        Collective::ReduceScatter => Some(DirectKind::ReduceScatter),
        Collective::Broadcast { root } => Some(DirectKind::Broadcast(root)),
        _ => None,
    }
}
