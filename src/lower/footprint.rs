//! The memory that a call touches, compared with the caches.

use super::LoweringInput;
use crate::schedule::Placement;

/// From so many bytes in the buffers of all ranks of a board on, copies bypass the caches. Measured
/// on two cores of a shared server (Intel Xeon, 2 MiB of second-level cache a core), where such
/// copies are slower below 20 MiB by 6 to 60 %, and faster from 32 MiB on by up to 70 %.
const BEYOND_CACHES: usize = 32 << 20;

impl LoweringInput<'_> {
    /// True if the caches hold little of the buffers that the ranks on the board of rank `me` pass.
    pub(super) fn is_beyond_caches(&self, me: usize, placement: Placement) -> bool {
        let elements = |rank: &usize| {
            let input = self.layout.held(self.collective.input(*rank)).len();
            let output = self.layout.held(self.collective.output(*rank)).len();
            match placement {
                Placement::Apart => input.saturating_add(output),
                Placement::InPlace => input.max(output),
            }
        };
        let all = self.boards.locals(me).iter().map(elements).fold(0, usize::saturating_add);
        all.saturating_mul(self.element) >= BEYOND_CACHES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Algorithm;
    use crate::lower::lower;
    use crate::schedule::Layout;
    use crate::schedule::collective::Collective;
    use crate::schedule::hosts::Boards;

    /// Whether a vector of `mib` MiB is too much, as the programs of all ranks have it.
    fn is_beyond(algorithm: Algorithm, boards: &[usize], mib: usize) -> Vec<bool> {
        let collective = match algorithm {
            Algorithm::Linear => Collective::Gather { root: 0 },
            _ => Collective::AllReduce,
        };
        let boards = Boards::new(boards);
        let world = boards.world();
        let schedules = algorithm.schedules(collective, world).unwrap();
        let layout = Layout::even(mib << 20, schedules[0].chunks);
        let input = LoweringInput {
            collective,
            schedules: &schedules,
            layout: &layout,
            element: 1,
            boards: &boards,
            window: 1 << 20,
            fingerprint: 0,
        };
        let program = |me| lower(&input, me, Placement::Apart).unwrap();
        (0..world).map(|me| program(me).past_caches).collect()
    }

    #[test]
    fn the_buffers_of_a_board_count() {
        assert_eq!(is_beyond(Algorithm::TwoShot, &[0, 0], 8), [true; 2]);
        assert_eq!(is_beyond(Algorithm::TwoShot, &[0, 0], 7), [false; 2]);
        assert_eq!(is_beyond(Algorithm::TwoShot, &[0, 1], 8), [false; 2]);
        assert_eq!(is_beyond(Algorithm::Linear, &[0, 0], 16), [true; 2]);
        assert_eq!(is_beyond(Algorithm::Linear, &[0, 0], 15), [false; 2]);
    }
}
