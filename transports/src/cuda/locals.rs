//! Memory that only a rank's own kernels use.

use super::Result;
use super::arena::Reached;
use super::copies;
use super::gpu_slots::SlotArena;
use super::launch::{Mailbox, ShortLaunch};
use super::layout::{MailboxLayout, Parts, SHORT_BLOCKS, Shapes, take};
use super::memory::DeviceMemory;
use super::words::ReportWords;
use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;
use maypole_kernels::packed::{MOST_SHORT_RANKS, ShortProgram};
use std::sync::Arc;

/// Memory that only a rank's own kernels read and write: for each room, the addresses of all
/// mailboxes, the counts of each lane, and the audiences of each slot; for all rooms, whether the
/// rank has failed.
#[derive(Debug)]
pub(super) struct Locals {
    pub(super) memory: DeviceMemory,
    pub(super) parts: Vec<LocalParts>,
    /// Not zero there: the rank has failed.
    pub(super) failed: CUdeviceptr,
    /// Arguments of all short calls, if the group makes some.
    pub(super) short: Option<ShortLaunch>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LocalParts {
    pub(super) mailboxes: usize,
    pub(super) published: usize,
    pub(super) audiences: usize,
    /// Ranks that meet in the room.
    pub(super) members: usize,
    /// The mailbox of this rank.
    pub(super) ours: Mailbox,
}

/// Where a rank's mailboxes are, and on which stream they are made ready.
pub(super) struct Places<'a> {
    pub(super) stream: &'a Arc<CudaStream>,
    pub(super) shapes: &'a Shapes,
    pub(super) layout: &'a MailboxLayout,
    pub(super) words: &'a ReportWords,
    /// Where slots are, if not beside the words.
    pub(super) slots: Option<&'a SlotArena>,
}

impl Locals {
    /// Those of rank `me` in a group whose ranks reach `others`, by rank.
    pub(super) fn new(board: &Places<'_>, me: usize, others: &[Reached]) -> Result<Self> {
        let mut end = 0;
        let mut parts = Vec::new();
        let mut tables = Vec::new();
        for room in board.shapes.rooms(others.len()) {
            let shape = board.shapes.of(room);
            let members = board.layout.members(room, me, others.len());
            let lanes = shape.lanes as usize;
            let mailbox = |(rank, parts): &(usize, Parts)| {
                let mailbox = Mailbox::of(&others[*rank], parts);
                let slots = board.slots.map(|slots| slots.address(room, *rank));
                Mailbox { slots: slots.unwrap_or(mailbox.slots), ..mailbox }
            };
            let ours = members.iter().find(|(rank, _)| *rank == me).map(mailbox);
            parts.push(LocalParts {
                mailboxes: take(&mut end, members.len() * size_of::<Mailbox>()),
                published: take(&mut end, lanes * (members.len() + 2) * size_of::<u64>()),
                audiences: take(&mut end, lanes * shape.slots as usize * size_of::<u64>()),
                members: members.len(),
                ours: ours.expect("this rank is one of them"),
            });
            tables.push(members.iter().map(mailbox).collect::<Vec<_>>());
        }
        let counts = take(&mut end, SHORT_BLOCKS * size_of::<u64>());
        let failed = take(&mut end, size_of::<u64>());
        let memory = DeviceMemory::new(board.stream, end)?;
        let failed = memory.address() + failed as u64;
        let at = |offset: usize| {
            let mut all = [0; MOST_SHORT_RANKS];
            let places = others.iter().map(|other| other.address() + offset as u64);
            all.iter_mut().zip(places).for_each(|(place, address)| *place = address);
            all
        };
        let (ranks, mine) = (others.len() as u32, me as u32);
        let [abort, report, gone] = board.words.addresses();
        let short = board.layout.short.map(|lines| ShortLaunch {
            lines: at(lines),
            announced: at(board.layout.announced()),
            counts: memory.address() + counts as u64,
            abort,
            report,
            gone,
            failed,
            program: ShortProgram { ranks, me: mine, ..ShortProgram::default() },
            ..ShortLaunch::default()
        });
        let mut bytes = vec![0; end];
        for (local, table) in parts.iter().zip(&tables) {
            let table = bytemuck::cast_slice(table);
            bytes[local.mailboxes..][..table.len()].copy_from_slice(table);
        }
        copies::write(board.stream, memory.lend(), &bytes)?;
        Ok(Self { memory, parts, failed, short })
    }
}

impl Mailbox {
    fn of(other: &Reached, parts: &Parts) -> Self {
        Self {
            slots: other.address() + parts.slots as u64,
            arrived: other.address() + parts.arrived as u64,
            consumed: other.address() + parts.consumed as u64,
            announced: other.address() + parts.announced as u64,
        }
    }
}
