//! Speed of reductions: GB/s of result for every type and operation, compared with a copy of the
//! same bytes, and how much slower they are if buffers do not begin at a cache line.
//!
//! ```text
//! cargo bench --bench folds                   # everything, in about three minutes
//! cargo bench --bench folds -- 'L2/f32'       # GB/s of one size of buffer and one type
//! cargo bench --bench folds -- offsets        # the comparison of offsets alone
//! ```
//!
//! Each measurement reduces two sources into a third buffer. `SIZES` holds the bytes of one buffer:
//! all three fit into a core's first-level cache, into its second-level cache, or into neither.
//! The copy moves one source into the destination, so it has two thirds of the memory traffic and
//! no arithmetic.

use criterion::{BenchmarkId, Criterion, Throughput};
use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, Region};
use std::hint::black_box;
use std::time::Duration;

mod offsets;

/// The memory that three buffers fit into, and the bytes of one buffer.
const SIZES: [(&str, usize); 3] = [("L1", 8 << 10), ("L2", 128 << 10), ("DRAM", 32 << 20)];
/// The same for four buffers, of which the comparison of offsets uses several cases.
const OFFSET_SIZES: [(&str, usize); 3] = [("L1", 8 << 10), ("L2", 64 << 10), ("DRAM", 16 << 20)];

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let wants_offsets = filters.iter().any(|filter| filter == "offsets");
    if !wants_offsets {
        let mut criterion = quick().configure_from_args();
        reductions(&mut criterion);
        criterion.final_summary();
    }
    if filters.is_empty() || wants_offsets {
        offsets::report(&OFFSET_SIZES);
    }
}

fn reductions(criterion: &mut Criterion) {
    for (memory, len) in SIZES {
        let [left, right, into] = [(); 3].map(|()| Region::new(len));
        let sources = [left.view().as_view(), right.view().as_view()];
        let into = into.view();
        // Touches the pages, so that none is allocated while the clock runs.
        for region in [&left, &right] {
            region.view().fill_from(&vec![1; len]);
        }
        let mut group = criterion.benchmark_group(memory);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function("copy", |bench| {
            bench.iter(|| black_box(into).copy_from(black_box(sources[0])));
        });
        for kind in DataType::ALL {
            for op in BinaryOp::ALL.into_iter().filter(|op| op.supports(kind)) {
                let reducer = BuiltInReducer::new(kind, op);
                let name = BenchmarkId::new(kind.name(), format!("{op:?}").to_lowercase());
                group.bench_function(name, |bench| {
                    bench.iter(|| reducer.apply(black_box(into), None, black_box(&sources)));
                });
            }
        }
        group.finish();
    }
}

/// Makes each measurement short, because there are more than 200 of them.
fn quick() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(400))
        .sample_size(10)
}
