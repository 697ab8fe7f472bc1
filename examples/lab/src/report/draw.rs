//! Pictures of a pipeline: one line for each rank, time to the right. Gaps are the bubble.
//!
//! What it does: draws a [`PipelineTrace`], simulated or measured, as text and as SVG. What is
//! sharded, which collective runs where, cost: nothing.

use crate::replay::TraceFigures;
use maypole_pictures::writer::SvgWriter;
use maypole_trainer::pipeline_parallel::plan::PassKind;
use maypole_trainer::pipeline_parallel::trace::{PassSpan, PipelineTrace};
use std::fmt::Write;

/// The meaning of the signs of [`text`].
pub const LEGEND: &str = "\
0 1 2 ...: forward pass of this micro-batch (after 9 again 0); a b c ...: backward pass of \
micro-batch 0 1 2 ...;
.: the rank waits. A line a stage; time runs to the right.";

/// Returns the trace as text of `columns` columns, one line for each stage of a rank. A forward
/// pass is the last digit of its micro-batch's number; a backward pass is a letter: `a` for
/// micro-batch 0, `b` for 1, and after `z` again `a`; `.` is waiting.
///
/// # Panics
/// If there are no columns.
///
/// ```
/// use maypole_lab::report::draw::text;
/// use maypole_trainer::pipeline_parallel::plan::PipelineSchedule;
/// use maypole_lab::replay::{TraceFigures, equal_stages, simulate};
/// let plan = PipelineSchedule::OneForwardOneBackward.plan(2, 3).unwrap();
/// let trace = simulate(&plan, equal_stages(&plan)).unwrap();
/// assert_eq!(text(&trace, 12), "rank 0  01..aa2bb.cc\nrank 1  .0aa1bb2cc..\n");
/// ```
pub fn text(trace: &PipelineTrace, columns: usize) -> String {
    assert!(columns > 0, "a picture has columns");
    let length = trace.length();
    let column = |time: f64| ((time / length * columns as f64).round() as usize).min(columns);
    let mut lines = vec![vec!['.'; columns]; trace.ranks * trace.chunks];
    for span in &trace.spans {
        let line = &mut lines[span.rank * trace.chunks + span.op.chunk];
        line[column(span.start)..column(span.end)].fill(letter(span));
    }
    let mut out = String::new();
    for (nth, line) in lines.into_iter().enumerate() {
        let is_first = nth.is_multiple_of(trace.chunks);
        let name = if is_first { format!("rank {}", nth / trace.chunks) } else { String::new() };
        let _ = writeln!(out, "{name:<7} {}", line.into_iter().collect::<String>());
    }
    out
}

fn letter(span: &PassSpan) -> char {
    let (first, count) = if span.op.pass == PassKind::Forward { (b'0', 10) } else { (b'a', 26) };
    char::from(first + (span.op.micro % count) as u8)
}

/// Returns the trace as an SVG picture, with `title` above it.
pub fn svg(trace: &PipelineTrace, title: &str) -> String {
    let width = 960.0;
    let row = 28.0;
    let left = 64.0;
    let top = 34.0;
    let height = top + row * trace.ranks as f64 + 30.0;
    let wide = width - left - 12.0;
    let mut out = SvgWriter::page(width, height);
    let idle = 100.0 * trace.idle();
    out.text([left, 20.0], "font-size=13", format_args!("{title} (idle {idle:.1} %)"));
    for rank in 0..trace.ranks {
        let y = top + row * rank as f64;
        out.text([8.0, y + 17.0], "", format_args!("rank {rank}"));
        out.rect([left, y, wide, row - 4.0], "fill=#eeeeee");
    }
    for span in &trace.spans {
        let scale = wide / trace.length();
        let x = left + span.start * scale;
        let y = top + row * span.rank as f64;
        let wide = (span.end - span.start) * scale;
        let fill = shade(span.op.pass, span.op.chunk);
        out.rect([x, y, wide, row - 4.0], format_args!("fill={fill} stroke=#ffffff"));
        if wide > 9.0 {
            let style = "font-size=11 text-anchor=middle fill=#ffffff";
            out.text([x + wide / 2.0, y + 16.0], style, span.op.micro);
        }
    }
    legend(&mut out, trace, [left, height - 9.0, width - 12.0]);
    out.finish()
}

/// Writes the meaning of the colours and numbers, from `x` on, and the name of the axis, which ends
/// at `right`.
fn legend(out: &mut SvgWriter, trace: &PipelineTrace, [mut x, y, right]: [f64; 3]) {
    let stages = ["", ", second stage of the rank", ", later stages"];
    for (nth, stage) in stages.into_iter().enumerate().take(trace.chunks) {
        for (pass, name) in [(PassKind::Forward, "forward"), (PassKind::Backward, "backward")] {
            let name = format!("{name}{stage}");
            out.rect([x, y - 9.0, 10.0, 10.0], format_args!("fill={}", shade(pass, nth)));
            out.text([x + 14.0, y], "font-size=11", &name);
            x += 26.0 + 5.6 * name.len() as f64;
        }
    }
    out.text([x, y], "font-size=11", "number: micro-batch; grey: waiting");
    out.text([right, y], "font-size=11 text-anchor=end", "time \u{2192}");
}

/// Blue forward, green backward, darker for each further stage of the rank.
fn shade(pass: PassKind, stage: usize) -> &'static str {
    let shades = match pass {
        PassKind::Forward => ["#3b6fb6", "#27507f", "#1a3859"],
        PassKind::Backward => ["#3f8f5b", "#2c6741", "#1d482d"],
    };
    shades[stage.min(2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{equal_stages, simulate};
    use maypole_trainer::pipeline_parallel::plan::{PipelineSchedule, StagePass};

    fn trace(schedule: PipelineSchedule) -> PipelineTrace {
        let plan = schedule.plan(2, 4).unwrap();
        simulate(&plan, equal_stages(&plan)).unwrap()
    }

    #[test]
    fn the_picture_of_gpipe() {
        let drawn = text(&trace(PipelineSchedule::GPipe), 15);
        assert_eq!(drawn, "rank 0  0123...aabbccdd\nrank 1  .0123aabbccdd..\n");
    }

    #[test]
    fn the_picture_of_interleaving_has_a_line_a_stage() {
        let drawn = text(&trace(PipelineSchedule::Interleaved(2)), 27);
        assert_eq!(drawn.lines().count(), 4);
        // A column is half a unit of time. Each rank is idle for 1.5 of 13.5 units: 3 columns.
        let dots = |line: &str| line.matches('.').count();
        let idle: usize = drawn.lines().map(dots).sum::<usize>() - 2 * 27;
        assert_eq!(idle, 2 * 3);
    }

    /// One pass over the spans, and not one for each line.
    #[test]
    fn a_picture_of_many_ranks_takes_little_time() {
        let computed = || -> u64 {
            let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        };
        let ranks = 50_000;
        let op = StagePass { pass: PassKind::Forward, micro: 0, chunk: 0 };
        let span = |at: usize| {
            let start = (at % 4) as f64;
            PassSpan { rank: at / 4, op, start, end: start + 1.0, work: 1.0 }
        };
        let spans = (0..4 * ranks).map(span).collect();
        let trace = PipelineTrace { ranks, chunks: 1, spans };
        let start = computed();
        let drawn = text(&trace, 4);
        let took = (computed() - start) / 1_000_000;
        assert_eq!(drawn.lines().count(), ranks);
        assert!(took < 2000, "{took} ms");
    }

    #[test]
    fn every_operation_is_a_box_of_the_svg() {
        let drawn = svg(&trace(PipelineSchedule::OneForwardOneBackward), "1F1B <p=2>");
        assert_eq!(drawn.matches("stroke").count(), 2 * 2 * 4);
        assert!(drawn.contains("1F1B &lt;p=2&gt; (idle 20.0 %)"));
        for meaning in [">forward<", ">backward<", "number: micro-batch", "time"] {
            assert!(drawn.contains(meaning), "the legend says {meaning}");
        }
    }
}
