//! A batch: rows of tokens with their targets and positions, as the model takes them.

/// Rows of tokens, each with the token that follows it, as one rank trains on them.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBatch {
    /// The number of rows.
    pub rows: usize,
    /// Row after row.
    pub tokens: Vec<u32>,
    /// The token that follows each token.
    pub targets: Vec<u32>,
    /// The position of each token in its row.
    pub positions: Vec<u32>,
    /// The factor of one token's loss: one over the tokens of the global batch, so that
    /// losses and gradients of all ranks and micro-batches are simply summed.
    pub weight: f64,
}

impl TokenBatch {
    /// Tokens of a row.
    pub fn columns(&self) -> usize {
        self.tokens.len() / self.rows
    }

    /// Columns `columns` of every row: a rank's part of the context.
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
