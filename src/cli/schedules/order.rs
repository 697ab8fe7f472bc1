//! Makes one list of steps for each rank of the thread blocks of an algorithm of MSCCL.
//!
//! All thread blocks are run, a step at a time, under the law of schedules, and recorded. Three
//! differences are bridged:
//!
//! - Thread blocks have links of their own, one a channel; two ranks have one link. So messages of all
//!   channels leave in the order in which they are taken.
//! - In place, input and output are one memory, and a schedule never writes its input. So a chunk is
//!   read from the input until it is written, and lives in the [`AlgoBuffers`] of its rank from then on.
//! - MSCCL's chunks are equally long. A chunk of scratch is as long as that of the whole which it holds.
//!
//! One is not: a link of MSCCL holds messages, ours hold nothing. A step that overwrites a chunk before
//! its message was taken waits, and if all steps wait, that is an error.

use super::msccl::{Algo, AlgoGpu, At, Block, BlockStep, Kind};
use super::room::AlgoBuffers;
use anyhow::{Result, bail, ensure};
use maypole::schedule::{Schedule, Span, Step};
use std::collections::BTreeMap;
use std::fmt;

/// The schedules of all ranks.
///
/// # Errors
/// If a step names a chunk that is not there or writes the input of a call that is not in place, if
/// sender and receiver disagree about a message, or if steps wait for one another; the message names
/// GPU, thread block and step.
pub(super) fn schedules(algo: &Algo) -> Result<Vec<Schedule>> {
    let of_gpu = |(rank, gpu): (usize, &AlgoGpu)| OrderedRank {
        taken: vec![0; gpu.blocks.len()],
        posted: Vec::new(),
        room: AlgoBuffers::new(algo, rank),
        log: Vec::new(),
    };
    let ranks = algo.gpus.iter().enumerate().map(of_gpu).collect();
    let mut run = Run { algo, ranks, sent: 0, order: BTreeMap::new() };
    while run.round()? {}
    run.check_end()?;
    Ok(run.finish())
}

struct Run<'a> {
    algo: &'a Algo,
    ranks: Vec<OrderedRank<'a>>,
    /// How many messages were sent.
    sent: usize,
    /// By link: its messages, in the order in which they are taken.
    order: BTreeMap<(usize, usize), Vec<usize>>,
}

struct OrderedRank<'a> {
    /// By thread block: how many of its steps were taken.
    taken: Vec<usize>,
    /// Messages that were sent and not taken, in their order.
    posted: Vec<AlgoMessage>,
    room: AlgoBuffers<'a>,
    log: Vec<LogEntry>,
}

/// What a rank has done.
enum LogEntry {
    Step(Step),
    Sent { id: usize, to: usize, spans: Vec<Span> },
}

struct AlgoMessage {
    id: usize,
    to: usize,
    channel: usize,
    spans: Vec<Span>,
    at: At,
}

/// Why a step cannot be taken yet.
enum Wait {
    Step(At),
    Message { from: usize },
    Untaken { span: Span, message: At, to: usize },
}

impl<'a> Run<'a> {
    /// Lets each thread block take as many steps as it can. True if any was taken.
    fn round(&mut self) -> Result<bool> {
        let mut moved = false;
        for rank in 0..self.ranks.len() {
            for nth in 0..self.ranks[rank].taken.len() {
                while let Some((block, step, at)) = self.next(rank, nth) {
                    if self.wait(block, step, at)?.is_some() {
                        break;
                    }
                    self.take(block, step, at)?;
                    self.ranks[rank].taken[nth] += 1;
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    /// The next step of a thread block; `None` after its last.
    fn next(&self, rank: usize, nth: usize) -> Option<(&'a Block, BlockStep, At)> {
        let block = &self.algo.gpus[rank].blocks[nth];
        let step = self.ranks[rank].taken[nth];
        let at = At { gpu: rank, block: block.id, step };
        block.steps.get(step).map(|one| (block, *one, at))
    }

    fn wait(&self, block: &Block, step: BlockStep, at: At) -> Result<Option<Wait>> {
        let state = &self.ranks[at.gpu];
        if let Some((nth, needed)) = step.after
            && state.taken[nth] <= needed
        {
            let block = self.algo.gpus[at.gpu].blocks[nth].id;
            return Ok(Some(Wait::Step(At { gpu: at.gpu, block, step: needed })));
        }
        let mut incoming = None;
        if step.kind.receives() {
            let from = block.recv.expect("it was read so");
            incoming =
                self.message(from, at.gpu, block.channel).map(|nth| &self.ranks[from].posted[nth]);
            let Some(message) = incoming else { return Ok(Some(Wait::Message { from })) };
            ensure!(
                message.spans.len() == step.count,
                "{at} receives {} chunks, and {} sends {}",
                step.count,
                message.at,
                message.spans.len()
            );
        }
        for nth in 0..step.count {
            let Some(place) = step.dst.map(|place| place.shifted(nth)) else { break };
            let source = match (incoming, step.src) {
                (Some(message), _) => message.spans[nth],
                (None, Some(src)) => state.room.read(at, src.shifted(nth))?,
                (None, None) => break,
            };
            let Some(span) = state.room.target(at, place, source)? else { continue };
            if let Some(message) = state.posted.iter().find(|one| one.spans.contains(&span)) {
                return Ok(Some(Wait::Untaken { span, message: message.at, to: message.to }));
            }
        }
        Ok(None)
    }

    /// The first message from one rank to another that was not taken, by its place in the list.
    fn message(&self, from: usize, to: usize, channel: usize) -> Option<usize> {
        let is_it = |message: &AlgoMessage| (message.to, message.channel) == (to, channel);
        self.ranks[from].posted.iter().position(is_it)
    }

    fn take(&mut self, block: &Block, step: BlockStep, at: At) -> Result<()> {
        let mut results = Vec::new();
        let message = step.kind.receives().then(|| self.receive(block, at));
        let OrderedRank { room, log, .. } = &mut self.ranks[at.gpu];
        for nth in 0..step.count {
            let [src, dst] = [step.src, step.dst].map(|place| place.map(|one| one.shifted(nth)));
            let (steps, result) = match (&message, src, dst) {
                (Some((from, spans)), ..) => room.combine(at, (*from, spans[nth]), src, dst)?,
                (None, Some(src), None) => (Vec::new(), room.read(at, src)?),
                (None, Some(src), Some(dst)) if step.kind == Kind::Copy => {
                    room.copy(at, src, dst)?
                }
                (None, Some(src), Some(dst)) => room.reduce(at, src, dst)?,
                (None, None, _) => continue,
            };
            log.extend(steps.into_iter().map(LogEntry::Step));
            results.push(result);
        }
        if step.kind.sends() {
            let (to, channel) = (block.send.expect("it was read so"), block.channel);
            let (id, spans) = (self.sent, results);
            self.sent += 1;
            log.push(LogEntry::Sent { id, to, spans: spans.clone() });
            self.ranks[at.gpu].posted.push(AlgoMessage { id, to, channel, spans, at });
        }
        Ok(())
    }

    /// Takes the message of a step. Returns its sender, and where it lay there.
    fn receive(&mut self, block: &Block, at: At) -> (usize, Vec<Span>) {
        let from = block.recv.expect("it was read so");
        let nth = self.message(from, at.gpu, block.channel).expect("the step does not wait");
        let message = self.ranks[from].posted.remove(nth);
        self.order.entry((from, at.gpu)).or_default().push(message.id);
        (from, message.spans)
    }

    /// Says why not all steps were taken, or that a message is left over.
    fn check_end(&self) -> Result<()> {
        let mut stuck = Vec::new();
        for rank in 0..self.ranks.len() {
            for nth in 0..self.ranks[rank].taken.len() {
                let Some((block, step, at)) = self.next(rank, nth) else { continue };
                stuck.extend(self.wait(block, step, at)?.map(|wait| (at, wait)));
            }
        }
        // The wait of a thread block is more informative than the waits of others for it.
        let telling = stuck.iter().find(|(_, wait)| !matches!(wait, Wait::Step(_)));
        if let Some((at, wait)) = telling.or(stuck.first()) {
            bail!("{at} waits for ever: {wait}");
        }
        match self.ranks.iter().flat_map(|state| &state.posted).next() {
            Some(message) => bail!("{}: gpu {} never takes its message", message.at, message.to),
            None => Ok(()),
        }
    }

    /// The lists. A send stands at its own place, or after sends that are taken before it.
    fn finish(self) -> Vec<Schedule> {
        let Self { algo, ranks, order, .. } = self;
        let schedule = |(rank, state): (usize, OrderedRank<'_>)| {
            let mut links: BTreeMap<usize, RankLink> = BTreeMap::new();
            let mut steps = Vec::new();
            for entry in state.log {
                match entry {
                    LogEntry::Step(step) => steps.push(step),
                    LogEntry::Sent { id, to, spans } => {
                        let link = links.entry(to).or_default();
                        link.sent.insert(id, spans);
                        let order = &order[&(rank, to)];
                        while let Some(spans) =
                            order.get(link.left).and_then(|id| link.sent.remove(id))
                        {
                            link.left += 1;
                            steps.extend(spans.into_iter().map(|from| Step::Send { from, to }));
                        }
                    }
                }
            }
            steps.extend(state.room.rest());
            Schedule::new(algo.chunks, steps)
        };
        ranks.into_iter().enumerate().map(schedule).collect()
    }
}

/// The messages to a rank that stand in no list yet, and how many do.
#[derive(Default)]
struct RankLink {
    sent: BTreeMap<usize, Vec<Span>>,
    left: usize,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(needed) => write!(f, "it depends on {needed}"),
            Self::Message { from } => write!(f, "no message of gpu {from} comes on its channel"),
            Self::Untaken { span, message, to } => write!(
                f,
                "it overwrites {span}, which {message} has sent and gpu {to} has not taken. Links \
                 of MSCCL hold messages, and links of a schedule hold nothing: send a copy in \
                 scratch"
            ),
        }
    }
}
