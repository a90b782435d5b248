//! Progress on standard error, where it is a terminal and the work takes longer than a second.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A shorter command shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// There may be thousands of runs to look at, and as many that end in a second.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads and checks what is to be run, and shows for how long already: a file may be large, and a pipe slow.
pub fn reading<T>(work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    let show = move || {
        if is_done.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let style = ProgressStyle::with_template("reading, {elapsed}")
            .expect("a constant template is valid");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
            .with_style(style)
            .with_elapsed(PATIENCE);
        while is_done.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            bar.tick();
        }
        bar.finish_and_clear();
    };
    thread::scope(|scope| {
        scope.spawn(show);
        let result = work();
        drop(done);
        result
    })
}

/// Progress over a known number of runs.
pub struct Progress {
    bar: ProgressBar,
    runs: usize,
    started: Instant,
    shown: bool,
    looked: Option<Instant>,
    /// The last known state of the runs under way.
    known: Option<f64>,
}

/// The steps of a run that the bar distinguishes.
const PARTS: f64 = 1_000.0;

impl Progress {
    /// Begins; nothing is shown yet.
    pub fn new(runs: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {msg}, {elapsed}")
            .expect("a constant template is valid");
        let parts = (runs as f64 * PARTS) as u64;
        let bar = ProgressBar::with_draw_target(Some(parts), ProgressDrawTarget::hidden());
        bar.set_style(style);
        bar.set_message(told(0, runs, None));
        Progress {
            bar,
            runs,
            started: Instant::now(),
            shown: false,
            looked: None,
            known: None,
        }
    }

    /// So many runs are done. To be called now and then also when nothing changed.
    pub fn update(&mut self, done: usize) {
        self.update_with(done, || None);
    }

    /// So many runs are done, and of those under way so much together, where that is known: a half and a quarter are 0.75.
    pub fn update_with(&mut self, done: usize, under_way: impl FnOnce() -> Option<f64>) {
        if !self.shown && self.started.elapsed() >= PATIENCE {
            // A target that is no terminal draws nothing.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        let is_due = |looked: Instant| looked.elapsed() >= PAUSE;
        if self.shown && self.looked.is_none_or(is_due) {
            // Once something is known of a run, it is of the next one, too.
            self.known = under_way().or(self.known.and(Some(0.0)));
            let under_way = self.known;
            let parts = (done as f64 + under_way.unwrap_or(0.0)) * PARTS;
            self.bar.set_message(told(done, self.runs, under_way));
            self.bar.set_position(parts as u64);
            self.looked = Some(Instant::now());
        }
        self.bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Progress over stages whose number of runs becomes known on the way.
pub struct Stages {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Stages {
    /// Begins; nothing is shown yet.
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:30} {msg}, {elapsed}")
            .expect("a constant template is valid");
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::hidden());
        bar.set_style(style);
        Stages {
            bar,
            started: Instant::now(),
            shown: false,
        }
    }

    /// So many runs are done, of so many or of an unknown number (0). To be called now and then also when nothing changed.
    pub fn update(&mut self, what: &str, done: u64, of: u64) {
        if !self.shown && self.started.elapsed() >= PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_length(of.max(done).max(1));
        self.bar.set_position(done);
        self.bar.set_message(match of {
            0 => format!("{what}, {done} runs"),
            of => format!("{what}, {done}/{} runs", of.max(done)),
        });
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns how many runs are done, and how much that is of everything if more is known.
fn told(done: usize, runs: usize, under_way: Option<f64>) -> String {
    match under_way {
        None => format!("{done}/{runs} runs"),
        Some(more) => {
            let percent = 100.0 * (done as f64 + more) / runs as f64;
            format!("{done}/{runs} runs, {:.0} %", percent.floor())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn a_part_of_a_run_counts_where_it_is_known() {
        assert_eq!(told(0, 1, None), "0/1 runs");
        assert_eq!(told(0, 1, Some(0.379)), "0/1 runs, 37 %");
        assert_eq!(told(3, 10, Some(0.75)), "3/10 runs, 37 %");
        // Nothing is over before it is.
        assert_eq!(told(9, 10, Some(0.999)), "9/10 runs, 99 %");
    }
}
