//! Shows the progress of a run: a bar on a terminal, lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use maypole_trainer::ranks::timeline::{RankActivity, TimeSpan, shares};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The progress display of rank 0; other ranks show nothing.
pub(crate) struct StepProgress {
    bar: ProgressBar,
    began: Instant,
    steps: u64,
    tokens: u64,
    /// Lines instead of a bar: one every so many steps.
    lines: Option<u64>,
    quiet: bool,
    /// Whether ranks share cores.
    shared: bool,
}

impl StepProgress {
    pub(crate) fn new(rank: usize, first: u64, steps: u64, shared: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let quiet = rank != 0;
        let bar = if terminal && !quiet {
            ProgressBar::new(steps).with_position(first)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta} left");
        bar.set_style(style.expect("the template is right"));
        let lines = (!terminal).then_some((steps / 20).max(1));
        Self { bar, began: Instant::now(), steps: 0, tokens: 0, lines, quiet, shared }
    }

    /// Shows a finished step: its loss, its tokens, and the shares of its time.
    pub(crate) fn step(
        &mut self,
        step: u64,
        loss: f64,
        tokens: u64,
        spans: &[TimeSpan],
        wall: Duration,
    ) {
        self.steps += 1;
        self.tokens += tokens;
        let speed = self.tokens as f64 / self.began.elapsed().as_secs_f64();
        let message =
            format!("loss {loss:.4}  {speed:.0} tokens/s  {}", split(spans, wall, self.shared));
        if !self.quiet
            && self.lines.is_some_and(|every| step.is_multiple_of(every) || self.steps == 1)
        {
            println!("step {step:>6}  {message}");
        }
        self.bar.set_message(message);
        self.bar.set_position(step);
    }

    /// Shows another event after a step.
    pub(crate) fn say(&self, step: u64, what: &str) {
        let line = format!("after step {step}: {what}");
        match self.lines {
            _ if self.quiet => {}
            Some(_) => println!("{line}"),
            None => self.bar.println(line),
        }
    }

    pub(crate) fn done(&self) {
        self.bar.finish();
    }
}

/// The shares of a step's time. Where ranks share cores, a rank that waits for another stage may
/// wait for a core that another rank has. That time is not the bubble of the pipeline.
pub(crate) fn split(spans: &[TimeSpan], wall: Duration, shared: bool) -> String {
    let [.., wait, bubble, _] = shares(spans);
    let share = |part: Duration| 100.0 * part.as_secs_f64() / wall.as_secs_f64().max(1e-9);
    let compute = 100.0 - share(wait) - share(bubble);
    let exposed = RankActivity::Wait.name();
    let idle = share(bubble);
    let idle = match shared && idle > 0.0 {
        true => format!("waiting for other stages {idle:.0} % (ranks share cores: time-shared)"),
        false => format!("{} {idle:.0} %", RankActivity::Bubble.name()),
    };
    format!("compute {compute:.0} %  {exposed} {:.0} %  {idle}", share(wait))
}
