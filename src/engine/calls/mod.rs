//! From the description of a call to its program: the request, the choice of the algorithm, the
//! cached programs.

pub(crate) mod call;
pub(crate) mod choice;
pub(crate) mod counts;
pub(crate) mod kept;
pub(super) mod order;
pub(crate) mod prepare;
pub(crate) mod prepared;
pub(crate) mod recent;
pub(crate) mod report;
pub(super) mod user_schedules;
mod workspace;
