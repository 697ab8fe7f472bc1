//! Mistakes: what goes wrong in real trainers, made on purpose.
//!
//! What it does: nearly all of these have been shipped by somebody, and none of them stops the loss
//! from falling. Each is one line that is left out or points the wrong way, at the place that names
//! it. The tests make every one of them and demand that the comparison with one process notices; a
//! learner makes one with `train run --fault NAME` and looks for it in the losses.
//!
//! What is sharded, which collective runs where: as without the mistake, less the one that is
//! forgotten. Cost: a comparison at each of the places.

/// A mistake, and in its documentation what the right thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Each rank divides by its own tokens: the weight of a token is one over those of the *whole*
    /// batch.
    LocalMean,
    /// Gradients of dense parameters are not summed over the data axes.
    GradientsAlone,
    /// Gradients are summed over the tensor axis instead of the data axes.
    GradientsOverTensor,
    /// Gradients are averaged instead of summed.
    GradientsAveraged,
    /// The sum after a row-parallel layer is left out.
    NoSumAfterRow,
    /// The sum of the input's gradient of a column-parallel layer is left out.
    NoSumBeforeColumn,
    /// Under sequence parallelism, gradients of norms, of biases and of positions are not summed
    /// over the tensor axis.
    NormsNotSummed,
    /// Each rank knows the rounded-down share of the vocabulary alone: targets in the remainder are
    /// nobody's.
    VocabularyRemainder,
    /// The softmax over the vocabulary is shifted by the part's greatest logit instead of that of
    /// all.
    VocabularyMaximum,
    /// The last stage takes the targets of the next micro-batch.
    MicrosSwapped,
    /// Activations are kept on a stack: the backward of the first micro-batch gets those of the
    /// last one held.
    ActivationsStacked,
    /// Experts' gradients are summed over the expert axis too, as if all its ranks held the same
    /// experts.
    ExpertsSummed,
    /// What comes back from the experts is not put in the order of the tokens.
    NotCombined,
    /// The router learns nothing from the outputs of the experts.
    GatesForgotten,
    /// The auxiliary loss is the mean over this rank's groups instead of all.
    LocalBalance,
    /// Experts move to other ranks (`--rebalance`), and the rows of the router stay.
    RouterLeftBehind,
    /// Experts move to other ranks (`--rebalance`), and the averages of the optimizer stay.
    MomentsLeftBehind,
    /// Earlier terms of the softmax are not scaled down when a later block has a greater score.
    NotRescaled,
    /// The gradients of keys and values stay with the rank that added the last term.
    NotSentHome,
    /// Every rank masks as if its positions were the first ones.
    MaskOfFirst,
    /// Positions are numbered as if the sequence were divided plainly.
    PlainPositions,
    /// Heads come back from the all-to-all in the order of ranks instead of that of positions.
    HeadsSwapped,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::LocalMean,
        Self::GradientsAlone,
        Self::GradientsOverTensor,
        Self::GradientsAveraged,
        Self::NoSumAfterRow,
        Self::NoSumBeforeColumn,
        Self::NormsNotSummed,
        Self::VocabularyRemainder,
        Self::VocabularyMaximum,
        Self::MicrosSwapped,
        Self::ActivationsStacked,
        Self::ExpertsSummed,
        Self::NotCombined,
        Self::GatesForgotten,
        Self::LocalBalance,
        Self::RouterLeftBehind,
        Self::MomentsLeftBehind,
        Self::NotRescaled,
        Self::NotSentHome,
        Self::MaskOfFirst,
        Self::PlainPositions,
        Self::HeadsSwapped,
    ];

    /// Reads a variant's name, in lower case with hyphens: `norms-not-summed`.
    ///
    /// # Errors
    /// A sentence that lists what there is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        let names = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("'{text}' is no fault; there are {}", names()))
    }

    /// As [`parse`](Self::parse) reads it.
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for fault in Fault::ALL {
            assert_eq!(Fault::parse(&fault.name()), Ok(fault));
        }
        assert_eq!(Fault::NoSumAfterRow.name(), "no-sum-after-row");
        assert!(Fault::parse("none").unwrap_err().contains("heads-swapped"));
    }
}
