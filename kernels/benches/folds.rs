//! Speed of reductions: GB/s of result for every type and operation, beside a copy of the same
//! bytes.
//!
//! ```text
//! cargo bench -p maypole-kernels                # everything, in about two minutes
//! cargo bench -p maypole-kernels -- 'L2/f32'    # one size of buffer and one type
//! ```
//!
//! Each measurement reduces two sources into a third buffer. `SIZES` holds the bytes of one buffer:
//! all three fit into a core's first-level cache, into its second-level cache, or into neither.
//! The copy moves one source into the destination, so it has two thirds of the memory traffic and
//! no arithmetic.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use maypole_kernels::{BinaryOp, BuiltInReducer, DataType, Region};
use std::hint::black_box;
use std::time::Duration;

/// The memory that three buffers fit into, and the bytes of one buffer.
const SIZES: [(&str, usize); 3] = [("L1", 8 << 10), ("L2", 128 << 10), ("DRAM", 32 << 20)];

fn reductions(criterion: &mut Criterion) {
    for (cache, len) in SIZES {
        let [left, right, into] = [(); 3].map(|()| Region::new(len));
        let sources = [left.view().as_view(), right.view().as_view()];
        let into = into.view();
        // Touches the pages, so that none is allocated while the clock runs.
        for region in [&left, &right] {
            region.view().fill_from(&vec![1; len]);
        }
        let mut group = criterion.benchmark_group(cache);
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

criterion_group! {
    name = benches;
    config = quick();
    targets = reductions
}
criterion_main!(benches);
