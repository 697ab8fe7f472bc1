//! Planted faults: mistakes that real trainers make, made here on purpose.
//!
//! What it does: nearly all of these mistakes have occurred in published trainers, and none of them
//! stops the loss from falling. The code of an axis contains no mistake: [`Mistake::plant`] replaces
//! one of a rank's parts by a decorator that makes one mistake. The tests plant every mistake and
//! check that the comparison with one process detects it. The last four of the list change no number: the tour detects them by
//! memory, by the order of passes, and by overlap. A learner plants a mistake with
//! `train run --fault NAME` and looks for it in the losses; `train run --fault list` explains each
//! mistake.
//!
//! What is sharded, which collective runs where: as without the mistake, except for a collective
//! that the mistake leaves out.

mod batches;
mod context;
mod experts;
mod gradients;
mod plant;
mod tensor;
mod update;

pub use update::plant_overflow;

/// The mistakes, each with one sentence about the mistake and one about the right way.
macro_rules! faults {
    ($($fault:ident: $sentence:literal,)*) => {
        /// A mistake that a rank makes on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mistake {
            $(#[doc = $sentence] $fault,)*
        }

        impl Mistake {
            /// All of them.
            pub const ALL: [Self; [$($sentence),*].len()] = [$(Self::$fault),*];

            /// The mistake, and the right way.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$fault => $sentence,)*
                }
            }
        }
    };
}

faults! {
    LocalMean: "Each rank divides the loss by its own tokens. \
        The divisor is the tokens of the whole batch.",
    GradientsAlone: "Gradients of dense parameters are not summed over dp and cp. \
        Every copy needs the sum.",
    GradientsOverTensor: "Gradients are summed over tp. \
        The ranks that have the same parameters are those of dp and cp.",
    GradientsAveraged: "Gradients are averaged over dp and cp. \
        Tokens are weighted already, so the sum is right.",
    NoSumAfterRow: "Outputs of a row-parallel layer are not summed over tp. \
        Each rank has only terms of them.",
    NoSumBeforeColumn: "Input gradients of a column-parallel layer are not summed over tp. \
        Each rank has only terms of them.",
    NormsNotSummed: "With --sequence, gradients of norms, biases and \
        positions are not summed over tp. \
        Each rank has gradients of its own tokens only.",
    PositionsOfFirst: "With --sequence, each rank of tp embeds its tokens at the positions of the \
        first rank's. \
        Each rank has its own tokens.",
    VocabularyRemainder: "Each rank of tp knows the rounded-down share of the vocabulary. \
        The remainder has owners too.",
    VocabularyMaximum: "The softmax is shifted by the greatest logit of a rank's part. \
        It has to be that of the whole vocabulary.",
    MicrosSwapped: "The last stage of a pipeline takes the targets of the next micro-batch. \
        Each micro-batch has its own.",
    ActivationsStacked: "Activations are kept on a stack. \
        A backward pass needs those of its own micro-batch.",
    ExpertsSummed: "Gradients of experts are summed over ep. Its ranks have different experts.",
    NotCombined: "Outputs of experts stay in the order of arrival. \
        Each belongs to the token that was sent.",
    GatesForgotten: "The router gets no gradient from the outputs of the experts. \
        A gate scales its expert's output.",
    LocalBalance: "The auxiliary loss is the mean over a rank's own groups. \
        It is the mean over the groups of the whole batch.",
    RouterSummed: "With --sequence, gradients of the router are summed over tp. \
        Each rank of tp has routed all tokens already.",
    DenseCountedOften: "Each rank of ep brings its dense parameters to the norm of --clip. \
        All ranks of ep have the same ones, which count once.",
    RouterLeftBehind: "Experts move (--rebalance) and the router's rows stay. \
        An expert and its row have one number.",
    MomentsLeftBehind: "Experts move (--rebalance) and the optimizer's averages stay. \
        They belong to the weights.",
    NotRescaled: "Earlier terms of the online softmax keep their size when a \
        later block has a greater score. \
        They have to be scaled down.",
    NotSentHome: "Gradients of keys and values stay with the rank that added the last term. \
        The next rank owns them.",
    MaskOfFirst: "Every rank of cp masks as if its positions were the first ones. \
        Each rank has its own positions.",
    PlainPositions: "Positions are numbered as if the sequence were divided contiguously. \
        Zig-zag gives each rank two pieces.",
    HeadsSwapped: "Tokens come back from the all-to-all in contiguous order. \
        With zig-zag each rank has two pieces.",
    OwnRowsMean: "With --rows-by-speed, each replica takes the mean over its own rows, and replicas \
        count equally. A replica with more rows counts more.",
    RowsCutAlone: "With --rows-by-speed, rank 0 alone divides rows anew. \
        All ranks need one division.",
    NormOfPart: "Each rank clips by the norm of the part of the gradient that it has. \
        The norm is that of the whole gradient.",
    SkippedAlone: "After an overflow (--overflow) only the rank that has it skips the step. \
        All ranks skip it.",
    ClippedScaled: "With a scale of losses, gradients are clipped before they are divided by it. \
        The limit is that of the gradients themselves.",
    ShardReplaced: "With --sharding zero2, the sums of a micro-batch replace those of earlier ones. \
        They are added.",
    SummedEachMicro: "Replicated gradients are summed over ranks after every micro-batch, so that \
        earlier ones count several times. One sum after the last micro-batch is due.",
    UpdatesForgotten: "A resumed run counts its updates from 0, and corrects its averages as if they had \
        just begun. The number of updates belongs to the averages.",
    NoMasters: "With --precision bf16, the optimizer updates the rounded weights, and small steps are \
        lost. It updates copies in 32 bits.",
    PlannedAsGpipe: "The passes of 1F1B run in the order of GPipe. \
        The loss is the same, but more activations wait.",
    ActivationsKept: "With --recompute, blocks keep all activations. \
        They should keep only their input.",
    UnitsKept: "FSDP keeps the units that it has gathered. Each has to be dropped after its pass.",
    SumsAfterwards: "Sums and gathers wait until the pass that could hide them is over. \
        They can run beside it.",
}

impl Mistake {
    /// Reads a variant's name, in lower case with hyphens: `norms-not-summed`.
    ///
    /// # Errors
    /// A sentence that lists the names of all mistakes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        let names = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| {
            format!("there is no fault '{text}'; --fault list explains these: {}", names())
        })
    }

    /// The name, as [`parse`](Self::parse) reads it.
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

    /// True if the mistake changes no loss and no weight.
    pub fn changes_no_number(self) -> bool {
        matches!(
            self,
            Self::PlannedAsGpipe | Self::ActivationsKept | Self::UnitsKept | Self::SumsAfterwards
        )
    }

    /// All mistakes, one a line: the name and the explanation.
    pub fn list() -> String {
        let line = |fault: Self| format!("{:<22} {}\n", fault.name(), fault.sentence());
        Self::ALL.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for fault in Mistake::ALL {
            assert_eq!(Mistake::parse(&fault.name()), Ok(fault));
        }
        assert_eq!(Mistake::NoSumAfterRow.name(), "no-sum-after-row");
        assert!(Mistake::parse("none").unwrap_err().contains("heads-swapped"));
        assert_eq!(Mistake::ALL.len(), 38);
    }

    #[test]
    fn the_list_has_a_line_for_each() {
        assert_eq!(Mistake::list().lines().count(), Mistake::ALL.len());
        assert!(Mistake::list().contains("heads-swapped          Tokens come back"));
    }
}
