//! Every layer on a GPU, and on the emulated one, compared with the processor.

use crate::cases::{self, Case, Number, Results};
use crate::emulator::Emulator;
use crate::{emulated, gpu};
use maypole_trainer::tensor::device::{CpuDevice, Device};
use maypole_trainer_gpu::device::GpuDevice;
use maypole_trainer_kernels::layers::Machine;

/// The error of the GPU's results against the CPU's, as a multiple of the tolerance. Infinite if a
/// result is not a number.
fn distance<T: Number>(found: &Results<T>, expected: &Results<T>) -> f64 {
    let of_one = |(found, expected): (&Vec<T>, &Vec<T>)| {
        assert_eq!(found.len(), expected.len());
        let size = expected.iter().map(|x| x.wide().abs()).fold(0.0, f64::max);
        let apart = |(a, b): (&T, &T)| (a.wide() - b.wide()).abs();
        let most = found
            .iter()
            .zip(expected)
            .map(apart)
            .fold(0.0, |most: f64, apart| if apart <= most { most } else { apart });
        match most {
            0.0 => 0.0,
            most if most.is_nan() => f64::INFINITY,
            most => most / (T::TOLERANCE * size),
        }
    };
    let pairs = found.iter().zip(expected).map(|(found, expected)| (&found.1, &expected.1));
    pairs.map(of_one).fold(0.0, f64::max)
}

/// The cases in which `device` does not give the results of the processor, and in which a second
/// call does not give the bits of the first.
pub(crate) fn wrong<T: Number, M: Machine>(
    device: &GpuDevice<M>,
    cases: &[Case<T>],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases {
        let expected = case.on(&CpuDevice);
        let found = case.on(device);
        if let Some(why) = Device::<T>::failure(device) {
            wrong.push(format!("{}: {why}", case.name));
            return wrong;
        }
        let distance = distance(&found, &expected);
        if std::env::var_os("DISTANCES").is_some() {
            eprintln!("{}: {distance}", case.name);
        }
        if distance > 1.0 {
            wrong.push(format!("{}: {distance} times the tolerance", case.name));
        }
        if bits(&found) != bits(&case.on(device)) {
            wrong.push(format!("{}: other bits in a second call", case.name));
        }
    }
    wrong
}

fn bits<T: Number>(results: &Results<T>) -> Vec<u64> {
    results.iter().flat_map(|(_, numbers)| numbers).map(|x| x.wide().to_bits()).collect()
}

fn check<M: Machine>(device: &GpuDevice<M>, single: &[Case<f32>], double: &[Case<f64>]) {
    let mut all = wrong(device, single);
    all.extend(wrong(device, double));
    assert!(all.is_empty(), "{}", all.join("\n"));
}

fn check_emulated(single: &[Case<f32>], double: &[Case<f64>]) {
    if let Some(emulator) = emulated() {
        check(&GpuDevice::new(emulator.start()), single, double);
    }
}

fn check_on_gpu(single: &[Case<f32>], double: &[Case<f64>]) {
    if let Some(gpu) = gpu() {
        check(&GpuDevice::new(gpu), single, double);
    }
}

macro_rules! layers {
    ($($layer:ident: $emulated:ident, $on_gpu:ident;)*) => {
        $(
            #[test]
            fn $emulated() {
                check_emulated(&cases::$layer(), &cases::$layer());
            }

            #[test]
            fn $on_gpu() {
                check_on_gpu(&cases::$layer(), &cases::$layer());
            }
        )*

        /// The layer of this name, in both types.
        fn named(layer: &str) -> (Vec<Case<f32>>, Vec<Case<f64>>) {
            match layer {
                $(stringify!($layer) => (cases::$layer(), cases::$layer()),)*
                other => panic!("there is no layer {other}"),
            }
        }
    };
}

layers! {
    linear: linear_layers_are_those_of_the_processor_emulated, linear_layers_on_a_gpu;
    bias: biases_and_sums_are_those_of_the_processor_emulated, biases_and_sums_on_a_gpu;
    norm: norms_are_those_of_the_processor_emulated, norms_on_a_gpu;
    rms_norm: rms_norms_are_those_of_the_processor_emulated, rms_norms_on_a_gpu;
    turn: rotary_positions_are_those_of_the_processor_emulated, rotary_positions_on_a_gpu;
    attention: attention_is_that_of_the_processor_emulated, attention_on_a_gpu;
    activation: nonlinearities_are_those_of_the_processor_emulated, nonlinearities_on_a_gpu;
    embed: embeddings_are_those_of_the_processor_emulated, embeddings_on_a_gpu;
    loss: losses_are_those_of_the_processor_emulated, losses_on_a_gpu;
}

/// Asserts that the layer is wrong if `from` is `to` in the kernels.
fn assert_caught(layer: &str, from: &str, to: &str) {
    let edited = std::cell::Cell::new(0);
    let edit = |text: String| {
        edited.set(edited.get() + text.matches(from).count());
        text.replace(from, to)
    };
    let Some(emulator) = Emulator::edited(edit) else {
        return crate::skip::skipped("there is no C++ compiler: 'c++' cannot be started");
    };
    assert_eq!(edited.get(), 1, "'{from}' is in the kernels once");
    let device = GpuDevice::new(emulator.start());
    let (single, double) = named(layer);
    let found = wrong(&device, &single).len() + wrong(&device, &double).len();
    assert!(found > 0, "nothing noticed '{to}' in place of '{from}'");
}

#[test]
fn a_transposed_operand_is_caught_emulated() {
    crate::skip::takes_turns!(4);
    assert_caught("linear", "b_column, b_row, first_column", "b_row, b_column, first_column");
}

#[test]
fn a_missing_causal_mask_is_caught_emulated() {
    crate::skip::takes_turns!(4);
    assert_caught("attention", "u64 seen = BLOCK % tokens + 1;", "u64 seen = tokens;");
}

#[test]
fn a_norm_without_one_over_n_is_caught_emulated() {
    crate::skip::takes_turns!(4);
    assert_caught(
        "norm",
        "products = over_block<Sum>(products) / (REAL)width;",
        "products = over_block<Sum>(products);",
    );
}

#[test]
fn a_barrier_left_out_is_caught_emulated() {
    crate::skip::takes_turns!(4);
    assert_caught(
        "linear",
        "multiply(sums, left, right);\n        BARRIER();",
        "multiply(sums, left, right);",
    );
}

#[test]
fn a_gradient_without_its_target_is_caught_emulated() {
    crate::skip::takes_turns!(4);
    assert_caught("loss", "at == target ? gradient - (REAL)weight : gradient", "gradient");
}
