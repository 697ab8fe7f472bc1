//! Pictures of a run, as SVG: the loss by step, and the activities of each rank over time.

use maypole_pictures::writer::SvgWriter;
use maypole_trainer::ranks::timeline::{RankActivity, TimeSpan};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
/// Height of a bar of communication in the picture's units.
const EDGE: f64 = 7.0;

fn open(height: f64, title: &str) -> SvgWriter {
    let mut out = SvgWriter::page(WIDTH, height);
    out.text([LEFT, 20.0], "font-size=13", title);
    out
}

/// The most points of a curve: more than there are dots across a screen.
const MOST_POINTS: usize = 4_096;

/// The losses of a run as fewer than 4,096 points. Each point is the mean of the finite losses of 1,
/// 2, 4, 8 ... steps; this number doubles as the run grows.
#[derive(Clone, Debug, PartialEq)]
pub struct LossCurve {
    first: u64,
    steps: u64,
    /// Steps of a point.
    each: u64,
    points: Vec<f64>,
    /// The sum of the finite losses since the last point, and their number.
    coming: (f64, u64),
}

impl LossCurve {
    /// A curve without steps. The step that is added first has number `first`.
    pub fn new(first: u64) -> Self {
        Self { first, steps: 0, each: 1, points: Vec::new(), coming: (0.0, 0) }
    }

    /// Adds the loss of the next step.
    pub fn push(&mut self, loss: f64) {
        if loss.is_finite() {
            let (sum, count) = self.coming;
            self.coming = (sum + loss, count + 1);
        }
        self.steps += 1;
        if self.steps.is_multiple_of(self.each) {
            self.points.push(mean(std::mem::take(&mut self.coming)));
        }
        if self.points.len() == MOST_POINTS {
            let pair = |pair: &[f64; 2]| {
                let finite = pair.iter().copied().filter(|loss| loss.is_finite());
                mean(finite.fold((0.0, 0), |(sum, count), loss| (sum + loss, count + 1)))
            };
            self.points = self.points.as_chunks::<2>().0.iter().map(pair).collect();
            self.each *= 2;
        }
    }

    /// The number of the step that is added next.
    pub fn next(&self) -> u64 {
        self.first + self.steps
    }

    fn points(&self) -> Vec<f64> {
        let mut points = self.points.clone();
        points.extend((self.coming.1 > 0).then(|| mean(self.coming)));
        points
    }
}

/// NaN if there are no finite losses.
fn mean((sum, count): (f64, u64)) -> f64 {
    sum / count as f64
}

/// Draws the losses by step.
pub fn curve(losses: &LossCurve, title: &str) -> String {
    let first = losses.first;
    let last = losses.next().saturating_sub(1);
    let losses = losses.points();
    let height = 360.0;
    let top = 36.0;
    let bottom = 28.0;
    let mut out = open(height, title);
    let finite = || losses.iter().copied().filter(|loss| loss.is_finite());
    let least = finite().fold(f64::INFINITY, f64::min);
    let most = finite().fold(f64::NEG_INFINITY, f64::max);
    if least > most {
        return out.finish();
    }
    let low = least.floor();
    let high = most.ceil().max(least.floor() + 1.0);
    let x =
        |nth: usize| LEFT + (WIDTH - LEFT - RIGHT) * nth as f64 / (losses.len() - 1).max(1) as f64;
    let y = |loss: f64| top + (height - top - bottom) * (high - loss) / (high - low);
    let right = WIDTH - RIGHT;
    for line in low as i64..=high as i64 {
        let y = y(line as f64);
        out.line([LEFT, y, right, y], "stroke=#dddddd");
        out.text([LEFT - 8.0, y + 4.0], "text-anchor=end", line);
    }
    let points = losses.iter().enumerate().filter(|(_, loss)| loss.is_finite());
    let points = points.map(|(nth, loss)| [x(nth), y(*loss)]);
    out.polyline(points, "stroke=#3b6fb6 stroke-width=1.5");
    let below = height - 8.0;
    out.text([LEFT, below], "", format_args!("step {first}"));
    out.text([f64::midpoint(LEFT, right), below], "text-anchor=middle", "step");
    out.text([right, below], "text-anchor=end", format_args!("step {last}"));
    out.upright_text([14.0, height / 2.0], "", "nats a token");
    out.finish()
}

/// Draws the spans of each rank, one line a rank. A span within another one, as a wait within a
/// pass, is drawn on top; communication is a thin bar at the lower edge.
pub fn timeline(ranks: &[Vec<TimeSpan>], title: &str) -> String {
    let row = 28.0;
    let top = 34.0;
    let height = top + row * ranks.len() as f64 + 30.0;
    let mut out = open(height, title);
    let all = || ranks.iter().flatten();
    let start = all().map(|span| span.start).min().unwrap_or_default();
    let length =
        (all().map(|span| span.end).max().unwrap_or_default() - start).as_secs_f64().max(1e-9);
    let scale = (WIDTH - LEFT - RIGHT) / length;
    for (rank, spans) in ranks.iter().enumerate() {
        let y = top + row * rank as f64;
        out.text([8.0, y + 16.0], "", format_args!("rank {rank}"));
        let mut spans: Vec<&TimeSpan> = spans.iter().collect();
        let beside = |span: &TimeSpan| span.kind == RankActivity::Communication;
        spans.sort_by_key(|span| (beside(span), std::cmp::Reverse(span.end - span.start)));
        for span in spans {
            let x = LEFT + (span.start - start).as_secs_f64() * scale;
            let wide = (span.end - span.start).as_secs_f64() * scale;
            let tall = if beside(span) { EDGE } else { row - 4.0 };
            let style = format!("fill={}", colour(span.kind));
            out.rect([x, y + row - 4.0 - tall, wide, tall], style);
        }
    }
    let y = height - 10.0;
    let mut x = LEFT;
    for kind in RankActivity::ALL {
        out.rect([x, y - 9.0, 10.0, 10.0], format_args!("fill={}", colour(kind)));
        out.text([x + 14.0, y], "", kind.name());
        x += 36.0 + 6.5 * kind.name().len() as f64;
    }
    let time = format!("time: {:.1} ms in all", length * 1e3);
    out.text([WIDTH - RIGHT, 20.0], "text-anchor=end", time);
    out.finish()
}

fn colour(kind: RankActivity) -> &'static str {
    match kind {
        RankActivity::Forward => "#3b6fb6",
        RankActivity::Backward => "#3f8f5b",
        RankActivity::Update => "#8a6bb0",
        RankActivity::Wait => "#c8553d",
        RankActivity::Bubble => "#d9d9d9",
        RankActivity::Moving => "#5fb3b3",
        RankActivity::Saving => "#8c6d46",
        RankActivity::Validation => "#444444",
        RankActivity::Communication => "#e0a526",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_step_is_a_point_and_every_span_a_box() {
        let of = |first, losses: &[f64]| {
            let mut curve = LossCurve::new(first);
            losses.iter().for_each(|loss| curve.push(*loss));
            curve
        };
        let drawn = curve(&of(10, &[5.5, 3.25, f64::NAN, 2.0]), "loss <now>");
        let points = drawn.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(points.split(' ').count(), 3, "a loss that is not a number is no point");
        assert!(
            drawn.contains("step 10<")
                && drawn.contains("step 13<")
                && drawn.contains("loss &lt;now&gt;")
        );
        assert!(curve(&of(0, &[]), "").ends_with("</svg>\n"));
        let span = |kind, start, end| TimeSpan {
            kind,
            start: Duration::from_millis(start),
            end: Duration::from_millis(end),
        };
        let spans = vec![
            span(RankActivity::Communication, 0, 6),
            span(RankActivity::Wait, 1, 2),
            span(RankActivity::Forward, 0, 5),
        ];
        let drawn = timeline(&[spans, vec![]], "");
        assert_eq!(drawn.matches("<rect").count(), 1 + 3 + RankActivity::ALL.len());
        let place = |kind| drawn.find(&format!("fill=\"{}\"", colour(kind))).unwrap();
        assert!(
            place(RankActivity::Forward) < place(RankActivity::Wait),
            "a wait is drawn over the pass that it is in"
        );
        assert!(
            place(RankActivity::Wait) < place(RankActivity::Communication),
            "communication is drawn last"
        );
    }

    #[test]
    fn a_long_run_is_thinned_and_its_last_loss_stays() {
        let mut long = LossCurve::new(1);
        for step in 0..1_000_000u32 {
            long.push(if step % 2 == 0 { f64::NAN } else { 1.0 + 2.0 * f64::from(step % 4) });
        }
        assert!(long.points.capacity() <= 2 * MOST_POINTS, "{}", long.points.capacity());
        assert!(long.points.len() >= MOST_POINTS / 4, "{}", long.points.len());
        // Odd steps are 3 and 7 in turn.
        assert!(long.points.iter().all(|point| (point - 5.0).abs() < 1e-9), "{:?}", long.points);
        assert_eq!(long.next(), 1_000_001);
        let drawn = curve(&long, "");
        assert!(drawn.contains(">step 1<") && drawn.contains(">step 1000000<"));
    }
}
