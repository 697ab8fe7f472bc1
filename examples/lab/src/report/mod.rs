//! Texts and pictures about a run.
//!
//! | file | what is in it |
//! |---|---|
//! | [`shares`] | what the time of a rank was spent on |
//! | [`bubble`] | how much of the waiting is that for other stages of a pipeline |
//! | [`draw`] | the passes of a pipeline as text and as a picture |
//! | [`page`] | the same passes, and the groups of a mesh, as a page to step through |
//! | [`chart`] | pictures of losses and of time |

pub mod bubble;
pub mod chart;
pub mod draw;
pub mod page;
pub mod shares;
