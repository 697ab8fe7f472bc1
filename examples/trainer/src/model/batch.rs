//! A batch: rows of tokens with their targets and positions, the input of the model.

/// Rows of tokens of one rank, each token with the token that follows it.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBatch {
    /// The number of rows.
    pub rows: usize,
    /// The tokens, row after row.
    pub tokens: Vec<u32>,
    /// The token that follows each token.
    pub targets: Vec<u32>,
    /// The position of each token in its row.
    pub positions: Vec<u32>,
    /// The factor of one token's loss: one over the tokens of the global batch. So losses and
    /// gradients of all ranks and micro-batches are summed, without a division.
    pub weight: f64,
}

impl TokenBatch {
    /// Tokens of a row.
    pub fn columns(&self) -> usize {
        self.tokens.len() / self.rows
    }

    /// Returns columns `columns` of every row: a rank's part of the context.
    ///
    /// # Panics
    /// If a row has no such column.
    #[must_use]
    pub fn cut(&self, columns: &[usize]) -> Self {
        let cut = |all: &[u32]| {
            let rows = all.chunks_exact(self.columns());
            rows.flat_map(|row| columns.iter().map(|column| row[*column])).collect::<Vec<_>>()
        };
        Self {
            rows: self.rows,
            tokens: cut(&self.tokens),
            targets: cut(&self.targets),
            positions: cut(&self.positions),
            weight: self.weight,
        }
    }
}
