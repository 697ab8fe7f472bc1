//! Exercises: for each axis one function to write, in `blanks`, and a test of it.
//!
//! ```text
//! cargo test -p maypole-lab --test exercises -- --ignored tensor
//! ```
//!
//! tests `blanks/tensor.rs`; the other files there are tested in the same way. Without `--ignored`
//! the solutions in `solutions` are tested. Another test checks that each blank fails the test of its
//! own chapter and no other.
#![allow(unreachable_pub, reason = "modules of a test program")]

#[path = "../../../../tests/common/skip.rs"]
mod skip;
#[path = "../support/mod.rs"]
mod support;

mod answers;
mod blanks;
mod chapters;
mod solutions;

use answers::Answers;
use chapters::CHAPTERS;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A test of each solution, and an ignored test of each blank.
macro_rules! exercises {
    ($($chapter:ident),*) => {
        mod solution {
            $(#[test]
            fn $chapter() {
                super::chapters::$chapter(&super::Answers::solutions());
            })*
        }

        $(#[test]
        #[ignore = "an exercise: write the function in tests/exercises/blanks first"]
        fn $chapter() {
            chapters::$chapter(&Answers::solutions().with_blank(stringify!($chapter)));
        })*

        #[test]
        fn every_chapter_has_its_tests() {
            assert_eq!(CHAPTERS.map(|(name, _)| name), [$(stringify!($chapter)),*]);
        }
    };
}

exercises!(data_parallel, zero, tensor, sequence, pipeline, context, experts, averaging, unequal);

/// A test that passes with a blank, or fails because of another blank, is of no use to a learner.
#[test]
fn each_blank_fails_the_test_of_its_own_chapter_and_no_other() {
    crate::skip::takes_turns!(4);
    for (blank, _) in CHAPTERS {
        let answers = Answers::solutions().with_blank(blank);
        let mut failed = Vec::new();
        for (chapter, test) in CHAPTERS {
            if catch_unwind(AssertUnwindSafe(|| test(&answers))).is_err() {
                failed.push(chapter);
            }
        }
        assert_eq!(failed, [blank]);
    }
}
