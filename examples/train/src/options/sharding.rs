//! The option `--sharding`: what data-parallel ranks divide among them, or how they train apart.

use super::{TrainOptions, named};
use anyhow::Context;
use maypole_lab::averaging::DataForm;
use maypole_trainer::data_parallel::sharding::Sharding;

/// The most steps that sums may be late: each keeps a buffer of gradients.
const MOST_LATE: u64 = 64;

impl TrainOptions {
    pub(super) fn form(&self) -> anyhow::Result<DataForm> {
        let bucket = self.bucket.map(|kib| kib << 10);
        let name = self.sharding.as_deref().unwrap_or("replicated");
        if let Some(apart) = self.apart(name) {
            return apart;
        }
        let sharding = named(
            &Some(name.to_owned()),
            "sharding",
            &[
                ("replicated", Sharding::Replicated { bucket, overlap: true }),
                ("zero1", Sharding::Zero1),
                ("zero2", Sharding::Zero2),
                ("fsdp", Sharding::Fsdp { prefetch: true }),
            ],
        )?;
        Ok(sharding.into())
    }

    /// The form of ranks that train apart, if `name` names one.
    fn apart(&self, name: &str) -> Option<anyhow::Result<DataForm>> {
        let (kind, number) = name.split_once(':').unwrap_or((name, ""));
        let number = number.parse::<u64>().ok();
        let positive = || {
            let every = number.filter(|every| *every > 0);
            every.with_context(|| format!("{kind}:STEPS needs a positive number of steps"))
        };
        let late = || {
            let late = number.filter(|late| *late <= MOST_LATE);
            late.with_context(|| format!("stale:STEPS needs a number from 0 to {MOST_LATE}"))
        };
        Some(match kind {
            "local" => positive().map(|every| DataForm::Local { every }),
            "diloco" => positive().map(|every| DataForm::Diloco { every }),
            "gossip" => positive().map(|every| DataForm::Gossip { every }),
            "stale" => late().map(|late| DataForm::Stale { late }),
            "once" => Ok(DataForm::Local { every: self.steps.unwrap_or(200).max(1) }),
            _ => return None,
        })
    }
}
