//! The bytes that a rank sends, by the group of ranks that receives them.

/// Bytes that a rank sends in one step, by the group of ranks that receives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To other stages of the pipeline.
    pub pp: u64,
    /// To the ranks that have other experts.
    pub ep: u64,
    /// To the ranks that have other positions.
    pub cp: u64,
    /// To the ranks that have other parts of the same layers.
    pub tp: u64,
    /// To the ranks that have the same parameters.
    pub copies: u64,
    /// To all ranks of the mesh: the loss.
    pub world: u64,
}

impl Traffic {
    /// Returns the bytes that were sent after `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            pp: self.pp - earlier.pp,
            ep: self.ep - earlier.ep,
            cp: self.cp - earlier.cp,
            tp: self.tp - earlier.tp,
            copies: self.copies - earlier.copies,
            world: self.world - earlier.world,
        }
    }

    /// Returns the sum over all groups.
    pub fn total(&self) -> u64 {
        self.pp + self.ep + self.cp + self.tp + self.copies + self.world
    }
}
