//! Layers on an NVIDIA GPU, one call at a time.
//!
//! * **Sharded:** nothing. Every axis works as on the processor, because a device computes the
//!   layers of one rank, from slices and into slices.
//! * **Collective:** none.
//! * **Cost:** every call copies its operands to the GPU and its results back, weights and
//!   activations alike. They cross PCIe on every layer. So this is a way to check kernels and axes
//!   on a GPU, and not a fast trainer. The CPU runs optimizers, routers, the gates of experts,
//!   ring attention, the repetition of grouped keys for all heads of queries, the loss of a
//!   vocabulary that is divided over ranks, and collectives.
//!
//! A GPU may fail in the middle of a call: another process may have taken its memory. The methods
//! of a device return no error. So the first failure is stored, later calls do nothing, and
//! [`Device::failure`] returns it. A step checks for it before it updates weights.
//!
//! Kernels and launches are in the crate `maypole-trainer-kernels`, in `layers`.

use maypole_kernels::cuda::CudaError;
use maypole_trainer::tensor::attention::Heads;
use maypole_trainer::tensor::device::Device;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::tensor::norm::{EPSILON, NormInputs};
use maypole_trainer::tensor::rotary::{Rotation, Turn};
use maypole_trainer_kernels::layers::attention::{self, AttentionShape};
use maypole_trainer_kernels::layers::elements::{self, Turns};
use maypole_trainer_kernels::layers::embed::{self, TokenSlices, TokensByLine};
use maypole_trainer_kernels::layers::norm::{self, NormGradients, NormSlices};
use maypole_trainer_kernels::layers::product::{self, DeviceMatrix};
use maypole_trainer_kernels::layers::{Float, LayerCall, Machine, loss};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A GPU, or a substitute in a test, as a device for layers.
pub struct GpuDevice<M> {
    machine: Mutex<M>,
    failure: Mutex<Option<String>>,
}

impl<M> fmt::Debug for GpuDevice<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuDevice").finish_non_exhaustive()
    }
}

impl<M: Machine> GpuDevice<M> {
    /// A device that computes on `machine`.
    pub fn new(machine: M) -> Self {
        Self { machine: Mutex::new(machine), failure: Mutex::new(None) }
    }

    /// Runs `work` with the slices of `call` on the machine, unless the device has failed before.
    fn run(&self, call: LayerCall<'_>, work: impl FnOnce(&mut M) -> Result<(), CudaError>) {
        // A panic of another thread in the middle of a call leaves nothing that this call relies
        // on.
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_some() {
            return;
        }
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = call.run(&mut *machine, work) {
            *failure = Some(why.to_string());
        }
    }
}

impl<T: Real + Float, M: Machine> Device<T> for GpuDevice<M> {
    fn linear(&self, y: &mut [T], x: &[T], w: &[T], inputs: usize) {
        let outputs = w.len() / inputs;
        let mut call = LayerCall::new();
        let [x, w] = [x, w].map(|slice| DeviceMatrix::new(call.reads(slice), inputs));
        let y = DeviceMatrix::new(call.makes(y), outputs);
        self.run(call, |machine| product::run(machine, y, [x, w.t()], false));
    }

    fn linear_backward(
        &self,
        dx: &mut [T],
        dw: &mut [T],
        dy: &[T],
        x: &[T],
        w: &[T],
        inputs: usize,
    ) {
        let outputs = w.len() / inputs;
        let mut call = LayerCall::new();
        let dy = DeviceMatrix::new(call.reads(dy), outputs);
        let [x, w] = [x, w].map(|slice| DeviceMatrix::new(call.reads(slice), inputs));
        let dw = DeviceMatrix::new(call.changes(dw), inputs);
        let dx = DeviceMatrix::new(call.makes(dx), inputs);
        self.run(call, |machine| {
            product::run(machine, dx, [dy, w], false)?;
            product::run(machine, dw, [dy.t(), x], true)
        });
    }

    fn bias(&self, y: &mut [T], b: &[T]) {
        let mut call = LayerCall::new();
        let b = call.reads(b);
        let y = call.changes(y);
        self.run(call, |machine| elements::bias(machine, y, b));
    }

    fn bias_backward(&self, db: &mut [T], dy: &[T]) {
        let mut call = LayerCall::new();
        let dy = call.reads(dy);
        let db = call.changes(db);
        self.run(call, |machine| elements::bias_backward(machine, db, dy));
    }

    fn norm(&self, y: &mut [T], stats: &mut [T], x: &[T], w: &[T], b: &[T]) {
        self.normalise(y, stats, x, w, Some(b));
    }

    fn norm_backward(
        &self,
        dx: &mut [T],
        dw: &mut [T],
        db: &mut [T],
        dy: &[T],
        before: NormInputs<'_, T>,
    ) {
        self.normalise_backward(dx, dw, Some(db), dy, before);
    }

    fn rms_norm(&self, y: &mut [T], stats: &mut [T], x: &[T], w: &[T]) {
        self.normalise(y, stats, x, w, None);
    }

    fn rms_norm_backward(&self, dx: &mut [T], dw: &mut [T], dy: &[T], before: NormInputs<'_, T>) {
        self.normalise_backward(dx, dw, None, dy, before);
    }

    fn turn(&self, x: &mut [T], rotation: &Rotation<'_, T>, turn: Turn) {
        let mut call = LayerCall::new();
        let positions = call.reads(rotation.positions());
        let angles = call.reads(rotation.angles().as_flattened());
        let x = call.changes(x);
        let turns = Turns { positions, angles, planes: rotation.planes() };
        self.run(call, |machine| elements::turn(machine, x, turns, turn == Turn::Forth));
    }

    fn attention(&self, heads: Heads, qkv: &[T]) -> (Vec<T>, Vec<T>) {
        let shape = shape_of(heads, qkv.len());
        let mut y = vec![T::zero(); qkv.len() / 3];
        let mut p = vec![T::zero(); heads.rows * heads.heads * shape.tokens * shape.tokens];
        let mut call = LayerCall::new();
        let qkv = call.reads(qkv);
        let results = [&mut y, &mut p].map(|slice| call.makes(slice));
        self.run(call, |machine| attention::forward(machine, shape, results, qkv));
        (y, p)
    }

    fn attention_backward(&self, heads: Heads, qkv: &[T], probabilities: &[T], dy: &[T]) -> Vec<T> {
        let shape = shape_of(heads, qkv.len());
        let mut dqkv = vec![T::zero(); qkv.len()];
        let mut call = LayerCall::new();
        let inputs = [qkv, probabilities, dy].map(|slice| call.reads(slice));
        let of_input = call.makes(&mut dqkv);
        let results = [of_input, call.scratch(probabilities.len())];
        self.run(call, |machine| attention::backward(machine, shape, results, inputs));
        dqkv
    }

    fn gelu(&self, y: &mut [T], x: &[T]) {
        let mut call = LayerCall::new();
        let x = call.reads(x);
        let y = call.makes(y);
        self.run(call, |machine| elements::pairs(machine, "gelu", y, x));
    }

    fn gelu_backward(&self, dx: &mut [T], x: &[T]) {
        let mut call = LayerCall::new();
        let x = call.reads(x);
        let dx = call.changes(dx);
        self.run(call, |machine| elements::pairs(machine, "gelu_backward", dx, x));
    }

    fn swiglu(&self, y: &mut [T], gate: &[T], up: &[T]) {
        let mut call = LayerCall::new();
        let inputs = [gate, up].map(|slice| call.reads(slice));
        let y = call.makes(y);
        self.run(call, |machine| elements::swiglu(machine, y, inputs));
    }

    fn swiglu_backward(&self, dgate: &mut [T], dup: &mut [T], gate: &[T], up: &[T]) {
        let mut call = LayerCall::new();
        let inputs = [gate, up].map(|slice| call.reads(slice));
        let dup = call.changes(dup);
        let dgate = call.makes(dgate);
        self.run(call, |machine| elements::swiglu_backward(machine, [dgate, dup], inputs));
    }

    fn embed(&self, x: &mut [T], table: &[T], first: usize, ids: &[u32]) {
        let mut call = LayerCall::new();
        let ids = call.reads(ids);
        let table = call.reads(table);
        let x = call.changes(x);
        self.run(call, |machine| embed::forward(machine, x, table, first, ids));
    }

    fn embed_backward(&self, dtable: &mut [T], first: usize, ids: &[u32], dx: &[T]) {
        let width = dx.len() / ids.len();
        let sorted = TokensByLine::new(ids, first, dtable.len() / width);
        let mut call = LayerCall::new();
        let dx = call.reads(dx);
        let tokens = TokenSlices {
            lines: call.reads(&sorted.lines),
            starts: call.reads(&sorted.starts),
            order: call.reads(&sorted.order),
        };
        let dtable = call.changes(dtable);
        self.run(call, |machine| embed::backward(machine, dtable, dx, tokens, width));
    }

    fn cross_entropy(&self, logits: &mut [T], targets: &[u32], weight: f64) -> f64 {
        let width = logits.len() / targets.len();
        let greatest = targets.iter().max().map_or(0, |target| *target as usize);
        assert!(greatest < width, "target {greatest} is beyond a row of {width} logits");
        let mut losses = vec![0.0; targets.len()];
        let mut call = LayerCall::new();
        let targets = call.reads(targets);
        let logits = call.changes(logits);
        let of_tokens = call.makes(&mut losses);
        self.run(call, |machine| loss::cross_entropy(machine, logits, of_tokens, targets, weight));
        losses.iter().sum::<f64>() * weight
    }

    fn add(&self, y: &mut [T], x: &[T]) {
        let mut call = LayerCall::new();
        let x = call.reads(x);
        let y = call.changes(y);
        self.run(call, |machine| elements::pairs(machine, "add", y, x));
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<M: Machine> GpuDevice<M> {
    /// A layer norm, or without a bias an RMS norm.
    fn normalise<T: Float>(&self, y: &mut [T], stats: &mut [T], x: &[T], w: &[T], b: Option<&[T]>) {
        let mut call = LayerCall::new();
        let [x, w] = [x, w].map(|slice| call.reads(slice));
        let b = b.map(|b| call.reads(b));
        let [y, stats] = [y, stats].map(|slice| call.makes(slice));
        let slices = NormSlices { x, stats, w };
        self.run(call, |machine| norm::forward(machine, y, slices, b, EPSILON));
    }

    fn normalise_backward<T: Float>(
        &self,
        dx: &mut [T],
        dw: &mut [T],
        db: Option<&mut [T]>,
        dy: &[T],
        before: NormInputs<'_, T>,
    ) {
        let NormInputs { x, stats, w } = before;
        let mut call = LayerCall::new();
        let [dy, x, stats, w] = [dy, x, stats, w].map(|slice| call.reads(slice));
        let [dx, dw] = [dx, dw].map(|slice| call.changes(slice));
        let gradients = NormGradients { dx, dw, db: db.map(|db| call.changes(db)) };
        let before = NormSlices { x, stats, w };
        self.run(call, |machine| norm::backward(machine, gradients, dy, before));
    }
}

fn shape_of(heads: Heads, qkv: usize) -> AttentionShape {
    let Heads { rows, heads: count, size } = heads;
    AttentionShape { rows, tokens: heads.tokens(qkv), heads: count, size }
}
