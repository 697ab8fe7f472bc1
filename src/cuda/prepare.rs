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
use maypole_kernels::cuda::load_short;
use maypole_transports::cuda::{BesideCapture, DeviceCode, DeviceError};
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
        let engine = self.comm.engine.get_mut();
        let room = ProgramRoom { bytes, budget: engine.settings().program_memory() };
        if !self.meets {
            return Ok(room);
        }
        let ready = named_call(&format!("{call}, made ready"));
        Ok(ProgramRoom::agreed(&engine.exchange(ready, room.to_bytes())?))
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
        if lowered.divisor.is_some() || call.op.scales() {
            self.map(call.kind).map_err(said)?;
        }
        if let Some(way) = self.short_way(call, &lowered)? {
            if !is_captured {
                self.make_room(&lowered, call, |_| Ok(())).map_err(said)?;
            }
            return Ok(Prepared { lowered, way });
        }
        let kernel = self.walk(self.walk_module(call)).map_err(said)?;
        let code = match is_captured {
            true => load_aside(&self.aside, packed.bytes()),
            false => self.make_room(&lowered, call, |home| DeviceCode::load(home, packed.bytes())),
        };
        let way = Way::Walk { kernel, code: code.map_err(said)?, room };
        Ok(Prepared { lowered, way })
    }

    /// The way of a call in which every rank reads what every rank has, if it is short.
    fn short_way(&mut self, call: CollectiveCall, lowered: &DeviceLowered) -> Made<Option<Way>> {
        let gathers = call.collective == Collective::AllGather;
        let is_one_hop = match call.collective {
            Collective::AllReduce => lowered.algorithm == Algorithm::OneShot,
            Collective::AllGather => {
                lowered.algorithm == Algorithm::Direct || self.comm.world() == 2
            }
            Collective::Barrier => true,
            _ => false,
        };
        if !is_one_hop || lowered.stages_input || !self.board().makes_short_calls(lowered.input) {
            return Ok(None);
        }
        let module = self.walk_module(call);
        let kernel = load_short(self.stream.context(), &module).map_err(|it| it.to_string())?;
        Ok(Some(Way::Short { kernel, gathers }))
    }

    /// Makes sure that there is working memory for the call, unless a graph has its own, and does `work` on
    /// the rank's own stream.
    fn make_room<T>(
        &mut self,
        lowered: &DeviceLowered,
        call: CollectiveCall,
        work: impl FnOnce(&Arc<CudaStream>) -> std::result::Result<T, DeviceError>,
    ) -> std::result::Result<T, DeviceError> {
        let stages = lowered.stages_input || call.op.scales();
        let staged = if stages { lowered.input } else { 0 };
        let Self { board, programs, scratch, staging, stream, .. } = self;
        board.as_mut().expect(IS_CONNECTED).at_home(|| {
            programs.free_dropped();
            scratch.grow(lowered.scratch)?;
            staging.grow(staged)?;
            work(stream)
        })
    }
}
