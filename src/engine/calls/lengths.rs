//! How long the buffers of a rank are, and how long they must be.

use crate::schedule::collective::{Collective, HeldChunks};

/// The lengths of a rank's buffers, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BufferLengths {
    /// One buffer is input and output.
    InPlace(usize),
    Apart {
        input: usize,
        output: usize,
    },
}

impl BufferLengths {
    /// The elements of a vector, or of a rank's block, of a call that all ranks make with equal
    /// counts. A buffer that the rank does not need may have any length.
    ///
    /// # Errors
    /// Why there can be no such call.
    #[inline]
    pub(crate) fn count(
        self,
        collective: Collective,
        rank: usize,
        world: usize,
    ) -> Result<usize, String> {
        let (brings, keeps) = (collective.input(rank), collective.output(rank));
        let blocks = |held| {
            if collective.is_blocked() && held == HeldChunks::All { world } else { 1 }
        };
        let (input, output) = match self {
            Self::InPlace(whole) => return of_block(whole, blocks(brings).max(blocks(keeps))),
            Self::Apart { input, output } => (input, output),
        };
        let count = match (brings, keeps) {
            (HeldChunks::Nothing, _) | (_, HeldChunks::One(_)) => output,
            _ => of_block(input, blocks(brings))?,
        };
        if brings != HeldChunks::Nothing {
            check_len("input", input, count * blocks(brings))?;
        }
        if keeps != HeldChunks::Nothing {
            check_len("output", output, count * blocks(keeps))?;
        }
        Ok(count)
    }
}

/// The elements of one of the `blocks` blocks of `len` elements.
#[inline]
fn of_block(len: usize, blocks: usize) -> Result<usize, String> {
    if blocks == 1 {
        return Ok(len);
    }
    match len.is_multiple_of(blocks) {
        true => Ok(len / blocks),
        false => Err(format!("{len} elements are not a multiple of the {blocks} ranks")),
    }
}

/// Refuses a buffer that has not as many elements as it needs.
#[inline]
pub(crate) fn check_len(which: &str, len: usize, needed: usize) -> Result<(), String> {
    match len == needed {
        true => Ok(()),
        false => Err(format!("the {which} has {len} elements and needs {needed}")),
    }
}
