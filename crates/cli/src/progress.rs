//! A progress bar on standard error, where it is a terminal and the work takes longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nobody wants to see a bar for less than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Progress over a known number of runs.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    /// Begins; nothing is shown yet.
    pub fn new(runs: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed} {msg}")
            .expect("a constant template is valid");
        let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::hidden());
        bar.set_style(style);
        Progress {
            bar,
            started: Instant::now(),
            shown: false,
        }
    }

    /// So many runs are done. To be called now and then also when nothing changed.
    pub fn update(&mut self, done: usize) {
        self.bar.set_position(done as u64);
        if !self.shown && self.started.elapsed() >= PATIENCE {
            // A target that is no terminal draws nothing.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
