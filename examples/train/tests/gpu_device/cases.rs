//! The layers that are compared: every method of the trait, with shapes that are no multiples of a
//! block, on numbers that are equal in every run.

use maypole_trainer::tensor::attention::Heads;
use maypole_trainer::tensor::device::Device;
use maypole_trainer::tensor::math::Real;
use maypole_trainer::tensor::norm::NormInputs;
use maypole_trainer::tensor::random::{centred, random};
use maypole_trainer::tensor::rotary::{Rotation, Turn};
use maypole_trainer_kernels::layers::Float;

/// A type that both the processor and a GPU compute with.
pub(crate) trait Number: Real + Float {
    /// How far a number may be from the processor's, as a multiple of the greatest number of the
    /// same result.
    const TOLERANCE: f64;
}

impl Number for f32 {
    const TOLERANCE: f64 = 4e-6;
}

impl Number for f64 {
    const TOLERANCE: f64 = 8e-15;
}

/// What a layer gave: named results.
pub(crate) type Results<T> = Vec<(&'static str, Vec<T>)>;

/// A layer with its shape and its numbers.
pub(crate) struct Case<T> {
    pub(crate) name: String,
    run: Box<CaseRun<T>>,
}

/// Runs a layer on a device.
type CaseRun<T> = dyn Fn(&dyn Device<T>) -> Results<T>;

impl<T: Number> Case<T> {
    fn new(name: String, run: impl Fn(&dyn Device<T>) -> Results<T> + 'static) -> Self {
        Self { name, run: Box::new(run) }
    }

    pub(crate) fn on(&self, device: &dyn Device<T>) -> Results<T> {
        (self.run)(device)
    }
}

fn numbers<T: Real>(seed: u64, count: usize) -> Vec<T> {
    (0..count).map(|nth| T::of(centred(seed, nth as u64))).collect()
}

fn ids(seed: u64, count: usize, end: usize) -> Vec<u32> {
    (0..count).map(|nth| (random(seed, nth as u64) % end as u64) as u32).collect()
}

/// Tokens, inputs and outputs of linear layers: smaller than a tile, as large, larger, no tokens,
/// one of each, deep.
const LINEAR: [[usize; 3]; 8] = [
    [3, 5, 7],
    [64, 16, 64],
    [65, 17, 66],
    [0, 4, 6],
    [1, 1, 1],
    [1, 33, 1],
    [70, 130, 9],
    [10, 300, 68],
];

pub(crate) fn linear<T: Number>() -> Vec<Case<T>> {
    let case = |[tokens, inputs, outputs]: [usize; 3]| {
        Case::new(format!("linear {tokens} {inputs} {outputs}"), move |device| {
            let x: Vec<T> = numbers(1, tokens * inputs);
            let w: Vec<T> = numbers(2, outputs * inputs);
            let dy: Vec<T> = numbers(3, tokens * outputs);
            let mut y = numbers(4, dy.len());
            device.linear(&mut y, &x, &w, inputs);
            let mut dx = numbers(5, x.len());
            let mut dw = numbers(6, w.len());
            device.linear_backward(&mut dx, &mut dw, &dy, &x, &w, inputs);
            vec![("y", y), ("dx", dx), ("dw", dw)]
        })
    };
    LINEAR.into_iter().map(case).collect()
}

/// Rows and numbers of a row.
const ROWS: [[usize; 2]; 7] = [[1, 1], [3, 5], [7, 32], [9, 33], [40, 128], [13, 129], [2, 300]];

pub(crate) fn bias<T: Number>() -> Vec<Case<T>> {
    let case = |[rows, width]: [usize; 2]| {
        Case::new(format!("bias {rows} {width}"), move |device| {
            let b: Vec<T> = numbers(1, width);
            let x: Vec<T> = numbers(2, rows * width);
            let mut y = numbers(3, rows * width);
            device.bias(&mut y, &b);
            let mut db = numbers(4, width);
            device.bias_backward(&mut db, &x);
            let mut sum = x.clone();
            device.add(&mut sum, &y);
            vec![("y", y), ("db", db), ("sum", sum)]
        })
    };
    ROWS.into_iter().map(case).collect()
}

pub(crate) fn norm<T: Number>() -> Vec<Case<T>> {
    let case = |[rows, width]: [usize; 2]| {
        Case::new(format!("norm {rows} {width}"), move |device| {
            // A mean that is not near 0.
            let mut x: Vec<T> = numbers(1, rows * width);
            x.iter_mut().for_each(|x| *x += T::of(0.7));
            let [w, b] = [2, 3].map(|seed| numbers::<T>(seed, width));
            let dy: Vec<T> = numbers(4, rows * width);
            let mut y = numbers(5, x.len());
            let mut stats = numbers(6, 2 * rows);
            device.norm(&mut y, &mut stats, &x, &w, &b);
            let mut dx = numbers(7, x.len());
            let [mut dw, mut db] = [8, 9].map(|seed| numbers::<T>(seed, width));
            // The statistics of a single number: its deviation is 0, and 1 / it amplifies
            // roundings.
            let before = NormInputs { x: &x, stats: &stats, w: &w };
            if width > 1 {
                device.norm_backward(&mut dx, &mut dw, &mut db, &dy, before);
            }
            vec![("y", y), ("stats", stats), ("dx", dx), ("dw", dw), ("db", db)]
        })
    };
    ROWS.into_iter().map(case).collect()
}

pub(crate) fn rms_norm<T: Number>() -> Vec<Case<T>> {
    let case = |[rows, width]: [usize; 2]| {
        Case::new(format!("rms norm {rows} {width}"), move |device| {
            let [x, dy] = [1, 2].map(|seed| numbers::<T>(seed, rows * width));
            let w: Vec<T> = numbers(3, width);
            let mut y = numbers(4, x.len());
            let mut stats = numbers(5, rows);
            device.rms_norm(&mut y, &mut stats, &x, &w);
            let mut dx = numbers(6, x.len());
            let mut dw = numbers(7, width);
            let before = NormInputs { x: &x, stats: &stats, w: &w };
            device.rms_norm_backward(&mut dx, &mut dw, &dy, before);
            vec![("y", y), ("stats", stats), ("dx", dx), ("dw", dw)]
        })
    };
    ROWS.into_iter().map(case).collect()
}

pub(crate) fn turn<T: Number>() -> Vec<Case<T>> {
    let case = |[tokens, heads, size]: [usize; 3]| {
        Case::new(format!("turn {tokens} {heads} {size}"), move |device| {
            let positions = ids(1, tokens, 50);
            let rotation = Rotation::new(&positions, size);
            let turned = |turn| {
                let mut x: Vec<T> = numbers(2, tokens * heads * size);
                device.turn(&mut x, &rotation, turn);
                x
            };
            vec![("forth", turned(Turn::Forth)), ("back", turned(Turn::Back))]
        })
    };
    [[1, 1, 2], [5, 3, 6], [33, 4, 16]].into_iter().map(case).collect()
}

/// Rows, heads, numbers of a head, tokens of a row.
const ATTENTION: [[usize; 4]; 6] =
    [[1, 1, 1, 1], [2, 3, 4, 5], [1, 2, 7, 64], [3, 1, 16, 65], [2, 2, 65, 9], [1, 1, 8, 130]];

pub(crate) fn attention<T: Number>() -> Vec<Case<T>> {
    let case = |[rows, heads, size, tokens]: [usize; 4]| {
        let shape = Heads { rows, heads, size };
        Case::new(format!("attention {rows} {heads} {size} {tokens}"), move |device| {
            let qkv: Vec<T> = numbers(1, 3 * rows * tokens * heads * size);
            let dy: Vec<T> = numbers(2, rows * tokens * heads * size);
            let (y, p) = device.attention(shape, &qkv);
            let dqkv = device.attention_backward(shape, &qkv, &p, &dy);
            vec![("y", y), ("p", p), ("dqkv", dqkv)]
        })
    };
    ATTENTION.into_iter().map(case).collect()
}

pub(crate) fn activation<T: Number>() -> Vec<Case<T>> {
    let case = |count: usize| {
        Case::new(format!("activation {count}"), move |device| {
            // Also where the exponential functions overflow.
            let of = |seed, nth| centred(seed, nth as u64) * [1.0, 10.0, 100.0][nth % 3];
            let many = |seed| (0..count).map(|nth| T::of(of(seed, nth))).collect::<Vec<_>>();
            let [x, up] = [1, 2].map(many);
            let mut y = numbers(3, count);
            device.gelu(&mut y, &x);
            let mut dx = numbers(4, count);
            device.gelu_backward(&mut dx, &x);
            let mut gated = numbers(5, count);
            device.swiglu(&mut gated, &x, &up);
            let [mut dgate, mut dup] = [6, 7].map(|seed| numbers::<T>(seed, count));
            device.swiglu_backward(&mut dgate, &mut dup, &x, &up);
            vec![("gelu", y), ("dx", dx), ("swiglu", gated), ("dgate", dgate), ("dup", dup)]
        })
    };
    [1, 255, 256, 1000].into_iter().map(case).collect()
}

pub(crate) fn embed<T: Number>() -> Vec<Case<T>> {
    // Ids below 20, of which the table may have only some.
    let case = |[tokens, width, first, lines]: [usize; 4]| {
        Case::new(format!("embed {tokens} {width} {first} {lines}"), move |device| {
            let ids = ids(1, tokens, 20);
            let [table, mut dtable] = [2, 3].map(|seed| numbers::<T>(seed, lines * width));
            let [mut x, dx] = [4, 5].map(|seed| numbers::<T>(seed, tokens * width));
            device.embed(&mut x, &table, first, &ids);
            device.embed_backward(&mut dtable, first, &ids, &dx);
            vec![("x", x), ("dtable", dtable)]
        })
    };
    [[1, 1, 0, 20], [100, 7, 0, 20], [65, 64, 5, 9], [33, 3, 19, 1], [9, 300, 30, 2]]
        .into_iter()
        .map(case)
        .collect()
}

pub(crate) fn loss<T: Number>() -> Vec<Case<T>> {
    let case = |[tokens, width]: [usize; 2]| {
        Case::new(format!("loss {tokens} {width}"), move |device| {
            let mut logits: Vec<T> = numbers(1, tokens * width);
            logits.iter_mut().for_each(|z| *z *= T::of(5.0));
            let targets = ids(2, tokens, width);
            let loss = device.cross_entropy(&mut logits, &targets, 1.0 / tokens as f64);
            vec![("loss", vec![T::of(loss)]), ("gradient", logits)]
        })
    };
    [[4, 2], [3, 5], [40, 127], [7, 128], [5, 1000]].into_iter().map(case).collect()
}
