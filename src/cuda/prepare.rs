//! How a call gets its program on the GPU.

use super::agreed::Found;
use super::forms::one_hop_forms;
use super::load::OnGpu;
use super::plan;
use super::programs::{Prepared, Way, load_aside};
use super::rank::{DeviceRank, IS_CONNECTED};
use crate::engine::calls::call::CollectiveCall;
use crate::engine::device::DeviceLowered;
use crate::error::Result;
use crate::tuner::Plan;
use cudarc::driver::CudaStream;
use maypole_kernels::cuda::CudaError;
use maypole_transports::cuda::{BesideCapture, ContextWork, DeviceCode};
use std::sync::Arc;

impl DeviceRank {
    /// The program of `call`, made if the call is new. Nothing of it is agreed on with other ranks.
    pub(super) fn prepared(
        &mut self,
        call: CollectiveCall,
        is_captured: bool,
    ) -> Result<Arc<Prepared>> {
        if let Some(program) = self.captured.calls.get(&call).filter(|_| is_captured) {
            return Ok(Arc::clone(program));
        }
        let key = CollectiveCall { in_place: false, ..call };
        if let Some(programs) = self.programs.get(&key) {
            let prepared = Arc::clone(&programs[usize::from(call.in_place)]);
            if is_captured {
                self.captured.calls.insert(call, Arc::clone(&prepared));
            }
            return Ok(prepared);
        }
        // A stream may capture on this thread or, in global mode, on another one.
        let _beside = BesideCapture::begin();
        if is_captured {
            let prepared = Arc::new(self.prepare(call, true)?);
            self.captured.calls.insert(call, Arc::clone(&prepared));
            return Ok(prepared);
        }
        let apart = Arc::new(self.prepare(key, false)?);
        let in_place = Arc::new(self.prepare(CollectiveCall { in_place: true, ..key }, false)?);
        let prepared = Arc::clone(if call.in_place { &in_place } else { &apart });
        let bytes = apart.bytes() + in_place.bytes();
        let budget = self.comm.engine.get().settings.program_memory();
        self.programs.add(key, [apart, in_place], bytes, budget);
        Ok(prepared)
    }

    fn prepare(&mut self, call: CollectiveCall, is_captured: bool) -> Result<Prepared> {
        let (plan, longest) = self.comm.engine.get().plan_on_device(call, &self.machine)?;
        self.load(call, plan, longest, is_captured)
            .map_err(|why| self.comm.engine.get_mut().health.device_failed(call.to_string(), why))
    }

    /// Lowers `call`, whose longest chunk has `longest` bytes, and copies its program to the GPU.
    fn load(
        &mut self,
        call: CollectiveCall,
        plan: Plan,
        longest: usize,
        is_captured: bool,
    ) -> Found<Prepared> {
        let said = |error: CudaError| error.to_string();
        let (rank, world) = (self.comm.rank(), self.comm.world());
        if call.output_divisor(rank, world).is_some() || call.scales(world) {
            self.map(call.kind).map_err(said)?;
        }
        let kernels = self.kernels_of(call).map_err(said)?;
        let is_short = |bytes: u64| Some(bytes) <= self.board().longest_short_call();
        let short = is_short(longest as u64).then(|| self.lower_short(call, plan)).flatten();
        let short = short.and_then(|it| Some((it.exchange?, it)));
        let short = short.filter(|(program, _)| is_short(u64::from(program.bytes)));
        if let Some((program, lowered)) = short {
            if !is_captured {
                self.make_room(&lowered, call, |_| Ok(())).map_err(said)?;
            }
            return Ok(Prepared { lowered, kernel: kernels.short, way: Way::Short(program) });
        }
        let shapes = self.board().shapes();
        let (room, slots) = plan::room(shapes, longest);
        let plan = Plan { window: plan::window(shapes.of(room), longest), ..plan };
        let engine = self.comm.engine.get();
        let (lowered, packed) = engine.lower_on_device(call, plan, slots, &self.machine)?;
        let code = match is_captured {
            true => load_aside(&self.connected().aside, packed.bytes()),
            false => self.make_room(&lowered, call, |home| DeviceCode::load(home, packed.bytes())),
        };
        let way = Way::Walk { code: Box::new(code.map_err(said)?), room, longest: longest as u64 };
        Ok(Prepared { lowered, kernel: kernels.walk, way })
    }

    /// Lowers `call` by the first of its [forms](one_hop_forms) that is possible. All ranks compute the same,
    /// independent of their buffers.
    fn lower_short(&self, call: CollectiveCall, plan: Plan) -> Option<DeviceLowered> {
        let slots = plan::room(self.board().shapes(), 0).1;
        let lower = |algorithm| {
            let plan = Plan { algorithm, window: usize::MAX };
            let engine = self.comm.engine.get();
            Some(engine.lower_on_device(call, plan, slots, &self.machine).ok()?.0)
        };
        let is_free = self.comm.engine.get().settings.plan_for(call.collective).is_none();
        let chosen = (plan.algorithm, is_free);
        let forms = one_hop_forms(call.collective, self.comm.world(), chosen);
        forms.into_iter().find_map(lower)
    }

    /// Grows the working memory for the call, unless a graph has its own, and does `work` on the
    /// rank's own stream.
    fn make_room<T>(
        &mut self,
        lowered: &DeviceLowered,
        call: CollectiveCall,
        work: impl FnOnce(&Arc<CudaStream>) -> OnGpu<T>,
    ) -> OnGpu<T> {
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
                    programs.outgrown.push(memory.take());
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
