//! The points of the options: types, operations, roots, algorithms and sizes.

use crate::perf::args::PerfArgs;
use crate::perf::benchmark::{Benchmark, CallParameters};
use crate::perf::buffer::PAGE;
use crate::perf::choices::{Selected, Subject};
use crate::{names, sizes};
use anyhow::{Result, ensure};
use maypole::algorithms::Algorithm;
use maypole::schedule::collective::Collective;
use maypole::{DataType, ReduceOp};

/// One size for each regime: latency, small messages, cache, memory.
pub(super) const DEFAULT_SIZES: [usize; 4] = [8, 4 << 10, 256 << 10, 4 << 20];
const DEFAULT_MIN: usize = 8;
const DEFAULT_MAX: usize = 64 << 20;
const DEFAULT_FACTOR: usize = 4;
const MOST_SIZES: usize = 1 << 14;

impl PerfArgs {
    /// What is measured of each type, operation and root. A collective that has no operation or no
    /// root is measured with the first of them alone.
    pub(super) fn benchmarks(
        &self,
        world: usize,
        own: Option<Collective>,
        roots: &[usize],
    ) -> Result<Vec<Benchmark>> {
        let kinds = listed(&self.kinds, || DataType::NUMBERS.to_vec());
        let takes_all =
            |op| !self.ops.iter().any(|it| matches!(it, Selected::One(one) if *one == op));
        let ops = listed(&self.ops, || ReduceOp::ALL.to_vec());
        let shares = self.counts.as_ref().map(|rule| rule.shares(world)).transpose()?;
        let mut benchmarks = Vec::new();
        for kind in kinds {
            let is_left_out = |op: &ReduceOp| takes_all(*op) && !op.supports(kind);
            for (nth_op, op) in ops.iter().copied().filter(|op| !is_left_out(op)).enumerate() {
                ensure!(
                    op.supports(kind),
                    "--op {op} works on the bits of integers; --type {} is not an integer type",
                    kind.name()
                );
                for (nth_root, root) in roots.iter().enumerate() {
                    let mut collectives = match own {
                        Some(own) => vec![own],
                        None => self.collectives(*root, op)?,
                    };
                    collectives.retain(|collective| {
                        (nth_op == 0 || collective.reduces())
                            && (nth_root == 0 || collective.root().is_some())
                    });
                    let offset = self.offset(kind)?;
                    benchmarks.push(Benchmark {
                        collectives,
                        algorithms: self.algorithms(),
                        sizes: self.sizes()?,
                        shares: shares.clone(),
                        parameters: CallParameters { kind, op, world, offset },
                    });
                }
            }
        }
        Ok(benchmarks)
    }

    fn offset(&self, kind: DataType) -> Result<usize> {
        let (offset, element) = (self.offset, kind.size());
        ensure!(
            offset.is_multiple_of(element),
            "--offset {offset}: elements of --type {} have {element} bytes; take a multiple of that",
            kind.name()
        );
        ensure!(
            offset < PAGE,
            "--offset {offset}: buffers begin less than a page ({PAGE} bytes) behind a page"
        );
        Ok(offset)
    }

    fn collectives(&self, root: usize, op: ReduceOp) -> Result<Vec<Collective>> {
        let mut chosen = Vec::new();
        for subject in &self.subjects {
            match subject {
                Subject::Collectives(Selected::All) => {
                    let all = Collective::all(root).into_iter();
                    chosen.extend(all.filter(|it| op_fits(op, *it) && self.allows(*it)));
                }
                Subject::Collectives(Selected::One(collective)) => {
                    ensure!(
                        self.allows(*collective),
                        "--counts: {} has no blocks; measure gather, all-gather, scatter, \
                         reduce-scatter or all-to-all",
                        collective.option_name()
                    );
                    chosen.push(collective.with_root(root));
                }
                Subject::Messages(_) => {}
            }
        }
        Ok(distinct(chosen))
    }

    /// False for what counts cannot be measured of.
    fn allows(&self, collective: Collective) -> bool {
        self.counts.is_none() || collective.is_blocked()
    }

    fn algorithms(&self) -> Vec<Option<Algorithm>> {
        let all = || Algorithm::ALL.map(Some).to_vec();
        match (self.algorithm.is_empty(), self.report.is_some()) {
            (false, _) => listed(&self.algorithm, all),
            (true, true) => all(),
            (true, false) => vec![None],
        }
    }

    fn sizes(&self) -> Result<Vec<usize>> {
        if !self.sizes.is_empty() {
            return Ok(self.sizes.clone());
        }
        let given = [self.min, self.max, self.factor, self.step];
        let no_size_given = given.iter().all(Option::is_none);
        // A plotted line needs more sizes than a first look.
        if no_size_given && self.report.is_none() {
            return Ok(DEFAULT_SIZES.to_vec());
        }
        let min = self.min.unwrap_or(DEFAULT_MIN.min(self.max.unwrap_or(DEFAULT_MIN)));
        let max = self.max.unwrap_or(min.max(DEFAULT_MAX));
        let factor = self.factor.unwrap_or(DEFAULT_FACTOR);
        ensure!(min <= max, "--min {} is more than --max {}", sizes::name(min), sizes::name(max));
        ensure!(factor >= 2, "--factor {factor}: the factor must be at least 2");
        let next = |size: &usize| match self.step {
            Some(step) => size.checked_add(step),
            None => size.checked_mul(factor),
        };
        let next = |size: &usize| next(size).filter(|next| *next <= max);
        let sizes: Vec<usize> = std::iter::successors(Some(min), next).take(MOST_SIZES).collect();
        ensure!(
            sizes.len() < MOST_SIZES,
            "--step makes {MOST_SIZES} sizes or more from {} to {}: give a larger --step",
            sizes::name(min),
            sizes::name(max)
        );
        Ok(sizes)
    }
}

/// False for scans with an average, which no scan implements.
fn op_fits(op: ReduceOp, collective: Collective) -> bool {
    op != ReduceOp::Avg || !matches!(collective, Collective::Scan | Collective::ExclusiveScan)
}

/// The choices, each once.
pub(super) fn listed<T: Copy + PartialEq>(
    chosen: &[Selected<T>],
    all: impl Fn() -> Vec<T>,
) -> Vec<T> {
    let values = chosen.iter().flat_map(|choice| match choice {
        Selected::All => all(),
        Selected::One(value) => vec![*value],
    });
    distinct(values.collect())
}

/// The error where no algorithm implements any of the collectives.
pub(super) fn nothing_to_measure(benchmark: &Benchmark) -> String {
    let named = names::listed(benchmark.algorithms.iter().flatten().map(ToString::to_string));
    let implemented = benchmark.collectives.iter().map(|collective| {
        let algorithms = names::algorithms_for(*collective);
        let algorithms = names::listed(algorithms.into_iter().map(|one| one.to_string()));
        format!("{}: {algorithms}", collective.option_name())
    });
    format!(
        "--algorithm {named} implements none of the collectives to measure; these do:\n  {}",
        implemented.collect::<Vec<_>>().join("\n  ")
    )
}

/// Each value once, in the order of first appearance.
pub(crate) fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut kept = Vec::with_capacity(all.len());
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}
