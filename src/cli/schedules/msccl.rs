//! Reads algorithms of MSCCL: XML in which each GPU has thread blocks, and each thread block a list of
//! steps. [`order`](super::order) makes one list a rank of them.
//!
//! A thread block sends to one GPU and receives from one, on a channel. Its steps are taken in order;
//! a step may wait for one of another thread block of its GPU (`depid`, `deps`). The meaning of a step
//! is that of MSCCL's interpreter: `rrc` writes `src` combined with the message to `dst`.

use anyhow::{Context, Result, bail, ensure};
use maypole::schedule::collective::Collective;
use roxmltree::{Document, Node};
use std::fmt;

/// The most chunks of a buffer: more is a slip of the pen.
const MOST_CHUNKS: usize = 1 << 16;
const MOST_GPUS: usize = 1 << 10;
/// The most chunks of all GPUs together.
const MOST_OF_ALL: usize = 1 << 22;

/// An algorithm as its file has it.
pub(super) struct Algo {
    pub(super) collective: Collective,
    /// Input and output are one memory.
    pub(super) in_place: bool,
    /// The chunks of the whole.
    pub(super) chunks: usize,
    pub(super) gpus: Vec<AlgoGpu>,
}

pub(super) struct AlgoGpu {
    pub(super) scratch: usize,
    pub(super) blocks: Vec<Block>,
}

/// A thread block.
pub(super) struct Block {
    pub(super) id: usize,
    pub(super) send: Option<usize>,
    pub(super) recv: Option<usize>,
    pub(super) channel: usize,
    pub(super) steps: Vec<BlockStep>,
}

#[derive(Clone, Copy)]
pub(super) struct BlockStep {
    pub(super) kind: Kind,
    /// The places that the kind needs.
    pub(super) src: Option<AlgoPlace>,
    pub(super) dst: Option<AlgoPlace>,
    /// How many chunks in a row.
    pub(super) count: usize,
    /// The thread block, as its place in the list, and the step that must have been taken.
    pub(super) after: Option<(usize, usize)>,
}

/// A chunk of a buffer of a GPU: `i`, `o` or `s`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct AlgoPlace {
    pub(super) buffer: char,
    pub(super) offset: usize,
}

impl AlgoPlace {
    /// The chunk that lies `by` chunks later.
    pub(super) fn shifted(self, by: usize) -> Self {
        Self { offset: self.offset + by, ..self }
    }
}

/// What a step does, in the order of its letters: receive, reduce, copy, send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Send,
    Recv,
    RecvCopySend,
    RecvReduceSend,
    RecvReduceCopy,
    RecvReduceCopySend,
    Copy,
    Reduce,
    Nop,
}

impl Kind {
    const NAMES: [(&'static str, Self); 9] = [
        ("s", Self::Send),
        ("r", Self::Recv),
        ("rcs", Self::RecvCopySend),
        ("rrs", Self::RecvReduceSend),
        ("rrc", Self::RecvReduceCopy),
        ("rrcs", Self::RecvReduceCopySend),
        ("cpy", Self::Copy),
        ("re", Self::Reduce),
        ("nop", Self::Nop),
    ];

    pub(super) fn sends(self) -> bool {
        matches!(
            self,
            Self::Send | Self::RecvCopySend | Self::RecvReduceSend | Self::RecvReduceCopySend
        )
    }

    pub(super) fn receives(self) -> bool {
        !matches!(self, Self::Send | Self::Copy | Self::Reduce | Self::Nop)
    }

    /// True if the step reads its `src`.
    fn reads(self) -> bool {
        !matches!(self, Self::Recv | Self::RecvCopySend | Self::Nop)
    }

    /// True if the step writes its `dst`.
    fn writes(self) -> bool {
        !matches!(self, Self::Send | Self::RecvReduceSend | Self::Nop)
    }
}

/// Where in a file something is.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) gpu: usize,
    pub(super) block: usize,
    pub(super) step: usize,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu {}, tb {}, step {}", self.gpu, self.block, self.step)
    }
}

/// Reads the text of a file.
///
/// # Errors
/// If it is no XML, no algorithm, or one that the library cannot express; the message names GPU,
/// thread block and step.
pub(super) fn read(text: &str) -> Result<Algo> {
    let document = Document::parse(text)?;
    let algo = document.root_element();
    ensure!(algo.has_tag_name("algo"), "the file has no <algo>");
    let world = number(algo, "ngpus")?;
    let chunks = number(algo, "nchunksperloop")?;
    ensure!(
        (1..=MOST_GPUS).contains(&world) && (1..=MOST_CHUNKS).contains(&chunks),
        "<algo> has {world} GPUs and {chunks} chunks; it needs 1 to {MOST_GPUS} and 1 to \
         {MOST_CHUNKS}"
    );
    ensure!(
        world * chunks <= MOST_OF_ALL,
        "<algo> has {world} GPUs with {chunks} chunks each, which are more than {MOST_OF_ALL}"
    );
    let mut gpus: Vec<Option<AlgoGpu>> = (0..world).map(|_| None).collect();
    for node in children(algo, "gpu") {
        let id = number(node, "id")?;
        let place = gpus.get_mut(id).with_context(|| format!("gpu {id}: there are {world}"))?;
        ensure!(place.is_none(), "gpu {id} is there twice");
        *place = Some(gpu(node, id, world).with_context(|| format!("gpu {id}"))?);
    }
    let missing = |id: usize| format!("gpu {id} is missing among {world}");
    let gpus = gpus.into_iter().enumerate().map(|(id, gpu)| gpu.with_context(|| missing(id)));
    let gpus = gpus.collect::<Result<Vec<AlgoGpu>>>()?;
    let collective = collective(attribute(algo, "coll")?, &gpus)?;
    ensure!(
        !collective.is_blocked() || chunks == world,
        "coll=\"{}\" with {chunks} chunks for {world} GPUs: a schedule has one chunk for each \
         rank's block, so nchunksperloop must be {world}",
        attribute(algo, "coll")?
    );
    Ok(Algo { collective, in_place: number(algo, "inplace")? == 1, chunks, gpus })
}

fn collective(name: &str, gpus: &[AlgoGpu]) -> Result<Collective> {
    let root = |of: &str, has: fn(Kind) -> bool| {
        let silent =
            |gpu: &AlgoGpu| !gpu.blocks.iter().any(|one| one.steps.iter().any(|s| has(s.kind)));
        let roots: Vec<usize> = (0..gpus.len()).filter(|id| silent(&gpus[*id])).collect();
        match roots[..] {
            [root] => Ok(root),
            _ => bail!(
                "coll=\"{name}\": the root is the one GPU that {of} nothing; here {roots:?} do"
            ),
        }
    };
    Ok(match name {
        "allreduce" => Collective::AllReduce,
        "allgather" => Collective::AllGather,
        "reducescatter" | "reduce_scatter" => Collective::ReduceScatter,
        "alltoall" => Collective::AllToAll,
        "broadcast" => Collective::Broadcast { root: root("receives", Kind::receives)? },
        "reduce" => Collective::Reduce { root: root("sends", Kind::sends)? },
        _ => bail!(
            "coll=\"{name}\" is none of allreduce, allgather, reducescatter, alltoall, broadcast \
             and reduce"
        ),
    })
}

fn gpu(node: Node<'_, '_>, id: usize, world: usize) -> Result<AlgoGpu> {
    let scratch = number(node, "s_chunks")?;
    ensure!(scratch <= MOST_CHUNKS, "s_chunks is {scratch} of at most {MOST_CHUNKS}");
    let nodes: Vec<Node<'_, '_>> = children(node, "tb").collect();
    let ids = nodes.iter().map(|node| number(*node, "id")).collect::<Result<Vec<usize>>>()?;
    let block = |(node, tb): (&Node<'_, '_>, &usize)| -> Result<Block> {
        let peer = |name: &str| -> Result<Option<usize>> {
            let peer = attribute(*node, name)?;
            let rank = peer.parse().ok().filter(|rank| *rank < world && *rank != id);
            ensure!(
                rank.is_some() || peer == "-1",
                "{name}=\"{peer}\" is neither -1 nor another of {world} GPUs"
            );
            Ok(rank)
        };
        let (send, recv, channel) = (peer("send")?, peer("recv")?, number(*node, "chan")?);
        let mut block = Block { id: *tb, send, recv, channel, steps: Vec::new() };
        for (nth, node) in children(*node, "step").enumerate() {
            let read = step(node, nth, &block, &ids).with_context(|| format!("step {nth}"))?;
            block.steps.push(read);
        }
        Ok(block)
    };
    let named = |(node, tb)| block((node, tb)).with_context(|| format!("tb {tb}"));
    Ok(AlgoGpu { scratch, blocks: nodes.iter().zip(&ids).map(named).collect::<Result<_>>()? })
}

fn step(node: Node<'_, '_>, nth: usize, block: &Block, ids: &[usize]) -> Result<BlockStep> {
    let number_of_step = number(node, "s")?;
    ensure!(number_of_step == nth, "it is numbered s=\"{number_of_step}\"");
    let name = attribute(node, "type")?;
    let kind = Kind::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind);
    let kind = kind.with_context(|| {
        let known: Vec<&str> = Kind::NAMES.iter().map(|(name, _)| *name).collect();
        format!("type=\"{name}\" is none of {}", known.join(", "))
    })?;
    ensure!(!kind.sends() || block.send.is_some(), "it sends, and its tb has send=\"-1\"");
    ensure!(!kind.receives() || block.recv.is_some(), "it receives, and its tb has recv=\"-1\"");
    let after = match attribute(node, "depid")? {
        "-1" => None,
        _ => {
            let id = number(node, "depid")?;
            let at = ids.iter().position(|known| *known == id);
            Some((
                at.with_context(|| format!("depid: there is no tb {id}"))?,
                number(node, "deps")?,
            ))
        }
    };
    let count = if kind == Kind::Nop { 0 } else { number(node, "cnt")? };
    ensure!(kind == Kind::Nop || (1..=MOST_CHUNKS).contains(&count), "cnt=\"{count}\"");
    let [src, dst] = [("src", kind.reads()), ("dst", kind.writes())]
        .map(|(name, needed)| needed.then(|| place(node, name)).transpose());
    Ok(BlockStep { kind, src: src?, dst: dst?, count, after })
}

fn place(node: Node<'_, '_>, name: &str) -> Result<AlgoPlace> {
    let buffer = attribute(node, &format!("{name}buf"))?;
    let offset = number(node, &format!("{name}off"))?;
    let known = ["i", "o", "s"].contains(&buffer) && offset < MOST_CHUNKS;
    ensure!(known, "{name}buf=\"{buffer}\" {name}off=\"{offset}\" is no chunk of i, o or s");
    Ok(AlgoPlace { buffer: buffer.chars().next().expect("one of three letters"), offset })
}

fn children<'a, 'd>(
    node: Node<'a, 'd>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'd>> + use<'a, 'd> {
    node.children().filter(move |child| child.has_tag_name(name))
}

fn attribute<'a>(node: Node<'a, '_>, name: &str) -> Result<&'a str> {
    let tag = node.tag_name().name();
    node.attribute(name).with_context(|| format!("<{tag}> has no {name}"))
}

fn number(node: Node<'_, '_>, name: &str) -> Result<usize> {
    let text = attribute(node, name)?;
    text.parse().ok().with_context(|| format!("{name}=\"{text}\" is not a number"))
}
