//! Whether results are right, to the bit.
//!
//! [`values`] draws inputs whose reductions are exact in every order; [`oracle`] computes the
//! result of each rank, and counts the elements that differ.

pub(crate) mod oracle;
pub(crate) mod values;
