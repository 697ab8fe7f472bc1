//! Learning rates: the size of each step, by its number. Every rank computes it; nothing is sent.

use serde::{Deserialize, Serialize};

/// The shape of the rate over a run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateShape {
    /// The peak, always.
    #[default]
    Constant,
    /// Up in a line, then down half a cosine (Loshchilov and Hutter 2017).
    Cosine,
    /// Up in a line, stay, down in a line in the last part: warm-up, stable, decay (Hu et al.
    /// 2024).
    Wsd,
    /// Up in a line, then down in a line.
    Linear,
}

impl RateShape {
    /// The name of the shape, as `--shape` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Cosine => "cosine",
            Self::Wsd => "wsd",
            Self::Linear => "linear",
        }
    }
}

/// The rate of each step of a run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateSchedule {
    /// The shape.
    pub shape: RateShape,
    /// The highest rate.
    pub peak: f64,
    /// The lowest, at the end.
    pub floor: f64,
    /// Steps until the peak. Step `n` of them, from 1, has `n / warm_up` of it.
    pub warm_up: u64,
    /// Steps at the end in which `wsd` goes down.
    pub decay: u64,
    /// Steps of the run.
    pub steps: u64,
}

impl Default for RateSchedule {
    fn default() -> Self {
        Self { shape: RateShape::Constant, peak: 1e-3, floor: 0.0, warm_up: 0, decay: 0, steps: 0 }
    }
}

impl RateSchedule {
    /// The same rate at every step.
    pub fn constant(rate: f64) -> Self {
        Self { peak: rate, ..Self::default() }
    }

    /// The rate of step `step`, from 0. After the last step it is the floor, except for the shape
    /// `constant`.
    pub fn rate(&self, step: u64) -> f64 {
        if self.shape == RateShape::Constant {
            return self.peak;
        }
        if step < self.warm_up {
            return self.peak * (step + 1) as f64 / self.warm_up as f64;
        }
        let (start, end) = match self.shape {
            RateShape::Wsd => (self.steps.saturating_sub(self.decay), self.steps),
            _ => (self.warm_up, self.steps),
        };
        let done = fraction(step, start, end);
        let left = if self.shape == RateShape::Cosine {
            (1.0 + (done * std::f64::consts::PI).cos()) / 2.0
        } else {
            1.0 - done
        };
        self.floor + (self.peak - self.floor) * left
    }
}

/// Returns the share of the steps from `start` to `end` that are done at `step`: 0 to 1.
fn fraction(step: u64, start: u64, end: u64) -> f64 {
    if step < start {
        0.0
    } else if step >= end {
        1.0
    } else {
        (step - start) as f64 / (end - start) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_closed_forms() {
        let rates = |shape, steps: &[u64]| {
            let schedule =
                RateSchedule { shape, peak: 8.0, floor: 2.0, warm_up: 4, decay: 4, steps: 12 };
            steps.iter().map(|step| schedule.rate(*step)).collect::<Vec<_>>()
        };
        assert_eq!(rates(RateShape::Constant, &[0, 3, 100]), [8.0; 3]);
        assert_eq!(
            rates(RateShape::Linear, &[0, 1, 3, 4, 8, 10, 12, 99]),
            [2.0, 4.0, 8.0, 8.0, 5.0, 3.5, 2.0, 2.0]
        );
        assert_eq!(
            rates(RateShape::Wsd, &[0, 3, 4, 7, 8, 10, 12, 99]),
            [2.0, 8.0, 8.0, 8.0, 8.0, 5.0, 2.0, 2.0]
        );
        let half_root = f64::sqrt(0.5);
        for (rate, exact) in rates(RateShape::Cosine, &[0, 4, 6, 8, 10, 12, 99]).into_iter().zip([
            2.0,
            8.0,
            5.0 + 3.0 * half_root,
            5.0,
            5.0 - 3.0 * half_root,
            2.0,
            2.0,
        ]) {
            assert!((rate - exact).abs() < 1e-12, "{rate} is not {exact}");
        }
    }
}
