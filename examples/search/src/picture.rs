//! Pictures of a search, as SVG: the curves of all trials, and parallel coordinates of their
//! settings.

use crate::run::SearchJournal;
use crate::table::{TrialRow, rows};
use maypole_pictures::writer::SvgWriter;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 52.0;

/// The most trials that are drawn.
const MOST_TRIALS: usize = 256;

fn open(title: &str, note: &str) -> SvgWriter {
    let mut out = SvgWriter::page(WIDTH, HEIGHT);
    out.text([LEFT, 20.0], "font-size=13", title);
    out.text([LEFT, 38.0], "fill=#666666", note);
    out
}

/// Draws the line of a trial, which is number `place` from the best.
fn line(
    out: &mut SvgWriter,
    journal: &SearchJournal,
    (place, row): (usize, &TrialRow),
    points: impl Iterator<Item = [f64; 2]>,
) {
    let color = color(place, row.rung, journal.rungs.len());
    out.element("g", "", |out| {
        out.title(format_args!("trial {}", row.trial));
        out.polyline(points, format_args!("stroke={color} stroke-width=1.5"));
    });
}

/// The color of a trial by its place: the best is blue, those that came far are darker.
fn color(place: usize, rung: usize, rungs: usize) -> &'static str {
    if place == 0 {
        "#3b6fb6"
    } else if rung + 1 == rungs {
        "#b65d3b"
    } else if rung > 0 {
        "#d9a58f"
    } else {
        "#cccccc"
    }
}

/// The coordinate of a number on an axis from `low` to `high`.
fn along(value: f64, [low, high]: [f64; 2], [from, to]: [f64; 2]) -> f64 {
    if high > low { from + (to - from) * (value - low) / (high - low) } else { from }
}

fn ends(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values
        .filter(|value| value.is_finite())
        .fold([f64::INFINITY, f64::NEG_INFINITY], |ends, value| {
            [ends[0].min(value), ends[1].max(value)]
        })
}

/// The training loss of every trial by the tokens that it has seen, on a logarithmic axis.
pub fn curves(journal: &SearchJournal) -> String {
    let mut out = open(
        "training loss of all trials",
        "blue: the best; brown: in the last rung; pale: in a later rung than the first; grey: in \
         the first alone",
    );
    let points = |trial: usize| {
        let rungs = journal.rungs.iter();
        let of = rungs.flat_map(move |rung| {
            rung.outcomes.iter().filter(move |it| it.0 == trial).flat_map(|it| &it.1.curve)
        });
        of.map(|(tokens, loss)| ((*tokens as f64).log2(), *loss)).collect::<Vec<_>>()
    };
    let order = rows(journal);
    let all: Vec<_> = order.iter().take(MOST_TRIALS).map(|row| points(row.trial)).collect();
    let tokens = ends(all.iter().flatten().map(|point| point.0));
    let losses = ends(all.iter().flatten().map(|point| point.1));
    if losses[0] > losses[1] {
        return out.finish();
    }
    let across = [LEFT, WIDTH - RIGHT];
    let up = [HEIGHT - BOTTOM, TOP];
    for tick in 0..=4 {
        let part = f64::from(tick) / 4.0;
        let loss = losses[0] + part * (losses[1] - losses[0]);
        let y = along(loss, losses, up);
        out.line([LEFT, y, WIDTH - RIGHT, y], "stroke=#eeeeee");
        out.text([LEFT - 8.0, y + 4.0], "text-anchor=end", format_args!("{loss:.2}"));
        let seen = tokens[0] + part * (tokens[1] - tokens[0]);
        let below = [along(seen, tokens, across), HEIGHT - BOTTOM + 18.0];
        out.text(below, "text-anchor=middle", format_args!("{:.0}", seen.exp2()));
    }
    for (trial, points) in order.iter().enumerate().zip(&all).rev() {
        let at =
            |(seen, loss): &(f64, f64)| [along(*seen, tokens, across), along(*loss, losses, up)];
        line(&mut out, journal, trial, points.iter().map(at));
    }
    let below = [f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 12.0];
    out.text(below, "text-anchor=middle", "tokens of the trial (logarithmic)");
    out.upright_text([16.0, f64::midpoint(TOP, HEIGHT - BOTTOM)], "", "loss (nats a token)");
    out.finish()
}

/// The axes of the parallel coordinates.
const AXES: [&str; 6] = ["rate (log)", "warm-up", "width", "rows", "shape", "loss"];

/// A line a trial through its settings and its loss.
pub fn coordinates(journal: &SearchJournal) -> String {
    let mut out = open(
        "settings of all trials, and the loss of each where it ended",
        "one line a trial; blue: the best; brown: in the last rung; grey: in the first alone; \
         without a loss: at the top",
    );
    let order: Vec<TrialRow> = rows(journal).into_iter().take(MOST_TRIALS).collect();
    let all: Vec<[f64; 6]> = order.iter().map(|row| numbers(journal, row)).collect();
    let scales: Vec<[f64; 2]> =
        (0..AXES.len()).map(|axis| ends(all.iter().map(|numbers| numbers[axis]))).collect();
    let x = |axis: usize| along(axis as f64, [0.0, 5.0], [LEFT, WIDTH - RIGHT - 40.0]);
    let up = [HEIGHT - BOTTOM, TOP + 8.0];
    for (axis, name) in AXES.iter().enumerate() {
        let x = x(axis);
        let [low, high] = scales[axis].map(|end| label(axis, end));
        out.line([x, up[0], x, up[1]], "stroke=#888888");
        out.text([x, HEIGHT - 16.0], "text-anchor=middle", name);
        out.text([x + 4.0, up[0] + 14.0], "fill=#666666", low);
        out.text([x + 4.0, up[1] - 2.0], "fill=#666666", high);
    }
    for (trial, numbers) in order.iter().enumerate().zip(&all).rev() {
        let at = |(axis, value): (usize, &f64)| {
            let y = if value.is_finite() { along(*value, scales[axis], up) } else { up[1] };
            [x(axis), y]
        };
        line(&mut out, journal, trial, numbers.iter().enumerate().map(at));
    }
    out.finish()
}

/// The coordinates of a trial.
fn numbers(journal: &SearchJournal, row: &TrialRow) -> [f64; 6] {
    let settings = journal.space.settings(row.trial);
    let shape = journal.space.shape.iter().position(|shape| *shape == settings.shape);
    [
        settings.rate.log10(),
        settings.warm_up,
        settings.width as f64,
        settings.rows as f64,
        shape.unwrap_or(0) as f64,
        row.outcome.loss.unwrap_or(f64::INFINITY),
    ]
}

/// The number at an end of an axis.
fn label(axis: usize, end: f64) -> String {
    match axis {
        _ if !end.is_finite() => "none".to_owned(),
        0 => format!("{:.1e}", 10f64.powf(end)),
        1 => format!("{end:.2}"),
        5 => format!("{end:.3}"),
        _ => format!("{end:.0}"),
    }
}
