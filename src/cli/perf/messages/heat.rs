//! The matrix of all pairs as a picture: the darker a cell, the longer a message takes.

use super::matrix::PairMatrix;
use maypole_pictures::writer::SvgWriter;

const CELL: f64 = 44.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 70.0;
/// Height of the lines of text below the cells.
const LINE: f64 = 18.0;
/// With more ranks, cells hold no figures.
const MOST_FIGURES: usize = 24;

/// A picture of the matrices, one below the other. Each has a title, and lines that say what
/// stands out.
pub(crate) fn svg(matrices: &[(String, PairMatrix, String)]) -> String {
    let height = |(_, matrix, said): &(String, PairMatrix, String)| {
        TOP + CELL * matrix.world() as f64 + LINE * (said.lines().count() + 1) as f64
    };
    let widest = matrices.iter().map(|(_, matrix, _)| matrix.world()).max().unwrap_or(0) as f64;
    let width = (LEFT + CELL * widest + 20.0).max(760.0);
    let mut svg = SvgWriter::page(width, matrices.iter().map(height).sum::<f64>().max(LINE));
    let mut y = 0.0;
    for one in matrices {
        let (title, matrix, said) = one;
        draw(&mut svg, y, title, matrix);
        let below = y + TOP + CELL * matrix.world() as f64 + LINE;
        for (nth, line) in said.lines().enumerate() {
            svg.text([LEFT, below + LINE * nth as f64], "", line);
        }
        y += height(one);
    }
    svg.finish()
}

fn draw(svg: &mut SvgWriter, y: f64, title: &str, matrix: &PairMatrix) {
    svg.text([LEFT, y + 24.0], "font-size=15 font-weight=bold", title);
    svg.text([LEFT, y + 44.0], "fill=#555555", "row: the rank that sends; column: the receiver");
    let all: Vec<f64> = matrix.links().iter().map(|(_, _, us)| *us).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    for rank in 0..matrix.world() {
        let middle = (rank as f64 + 0.5) * CELL;
        svg.text([LEFT + middle, y + TOP - 6.0], "text-anchor=middle", rank);
        svg.text([LEFT - 8.0, y + TOP + middle + 4.0], "text-anchor=end", rank);
    }
    for (from, row) in matrix.rows().iter().enumerate() {
        for (to, us) in row.iter().enumerate() {
            let place = [LEFT + to as f64 * CELL, y + TOP + from as f64 * CELL];
            cell(svg, place, *us, part(*us, low, high), &format!("{from} to {to}"));
            if let Some(us) = us.filter(|_| matrix.world() <= MOST_FIGURES) {
                figure(svg, place, us, part(Some(us), low, high));
            }
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
    svg.element("g", "", |group| {
        let us = us.map_or_else(|| "not measured".to_owned(), |us| format!("{us:.3} us"));
        group.title(format_args!("{name}: {us}"));
        group.rect([x, y, CELL - 1.0, CELL - 1.0], format_args!("fill={fill}"));
    });
}

fn figure(svg: &mut SvgWriter, [x, y]: [f64; 2], us: f64, part: f64) {
    let ink = if part > 0.55 { "#ffffff" } else { "#000000" };
    let digits = usize::from(us < 100.0) + usize::from(us < 10.0);
    let style = format!("text-anchor=middle font-size=10 fill={ink}");
    svg.text([x + CELL / 2.0, y + CELL / 2.0 + 4.0], style, format!("{us:.digits$}"));
}

/// From pale yellow to dark red.
fn colour(part: f64) -> String {
    let mix = |from: f64, to: f64| (from + (to - from) * part).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(255.0, 128.0), mix(247.0, 0.0), mix(209.0, 38.0))
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::matrix;
    use super::*;

    #[test]
    fn the_slowest_cell_is_the_darkest_and_every_cell_has_a_title() {
        let times = |low, high| if (low, high) == (0, 2) { 50.0 } else { 1.0 };
        let picture = svg(&[("latency <8>".to_owned(), matrix(3, times), "a\nb".to_owned())]);
        assert_eq!(picture.matches("<title>").count(), 9);
        assert_eq!(picture.matches(&colour(1.0)).count(), 2, "one link, two cells: {picture}");
        assert_eq!(picture.matches(&colour(0.0)).count(), 4);
        assert!(picture.contains("latency &lt;8&gt;") && picture.contains("0 to 2: 50.000 us"));
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }

    #[test]
    fn equal_links_are_pale() {
        let picture = svg(&[(String::new(), matrix(3, |_, _| 2.0), String::new())]);
        assert_eq!(picture.matches(&colour(0.0)).count(), 6, "{picture}");
        assert!(!svg(&[]).contains("NaN"));
    }
}
