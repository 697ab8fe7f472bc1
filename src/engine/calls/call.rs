//! The description of a call by which its program is found.

use crate::element::{DataType, Factor, ReduceOp};
use crate::engine::calls::counts::{CallCount, NamedCounts};
use crate::engine::settings::CallSettings;
use crate::error::{Error, Result};
use crate::schedule::Layout;
use crate::schedule::collective::{Collective, HeldChunks};
use crate::world::calls::CallRecord;
use maypole_kernels::{BinaryOp, Scalar, View, ViewMut, divide, mix, scale};
use std::fmt;

/// A collective with its arguments, except for the data. Equal calls run the same program.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct CollectiveCall {
    pub(crate) collective: Collective,
    pub(crate) kind: DataType,
    /// The name of the caller's elements, where the call moves others of type `kind` for them.
    pub(crate) stands_for: Option<&'static str>,
    /// How many of type `kind` are one element, which is never cut.
    pub(crate) lanes: usize,
    pub(crate) op: Reduction,
    pub(crate) count: CallCount,
    /// Whether the result must be that of the plain loop over the ranks.
    pub(crate) deterministic: bool,
    /// Whether input and output are one buffer. Ranks may differ in this: it changes the addresses
    /// of bytes, never the messages.
    pub(crate) in_place: bool,
}

/// A call with the memory that it uses on this rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyCall<'a> {
    pub(crate) call: CollectiveCall,
    /// How the input is changed before it is combined.
    pub(crate) scaling: Option<Scaling>,
    pub(crate) input: View<'a>,
    pub(crate) output: ViewMut<'a>,
}

impl ReadyCall<'_> {
    /// The same call, whose input has been scaled in place if it is to be.
    pub(crate) fn scaled_in_place(self) -> Self {
        match self.scaling.filter(|_| self.call.in_place) {
            None => self,
            Some(scaling) => {
                scaling.apply(self.output, self.input, self.call.kind);
                Self { scaling: None, input: self.output.as_view(), ..self }
            }
        }
    }
}

/// What each element of an input becomes before it is combined.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scaling {
    /// Its product with this number, in a staging buffer.
    Times(Scalar),
    /// Its quotient by this number: in the output where the call is in place, else in a staging
    /// buffer.
    Over(u64),
}

impl Scaling {
    /// Writes the scaled elements of `from` to `into`.
    pub(crate) fn apply(self, into: ViewMut<'_>, from: View<'_>, kind: DataType) {
        match self {
            Self::Times(factor) => scale(into, from, factor),
            Self::Over(number) => divide(into, from, kind, number),
        }
    }
}

/// How the elements of a call combine, as far as all ranks must agree on it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Reduction {
    /// A built-in operation. Its factor is left out: see [`Reduction::from`].
    Known(ReduceOp),
    /// A function of the user's. Ranks can compare only its name.
    Custom { name: &'static str, commutative: bool },
}

impl Reduction {
    /// The reduction of calls that combine nothing; it is not used.
    pub(crate) const NONE: Self = Self::Known(ReduceOp::Sum);

    /// The binary operation of the schedule; `None` for a function of the user's.
    pub(crate) fn binary(self) -> Option<BinaryOp> {
        match self {
            Self::Known(op) => Some(op.binary()),
            Self::Custom { .. } => None,
        }
    }

    /// True if the ranks must be combined in their order.
    pub(crate) fn needs_order(self) -> bool {
        matches!(self, Self::Custom { commutative: false, .. })
    }

    /// True if every order and every grouping gives the same bits, except for the bits of a NaN.
    pub(crate) fn is_exact(self, kind: DataType) -> bool {
        let chooses = matches!(self, Self::Known(ReduceOp::Min | ReduceOp::Max));
        matches!(self, Self::Known(_)) && (chooses || !kind.is_float())
    }

    fn averages(self) -> bool {
        self == Self::Known(ReduceOp::Avg)
    }

    fn multiplies(self) -> bool {
        matches!(self, Self::Known(ReduceOp::PreMulSum(_)))
    }
}

impl From<ReduceOp> for Reduction {
    /// Forgets the factor. Each rank has its own, and calls that differ only in the factor run the
    /// same program.
    #[inline]
    fn from(op: ReduceOp) -> Self {
        match op {
            ReduceOp::PreMulSum(_) => Self::Known(ReduceOp::PreMulSum(Factor::ONE)),
            op => Self::Known(op),
        }
    }
}

/// The parts of a call's buffers that a rank uses: `None` for one that it does not use. True if they
/// are in place.
///
/// The rank brings and keeps the chunks `held`. Without an `input`, `output` is the one buffer for
/// both: it is the whole, which `own_block` cuts this rank's block from.
#[inline(always)]
pub(crate) fn used_parts<I, O: Copy>(
    (brings, keeps): (HeldChunks, HeldChunks),
    input: Option<I>,
    output: O,
    read: impl Fn(O) -> I,
    own_block: impl Fn(O) -> O,
) -> (Option<I>, Option<O>, bool) {
    let [has_input, has_output] = [brings, keeps].map(|held| held != HeldChunks::Nothing);
    let in_place = input.is_none() && has_input && has_output;
    let (input, output) = match (input, brings, keeps) {
        (Some(input), ..) => (input, output),
        (None, HeldChunks::One(_), HeldChunks::All) => (read(own_block(output)), output),
        (None, HeldChunks::All, HeldChunks::One(_)) => (read(output), own_block(output)),
        (None, ..) => (read(output), output),
    };
    (has_input.then_some(input), has_output.then_some(output), in_place)
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(op) => op.fmt(f),
            Self::Custom { name, commutative: true } => write!(f, "'{name}'"),
            Self::Custom { name, commutative: false } => write!(f, "'{name}' in rank order"),
        }
    }
}

impl CollectiveCall {
    /// The call of `collective` with these arguments, under these settings.
    #[inline(always)]
    pub(crate) fn new(
        settings: &CallSettings,
        collective: Collective,
        (kind, count): (DataType, CallCount),
        op: Reduction,
        in_place: bool,
    ) -> Self {
        // Collectives that combine nothing have the same results in both modes.
        let deterministic = settings.deterministic && collective.reduces();
        Self { collective, kind, stands_for: None, lanes: 1, op, count, deterministic, in_place }
    }

    /// The bytes of an element.
    pub(crate) fn element_bytes(&self) -> usize {
        self.lanes * self.kind.size()
    }

    /// The name of the caller's elements.
    fn element(&self) -> &'static str {
        self.stands_for.unwrap_or(self.kind.name())
    }

    /// True if the call averages integers, whose sum their type may not hold.
    pub(crate) fn averages_integers(&self) -> bool {
        let is_integer = !self.kind.is_float() && self.kind != DataType::Bool;
        self.op.averages() && is_integer && self.collective.reduces()
    }

    /// What each of `world` ranks divides its input by: the contributions to an average of floats
    /// are divided before they are summed, because the sum of finite numbers may be infinite.
    pub(crate) fn input_divisor(&self, world: usize) -> Option<u64> {
        let divides = self.op.averages() && self.kind.is_float() && self.collective.reduces();
        (divides && world > 1).then_some(world as u64)
    }

    /// The divisor of the result of `rank` of `world` on a GPU, if there is one.
    #[cfg(feature = "cuda")]
    pub(crate) fn output_divisor(&self, rank: usize, world: usize) -> Option<u64> {
        let has_result = self.collective.output(rank) != HeldChunks::Nothing;
        (self.averages_integers() && has_result && world > 1).then_some(world as u64)
    }

    /// The call of `rank` whose input is first scaled by `op`, and how. Products are in a staging buffer, so the
    /// call is not in place. Quotients are where the result will be, if that is as long.
    pub(crate) fn scaled(
        self,
        op: ReduceOp,
        (rank, world): (usize, usize),
    ) -> Result<(Self, Option<Scaling>)> {
        let (in_place, scaling) = match (op, self.input_divisor(world)) {
            (ReduceOp::PreMulSum(factor), _) => {
                let scalar = factor.scalar(self.kind).ok_or_else(|| {
                    let (kind, factor) = (self.kind.name(), factor.value());
                    self.invalid(rank, format!("{kind} cannot hold the factor {factor}"))
                })?;
                (false, Scaling::Times(scalar))
            }
            (_, Some(world)) => (self.keeps_whole(rank), Scaling::Over(world)),
            (_, None) => return Ok((self, None)),
        };
        Ok((Self { in_place, ..self }, Some(scaling)))
    }

    /// True if the result of `rank` is as long as its input.
    pub(crate) fn keeps_whole(&self, rank: usize) -> bool {
        self.collective.reduces() && self.collective.output(rank) == HeldChunks::All
    }

    /// True if this rank's input is scaled before it is combined, and not where the result will be.
    pub(crate) fn stages_scaled(&self, world: usize) -> bool {
        self.scales(world) && !self.in_place
    }

    /// True if inputs are scaled before they are combined.
    pub(crate) fn scales(&self, world: usize) -> bool {
        self.op.multiplies() || self.input_divisor(world).is_some()
    }

    /// True if some rank may stage its scaled input, which the others cannot reach. Equal on all
    /// ranks.
    pub(crate) fn hides_inputs(&self, world: usize) -> bool {
        let divides = self.input_divisor(world).is_some();
        self.op.multiplies() || (divides && self.collective != Collective::AllReduce)
    }

    /// The error of a call that rank `rank` cannot make.
    pub(crate) fn invalid(&self, rank: usize, why: String) -> Error {
        Error::Invalid { rank, operation: self.collective.name(), why }
    }

    /// Refuses reductions by an operation that the type does not have.
    pub(crate) fn check_operation(&self, rank: usize) -> Result<()> {
        let supported = self.op.binary().is_none_or(|op| self.lanes == 1 && op.supports(self.kind));
        if supported || !self.collective.reduces() {
            return Ok(());
        }
        let op = self.op;
        let why = match self.kind {
            _ if self.lanes > 1 => format!("records have no '{op}': pass an `Operation`"),
            DataType::Bool => {
                format!("bool has no {op}: use 'and', 'or' or 'xor', or sum integers")
            }
            kind => format!("'{op}' works on the bits of integers, not on {}", kind.name()),
        };
        Err(self.invalid(rank, why))
    }

    /// The layout of the whole for a schedule of `chunks` chunks.
    pub(crate) fn layout(&self, world: usize, chunks: usize, given: &NamedCounts) -> Layout {
        match self.count {
            CallCount::Even(count) if self.collective.is_blocked() => {
                Layout::even(count * world, world)
            }
            CallCount::Even(count) => Layout::even(count, chunks),
            CallCount::Given(hash) => given.get(hash).layout(),
        }
    }

    /// Adds to `record` everything that the caller of every rank must pass alike.
    pub(crate) fn add_arguments(&self, record: CallRecord, given: &NamedCounts) -> CallRecord {
        let mut record = record.with("collective", self.collective.name());
        record = match self.count {
            CallCount::Even(count) => record.with("count", count),
            CallCount::Given(hash) => record.with("counts of the ranks", given.get(hash)),
        };
        record = record.with("type", self.element());
        if self.collective.reduces() {
            record = record.with("operation", self.op);
        }
        if let Some(root) = self.collective.root() {
            record = record.with("root", root);
        }
        let mode = if self.deterministic { "deterministic" } else { "free" };
        record.with("order of combination", mode)
    }

    /// A hash of all that the ranks must agree on in the call: its [arguments](Self::add_arguments),
    /// and the algorithm, by a hash of its name or of the user's schedules. Never zero, so that fresh
    /// memory does not look like a call.
    pub(crate) fn fingerprint(
        &self,
        algorithm: u64,
        window: usize,
        world: usize,
        given: &NamedCounts,
    ) -> u64 {
        let arguments = self.add_arguments(CallRecord::default(), given).arguments;
        let words = arguments.iter().flat_map(|(name, value)| [hash_of(name), hash_of(value)]);
        let (CallCount::Even(count) | CallCount::Given(count)) = self.count;
        let numbers = [count, self.kind as usize, self.lanes, window, world].map(|it| it as u64);
        words.chain(numbers).fold(algorithm, |hash, word| mix(hash ^ word)) | 1
    }
}

/// A hash of `name`, equal in every process.
pub(crate) fn hash_of(name: &str) -> u64 {
    name.bytes().fold(name.len() as u64, |hash, byte| mix(hash ^ u64::from(byte)))
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.collective.name())?;
        if self.collective == Collective::Barrier {
            return write!(f, ")");
        }
        match self.count {
            CallCount::Even(count) => write!(f, "{count} x {}", self.element())?,
            CallCount::Given(_) => write!(f, "given counts of {}", self.element())?,
        }
        if self.collective.reduces() {
            write!(f, ", {}", self.op)?;
        }
        if self.deterministic {
            write!(f, ", deterministic")?;
        }
        if let Some(root) = self.collective.root() {
            write!(f, ", root {root}")?;
        }
        write!(f, ")")
    }
}
