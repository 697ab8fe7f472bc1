//! Figures of every algorithm, and of schedules that deadlock.

use maypole::algorithms::Algorithm;
use maypole::schedule::{Schedule, Step, input, output};
use maypole_pictures::svg;

#[test]
fn steps_that_are_never_taken_have_a_row() {
    let receives = vec![Step::Recv { into: output(0), from: 0 }; 2];
    let schedules =
        [Schedule::new(1, vec![Step::Send { from: input(0), to: 1 }]), Schedule::new(1, receives)];
    assert!(svg(&schedules, "").contains(">stuck<"));
    assert!(!svg(&schedules[..0], "").contains(">stuck<"));
}

#[test]
fn svg_is_well_formed_for_every_algorithm() {
    for algorithm in Algorithm::ALL {
        for &collective in algorithm.collectives() {
            for world in [5, 16] {
                let picture =
                    svg(&algorithm.schedules(collective, world).expect("it is in the table"), "");
                assert_eq!(picture.matches("<g>").count(), picture.matches("</g>").count());
                assert_eq!(picture.matches("<text").count(), picture.matches("</text>").count());
                assert!(!picture.contains("NaN") && !picture.contains("inf\""));
                picture
                    .lines()
                    .filter(|line| line.starts_with("<g>"))
                    .for_each(words_fit_their_box);
            }
        }
    }
}

/// A bold digit of 12 points is less than 8 wide.
fn words_fit_their_box(drawn: &str) {
    let (_, rest) = drawn.split_once(" width=\"").expect("a box has a width");
    let width: usize = rest.split('"').next().expect("it ends").parse().expect("it is a number");
    let words = drawn
        .split("</text>")
        .next()
        .and_then(|text| text.rsplit('>').next())
        .expect("a box has words");
    assert!(words.len() * 8 <= width, "'{words}' in a box of {width}: {drawn}");
}
