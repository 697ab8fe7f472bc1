//! Which axes combine, and why the others do not.
//!
//! What it does: a table of pairs of [`AxisChoice`]s, to be printed and to be tested: every legal pair
//! is trained and compared with one process. If a pair does not combine, a
//! [`Parallelism`] cannot hold both choices, or [`Parallelism::check`] refuses it. What is sharded, which
//! collective runs where, cost: nothing here.

use crate::averaging::DataForm;
use maypole_trainer::data_parallel::sharding::Sharding;
use maypole_trainer::expert_parallel::router::Router;
use maypole_trainer::model::config::Config;
use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
use maypole_trainer::ranks::mesh::{Mesh, MeshAxis};
use maypole_trainer::train::parallelism::{ContextExchange, Parallelism};

/// One way to use an axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisChoice {
    /// Data parallel, gradients all-reduced.
    Dp,
    /// Data parallel, the optimizer sharded.
    Zero1,
    /// Data parallel, the optimizer and gradients sharded.
    Zero2,
    /// Data parallel, everything sharded.
    Zero3,
    /// Data parallel, weights averaged. Here after every step, which makes the run comparable with
    /// one process.
    LocalSgd,
    /// Tensor parallel.
    Tp,
    /// Tensor parallel with sequence parallelism: tokens are divided outside of the regions.
    Sp,
    /// Pipeline parallel, interleaved.
    Pp,
    /// Expert parallel.
    Ep,
    /// Context parallel by a ring.
    Ring,
    /// Context parallel by exchanging positions for heads.
    Ulysses,
}

impl AxisChoice {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Dp,
        Self::Zero1,
        Self::Zero2,
        Self::Zero3,
        Self::LocalSgd,
        Self::Tp,
        Self::Sp,
        Self::Pp,
        Self::Ep,
        Self::Ring,
        Self::Ulysses,
    ];

    /// The name in the table.
    pub fn name(self) -> &'static str {
        ["dp", "zero1", "zero2", "zero3", "local", "tp", "sp", "pp", "ep", "ring", "ulysses"]
            [self as usize]
    }

    /// The axis of the mesh that this choice uses.
    pub fn axis(self) -> MeshAxis {
        match self {
            Self::Dp | Self::Zero1 | Self::Zero2 | Self::Zero3 | Self::LocalSgd => MeshAxis::Dp,
            Self::Tp | Self::Sp => MeshAxis::Tp,
            Self::Pp => MeshAxis::Pp,
            Self::Ep => MeshAxis::Ep,
            Self::Ring | Self::Ulysses => MeshAxis::Cp,
        }
    }

    /// Switches this choice on in `setup` and `form`, with two ranks along its axis.
    /// [`Ep`](Self::Ep) needs a model with experts.
    fn apply(self, setup: &mut Parallelism, form: &mut DataForm) {
        setup.mesh = setup.mesh.with(self.axis(), 2);
        match self {
            Self::Dp | Self::Tp => {}
            Self::Zero1 => setup.sharding = Sharding::Zero1,
            Self::Zero2 => setup.sharding = Sharding::Zero2,
            Self::Zero3 => setup.sharding = Sharding::Fsdp { prefetch: true },
            Self::LocalSgd => *form = DataForm::Local { every: 1 },
            Self::Sp => setup.sequence = true,
            Self::Pp => {
                setup.schedule = PipelineSchedule::Interleaved(2);
                setup.micros = 2;
            }
            Self::Ep => {
                setup.router =
                    Some(Router { experts: 4, top: 2, group: 4, capacity: None, balance: 0.05 });
            }
            Self::Ring => setup.exchange = ContextExchange::Ring,
            Self::Ulysses => setup.exchange = ContextExchange::Ulysses,
        }
    }
}

/// The reason why a pair does not combine; `None` if the pair combines.
pub fn refusal(a: AxisChoice, b: AxisChoice) -> Option<&'static str> {
    use AxisChoice::{LocalSgd, Ring, Ulysses};
    let either = |x, y| (a, b) == (x, y) || (a, b) == (y, x);
    if a == b {
        return None;
    }
    if either(Ring, Ulysses) {
        return Some("both bring keys to queries; an axis does it in one way");
    }
    if either(AxisChoice::Tp, AxisChoice::Sp) {
        return None;
    }
    if a.axis() == b.axis() {
        return Some("both say what data-parallel ranks divide; a run has one of them");
    }
    let local = either(LocalSgd, Ring) || either(LocalSgd, Ulysses);
    local.then_some(
        "weights differ along dp between averages, but positions of one sequence need one model",
    )
}

/// Returns the setup and the form of a pair, and sets the number of experts that the pair needs in
/// `config`.
pub fn pair(a: AxisChoice, b: AxisChoice, config: &mut Config) -> (Parallelism, DataForm) {
    let mut setup = Parallelism::of(Mesh::ONE);
    let mut averaged = DataForm::from(setup.sharding);
    a.apply(&mut setup, &mut averaged);
    b.apply(&mut setup, &mut averaged);
    config.experts = setup.router.map_or(0, |router| router.experts);
    let form = if averaged.diverges() { averaged } else { setup.sharding.into() };
    (setup, form)
}

/// The table of all pairs. `+`: the pair combines. A number: the reason below the table.
pub fn table() -> String {
    let mut reasons: Vec<&str> = Vec::new();
    let mut text = format!("{:9}", "");
    AxisChoice::ALL.iter().for_each(|choice| text += &format!("{:>8}", choice.name()));
    for a in AxisChoice::ALL {
        text += &format!("\n{:9}", a.name());
        for b in AxisChoice::ALL {
            let mark = match refusal(a, b) {
                _ if a == b => ".".to_owned(),
                None => "+".to_owned(),
                Some(why) => {
                    let known = reasons.iter().position(|reason| *reason == why);
                    let nth = known.unwrap_or_else(|| {
                        reasons.push(why);
                        reasons.len() - 1
                    });
                    (nth + 1).to_string()
                }
            };
            text += &format!("{mark:>8}");
        }
    }
    text.push('\n');
    reasons.iter().enumerate().for_each(|(nth, why)| text += &format!("{}: {why}\n", nth + 1));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_symmetric_and_names_every_reason() {
        for a in AxisChoice::ALL {
            for b in AxisChoice::ALL {
                assert_eq!(refusal(a, b), refusal(b, a));
            }
        }
        let table = table();
        assert_eq!(table.lines().count(), 1 + AxisChoice::ALL.len() + 3, "{table}");
        assert!(table.lines().nth(6).unwrap().starts_with("tp"));
    }
}
