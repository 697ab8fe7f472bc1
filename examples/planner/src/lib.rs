//! The planner: how to train a model on a cluster, before any rank is started.
//!
//! What it does: counts the bytes of a rank by kind, prices a step, and searches all legal strategies
//! for the fastest that fit in memory. All of it is arithmetic: no rank, no clock, no file.
//!
//! | file | contents |
//! |---|---|
//! | [`sizes`] | a model as sizes; its parameters and operations; presets |
//! | [`strategy`] | mesh, sharding, schedule, micro-batches, precision |
//! | [`memory`] | the bytes of a rank, by kind |
//! | [`cluster`] | accelerators, and hosts on a network |
//! | [`groups`] | the price of a collective in a group of the mesh |
//! | [`price`], [`step`] | the time of a step, by cause |
//! | [`search`] | every legal strategy, and the best |
//! | [`report`], [`picture`] | the result as text, JSON and SVG |
//! | [`published`] | trainings whose speed was published |
//!
//! What is sharded, which collective runs where: a table of all axes in [`memory`] and one in
//! [`price`]. Along `ep` the rows of a batch are divided as along `dp`, so the literature's "data
//! parallel" size is `dp` times `ep` here.
//!
//! ```
//! use maypole_planner::cluster::AcceleratorCluster;
//! use maypole_planner::search::{AdviceQuestion, advise};
//! use maypole_planner::strategy::{NumberFormat, Recomputation, ZeroStage};
//! use maypole_planner::sizes::ModelSizes;
//! let model = ModelSizes::preset("7b").unwrap();
//! let cluster = AcceleratorCluster::named("2xdgx-h100").unwrap();
//! let question = AdviceQuestion {
//!     tokens: 64 * 4096,
//!     formats: vec![NumberFormat::Bf16],
//!     recompute: Recomputation::USUAL.to_vec(),
//!     stages: ZeroStage::ALL.to_vec(),
//! };
//! let advice = advise(&model, &cluster, &question).unwrap();
//! assert!(advice.best[0].bytes.total() <= advice.usable);
//! ```
#![forbid(unsafe_code)]

pub mod cluster;
pub mod groups;
pub mod memory;
pub mod picture;
pub mod price;
pub mod published;
pub mod report;
pub mod search;
pub mod sizes;
pub mod step;
pub mod strategy;
