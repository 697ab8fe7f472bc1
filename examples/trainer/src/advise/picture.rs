//! The trade-off as SVG: for each mesh the memory of its fullest rank and the time of a step.

use crate::advise::search::{Advice, PricedStrategy};
use std::fmt::Write;

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

/// Where a number is on an axis that goes from `low` to `high`.
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

/// The picture: one dot a mesh, a line through those that nothing beats in both memory and time.
pub fn svg(advice: &Advice, title: &str) -> String {
    let fastest = advice.best.first().map_or(1.0, |way| way.price.total());
    let near = |way: &&PricedStrategy| way.price.total() <= SLOWEST * fastest;
    let ways: Vec<&PricedStrategy> = advice.best.iter().filter(near).take(MOST_POINTS).collect();
    let slowest = ways.iter().map(|way| way.price.total()).fold(fastest, f64::max);
    let bytes = Scale { low: 0.0, high: advice.usable / 1e9, from: LEFT, to: WIDTH - RIGHT };
    let seconds = Scale { low: 0.0, high: 1.05 * slowest, from: HEIGHT - BOTTOM, to: TOP };
    let mut out = open(title);
    axes(&mut out, bytes, seconds);
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#b65d3b\" stroke-width=\"1.5\"/>",
        frontier(&ways, bytes, seconds).join(" ")
    );
    for (nth, way) in ways.iter().enumerate() {
        let x = bytes.at(way.bytes.total() / 1e9);
        let y = seconds.at(way.price.total());
        let color = if nth < 10 { "#3b6fb6" } else { "#bbbbbb" };
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{color}\"><title>{}: {:.3} s, {:.1} \
             GB, MFU {:.1} %</title></circle>",
            way.strategy,
            way.price.total(),
            way.bytes.total() / 1e9,
            100.0 * way.utilisation
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"38\" fill=\"#666666\">a dot: the fastest way on one mesh (blue: the \
         ten fastest meshes); line: no mesh is both faster and smaller</text>\n</svg>"
    );
    out
}

fn open(title: &str) -> String {
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"20\" \
         font-size=\"13\">{title}</text>\n"
    )
}

/// Lines and numbers of both axes, and what they count.
fn axes(out: &mut String, bytes: Scale, seconds: Scale) {
    let bottom = HEIGHT - BOTTOM;
    for tick in 0..=5 {
        let part = f64::from(tick) / 5.0;
        let gigabytes = part * bytes.high;
        let x = bytes.at(gigabytes);
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#eeeeee\"/><text x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{gigabytes:.0}</text>",
            bottom + 18.0
        );
        let step = part * seconds.high;
        let y = seconds.at(step);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#eeeeee\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{step:.2}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">memory of the fullest rank (GB)</text>\n\
         <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">time of a step \
         (s)</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 12.0,
        f64::midpoint(TOP, bottom)
    );
}

/// The points of the ways that no other way beats in both memory and time, by time.
fn frontier(ways: &[&PricedStrategy], bytes: Scale, seconds: Scale) -> Vec<String> {
    let mut least = f64::INFINITY;
    let mut points = Vec::new();
    for way in ways {
        let held = way.bytes.total();
        if held < least {
            least = held;
            let x = bytes.at(held / 1e9);
            points.push(format!("{x:.1},{:.1}", seconds.at(way.price.total())));
        }
    }
    points
}
