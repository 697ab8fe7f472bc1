//! What users call: the collectives, messages between two ranks, groups, deadlines and counters.

pub(crate) mod counters;
pub(crate) mod groups;
pub(crate) mod messages;
pub(crate) mod operation;
pub(crate) mod scans;
pub(crate) mod values;
pub(crate) mod variable;
pub(crate) mod within;
