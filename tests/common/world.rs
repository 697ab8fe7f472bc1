//! Ranks that are threads: real executors over real boards and in-process streams, without
//! communicators.

use maypole::Element;
use maypole::algorithms::Algorithm;
use maypole::execute::{AnyStream, Buffers, ExecuteError, Executor};
use maypole::lower::{LoweringInput, Program, lower};
use maypole::schedule::collective::{Collective, HeldChunks};
use maypole::schedule::hosts::Boards;
use maypole::schedule::{Layout, Placement, Schedule};
use maypole_kernels::{BinaryOp, BuiltInReducer, Region, SharedRegion, View, ViewMut};
use maypole_transports::board::Board;
use maypole_transports::cores::UsableCores;
use maypole_transports::{Alarm, Waiting, mem};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The timeout of every wait.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Which ranks share a board, and how much a stream between the others holds.
#[derive(Clone, Debug)]
pub struct World {
    pub hosts: Vec<usize>,
    pub capacity: usize,
}

impl World {
    /// One executor a rank, joined by boards and streams.
    fn executors(&self, alarm: &Arc<Alarm>) -> Vec<Executor> {
        let mut boards: HashMap<usize, Arc<SharedRegion>> = HashMap::new();
        let mut executors = Vec::new();
        for (rank, host) in self.hosts.iter().enumerate() {
            let locals: Vec<usize> =
                (0..self.hosts.len()).filter(|peer| self.hosts[*peer] == *host).collect();
            let waiting = Waiting::new(
                self.hosts.len(),
                UsableCores::count([&UsableCores::of_this_thread()]),
                TIMEOUT,
            );
            let mut executor = Executor::new(rank, waiting, Arc::clone(alarm), Arc::new(()));
            if locals.len() > 1 {
                let region = boards
                    .entry(*host)
                    .or_insert_with(|| Arc::new(SharedRegion::new(Board::bytes(locals.len()))));
                let me = locals
                    .iter()
                    .position(|peer| *peer == rank)
                    .expect("a rank is on its own host");
                executor.share(Board::new(Arc::clone(region), locals.len(), me), locals, me);
            }
            executors.push(executor);
        }
        self.join(&mut executors);
        executors
    }

    fn join(&self, executors: &mut [Executor]) {
        for there in 0..executors.len() {
            for here in (0..there).filter(|here| self.hosts[*here] != self.hosts[there]) {
                let (one, other) = mem::pair(self.capacity);
                executors[here].streams().insert(there, AnyStream::Mem(one));
                executors[there].streams().insert(here, AnyStream::Mem(other));
            }
        }
    }

    /// Runs `rank` on a thread for each rank. The first error ends all waits and is returned.
    pub fn run(
        &self,
        rank: impl Fn(usize, &mut Executor) -> Result<(), String> + Sync,
    ) -> Result<(), String> {
        let alarm = Arc::new(Alarm::default());
        let rank = &rank;
        let executors = self.executors(&alarm);
        let ends: Vec<_> = std::thread::scope(|scope| {
            let start = |(me, mut executor): (usize, Executor)| {
                let alarm = &alarm;
                scope.spawn(move || {
                    let end = Raise(alarm).unless_ok(|| rank(me, &mut executor));
                    // Executors live until all ranks have ended, because peers need their streams.
                    (end, executor)
                })
            };
            let threads: Vec<_> = executors.into_iter().enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.join().map(|(end, _)| end)).collect()
        });
        // Errors after the alarm are consequences of the first error.
        let mut errors = Vec::new();
        for end in ends {
            match end {
                Ok(Ok(())) => {}
                Ok(Err(error)) => errors.push(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        errors.sort_by_key(|error| error.contains("Aborted"));
        errors.into_iter().next().map_or(Ok(()), Err)
    }
}

/// Raises the alarm when dropped, so also on a panic.
struct Raise<'a>(&'a Alarm);

impl Raise<'_> {
    fn unless_ok<T>(self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let end = work();
        if end.is_ok() {
            std::mem::forget(self);
        }
        end
    }
}

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// Bytes of a window where a test is not about windows.
pub const WINDOW: usize = 32 << 10;

/// Every algorithm of the table, with every root, in a world of `world`, for vectors of so many elements.
pub fn every_algorithm(world: usize, counts: &[usize]) -> Vec<Operation> {
    let mut operations = Vec::new();
    for algorithm in Algorithm::ALL {
        for collective in algorithm.collectives() {
            for root in 0..collective.root().map_or(1, |_| world) {
                let collective = collective.with_root(root);
                let Some(schedules) = algorithm.schedules(collective, world) else { continue };
                for &count in counts {
                    let nth = operations.len();
                    let window = [WINDOW, 200][nth % 2];
                    operations.push(Operation::new(
                        collective,
                        schedules.clone(),
                        count,
                        window,
                        nth as u64 + 1,
                    ));
                }
            }
        }
    }
    operations
}

/// One operation, equal on all ranks.
#[derive(Clone, Debug)]
pub struct Operation {
    pub collective: Collective,
    pub schedules: Vec<Schedule>,
    pub layout: Layout,
    pub window: usize,
    pub fingerprint: u64,
}

impl Operation {
    /// An operation on at least `count` elements in chunks that differ by one at most.
    pub fn new(
        collective: Collective,
        schedules: Vec<Schedule>,
        count: usize,
        window: usize,
        fingerprint: u64,
    ) -> Self {
        let blocks = if collective.is_blocked() { schedules.len() } else { 1 };
        let layout = Layout::even(count.div_ceil(blocks) * blocks, schedules[0].chunks);
        Self { collective, schedules, layout, window, fingerprint }
    }

    /// The input of lowering, for elements of this many bytes.
    pub fn request<'a>(&'a self, boards: &'a Boards, element: usize) -> LoweringInput<'a> {
        LoweringInput {
            collective: self.collective,
            schedules: &self.schedules,
            layout: &self.layout,
            element,
            boards,
            window: self.window,
            fingerprint: self.fingerprint,
        }
    }

    /// The program of rank `me`.
    pub fn lower<T: Element>(&self, hosts: &[usize], me: usize, placement: Placement) -> Program {
        let boards = Boards::new(hosts);
        let request = self.request(&boards, size_of::<T>());
        lower(&request, me, placement).expect("it completes in proof order")
    }

    /// The elements of the whole that are the input of rank `me`.
    pub fn brings(&self, me: usize) -> Range<usize> {
        self.held(self.collective.input(me))
    }

    /// The elements of the whole that are the output of rank `me`.
    pub fn holds(&self, me: usize) -> Range<usize> {
        self.held(self.collective.output(me))
    }

    fn held(&self, held: HeldChunks) -> Range<usize> {
        match held {
            HeldChunks::All => 0..self.layout.count(),
            HeldChunks::One(chunk) => self.layout.range(chunk),
            HeldChunks::Nothing => 0..0,
        }
    }

    /// Runs `program`, which is this operation lowered for one rank, on `input` and `output`.
    pub fn apart<T: Element + bytemuck::Pod>(
        &self,
        executor: &mut Executor,
        program: &Program,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Box<ExecuteError>> {
        let scratch = Region::new(program.scratch);
        let buffers = Buffers {
            input: View::of(input),
            output: ViewMut::of(output),
            scratch: scratch.view(),
        };
        executor.run(program, &BuiltInReducer::new(T::DATA_TYPE, BinaryOp::Sum).into(), &buffers)
    }

    /// Runs `program`, which is this operation lowered for `me` in place, in the whole vector.
    pub fn in_place<T: Element + bytemuck::Pod>(
        &self,
        executor: &mut Executor,
        program: &Program,
        me: usize,
        whole: &mut [T],
    ) -> Result<(), Box<ExecuteError>> {
        let bytes =
            |range: Range<usize>| (range.start * size_of::<T>(), range.len() * size_of::<T>());
        let (from, long) = bytes(self.brings(me));
        let (to, wide) = bytes(self.holds(me));
        let whole = ViewMut::of(whole);
        let scratch = Region::new(program.scratch);
        let aside = Region::new(if program.stages_input { long } else { 0 });
        let mut buffers = Buffers {
            input: whole.slice(from, long).as_view(),
            output: whole.slice(to, wide),
            scratch: scratch.view(),
        };
        if program.stages_input {
            aside.view().copy_from(buffers.input);
            buffers.input = aside.view().as_view();
        }
        executor.run(program, &BuiltInReducer::new(T::DATA_TYPE, BinaryOp::Sum).into(), &buffers)
    }
}
