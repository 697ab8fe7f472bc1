//! How much slower a reduction is if its buffers do not begin at a cache line.
//!
//! A case is the offsets of the destinations and sources of a reduction from a page. Its ratio is
//! its time divided by the time of the same reduction with all buffers at a page. All cases of a
//! reduction run in turn, round by round, and the least time of a case counts: on a shared machine
//! other load only adds time.

use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, Region};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rounds over all cases of a reduction.
const ROUNDS: usize = 12;
/// Bytes of a buffer from which on only sums are measured, because the memory bounds the speed of
/// all operations alike.
const SUMS_ONLY: usize = 1 << 20;
/// The least time of one measurement: the reduction is repeated until it takes this long.
const MEASUREMENT: Duration = Duration::from_micros(20);
/// The ratio that a case should not exceed.
const BAR: f64 = 1.15;

/// Offset of each buffer from a page.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    into: usize,
    also: Option<usize>,
    sources: [usize; 2],
}

/// The slowest case of one reduction, or of several.
#[derive(Clone, Copy, Debug)]
struct Worst {
    ratio: f64,
    kind: DataType,
    op: BinaryOp,
    offsets: Offsets,
}

/// Measures every type and operation, and prints the worst ratio of each type, for each size of
/// buffer: the name of the memory that holds the buffers, and the bytes of one.
pub(super) fn report(sizes: &[(&str, usize)]) {
    println!(
        "# time of a reduction of two sources, buffers at an offset / all at a page; least of \
         {ROUNDS} rounds"
    );
    println!("# the worst of all operations, offsets and buffers that have the offset; bar: {BAR}");
    for (memory, len) in sizes {
        let buffers = Buffers::new(*len);
        let mut all = Vec::new();
        for kind in DataType::ALL {
            let of_kind: Vec<Worst> = BinaryOp::ALL
                .into_iter()
                .filter(|op| op.supports(kind) && (*len < SUMS_ONLY || *op == BinaryOp::Sum))
                .flat_map(|op| buffers.ratios(kind, op))
                .collect();
            println!("{memory:>5} {:>5} {}", kind.name(), describe(&of_kind));
            all.extend(of_kind);
        }
        let over = all.iter().filter(|case| case.ratio > BAR).count();
        println!("{memory:>5}   all {}", describe(&all));
        println!("{memory:>5}   over {BAR}: {over} of {} cases", all.len());
    }
}

fn describe(cases: &[Worst]) -> String {
    cases.iter().max_by(|one, other| one.ratio.total_cmp(&other.ratio)).map_or_else(
        || "nothing was measured".to_owned(),
        |worst| {
            let Offsets { into, also, sources } = worst.offsets;
            let also = also.map_or_else(String::new, |also| format!(" and {also}"));
            let op = format!("{:?}", worst.op).to_lowercase();
            format!(
                "{:.2} ({} {op}: into {into}{also}, sources {sources:?})",
                worst.ratio,
                worst.kind.name()
            )
        },
    )
}

/// Two destinations and two sources, with room for any offset.
struct Buffers {
    regions: [Region; 4],
    len: usize,
}

impl Buffers {
    fn new(len: usize) -> Self {
        let regions = [(); 4].map(|()| Region::new(len + 64));
        for region in &regions {
            // Touches the pages, so that none is allocated while the clock runs.
            region.view().fill_from(&vec![1; len + 64]);
        }
        Self { regions, len }
    }

    /// All cases of one reduction.
    fn ratios(&self, kind: DataType, op: BinaryOp) -> Vec<Worst> {
        let reducer = BuiltInReducer::new(kind, op);
        let cases = cases(kind.size());
        let first = self.once(reducer, cases[0], 1);
        let batch = (MEASUREMENT.as_nanos() / first.as_nanos().max(1)).clamp(1, 1000) as u32;
        let mut least = vec![Duration::MAX; cases.len()];
        for _ in 0..ROUNDS {
            for (case, least) in cases.iter().zip(&mut least) {
                *least = (*least).min(self.once(reducer, *case, batch));
            }
        }
        let aligned = |both: bool| {
            let at = cases.iter().position(|case| case.is_aligned() && case.also.is_some() == both);
            least[at.expect("both aligned cases are listed")].as_secs_f64()
        };
        let [one, two] = [aligned(false), aligned(true)];
        let ratio = |(offsets, least): (Offsets, Duration)| Worst {
            ratio: least.as_secs_f64() / if offsets.also.is_some() { two } else { one },
            kind,
            op,
            offsets,
        };
        cases.into_iter().zip(least).filter(|(case, _)| !case.is_aligned()).map(ratio).collect()
    }

    /// The time of one reduction, as an average of `batch`.
    fn once(&self, reducer: BuiltInReducer, offsets: Offsets, batch: u32) -> Duration {
        let at = |index: usize, offset| self.regions[index].view().slice(offset, self.len);
        let into = at(0, offsets.into);
        let also = offsets.also.map(|offset| at(1, offset));
        let sources = [2, 3].map(|index| at(index, offsets.sources[index - 2]).as_view());
        let start = Instant::now();
        for _ in 0..batch {
            reducer.apply(black_box(into), also, black_box(&sources));
        }
        start.elapsed() / batch
    }
}

impl Offsets {
    fn is_aligned(self) -> bool {
        self.into + self.also.unwrap_or(0) + self.sources[0] + self.sources[1] == 0
    }
}

/// The two aligned cases, and every combination of buffers that begin `offset` bytes after a page
/// while the others begin at one: one element, one `Vec`'s offset, half a line, and the last
/// element of a line.
fn cases(element: usize) -> Vec<Offsets> {
    let mut offsets = vec![element, 16, 32, 64 - element];
    offsets.dedup();
    let mut cases = Vec::new();
    for offset in std::iter::once(0).chain(offsets) {
        // One bit a buffer: the destinations, then the sources. Aligned buffers need one mask.
        for mask in 0..if offset == 0 { 1 } else { 16 } {
            let [into, also, left, right] = [0, 1, 2, 3].map(|bit| (mask >> bit & 1) * offset);
            let sources = [left, right];
            cases.push(Offsets { into, also: Some(also), sources });
            if also == 0 {
                cases.push(Offsets { into, also: None, sources });
            }
        }
    }
    cases
}
