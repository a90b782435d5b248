//! rt-app's task-set files as workloads.
//!
//! A fault that rt-app refuses is refused with file, line, place and the nearest known word. A part that rt-app
//! ignores or reads in an unexpected way is reported in a note. The rest means what rt-app does (src/rt-app.c as of
//! May 2026).
//! `tools/compare-rtapp` compares both on random files. Where the model differs, a comment `Model:` says so:
//!
//! - `run` is CPU time on the simulated core; rt-app's loops, calibrated on CPU 0, come to the same.
//! - Threads share one address space. The main thread creates them in order at the start of the run; a `delay` counts from
//!   there, not from the creation of its thread (`main_app_start`).
//! - A thread has the policy of its first phase from the start; rt-app sets it when the thread's `delay` is over.
//! - On a real machine no two runs are alike. Here run times vary by some percent (`jitter`), and threads that nobody
//!   waits for begin at different times within their first period (`offset`): both are drawn from the run's seed, and
//!   neither changes how often a loop with a count goes round.
//! - Each thread has memory buffers of its own; in rt-app the instances of a task share them, and so do all that name
//!   the same `ref`.
//! - `suspend` waits under its thread's own name, as documented since May 2025. Where nobody ever resumes
//!   that name but somebody resumes the string, the string counts, as in older versions: the shipped
//!   browser and video examples need it.
//! - Everybody passes a barrier once. In rt-app the last to arrive can come round and pass it again before those whom it
//!   has woken run, which is when they count themselves out.
//! - A thread that forks a task more often than rt-app allows ends, and the run has failed when it is over ([`failure`]); in
//!   rt-app the whole process fails at once.
//! - The wakeup latency of a timer that threads share is from the instant for which its thread slept; rt-app takes the
//!   timer's, which others may have moved on meanwhile.
//! - A file whose threads never end and that names no duration runs for [`ENDLESS`] (rt-app: until it is
//!   interrupted).
//!
//! The score is phase iterations per second; run time, period, slack and wakeup latency per thread are
//! counters `rtapp.<thread>.*`.

mod build;
mod grammar;
mod json;
mod notes;
mod read;
mod thread;
mod values;

pub use build::ENDLESS;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

use schedlab_trace::{CpuSet, Duration};

use crate::measure::{Measure, measure};
use crate::model::{jitter, offset};
use crate::{
    Builder, Counters, Kind, Options, Param, Score, ScoreRule, TimeUnit, Workload, WorkloadError,
    common,
};

/// The counts that files report; each thread has its own.
pub const MEASURES: &[Measure] = &[
    measure(
        "throughput_per_s",
        "phase iterations/s",
        "iterations of phases in a second",
    ),
    measure("work", "", "iterations of phases"),
    measure(
        thread::FORK_LIMIT_REACHED,
        "",
        "threads that ended because a task had been forked as often as rt-app allows",
    ),
    measure(
        "rtapp.THREAD.iterations",
        "",
        "iterations of phases of that thread",
    ),
    measure(
        "rtapp.THREAD.run_ns_sum",
        "ns",
        "time of its run events, waits for a CPU included",
    ),
    measure(
        "rtapp.THREAD.period_ns_sum",
        "ns",
        "time of its iterations, from beginning to end",
    ),
    measure(
        "rtapp.THREAD.run_ns_mean",
        "ns",
        "run_ns_sum for each iteration",
    ),
    measure(
        "rtapp.THREAD.period_ns_mean",
        "ns",
        "period_ns_sum for each iteration",
    ),
    measure(
        "rtapp.THREAD.timed_iterations",
        "",
        "iterations with a timer, which have a slack and a wakeup latency",
    ),
    measure(
        "rtapp.THREAD.slack_ns_sum",
        "ns",
        "time left when it came to its timers (the last one of an iteration, all with `cumulative_slack`); below zero where it came too late",
    ),
    measure(
        "rtapp.THREAD.slack_ns_min",
        "ns",
        "the least of an iteration",
    ),
    measure(
        "rtapp.THREAD.wakeup_latency_ns_sum",
        "ns",
        "time from the timers until it ran",
    ),
    measure(
        "rtapp.THREAD.slack_ns_mean",
        "ns",
        "slack_ns_sum for each timed iteration",
    ),
    measure(
        "rtapp.THREAD.wakeup_latency_ns_mean",
        "ns",
        "wakeup_latency_ns_sum for each timed iteration",
    ),
];

/// Options of an rt-app file, besides the [`common`] ones. Those that are given override the file.
pub const PARAMS: &[Param] = &[
    Param {
        name: "duration",
        kind: Kind::Time {
            bare: TimeUnit::S,
            max: Duration::from_secs(1_000_000),
        },
        default: "0",
        doc: "the run ends here at the latest; 0 = as the file says",
    },
    jitter(
        "percentage by which the CPU time of every `run` is drawn shorter or longer, uniformly; 0 = as the file says",
    ),
    offset(
        "percentage of its period by which each thread begins later at most, drawn: of its first timer's, or of the `run` and `sleep` of its first phase; by default none for threads that share something with others or have a `delay`",
    ),
];

/// Why rt-app would have failed, as its threads have counted.
pub fn failure(counters: &Counters) -> Option<String> {
    // A file that is a part of a workload counts after its own name.
    let reached = counters
        .values()
        .any(|(name, n)| name.ends_with(thread::FORK_LIMIT_REACHED) && n > 0);
    reached.then(|| {
        format!(
            "a task was forked more than {} times, at which rt-app fails: fork it less often",
            thread::FORKS_MAX
        )
    })
}

/// Path and options, if `text` asks for a file: it ends in `.json` before its options, is `-` for standard input, has a
/// `/`, or is the path of something that is no folder; and does not have a model's name.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    if let Some(at) = text.find(".json:") {
        let (path, options) = text.split_at(at + ".json".len());
        return Some((path, &options[1..]));
    }
    if text.ends_with(".json") {
        return Some((text, ""));
    }
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let is_model = crate::list().iter().any(|model| model.name == name);
    // A FIFO or /dev/fd/63, as shells make them of `<(command)`, is as good as a file.
    let is_there = |path: &str| std::fs::metadata(path).is_ok_and(|there| !there.is_dir());
    if is_model {
        None
    } else if is_there(text) {
        Some((text, ""))
    } else if name == STDIN || name.contains('/') || is_there(name) {
        Some((name, options))
    } else {
        None
    }
}

/// The path that stands for standard input.
pub const STDIN: &str = "-";

/// Returns whether what is at a path can be read only once, as standard input and pipes.
pub fn is_read_once(path: &str) -> bool {
    path == STDIN || std::fs::metadata(path).is_ok_and(|there| !there.is_file())
}

/// Reads a file; the only input of this crate. Keeps an input that can be read only once for later readers.
///
/// # Errors
/// If it cannot be read.
pub fn read_file(path: &str) -> Result<Arc<str>, WorkloadError> {
    static KEPT: Mutex<BTreeMap<String, Arc<str>>> = Mutex::new(BTreeMap::new());
    if !is_read_once(path) {
        return read_anew(path);
    }
    let mut kept = KEPT.lock().expect("reading does not panic");
    if let Some(text) = kept.get(path) {
        return Ok(Arc::clone(text));
    }
    let text = read_anew(path)?;
    kept.insert(path.to_owned(), Arc::clone(&text));
    Ok(text)
}

/// Bytes that are not UTF-8 are taken as Latin-1: json-c takes any, and names only have to differ.
fn read_anew(path: &str) -> Result<Arc<str>, WorkloadError> {
    let read = if path == STDIN {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    let bytes = read.map_err(|cause| WorkloadError::Unreadable {
        path: path.to_owned(),
        cause,
    })?;
    let latin_1 = |bytes: Vec<u8>| bytes.into_iter().map(char::from).collect();
    let text = String::from_utf8(bytes).unwrap_or_else(|error| latin_1(error.into_bytes()));
    Ok(Arc::from(text))
}

/// Understands the text of a file; `file` is its name for messages.
///
/// # Errors
/// If it is no JSON, is not in rt-app's grammar, asks for what is not modelled, or for CPUs beyond
/// `nr_cpus`.
pub fn parse(
    file: &str,
    text: &str,
    options: &str,
    nr_cpus: usize,
) -> Result<Workload, WorkloadError> {
    parse_on(file, text, options, &CpuSet::all(nr_cpus))
}

pub(crate) fn parse_on(
    file: &str,
    text: &str,
    options: &str,
    allowed: &CpuSet,
) -> Result<Workload, WorkloadError> {
    let params = PARAMS.iter().chain(common()).copied();
    let options = Options::read(file, params, options)?;
    let parsed = json::parse(text).map_err(|error| WorkloadError::File {
        file: file.to_owned(),
        line: error.line,
        path: String::new(),
        message: format!("is not JSON as rt-app files are: {}", error.message),
    })?;
    let with_file = |error| match error {
        WorkloadError::File {
            line,
            path,
            message,
            ..
        } => WorkloadError::File {
            file: file.to_owned(),
            line,
            path,
            message,
        },
        other => other,
    };
    let mut understood = read::read(&parsed.root).map_err(with_file)?;
    if let Some(line) = parsed.rest {
        understood.notes.push(format!(
            "what comes after the file's last `}}`, from line {line} on, has no effect: rt-app does not read it either"
        ));
    }
    let mut builder = Builder::new(&options, allowed);
    build::build(understood, &options, &mut builder).map_err(with_file)?;
    let score = Score {
        name: "throughput_per_s",
        unit: "phase iterations/s",
        higher_is_better: true,
        rule: ScoreRule::WorkPerSecond,
    };
    builder.finish(&options, score)
}
