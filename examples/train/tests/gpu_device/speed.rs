//! The speed of matrix products on a GPU, and of the copies that every layer makes.

use crate::gpu;
use maypole_trainer::tensor::device::Device;
use maypole_trainer_gpu::device::GpuDevice;
use maypole_trainer_kernels::layers::product::{self, DeviceMatrix};
use maypole_trainer_kernels::layers::{Float, Gpu, LayerCall, Machine};
use std::time::Instant;

/// Products in a row that are timed.
const TIMES: usize = 20;
/// The least speed of this project's kernel in `f32`, in floating-point operations a second. An
/// H100 or a later GPU must reach it.
const LEAST: f64 = 2e12;

/// Operations a second of `c = a b^T`, of matrices of `size` x `size`, without copies.
fn speed<T: Float>(gpu: &mut Gpu, size: usize) -> f64 {
    let zero = vec![T::zeroed(); size * size];
    let mut result = zero.clone();
    let mut call = LayerCall::new();
    let [a, b] = [&zero, &zero].map(|matrix| DeviceMatrix::new(call.reads(matrix), size));
    let c = DeviceMatrix::new(call.makes(&mut result), size);
    let mut seconds = 0.0;
    call.run(gpu, |gpu| {
        for times in [1, TIMES] {
            gpu.download(0..0)?;
            let start = Instant::now();
            (0..times).try_for_each(|_| product::run(gpu, c, [a, b.t()], false))?;
            gpu.download(0..0)?;
            seconds = start.elapsed().as_secs_f64() / times as f64;
        }
        Ok(())
    })
    .unwrap();
    2.0 * (size as f64).powi(3) / seconds
}

/// `--nocapture` shows the figures.
#[test]
fn products_are_fast_on_a_gpu() {
    let Some(mut gpu) = gpu() else { return };
    let name = gpu.name().unwrap();
    for size in [512, 1024, 2048, 4096] {
        let [single, double] = [speed::<f32>(&mut gpu, size), speed::<f64>(&mut gpu, size)];
        println!(
            "{name}, {size} x {size}: f32 {:.2} TFLOP/s, f64 {:.2} TFLOP/s",
            single / 1e12,
            double / 1e12
        );
        let new = ["H100", "H200", "B200"].iter().any(|kind| name.contains(kind));
        assert!(!new || size < 2048 || single > LEAST, "{single:e} operations a second");
    }
}

/// A linear layer of 1024 tokens with its copies, in milliseconds; `--nocapture` shows it.
#[test]
fn a_layer_with_its_copies_on_a_gpu() {
    let Some(gpu) = gpu() else { return };
    let device = GpuDevice::new(gpu);
    let [tokens, inputs, outputs] = [1024, 1024, 4096];
    let x = vec![0.5f32; tokens * inputs];
    let w = vec![0.5f32; outputs * inputs];
    let mut y = vec![0f32; tokens * outputs];
    device.linear(&mut y, &x, &w, inputs);
    assert_eq!(y[0], inputs as f32 / 4.0);
    let start = Instant::now();
    (0..TIMES).for_each(|_| device.linear(&mut y, &x, &w, inputs));
    let milliseconds = start.elapsed().as_secs_f64() * 1e3 / TIMES as f64;
    let mib = (size_of_val(&*x) + size_of_val(&*w) + size_of_val(&*y)) >> 20;
    println!("{tokens} tokens, {inputs} to {outputs}: {milliseconds:.2} ms, {mib} MiB copied");
    assert_eq!(Device::<f32>::failure(&device), None);
}
