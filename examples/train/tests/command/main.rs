//! `train` as a user runs it.

#[path = "../../../corpus/tests/streaming/files.rs"]
mod files;

#[path = "../../../../tests/common/blocks.rs"]
mod blocks;
mod book;
mod clock;
mod export;
mod growth;
mod planner;
mod printing;
mod processes;
mod refusals;
mod restarts;
mod resuming;
mod search;
mod streaming;
mod usage;
