//! The board: publications of each rank of a host, in memory that all ranks read directly.
//!
//! Each rank owns a ring of lines and three rings of data slots in memory that all local ranks
//! share. To publish, a rank writes a payload and then its line: position, fingerprint of the call
//! and, if it is at most 48 bytes, the payload itself. A publication to one rank and a publication
//! to all ranks are the same write; the *audience* names the readers. A slot is used again once
//! every reader in its audience has consumed its contents. The writer reads a counter in shared
//! memory, or a later publication of the reader that proves it ([`BoardProtocol::credit`]).
//!
//! ```text
//! consumed[reader][writer]   position up to which `reader` has consumed what `writer` published
//! line[0..lines][rank]       sequence | fingerprint | up to 48 bytes, or the slot of the payload
//! data[rank]                 64 short slots of 1 KiB | 8 small slots of 16 KiB
//!                            | chunk slots of 32 KiB: two a rank, or 64 on a deep board
//! ```
//!
//! The writer chooses the slot of its ring and records it in the line. So a writer may use more or
//! fewer slots from one call to the next.
//!
//! Positions count the publications of one rank, of every size, since the board was made. A reader's
//! program contains the position of each publication, because lowering sees the schedules of all local
//! ranks.
//!
//! There is one counter for slots of every size. With one counter a size, a rank that calls an
//! 8-byte collective while its peer calls a megabyte one would poll a line that is never written.
//! With one counter for all, the first line shows a foreign fingerprint, and that is an error.

mod bell;
mod mapped;
mod protocol;
mod slots;

use maypole_kernels::{View, ViewMut};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use mapped::{Geometry, LINE_STRIDE, MappedWords, PAGE, PAYLOAD, SHORT_BYTES, SMALL_BYTES};
pub use protocol::{BoardProtocol, BoardWords, SharedWord};
use slots::chunk_slots;
pub use slots::{
    CHUNK, MOST_CHUNK_SLOTS, MOST_LINES, SHORT, SHORT_SLOTS, SMALL, SMALL_SLOTS, SlotClass, TINY,
    lines,
};

/// The most ranks that share one board: an audience is a set of 64 bits.
pub const MAX_RANKS: usize = 64;

/// A publication of this rank.
#[derive(Clone, Copy, Debug)]
pub struct Publication {
    /// Its class.
    pub class: SlotClass,
    /// Slots of the class in use, less one: a power of two less one.
    pub mask: u64,
    /// Its number among the publications of this rank.
    pub position: u64,
    /// Its readers: bit `r` stands for local rank `r`.
    pub audience: u64,
    /// The fingerprint of the call, which all readers must expect.
    pub fingerprint: u64,
    /// Bytes of its payload.
    pub len: usize,
}

impl Publication {
    /// The slot that holds it, in the ring of its class.
    #[inline(always)]
    fn slot(self) -> u64 {
        self.position & self.mask
    }
}

/// A publication of a peer that this rank awaits.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedPublication {
    /// Its class.
    pub class: SlotClass,
    /// The local rank that publishes it.
    pub peer: usize,
    /// Its number among the peer's publications.
    pub position: u64,
    /// The fingerprint that it must carry.
    pub fingerprint: u64,
    /// Bytes of its payload.
    pub len: usize,
}

/// The peer published something other than this rank expected: the ranks are in different calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mismatch {
    /// The local rank that published it.
    pub peer: usize,
    /// The fingerprint that it carries.
    pub theirs: u64,
}

/// Memory that a board can lie in. The bytes stay in place while the value lives, even if the value
/// is moved.
///
/// # Safety
/// `bytes` always gives the same memory, which starts zeroed, at a multiple of 128 bytes, and
/// stays mapped for writing until the value is dropped; nothing but boards touches it.
pub unsafe trait BoardMemory: Send {
    /// Returns the address of the first byte, and the number of bytes.
    fn bytes(&self) -> (NonNull<u8>, usize);
}

// SAFETY: a region's allocation is page-aligned and zeroed, and stays where it is until the last
// `Arc` goes; safe code cannot touch its bytes.
unsafe impl BoardMemory for std::sync::Arc<maypole_kernels::SharedRegion> {
    fn bytes(&self) -> (NonNull<u8>, usize) {
        (NonNull::new(self.as_ptr()).expect("a region's start"), self.len())
    }
}

// SAFETY: a segment's mapping is page-aligned, starts zeroed, and stays where it is until the
// segment is dropped; safe code cannot touch its bytes.
unsafe impl BoardMemory for crate::shm::Segment {
    fn bytes(&self) -> (NonNull<u8>, usize) {
        (self.start(), self.len())
    }
}

/// One rank's view of the board of its host: the payloads, and the [protocol](BoardProtocol). After
/// [`new`](Self::new), no method waits, allocates, locks or enters the kernel, except to
/// [sleep](Self::sleep) and to wake a rank that sleeps.
///
/// # Obligations of the ranks of a board
///
/// A board is safe only by its protocol, which all ranks keep together: each passes the positions,
/// audiences and [credits](BoardProtocol::credit) of *one* program that was lowered from the
/// schedules of all ranks. Lowering proves by a trial run that no slot of such a program is written
/// while a reader in its audience may read it, and the fingerprint of each publication shows that
/// its writer runs the same program. No check at run time could replace that proof: a credit stands
/// for a counter that is never written.
pub struct Board {
    protocol: BoardProtocol<MappedWords>,
    _memory: Box<dyn BoardMemory>,
}

// SAFETY: the pointer is into memory that `_memory`, which is `Send`, keeps alive; the cells are
// ours alone.
unsafe impl Send for Board {}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board")
            .field("me", &self.protocol.me)
            .field("ranks", &self.ranks())
            .finish()
    }
}

impl Board {
    /// Returns the bytes of shared memory that a board of `ranks` needs.
    ///
    /// # Panics
    /// If `ranks` is zero or above [`MAX_RANKS`].
    pub const fn bytes(ranks: usize) -> usize {
        assert!(ranks > 0 && ranks <= MAX_RANKS, "a board serves 1 to 64 ranks");
        Geometry::new(ranks, chunk_slots(ranks)).bytes()
    }

    /// Returns the bytes of a deep board of `ranks`, in which each has [`MOST_CHUNK_SLOTS`] chunk slots.
    /// The slots that it has more than another board are not touched before they are used.
    ///
    /// # Panics
    /// As [`bytes`](Self::bytes).
    pub const fn deep_bytes(ranks: usize) -> usize {
        assert!(ranks > 0 && ranks <= MAX_RANKS, "a board serves 1 to 64 ranks");
        Geometry::new(ranks, MOST_CHUNK_SLOTS).bytes()
    }

    /// Returns the view that local rank `me` has of the board of `ranks` local ranks in `memory`. The
    /// board is deep if the memory has [`deep_bytes`](Self::deep_bytes). Touches the slots of `me` first, so that their pages lie near its core.
    ///
    /// # Panics
    /// If `memory` is smaller than [`Board::bytes`], `me` is not below `ranks`, or the board has
    /// this rank already: two that wrote as one rank would write to the same bytes.
    pub fn new(memory: impl BoardMemory + 'static, ranks: usize, me: usize) -> Self {
        let (start, len) = memory.bytes();
        assert!(
            len >= Self::bytes(ranks),
            "a board of {ranks} ranks needs {} bytes, and the memory has {len}",
            Self::bytes(ranks),
        );
        assert!(me < ranks, "local rank {me} is not on a board of {ranks} ranks");
        assert!(
            (start.as_ptr() as usize).is_multiple_of(LINE_STRIDE),
            "a board starts at a multiple of {LINE_STRIDE}"
        );
        let is_deep = len >= Self::deep_bytes(ranks);
        let slots = if is_deep { MOST_CHUNK_SLOTS } else { chunk_slots(ranks) };
        let shared = MappedWords { start, geometry: Geometry::new(ranks, slots) };
        let taken = shared.occupied(me).swap(1, Ordering::Relaxed);
        assert_eq!(taken, 0, "the board has a local rank {me} already");
        let board = Self { protocol: BoardProtocol::new(shared, me), _memory: Box::new(memory) };
        board.touch();
        board
    }

    /// Writes the data slots of this rank once, so that their pages are allocated near its core. Those
    /// that only a deep board has are left out.
    fn touch(&self) {
        let geometry = self.geometry();
        let touched = Geometry::new(geometry.ranks, chunk_slots(geometry.ranks)).stride;
        let zeroes = [0; PAGE];
        let mine = self.memory(geometry.slots(self.protocol.me), touched);
        for at in (0..touched).step_by(PAGE) {
            let len = PAGE.min(touched - at);
            mine.slice(at, len).fill_from(&zeroes[..len]);
        }
    }

    /// Returns the mask of a [`Publication`] that uses all chunk slots of this board.
    pub fn deep_mask(&self) -> u64 {
        self.geometry().chunk_slots as u64 - 1
    }

    #[inline]
    fn geometry(&self) -> &Geometry {
        &self.protocol.words.geometry
    }

    #[inline(always)]
    fn memory(&self, at: usize, len: usize) -> ViewMut<'_> {
        debug_assert!(at + len <= self.geometry().bytes());
        // SAFETY: within the memory that `new` checked; it lives as long as `self`.
        unsafe { ViewMut::from_raw(self.protocol.words.start.add(at), len) }
    }

    /// Returns the number of ranks that share the board.
    pub fn ranks(&self) -> usize {
        self.geometry().ranks
    }

    /// The payload of `rank` in slot `slot` of its ring, or in line `slot`.
    #[inline(always)]
    fn payload(&self, rank: usize, class: SlotClass, slot: u64, len: usize) -> ViewMut<'_> {
        assert!(
            len <= class.bytes(),
            "a payload of {len} bytes does not fit into a slot of {} bytes",
            class.bytes()
        );
        let geometry = self.geometry();
        let slot = slot as usize;
        let at = match class {
            SlotClass::Tiny => geometry.line(rank, slot) + PAYLOAD,
            SlotClass::Short => geometry.slots(rank) + slot % SHORT_SLOTS * SHORT,
            SlotClass::Small => geometry.slots(rank) + SHORT_BYTES + slot % SMALL_SLOTS * SMALL,
            SlotClass::Chunk => {
                let slot = slot % geometry.chunk_slots;
                geometry.slots(rank) + SHORT_BYTES + SMALL_BYTES + slot * CHUNK
            }
        };
        self.memory(at, len)
    }

    /// Returns the memory for the payload of `out`, once `out` is [`writable`](BoardProtocol::writable).
    ///
    /// # Panics
    /// If the payload does not fit its class.
    #[inline(always)]
    pub fn slot(&self, out: Publication) -> ViewMut<'_> {
        let slot = match out.class {
            SlotClass::Tiny => self.protocol.line(out.position) as u64,
            class => {
                // With a larger mask, the protocol would see two slots where the memory has one.
                debug_assert!(
                    out.mask < class.slots(self.ranks()) as u64 || out.mask <= self.deep_mask(),
                    "{out:?}"
                );
                out.slot()
            }
        };
        self.payload(self.protocol.me, out.class, slot, out.len)
    }

    /// Lends the payload of the peer's publication in place, once it is
    /// [`readable`](BoardProtocol::readable). The payload does not change until this rank
    /// [consumes](BoardProtocol::consume) it.
    ///
    /// # Panics
    /// If `from.peer` is not on the board, or the payload does not fit its class.
    #[inline(always)]
    pub fn lent(&self, from: ExpectedPublication) -> View<'_> {
        self.protocol.check_peer(from.peer);
        let slot = match from.class {
            SlotClass::Tiny => self.protocol.line(from.position) as u64,
            _ => self.protocol.slot_of(from),
        };
        self.payload(from.peer, from.class, slot, from.len).as_view()
    }
}

impl Deref for Board {
    type Target = BoardProtocol<MappedWords>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.protocol
    }
}
