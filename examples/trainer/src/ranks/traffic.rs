//! The bytes that a rank sends, by the group of ranks that they are for.

/// Bytes that leave a rank in one step, by the group that they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Stages of the pipeline.
    pub pp: u64,
    /// Owners of other experts.
    pub ep: u64,
    /// Owners of other positions.
    pub cp: u64,
    /// Owners of other parts of the same layers.
    pub tp: u64,
    /// Ranks that have the same parameters.
    pub copies: u64,
    /// All ranks of the mesh: the loss.
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

    /// The sum.
    pub fn total(&self) -> u64 {
        self.pp + self.ep + self.cp + self.tp + self.copies + self.world
    }
}
