//! Making registered memory: an agreement of all ranks.

use crate::engine::Engine;
use crate::engine::agree::named_call;
use crate::error::Result;
use maypole_transports::registered::{Arena, Registration};

impl Engine {
    /// Makes registered memory of `bytes` bytes on this rank, and of each other rank's size there.
    /// If some rank cannot, or the ranks do not share a board, all ranks get an arena without
    /// memory.
    pub(crate) fn register(&mut self, bytes: usize) -> Result<Arena> {
        // Of each rank: its bytes, and the earlier registrations of which it has no memory any more.
        let mine = (bytes, self.registrations.unused());
        let requests: Vec<(usize, Vec<u32>)> = self.tell_all(named_call("arena()"), &mine)?;
        let is_used = |number: &u32| !requests.iter().all(|it| it.1.contains(number));
        self.registrations.list.retain(|(number, _)| is_used(number));
        let lengths: Vec<usize> = requests.iter().map(|it| it.0).collect();
        let locals = self.boards.locals(self.rank);
        let arena = match Registration::bytes(&lengths).filter(|bytes| *bytes > 0) {
            Some(all) if locals.len() == lengths.len() => {
                self.map_shared(&locals, all, &lengths)?
            }
            _ => Arena::empty(),
        };
        // Calls that were prepared before exchange no places.
        self.calls.clear();
        Ok(arena)
    }

    /// Maps a segment of `all` bytes, of which each rank has one of `lengths`.
    fn map_shared(&mut self, locals: &[usize], all: usize, lengths: &[usize]) -> Result<Arena> {
        let number = self.registrations.next;
        self.registrations.next += 1;
        let deadline = self.limits.deadline();
        let segment = self.health.control.segment(locals, number, all, deadline);
        let made = segment.map_err(|error| error.to_string()).and_then(|segment| {
            Registration::new(segment, lengths, self.rank).map_err(|error| error.to_string())
        });
        let all_made = self.tell_all(named_call("arena()"), &made.is_ok())?;
        match made {
            Ok((registration, arena)) if all_made.iter().all(|is_made| *is_made) => {
                self.registrations.list.push((number, registration));
                Ok(arena)
            }
            Ok(_) => Ok(Arena::empty()),
            Err(why) => {
                tracing::warn!(why, "no registered memory of {all} bytes; calls stay private");
                Ok(Arena::empty())
            }
        }
    }
}
