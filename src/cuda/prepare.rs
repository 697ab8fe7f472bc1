//! How a call gets its program on the GPU.

use super::plan;
use super::programs::{Prepared, ProgramRoom};
use super::rank::{DeviceRank, Made};
use crate::engine::agree::named_call;
use crate::engine::calls::call::CollectiveCall;
use crate::error::Result;
use crate::tuner::Plan;
use maypole_transports::cuda::{DeviceCode, DeviceError};
use std::sync::Arc;

impl DeviceRank {
    /// The program of `call`, made if the call is new. Then all ranks wait for one another: loading
    /// a kernel, allocating memory and freeing it may wait until no kernel runs on the GPU, so no
    /// rank starts one that waits for a rank which is not ready. They agree on the room that the program
    /// takes, so that all of them drop the same ones.
    pub(super) fn prepared(
        &mut self,
        call: CollectiveCall,
        is_captured: bool,
    ) -> Result<Arc<Prepared>> {
        let key = CollectiveCall { in_place: false, ..call };
        if let Some(programs) = self.programs.get(&key) {
            let prepared = Arc::clone(&programs[usize::from(call.in_place)]);
            if is_captured {
                self.captured.keep_call(&prepared);
            }
            return Ok(prepared);
        }
        if is_captured {
            let why = "make this call once before it is captured in a graph: its program has to be \
                       copied to the GPU";
            return Err(self.comm.invalid(call.collective.name(), why.to_owned()));
        }
        let apart = Arc::new(self.prepare(key)?);
        let in_place = Arc::new(self.prepare(CollectiveCall { in_place: true, ..key })?);
        self.programs.free_dropped();
        let prepared = Arc::clone(if call.in_place { &in_place } else { &apart });
        let engine = self.comm.engine.get_mut();
        let bytes = apart.bytes() + in_place.bytes();
        let room = ProgramRoom { bytes, budget: engine.settings().program_memory() };
        let ready = named_call(&format!("{call}, made ready"));
        let told = engine.exchange(ready, room.to_bytes())?;
        self.programs.add(key, [apart, in_place], ProgramRoom::agreed(&told));
        Ok(prepared)
    }

    fn prepare(&mut self, call: CollectiveCall) -> Result<Prepared> {
        let (plan, longest) = self.comm.engine.get().plan_on_device(call, &self.machine)?;
        self.load(call, plan, longest)
            .map_err(|why| self.comm.engine.get_mut().fail_on_device(call.to_string(), why))
    }

    /// Lowers `call`, whose longest chunk has `longest` bytes, and copies its program to the GPU.
    fn load(&mut self, call: CollectiveCall, plan: Plan, longest: usize) -> Made<Prepared> {
        let said = |error: DeviceError| error.to_string();
        let (room, slots) = plan::room(self.board().shapes(), longest);
        let plan = Plan { window: slots.bytes, ..plan };
        let (lowered, packed) =
            self.comm.engine.get().lower_on_device(call, plan, slots, &self.machine);
        let packed = packed.ok_or("its folds cut the same bytes into different parts")?;
        let kernel = self.walk(call).map_err(said)?;
        let code = DeviceCode::load(&self.stream, packed.bytes()).map_err(said)?;
        if lowered.divisor.is_some() || call.op.scales() {
            self.map(call.kind).map_err(said)?;
        }
        let stages = lowered.stages_input || call.op.scales();
        self.scratch.grow(lowered.scratch).map_err(said)?;
        self.staging.grow(if stages { lowered.input } else { 0 }).map_err(said)?;
        Ok(Prepared { code, room, kernel, lowered })
    }
}
