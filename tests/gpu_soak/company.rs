//! Short-lived groups, in addition to those of the plan.

use crate::rank::{Done, LONGEST_START, Rank, Trouble};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use maypole::ReduceOp;
use maypole::cuda::{Comm, driver};
use std::sync::Arc;

const COUNT: usize = 300;

impl Rank<'_> {
    fn context(&self) -> Result<Arc<CudaContext>, Trouble> {
        let context = driver().map_err(|error| error.to_string())?;
        let context = context.context(self.rank % self.plan.driver.devices);
        Ok(context.map_err(|error| error.to_string())?)
    }

    /// Makes a group of all ranks, calls it and leaves it, though calls of other groups have not ended. With
    /// `captures` another stream captures meanwhile, as the program's own.
    pub(crate) fn visit(&mut self, captures: bool) -> Done {
        let context = self.context()?;
        let (stream, captured) = (context.new_stream()?, context.new_stream()?);
        let mut data = stream.clone_htod(&[1.0f32; COUNT])?;
        stream.synchronize()?;
        if captures {
            captured.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
        }
        let done = self.visit_on(&stream, &mut data);
        if captures {
            // An empty graph is one, too.
            captured.end_capture(CUgraphInstantiate_flags(0))?;
        }
        if done? { check(&stream, &data, self.plan.world) } else { Ok(()) }
    }

    fn visit_on(
        &mut self,
        stream: &Arc<CudaStream>,
        data: &mut CudaSlice<f32>,
    ) -> Result<bool, Trouble> {
        self.world.set_timeout(LONGEST_START);
        let made = Comm::new(self.world, Arc::clone(stream));
        self.world.set_timeout(self.plan.patience);
        let Some(comm) = with_room(made)? else { return Ok(false) };
        comm.all_reduce_in_place(data, &ReduceOp::Sum)?;
        comm.synchronize()?;
        Ok(true)
    }

    /// Makes a group of several ranks on this rank's GPU, and starts the calls of all of them on this thread.
    pub(crate) fn have_ranks(&mut self, ranks: usize) -> Done {
        let context = self.context()?;
        let streams = (0..ranks).map(|_| context.new_stream()).collect::<Result<Vec<_>, _>>()?;
        let made = Comm::from_devices(streams.clone());
        let Some(comms) = with_room(made)? else { return Ok(()) };
        let data = streams.iter().map(|stream| stream.clone_htod(&[1.0f32; COUNT]));
        let mut data = data.collect::<Result<Vec<_>, _>>()?;
        for (comm, data) in comms.iter().zip(&mut data) {
            comm.all_reduce_in_place(data, &ReduceOp::Sum)?;
        }
        for ((comm, data), stream) in comms.iter().zip(&data).zip(&streams) {
            comm.synchronize()?;
            check(stream, data, ranks)?;
        }
        Ok(())
    }
}

/// A group that was made; `None` if others have taken all blocks of a GPU.
fn with_room<T>(made: maypole::Result<T>) -> Result<Option<T>, Trouble> {
    match made {
        Err(error) if error.to_string().contains("reserved all of its multiprocessors") => Ok(None),
        made => Ok(Some(made?)),
    }
}

fn check(stream: &Arc<CudaStream>, data: &CudaSlice<f32>, ranks: usize) -> Done {
    match stream.clone_dtoh(data)?.iter().all(|sum| *sum == ranks as f32) {
        true => Ok(()),
        false => Err(Trouble::Wrong(format!("a sum of {ranks} ranks is wrong"))),
    }
}
