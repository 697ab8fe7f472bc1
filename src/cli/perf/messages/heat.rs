//! The matrix of all pairs as a picture: the darker a cell, the longer a message takes.

use super::matrix::PairMatrix;
use super::row::MatrixRow;
use maypole_pictures::writer::SvgWriter;

const CELL: f64 = 44.0;
const LEFT: f64 = 60.0;
/// With more ranks, cells hold no figures.
const MOST_FIGURES: usize = 24;

/// Height of the numbers of ranks above the cells.
const NUMBERS: f64 = 22.0;
/// Up to this place between the least and the greatest time, black figures are read best on a cell.
const BLACK_ON: f64 = 0.62;

/// What rows and columns are.
pub(crate) const AXES: &str = "row: the rank that sends; column: the receiver";

/// A picture of one matrix within a page of HTML, which has the title and the outliers.
pub(crate) fn inline(row: &MatrixRow) -> String {
    let cells_wide = CELL * row.matrix.world() as f64;
    let (width, height) = (LEFT + cells_wide + 4.0, NUMBERS + cells_wide);
    let style = format!("class=heat role=img aria-label='{}' style='width:{width}px'", row.title());
    let mut svg = SvgWriter::inline([width, height], style);
    cells(&mut svg, NUMBERS, &row.matrix);
    svg.finish()
}

/// Draws the cells from the height `top` on, with the numbers of the ranks at their sides.
fn cells(svg: &mut SvgWriter, top: f64, matrix: &PairMatrix) {
    let all: Vec<f64> = matrix.links().iter().map(|(_, _, us)| *us).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    for rank in 0..matrix.world() {
        let middle = (rank as f64 + 0.5) * CELL;
        svg.text([LEFT + middle, top - 6.0], "text-anchor=middle", rank);
        svg.text([LEFT - 8.0, top + middle + 4.0], "text-anchor=end", rank);
    }
    for (from, row) in matrix.rows().iter().enumerate() {
        for (to, us) in row.iter().enumerate() {
            let place = [LEFT + to as f64 * CELL, top + from as f64 * CELL];
            let has_figure = matrix.world() <= MOST_FIGURES;
            svg.element("g", "", |svg| {
                cell(svg, place, *us, part(*us, low, high), &format!("{from} to {to}"));
                if let Some(us) = us.filter(|_| has_figure) {
                    figure(svg, place, us, part(Some(us), low, high));
                }
            });
        }
    }
}

/// Where a time lies between the least and the greatest, on a logarithmic scale: 0 to 1. A span of
/// less than a factor of two is stretched to two, so that noise does not look like a difference.
fn part(us: Option<f64>, low: f64, high: f64) -> f64 {
    let span = (high / low).ln().max(2f64.ln());
    us.map_or(0.0, |us| ((us / low).ln() / span).clamp(0.0, 1.0))
}

fn cell(svg: &mut SvgWriter, [x, y]: [f64; 2], us: Option<f64>, part: f64, name: &str) {
    let fill = if us.is_some() { colour(part) } else { "#eeeeee".to_owned() };
    let us = us.map_or_else(|| "not measured".to_owned(), |us| format!("{us:.3} us"));
    svg.title(format_args!("{name}: {us}"));
    svg.rect([x, y, CELL - 1.0, CELL - 1.0], format_args!("fill={fill}"));
}

fn figure(svg: &mut SvgWriter, [x, y]: [f64; 2], us: f64, part: f64) {
    let (ink, name) = if part > BLACK_ON { ("#ffffff", "light") } else { ("#000000", "dark") };
    let digits = usize::from(us < 100.0) + usize::from(us < 10.0);
    let style = format!("class={name} text-anchor=middle font-size=10 fill={ink}");
    svg.text([x + CELL / 2.0, y + CELL / 2.0 + 4.0], style, format!("{us:.digits$}"));
}

/// From pale yellow to dark red.
fn colour(part: f64) -> String {
    let mix = |from: f64, to: f64| (from + (to - from) * part).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(255.0, 128.0), mix(247.0, 0.0), mix(209.0, 38.0))
}

#[cfg(test)]
mod tests {
    use super::super::MessageTest;
    use super::super::matrix::tests::matrix;
    use super::super::verdict::LinkVerdict;
    use super::*;
    use crate::perf::communicators::PerfTransport;

    fn row(matrix: PairMatrix) -> MatrixRow {
        let (test, transport) = (MessageTest::Latency, PerfTransport::Shm);
        let verdict = LinkVerdict::of(&matrix);
        MatrixRow { test, transport, bytes: 8, matrix, verdict }
    }

    #[test]
    fn the_slowest_cell_is_the_darkest_and_every_cell_has_a_title() {
        let times = |low, high| if (low, high) == (0, 2) { 50.0 } else { 1.0 };
        let picture = inline(&row(matrix(3, times)));
        assert_eq!(picture.matches("<title>").count(), 9);
        assert_eq!(picture.matches(&colour(1.0)).count(), 2, "one link, two cells: {picture}");
        assert_eq!(picture.matches(&colour(0.0)).count(), 4);
        assert!(
            picture.contains("latency of 8 bytes over shm")
                && picture.contains("0 to 2: 50.000 us")
        );
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }

    /// WCAG 2.1 requires a ratio of luminances of 4.5 for readers of weak sight.
    #[test]
    fn figures_are_read_on_every_cell() {
        let luminance = |colour: &str| {
            let part = |at: usize| {
                let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
                if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        for part in (0..=100).map(|percent| f64::from(percent) / 100.0) {
            let ground = luminance(&colour(part));
            let ratio =
                if part > BLACK_ON { 1.05 / (ground + 0.05) } else { (ground + 0.05) / 0.05 };
            assert!(ratio >= 4.5, "{part}: {ratio}");
        }
    }

    #[test]
    fn equal_links_are_pale() {
        let picture = inline(&row(matrix(3, |_, _| 2.0)));
        assert_eq!(picture.matches(&colour(0.0)).count(), 6, "{picture}");
    }
}
