//! From the description of a call to its program: the request, the choice of the algorithm, the
//! cached programs.

pub(crate) mod call;
pub(super) mod choice;
pub(crate) mod counts;
pub(super) mod kept;
pub(super) mod order;
pub(in crate::engine) mod prepare;
pub(super) mod prepared;
pub(crate) mod recent;
pub(crate) mod report;
pub(super) mod user_schedules;
mod workspace;
