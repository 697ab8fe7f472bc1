//! `train` as a user runs it.

#[path = "../../../corpus/tests/streaming/files.rs"]
mod files;

#[path = "../../../../tests/common/blocks.rs"]
mod blocks;
mod book;
#[path = "../../../../tests/common/browser.rs"]
mod browser;
mod clock;
mod export;
mod far;
mod growth;
#[path = "../../../../tests/common/network.rs"]
mod network;
mod planner;
mod printing;
mod processes;
mod refusals;
mod restarts;
mod resuming;
mod search;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
mod stepping;
mod streaming;
mod usage;
