//! The workload file of a recording: its head in TOML, its body one step after another.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::WorkloadError;

/// The version of the format; a file of another one is refused.
pub const VERSION: u32 = 1;
/// The beginning of the first line that is no comment.
const MAGIC: &str = "schedlab_workload";
/// The line between the head and the body.
const RULE: &str = "---";
/// No time in a file is longer: eleven days.
const NS_MAX: u64 = 1_000_000_000_000_000;
/// Columns of the body.
const WIDTH: usize = 100;

/// Whether the text is such a file.
pub fn is_recorded(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with(MAGIC))
}

/// One thing that a task does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// `r`: runs for so many ns of CPU time.
    Run(u64),
    /// `p`: wakes the task of this number, or lets its next wait pass.
    Post(u32),
    /// `w`: waits until some task posts to it.
    Wait,
    /// `s`: sleeps for so many ns by a timer.
    Sleep(u64),
    /// `u`: sleeps by a timer until so many ns after its begin.
    Until(u64),
    /// `d`: waits so many ns for a device or for a task that is not in the file.
    Device(u64),
    /// `f`: creates the task of this number.
    Fork(u32),
    /// `y`: `sched_yield()`.
    Yield,
    /// `b`: waits at the barrier of this number.
    Meet(u32),
}

/// A workload file.
#[derive(Clone, PartialEq, Debug)]
pub struct File {
    /// All but the steps.
    pub head: Head,
    /// The actions of each task, in the order of [`Head::tasks`].
    pub steps: Vec<Vec<Step>>,
}

/// The head of the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`VERSION`].
    pub schedlab_workload: u32,
    /// A word for the program.
    pub name: String,
    /// Percentage of all CPU times.
    pub work_percent: u64,
    /// Percentage of all sleeps by a timer.
    pub think_percent: u64,
    /// Where the file comes from; absent if a person wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// Barriers, whose numbers count from 1.
    #[serde(default, rename = "barrier", skip_serializing_if = "Vec::is_empty")]
    pub barriers: Vec<Barrier>,
    /// Tasks, whose numbers count from 1.
    #[serde(rename = "task")]
    pub tasks: Vec<TaskHead>,
}

/// The recording, and what was measured in it. Times in ns.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The recorder's command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The kernel's release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Format of the source.
    pub source: String,
    /// CPUs on which the program ran.
    pub cpus: u32,
    /// Events that were read.
    pub events: u64,
    /// Events that the recorder lost.
    pub lost_events: u64,
    /// CPU time of all other tasks on the program's CPUs while it ran.
    pub others_cpu_ns: u64,
    /// CPU time of the recorder's own tasks, in ns; part of the above.
    pub recorder_cpu_ns: u64,
    /// CPU time of the model's own paths that was taken out of the program's.
    pub paths_ns: u64,
    /// The events that ended the waits of the program's tasks.
    pub waits: Waits,
    /// The counts that a replay is compared with.
    pub measured: Measured,
}

/// Times of waits by what ended them, in ns, of all tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// Another task of the file.
    pub task_ns: u64,
    /// A barrier.
    pub barrier_ns: u64,
    /// A timer whose time the call says.
    pub timer_ns: u64,
    /// An interrupt of a device or of a timer that no call explains.
    pub device_ns: u64,
    /// A task that is not in the file, such as a thread of the kernel.
    pub outside_ns: u64,
    /// Nothing that the recording has.
    pub unknown_ns: u64,
}

impl Waits {
    /// All of them.
    pub fn total_ns(&self) -> u64 {
        let all = [
            self.task_ns,
            self.barrier_ns,
            self.timer_ns,
            self.device_ns,
            self.outside_ns,
            self.unknown_ns,
        ];
        all.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// The share, from 0 to 1, that is replayed as a fixed time because its cause is not in the recording.
    pub fn not_inferred(&self) -> f64 {
        let fixed = self.outside_ns.saturating_add(self.unknown_ns);
        match self.total_ns() {
            0 => 0.0,
            total => fixed as f64 / total as f64,
        }
    }
}

/// The measures of a recording and of its replay. Times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// From when the first task runs until the last one ends.
    pub makespan_ns: u64,
    /// CPU time of all tasks.
    pub cpu_ns: u64,
    /// How often a task left its CPU.
    pub switches: u64,
    /// How often it left while it could have gone on.
    pub preemptions: u64,
    /// How often a task was woken.
    pub wakeups: u64,
    /// Median of the waits for a CPU.
    pub wait_ns_p50: u64,
    /// 90th percentile.
    pub wait_ns_p90: u64,
    /// 99th percentile.
    pub wait_ns_p99: u64,
    /// Sum.
    pub wait_ns_sum: u64,
    /// Median of the times from a wakeup until the task runs.
    pub wakeup_ns_p50: u64,
    /// 90th percentile.
    pub wakeup_ns_p90: u64,
    /// 99th percentile.
    pub wakeup_ns_p99: u64,
}

/// A barrier.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Barrier {
    /// Numbers of the tasks that meet there.
    pub tasks: Vec<u32>,
}

/// A task, without its steps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskHead {
    /// Its name as in `/proc/PID/comm`.
    pub comm: String,
    /// Tasks of one number share an address space.
    pub process: u32,
    /// Nice level.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nice: i8,
    /// Scheduling policy, as the option `policy`; absent = normal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// CPUs that it may use; absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// So many tasks do this, each all of it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threads: u32,
    /// Percentage of its CPU times, beside the whole file's.
    #[serde(default = "hundred", skip_serializing_if = "is_hundred")]
    pub work_percent: u64,
    /// By how many percent its CPU times varied from one to the next, at the median.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub jitter_percent: u64,
    /// Not of the program: it ran beside it, and the run does not wait for it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub background: bool,
    /// CPU time that was recorded, in ns.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub cpu_ns: u64,
    /// How often it left its CPU.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub switches: u64,
    /// How long it waited for a CPU, in ns.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub wait_ns: u64,
}

fn is_zero(number: &i8) -> bool {
    *number == 0
}
fn is_zero_u64(number: &u64) -> bool {
    *number == 0
}
fn is_one(number: &u32) -> bool {
    *number == 1
}
fn is_hundred(number: &u64) -> bool {
    *number == 100
}
fn is_false(flag: &bool) -> bool {
    !flag
}
fn one() -> u32 {
    1
}
fn hundred() -> u64 {
    100
}

impl File {
    /// The file's text.
    pub fn to_text(&self) -> String {
        let mut text = String::from(
            "# A workload for `schedlab sim`; docs/recording.md describes this format.\n",
        );
        text += &toml::to_string(&self.head).expect("a head has no odd values");
        text += RULE;
        text.push('\n');
        for (number, steps) in (1..).zip(&self.steps) {
            let _ = writeln!(text, "task {number}");
            let mut column = 0;
            for step in steps {
                let word = step.to_string();
                if column > 0 && column + 1 + word.len() > WIDTH {
                    text.push('\n');
                    column = 0;
                }
                if column > 0 {
                    text.push(' ');
                    column += 1;
                }
                text += &word;
                column += word.len();
            }
            if column > 0 {
                text.push('\n');
            }
        }
        text
    }

    /// Reads a file's text; `file` is its name for messages.
    ///
    /// # Errors
    /// If it is of another version or wrong; the message has the line.
    pub fn parse(file: &str, text: &str) -> Result<File, WorkloadError> {
        let wrong = |line: usize, path: String, message: String| WorkloadError::File {
            file: file.to_owned(),
            line,
            path,
            message,
        };
        let line_of = |at: usize| {
            1 + text.as_bytes()[..at.min(text.len())]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
        };
        let rule = text.lines().position(|line| line.trim_end() == RULE);
        let Some(rule) = rule else {
            let message = format!(
                "the line `{RULE}` between head and body is missing: the file is not whole"
            );
            return Err(wrong(text.lines().count().max(1), String::new(), message));
        };
        let head_len: usize = text.split_inclusive('\n').take(rule).map(str::len).sum();
        if let Ok(table) = text[..head_len].parse::<toml::Table>()
            && let Some(version) = table.get(MAGIC).and_then(toml::Value::as_integer)
            && version != i64::from(VERSION)
        {
            let message = format!(
                "is version {version} of the format, and this schedlab reads version {VERSION}: record or import anew"
            );
            return Err(wrong(1, MAGIC.to_owned(), message));
        }
        let head: Head = toml::from_str(&text[..head_len]).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(span.start));
            wrong(line, String::new(), error.message().replace('\n', " "))
        })?;
        let mut steps: Vec<Vec<Step>> = vec![Vec::new(); head.tasks.len()];
        let mut task: Option<usize> = None;
        for (index, line) in text.lines().enumerate().skip(rule + 1) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(number) = line.strip_prefix("task ") {
                let number: Option<usize> = number.trim().parse().ok();
                let known = number.filter(|number| (1..=steps.len()).contains(number));
                let Some(known) = known else {
                    let message = format!(
                        "there is no such task: the head has tasks 1 to {}",
                        steps.len()
                    );
                    return Err(wrong(index + 1, line.to_owned(), message));
                };
                task = Some(known - 1);
                continue;
            }
            for word in line.split_whitespace() {
                let Some(task) = task else {
                    return Err(wrong(
                        index + 1,
                        word.to_owned(),
                        "a line `task 1` must come first".to_owned(),
                    ));
                };
                let step = Step::read(word).ok_or_else(|| {
                    wrong(
                        index + 1,
                        word.to_owned(),
                        format!("is no step; steps are rNS, pTASK, w, sNS, uNS, dNS, fTASK, bBARRIER and y, with at most {NS_MAX} ns"),
                    )
                })?;
                steps[task].push(step);
            }
        }
        let read = File { head, steps };
        read.check()
            .map_err(|(path, message)| wrong(1, path, message))?;
        Ok(read)
    }

    /// Whether it can be run: the place and what is wrong there.
    fn check(&self) -> Result<(), (String, String)> {
        let tasks = &self.head.tasks;
        if tasks.is_empty() {
            return Err(("task".to_owned(), "there is no task".to_owned()));
        }
        let place = |number: usize| format!("task {number}");
        let is_task = |number: u32| (1..=tasks.len()).contains(&(number as usize));
        for percent in [self.head.work_percent, self.head.think_percent] {
            if percent > PERCENT_MAX {
                return Err((
                    "work_percent".to_owned(),
                    format!("{percent} is beyond {PERCENT_MAX}"),
                ));
            }
        }
        let mut forked = vec![false; tasks.len()];
        for (number, (task, steps)) in (1..).zip(tasks.iter().zip(&self.steps)) {
            if !(-20..=19).contains(&task.nice) {
                return Err((
                    place(number),
                    format!("nice is {}, not from -20 to 19", task.nice),
                ));
            }
            if !(1..=THREADS_MAX).contains(&task.threads) {
                return Err((
                    place(number),
                    format!("threads is {}, not from 1 to {THREADS_MAX}", task.threads),
                ));
            }
            if task.work_percent > PERCENT_MAX || task.jitter_percent > 100 {
                return Err((
                    place(number),
                    format!("work_percent goes to {PERCENT_MAX}, jitter_percent to 100"),
                ));
            }
            for step in steps {
                let (what, known) = match *step {
                    Step::Post(to) => (to, is_task(to)),
                    Step::Fork(child) => (child, is_task(child)),
                    Step::Meet(barrier) => (
                        barrier,
                        (1..=self.head.barriers.len()).contains(&(barrier as usize)),
                    ),
                    _ => (0, true),
                };
                if !known {
                    return Err((
                        place(number),
                        format!("`{step}`: the head has no number {what}"),
                    ));
                }
                if let Step::Fork(child) = *step
                    && std::mem::replace(&mut forked[child as usize - 1], true)
                {
                    return Err((
                        place(number),
                        format!("`{step}`: task {child} is created twice"),
                    ));
                }
            }
        }
        for (number, barrier) in (1..).zip(&self.head.barriers) {
            if barrier.tasks.is_empty() || !barrier.tasks.iter().all(|task| is_task(*task)) {
                return Err((
                    format!("barrier {number}"),
                    "its tasks are not those of the head".to_owned(),
                ));
            }
        }
        // Those that nobody creates are there from the start; all others must be reached from them.
        let mut reached: Vec<bool> = forked.iter().map(|forked| !forked).collect();
        let mut open: Vec<usize> = (0..tasks.len()).filter(|task| reached[*task]).collect();
        while let Some(task) = open.pop() {
            for step in &self.steps[task] {
                if let Step::Fork(child) = *step {
                    reached[child as usize - 1] = true;
                    open.push(child as usize - 1);
                }
            }
        }
        match reached.iter().position(|reached| !reached) {
            Some(task) => Err((
                place(task + 1),
                "only itself or its own children create it".to_owned(),
            )),
            None => Ok(()),
        }
    }

    /// Whether each task is there from the start: nobody creates it.
    pub fn is_first(&self) -> Vec<bool> {
        let mut first = vec![true; self.head.tasks.len()];
        for step in self.steps.iter().flatten() {
            if let Step::Fork(child) = *step {
                first[child as usize - 1] = false;
            }
        }
        first
    }
}

/// The greatest percentage.
pub(super) const PERCENT_MAX: u64 = 100_000;
/// Most tasks that one entry may stand for.
const THREADS_MAX: u32 = 100_000;

impl Step {
    fn read(word: &str) -> Option<Step> {
        let (letter, rest) = word.split_at_checked(1)?;
        let digits = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        let ns = || rest.parse().ok().filter(|ns| digits && *ns <= NS_MAX);
        let number = || rest.parse().ok().filter(|_| digits);
        Some(match letter {
            "r" => Step::Run(ns()?),
            "p" => Step::Post(number()?),
            "s" => Step::Sleep(ns()?),
            "u" => Step::Until(ns()?),
            "d" => Step::Device(ns()?),
            "f" => Step::Fork(number()?),
            "b" => Step::Meet(number()?),
            "w" if rest.is_empty() => Step::Wait,
            "y" if rest.is_empty() => Step::Yield,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Run(ns) => write!(f, "r{ns}"),
            Step::Post(task) => write!(f, "p{task}"),
            Step::Wait => f.write_str("w"),
            Step::Sleep(ns) => write!(f, "s{ns}"),
            Step::Until(ns) => write!(f, "u{ns}"),
            Step::Device(ns) => write!(f, "d{ns}"),
            Step::Fork(task) => write!(f, "f{task}"),
            Step::Yield => f.write_str("y"),
            Step::Meet(barrier) => write!(f, "b{barrier}"),
        }
    }
}
