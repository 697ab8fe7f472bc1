//! Shows the progress of a run: a bar on a terminal, lines elsewhere.

use crate::output;
use crate::output::PrintError;
use indicatif::{ProgressBar, ProgressStyle};
use maypole_lab::report::shares::{RunClock, ShareKind, TimeShares};
use maypole_trainer::ranks::timeline::RankActivity;
use std::io::IsTerminal;
use std::time::Instant;

/// The progress display of rank 0; other ranks show nothing.
pub(super) struct StepProgress {
    bar: ProgressBar,
    began: Instant,
    steps: u64,
    tokens: u64,
    /// Steps between lines, if lines are printed instead of a bar.
    lines: Option<u64>,
    quiet: bool,
    /// Whether ranks share cores.
    shared: bool,
}

impl StepProgress {
    pub(super) fn new(rank: usize, first: u64, steps: u64, shared: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let quiet = rank != 0;
        let bar = if terminal && !quiet {
            ProgressBar::new(steps).with_position(first)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta} left");
        bar.set_style(style.expect("the template is valid"));
        let lines = (!terminal).then_some((steps / 20).max(1));
        Self { bar, began: Instant::now(), steps: 0, tokens: 0, lines, quiet, shared }
    }

    /// Shows a finished step: its loss, its tokens, and how the time since the last such line was
    /// spent.
    pub(super) fn step(
        &mut self,
        step: u64,
        loss: f64,
        tokens: u64,
        clock: &mut RunClock,
    ) -> Result<(), PrintError> {
        self.steps += 1;
        self.tokens += tokens;
        let due = self.lines.is_none_or(|every| step.is_multiple_of(every) || self.steps == 1);
        if self.quiet || !due {
            return Ok(());
        }
        let speed = self.tokens as f64 / self.began.elapsed().as_secs_f64();
        let shares = split(&clock.lap(), self.shared);
        let message = format!("loss {loss:.4}  {speed:.0} tokens/s  {shares}");
        if self.lines.is_some() {
            return output::line(format_args!("step {step:>6}  {message}"));
        }
        self.bar.set_message(message);
        self.bar.set_position(step);
        Ok(())
    }

    /// Shows another event after a step.
    pub(super) fn say(&self, step: u64, what: &str) -> Result<(), PrintError> {
        let line = format!("after step {step}: {what}");
        match self.lines {
            _ if self.quiet => Ok(()),
            Some(_) => output::line(line),
            None => {
                self.bar.println(line);
                Ok(())
            }
        }
    }

    pub(super) fn done(&self) {
        self.bar.finish();
    }
}

/// The shares of a period in %, which sum to 100. Where ranks share cores, every share may include
/// another rank's work: a rank that waits for another stage may also wait for a core, which is not
/// the bubble of the pipeline.
pub(super) fn split(shares: &TimeShares, shared: bool) -> String {
    let bubble = ShareKind::Activity(RankActivity::Bubble);
    let name = |kind: ShareKind| match kind == bubble && shared {
        true => "waiting for other stages".to_owned(),
        false => kind.to_string(),
    };
    let parts: Vec<String> = shares
        .percentages()
        .into_iter()
        .map(|(kind, share)| format!("{} {share} %", name(kind)))
        .collect();
    let note = if shared { "  (ranks share cores: time-shared)" } else { "" };
    parts.join("  ") + note
}
