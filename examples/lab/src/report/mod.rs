//! Texts and pictures about a run.
//!
//! | file | contents |
//! |---|---|
//! | [`shares`] | the time of a rank by activity |
//! | [`bubble`] | the waits for other stages of a pipeline |
//! | [`draw`] | the passes of a pipeline as text and as a picture |
//! | [`page`] | the same passes, and the groups of a mesh, as a page to step through |

pub mod bubble;
pub mod draw;
pub mod page;
pub mod shares;
