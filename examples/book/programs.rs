//! The programs of the book's chapters, which compile and run as examples of documentation.
#![cfg(doctest)]

#[doc = include_str!("src/calls.md")]
mod calls {}
#[doc = include_str!("src/choosing.md")]
mod choosing {}
#[doc = include_str!("src/failures.md")]
mod failures {}
#[doc = include_str!("src/schedules.md")]
mod schedules {}
#[doc = include_str!("src/sum.md")]
mod sum {}
