//! Pages for readers agree with the code: the README, the book, the pictures and the page of
//! faults.

#[path = "../common/blocks.rs"]
mod blocks;

mod book;
mod drawings;
mod faults;
mod readme;
