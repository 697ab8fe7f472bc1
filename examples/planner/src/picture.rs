//! The trade-off as SVG: for each mesh the memory of its fullest rank and the time of a step.

use crate::search::{Advice, PricedStrategy};
use maypole_pictures::writer::SvgWriter;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 52.0;

/// The most meshes that are drawn.
const MOST_POINTS: usize = 400;
/// The slowest step that is drawn, as a multiple of the fastest.
const SLOWEST: f64 = 4.0;

/// The offset of a number on an axis from `low` to `high`.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value - self.low) / (self.high - self.low)
    }
}

/// The picture: one dot a mesh, a line through the Pareto front of memory and time.
pub fn svg(advice: &Advice, title: &str) -> String {
    let fastest = advice.best.first().map_or(1.0, |way| way.price.total());
    let near = |way: &&PricedStrategy| way.price.total() <= SLOWEST * fastest;
    let ways: Vec<&PricedStrategy> = advice.best.iter().filter(near).take(MOST_POINTS).collect();
    let slowest = ways.iter().map(|way| way.price.total()).fold(fastest, f64::max);
    let bytes = Scale { low: 0.0, high: advice.usable / 1e9, from: LEFT, to: WIDTH - RIGHT };
    let seconds = Scale { low: 0.0, high: 1.05 * slowest, from: HEIGHT - BOTTOM, to: TOP };
    let mut out = SvgWriter::page(WIDTH, HEIGHT);
    out.text([LEFT, 20.0], "font-size=13", title);
    axes(&mut out, bytes, seconds);
    out.polyline(frontier(&ways, bytes, seconds), "stroke=#b65d3b stroke-width=1.5");
    for (nth, way) in ways.iter().enumerate() {
        let gigabytes = way.bytes.total() / 1e9;
        let step = way.price.total();
        let used = 100.0 * way.utilisation;
        let name = way.strategy.to_string();
        let fill = if nth < 10 { "fill=#3b6fb6" } else { "fill=#bbbbbb" };
        out.element("g", "", |out| {
            out.title(format_args!("{name}: {step:.3} s, {gigabytes:.1} GB, MFU {used:.1} %"));
            out.circle([bytes.at(gigabytes), seconds.at(step)], 4.0, fill);
        });
    }
    let note = "a dot: the fastest way on one mesh (blue: the ten fastest meshes); \
        line: no mesh is both faster and smaller";
    out.text([LEFT, 38.0], "fill=#666666", note);
    out.finish()
}

/// Lines and numbers of both axes, and their units.
fn axes(out: &mut SvgWriter, bytes: Scale, seconds: Scale) {
    let bottom = HEIGHT - BOTTOM;
    let right = WIDTH - RIGHT;
    for tick in 0..=5 {
        let part = f64::from(tick) / 5.0;
        let gigabytes = part * bytes.high;
        let x = bytes.at(gigabytes);
        out.line([x, TOP, x, bottom], "stroke=#eeeeee");
        out.text([x, bottom + 18.0], "text-anchor=middle", format_args!("{gigabytes:.0}"));
        let step = part * seconds.high;
        let y = seconds.at(step);
        out.line([LEFT, y, right, y], "stroke=#eeeeee");
        out.text([LEFT - 8.0, y + 4.0], "text-anchor=end", format_args!("{step:.2}"));
    }
    let below = [f64::midpoint(LEFT, right), HEIGHT - 12.0];
    out.text(below, "text-anchor=middle", "memory of the fullest rank (GB)");
    out.upright_text([18.0, f64::midpoint(TOP, bottom)], "", "time of a step (s)");
}

/// The Pareto front of memory and time, ordered by time.
fn frontier(ways: &[&PricedStrategy], bytes: Scale, seconds: Scale) -> Vec<[f64; 2]> {
    let mut least = f64::INFINITY;
    let mut points = Vec::new();
    for way in ways {
        let held = way.bytes.total();
        if held < least {
            least = held;
            points.push([bytes.at(held / 1e9), seconds.at(way.price.total())]);
        }
    }
    points
}
