//! Quotients and products on a device, bit for bit as on the CPU.

use crate::common::SeededRng;
use crate::raw::context;
use cudarc::driver::{CudaContext, CudaSlice, DevicePtr, DevicePtrMut};
use maypole_kernels::cuda::{MapKernels, ScaleFactor};
use maypole_kernels::{DataType, Scalar, View, ViewMut, divide, scale};
use std::sync::Arc;

crate::roles! {
    map in 1: quotients_and_products_have_the_bits_of_the_cpu_emulated, [], [("FAKE_CUDA_THREADS", "33")];
}

const COUNTS: [usize; 5] = [0, 1, 7, 1023, 40_001];

/// Numbers of both signs and, of floats, of very different sizes.
fn numbers(rng: &mut SeededRng, kind: DataType, count: usize) -> Vec<u8> {
    let mut value = |_| {
        let size = f64::from(1 << rng.below(20)) / 64.0;
        let number = (rng.below(20_001) as f64 - 10_000.0) / size;
        match Scalar::from_f64(kind, number) {
            Some(value) => value.bytes().to_vec(),
            None => rng.next_u64().to_le_bytes()[..kind.size()].to_vec(),
        }
    };
    (0..count).flat_map(&mut value).collect()
}

fn on_device(
    context: &Arc<CudaContext>,
    numbers: &[u8],
    work: impl FnOnce(&cudarc::driver::CudaStream, u64),
) -> Vec<u8> {
    let stream = context.new_stream().unwrap();
    if numbers.is_empty() {
        work(&stream, 0);
        return Vec::new();
    }
    let mut memory: CudaSlice<u8> = stream.clone_htod(numbers).unwrap();
    let (start, guard) = memory.device_ptr_mut(&stream);
    work(&stream, start);
    drop(guard);
    stream.clone_dtoh(&memory).unwrap()
}

fn map() {
    let context = context(0);
    let mut rng = SeededRng::new(1);
    for kind in DataType::NUMBERS {
        let kernels = MapKernels::load(&context, kind).unwrap();
        for count in COUNTS {
            let before = numbers(&mut rng, kind, count);
            for by in [1, 2, 3, 7, 300, 1 << 40] {
                let mut expected = before.clone();
                divide(ViewMut::of(&mut expected), View::of(&before), kind, by);
                // SAFETY: the memory has so many elements.
                let got = on_device(&context, &before, |stream, start| unsafe {
                    kernels.divide(stream, start, start, count as u64, by).unwrap();
                });
                assert!(got == expected, "{count} of {kind:?} by {by}");
            }
            for factor in [3.0, -5.0, 0.37].into_iter().filter_map(|by| Scalar::from_f64(kind, by))
            {
                let mut expected = before.clone();
                scale(ViewMut::of(&mut expected), View::of(&before), factor);
                let stream = context.new_stream().unwrap();
                let there = stream.clone_htod(factor.bytes()).unwrap();
                stream.synchronize().unwrap();
                let at = ScaleFactor::At(there.device_ptr(&stream).0);
                for by in [ScaleFactor::Value(factor), at] {
                    // SAFETY: the memory has so many elements, and the factor is one.
                    let got = on_device(&context, &before, |stream, start| unsafe {
                        kernels.scale(stream, start, start, count as u64, by).unwrap();
                    });
                    assert!(got == expected, "{count} of {kind:?} times {by:?}");
                }
            }
        }
    }
}
