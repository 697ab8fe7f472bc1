//! One plot as SVG: axes, lines and marks. Refers to no other file.

use maypole_pictures::writer::SvgWriter;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Margins for the axes.
const LEFT: f64 = 92.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 50.0;

/// A plot with several lines.
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: PlotAxis,
    pub(crate) y: PlotAxis,
    /// The first is drawn lowest.
    pub(crate) series: Vec<Series>,
}

/// The horizontal or the vertical axis.
pub(crate) struct PlotAxis {
    /// The quantity and its unit.
    pub(crate) label: &'static str,
    pub(crate) scale: AxisScale,
    /// Formats the value at a tick.
    pub(crate) tick: fn(f64) -> String,
}

/// How values map to lengths.
#[derive(Clone, Copy)]
pub(crate) enum AxisScale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, with ticks at powers of this base.
    Log(f64),
}

/// One line.
pub(crate) struct Series {
    /// Its class in the style sheet.
    pub(crate) class: String,
    /// The points, ascending in x.
    pub(crate) points: Vec<PlotPoint>,
    /// The index of the shape of its marks.
    pub(crate) mark: usize,
    /// True where the line is cut at the border instead of stretching the axes far.
    pub(crate) cut: bool,
}

/// A point of a line.
pub(crate) struct PlotPoint {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The tooltip of the point's mark; a point without a note has no mark.
    pub(crate) note: Option<String>,
}

/// Maps values of one axis to positions in the picture.
struct AxisMap {
    scale: AxisScale,
    low: f64,
    high: f64,
    /// The positions of `low` and `high`.
    from: f64,
    to: f64,
}

/// The least and the greatest value.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0f64), |(low, high), value| (low.min(value), high.max(value)))
}

/// Lines that may be cut extend the range of the other lines by at most this factor.
const STRETCH: f64 = 2.0;

impl AxisMap {
    fn new(scale: AxisScale, (low, high): (f64, f64), from: f64, to: f64) -> Self {
        let (low, high) = match scale {
            _ if !low.is_finite() || high <= 0.0 => (1.0, 10.0),
            AxisScale::Linear => (0.0, high * 1.06),
            AxisScale::Log(_) => (low / 1.25, high * 1.25),
        };
        Self { scale, low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = match self.scale {
            AxisScale::Linear => (value - self.low) / (self.high - self.low),
            AxisScale::Log(_) => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + part * (self.to - self.from)
    }

    /// At most about eight round values.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            AxisScale::Linear => {
                let rough = (self.high - self.low) / 6.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .into_iter()
                    .find(|step| step * power >= rough)
                    .unwrap_or(10.0)
                    * power;
                (0..)
                    .map(|nth| f64::from(nth) * step)
                    .take_while(|tick| *tick <= self.high)
                    .collect()
            }
            AxisScale::Log(base) => {
                let exponent = |value: f64| value.ln() / base.ln();
                let first = exponent(self.low).ceil() as i32;
                let last = exponent(self.high).floor() as i32;
                let step = ((last - first) / 8 + 1).max(1);
                (first..=last).step_by(step as usize).map(|exponent| base.powi(exponent)).collect()
            }
        }
    }
}

impl Plot {
    /// An `svg` element; `id` must be unique on the page.
    pub(crate) fn svg(&self, id: &str) -> String {
        let dots = |cut| {
            self.series
                .iter()
                .filter(move |series| series.cut == cut)
                .flat_map(|series| &series.points)
        };
        let x =
            AxisMap::new(self.x.scale, range(dots(false).map(|dot| dot.x)), LEFT, WIDTH - RIGHT);
        let (low, high) = range(dots(false).map(|dot| dot.y));
        let near = dots(true).map(|dot| dot.y.max(low / STRETCH).min(high * STRETCH));
        let (least, most) = range(near);
        let y = AxisMap::new(self.y.scale, (low.min(least), high.max(most)), HEIGHT - BOTTOM, TOP);
        let picture = format!("role=img aria-label='{}'", self.title);
        let mut svg = SvgWriter::inline([WIDTH, HEIGHT], picture);
        svg.element("clipPath", format_args!("id={id}"), |clip| {
            clip.rect([LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM], "");
        });
        self.axes(&mut svg, &x, &y);
        for series in &self.series {
            svg.element("g", format_args!("class='series {}'", series.class), |svg| {
                line(svg, series, &x, &y, id);
                for dot in &series.points {
                    mark(svg, series.mark, dot, (x.at(dot.x), y.at(dot.y)));
                }
            });
        }
        svg.finish()
    }

    fn axes(&self, svg: &mut SvgWriter, x: &AxisMap, y: &AxisMap) {
        let floor = HEIGHT - BOTTOM;
        let right = WIDTH - RIGHT;
        for tick in x.ticks() {
            let at = x.at(tick);
            svg.path(format_args!("M{at:.1} {TOP}V{floor}"), "class=grid");
            svg.text([at, floor + 18.0], "text-anchor=middle", (self.x.tick)(tick));
        }
        for tick in y.ticks() {
            let at = y.at(tick);
            svg.path(format_args!("M{LEFT} {at:.1}H{right}"), "class=grid");
            svg.text([LEFT - 8.0, at + 4.0], "text-anchor=end", (self.y.tick)(tick));
        }
        svg.path(format_args!("M{LEFT} {TOP}V{floor}H{right}"), "class=axis");
        let below = [f64::midpoint(LEFT, right), HEIGHT - 8.0];
        svg.text(below, "class=label text-anchor=middle", self.x.label);
        svg.upright_text([16.0, f64::midpoint(TOP, floor)], "class=label", self.y.label);
    }
}

fn line(svg: &mut SvgWriter, series: &Series, x: &AxisMap, y: &AxisMap, id: &str) {
    let mut path = String::new();
    for dot in &series.points {
        let verb = if path.is_empty() { 'M' } else { 'L' };
        path += &format!("{verb}{:.1} {:.1}", x.at(dot.x), y.at(dot.y));
    }
    svg.path(path, format_args!("class=line clip-path=url(#{id})"));
}

/// A mark with its tooltip. Series differ in shape, not only in colour. An invisible circle makes
/// the mark easy to hit.
fn mark(svg: &mut SvgWriter, shape: usize, dot: &PlotPoint, (x, y): (f64, f64)) {
    let Some(note) = &dot.note else { return };
    let place = format!("class=mark transform='translate({x:.1} {y:.1})'");
    svg.element("g", place, |svg| {
        svg.title(note);
        svg.circle([0.0, 0.0], 9.0, "class=hit");
        svg.path(outline(shape), "");
    });
}

/// The shape of a mark around the origin, as an SVG path.
pub(crate) fn outline(mark: usize) -> &'static str {
    match mark % 6 {
        0 => "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0Z",
        1 => "M-3.2-3.2H3.2V3.2H-3.2Z",
        2 => "M0-4.4L4.2 3.2H-4.2Z",
        3 => "M0-4.6L4.6 0L0 4.6L-4.6 0Z",
        4 => "M0 4.4L4.2-3.2H-4.2Z",
        _ => "M-4-1.4H-1.4V-4H1.4V-1.4H4V1.4H1.4V4H-1.4V1.4H-4Z",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(scale: AxisScale, low: f64, high: f64) -> AxisMap {
        AxisMap::new(scale, (low, high), 0.0, 100.0)
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(map(AxisScale::Linear, 1.0, 9.0).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(map(AxisScale::Log(10.0), 0.2, 800.0).ticks(), [1.0, 10.0, 100.0]);
        assert_eq!(map(AxisScale::Log(2.0), 8.0, 128.0).ticks(), [8.0, 16.0, 32.0, 64.0, 128.0]);
        assert!(map(AxisScale::Log(2.0), 8.0, 1e9).ticks().len() <= 9);
    }

    #[test]
    fn lengths_follow_values() {
        let map = map(AxisScale::Log(10.0), 1.0, 100.0);
        assert!((map.at(10.0) - 50.0).abs() < 1e-9);
        assert!(map.at(1.0) > 0.0 && map.at(100.0) < 100.0, "with a margin");
    }

    #[test]
    fn an_empty_plot_can_be_drawn() {
        let axis = || PlotAxis {
            label: "x",
            scale: AxisScale::Log(10.0),
            tick: |value| value.to_string(),
        };
        let plot = Plot { title: "<nothing>".to_owned(), x: axis(), y: axis(), series: Vec::new() };
        let svg = plot.svg("p");
        assert!(svg.contains("&lt;nothing&gt;") && !svg.contains("NaN"), "{svg}");
    }
}
