//! How a call gets its program on the GPU.

use super::plan;
use super::programs::{Prepared, Way, load_aside};
use super::rank::{DeviceRank, IS_CONNECTED, Made};
use crate::algorithms::Algorithm;
use crate::engine::calls::call::CollectiveCall;
use crate::engine::device::DeviceLowered;
use crate::error::Result;
use crate::lower::DeviceProgram;
use crate::schedule::collective::Collective;
use crate::tuner::Plan;
use cudarc::driver::CudaStream;
use maypole_transports::cuda::{BesideCapture, ContextWork, DeviceCode, DeviceError, ShortKind};
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
        let engine = self.comm.engine.get();
        let (lowered, packed) =
            engine.lower_on_device(call, plan, (slots, false), &self.machine)?;
        if lowered.divisor.is_some() || call.scales(self.comm.world()) {
            self.map(call.kind).map_err(said)?;
        }
        let kernels = self.kernels_of(call).map_err(said)?;
        if let Some(kind) = self.short_kind(call, &lowered) {
            if !is_captured {
                self.make_room(&lowered, call, |_| Ok(())).map_err(said)?;
            }
            return Ok(Prepared { lowered, way: Way::Short { kernel: kernels.short, kind } });
        }
        let counted = plan::counted_room(self.board().shapes()).0;
        let (lowered, packed, room, longest) =
            match self.over_buffers(call, plan, lowered.record.bytes) {
                // Each lane moves a part of all bytes.
                Some((one, packed)) => (one, packed, counted, lowered.record.bytes),
                None => (lowered, packed, room, longest as u64),
            };
        let kernel = kernels.walk;
        let code = match is_captured {
            true => load_aside(&self.connected().aside, packed.bytes()),
            false => self.make_room(&lowered, call, |home| DeviceCode::load(home, packed.bytes())),
        };
        let code = Box::new(code.map_err(said)?);
        let way = Way::Walk { kernel, code, room, longest };
        Ok(Prepared { lowered, way })
    }

    /// What a call leaves that needs no program, because each rank has few bytes and reads those of all others
    /// in one hop. All ranks compute the same, independent of their buffers.
    fn short_kind(&self, call: CollectiveCall, lowered: &DeviceLowered) -> Option<ShortKind> {
        // These combine the ranks in their order, as the kernel does. Data that is only moved has no order.
        let keeps_bits = match lowered.algorithm {
            Algorithm::OneShot | Algorithm::TwoShot | Algorithm::Direct => true,
            _ => !call.collective.reduces() && !self.is_named(call.collective),
        };
        let world = self.comm.world();
        let (kind, blocks) = match call.collective {
            Collective::AllReduce | Collective::Barrier => (ShortKind::Combine, 1),
            Collective::AllGather => (ShortKind::Gather, 1),
            Collective::AllToAll => (ShortKind::Exchange, world),
            _ => return None,
        };
        let is_short = self.board().makes_short_calls(lowered.input / blocks);
        (world > 1 && keeps_bits && is_short).then_some(kind)
    }

    /// The program of a call of `bytes` bytes over the buffers of all ranks, if they reach these. All ranks
    /// compute the same, independent of their buffers.
    fn over_buffers(
        &self,
        call: CollectiveCall,
        plan: Plan,
        bytes: u64,
    ) -> Option<(DeviceLowered, DeviceProgram)> {
        // The root of a short call with one waits for no rank, and here it would.
        let is_long = call.collective.root().is_none() || bytes as usize > plan::LONGEST_LINES;
        let slots = plan::counted_room(self.board().shapes()).1;
        let forms = self.forms_over_buffers(call.collective, plan.algorithm);
        let lower = |algorithm| {
            let plan = Plan { algorithm, window: usize::MAX };
            let engine = self.comm.engine.get();
            engine.lower_on_device(call, plan, (slots, true), &self.machine).ok()
        };
        forms.into_iter().filter(|_| is_long && bytes > 0).find_map(lower)
    }

    /// The algorithms by which long calls run over the buffers of all ranks, in the place of `chosen`: those with
    /// equal bits in which no rank passes on what it has read. None if ranks do not reach the buffers.
    pub(super) fn forms_over_buffers(
        &self,
        collective: Collective,
        chosen: Algorithm,
    ) -> Vec<Algorithm> {
        let is_free = !self.is_named(collective);
        let forms = match chosen {
            _ if !self.board().reaches_buffers() => Vec::new(),
            Algorithm::OneShot if is_free => vec![Algorithm::TwoShot],
            Algorithm::OneShot | Algorithm::TwoShot | Algorithm::Direct => vec![chosen],
            _ if is_free && !collective.reduces() => vec![Algorithm::Direct, Algorithm::Linear],
            _ => Vec::new(),
        };
        let world = self.comm.world();
        let implements = |form: &Algorithm| form.schedules(collective, world).is_some();
        forms.into_iter().filter(|form| world > 1 && implements(form)).collect()
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
