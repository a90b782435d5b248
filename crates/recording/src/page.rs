//! Writes a recording, and its comparison with a replay, as text of 80 columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schedlab_trace::counted;
use schedlab_workload::recorded::{File, Measured, NOT_INFERRED_MAX, Step};

use crate::tally::{OfTask, Replayed};

/// Lines of a list of tasks.
const ROWS_MAX: usize = 20;

/// A time with three digits and the unit that suits it.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.*} us", digits(ns, 1_000), ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.*} ms", digits(ns, 1_000_000), ns as f64 / 1e6),
        _ => format!("{:.*} s", digits(ns, 1_000_000_000), ns as f64 / 1e9),
    }
}

fn digits(ns: u64, unit: u64) -> usize {
    match ns / unit {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    }
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Tasks of one name.
#[derive(Clone, Copy, Default)]
struct Named {
    tasks: u32,
    of: OfTask,
    steps: [u64; 4],
}

/// The program's tasks by name, with the most CPU time first.
fn by_name(file: &File, only: Option<&str>) -> Vec<(String, Named)> {
    let mut names: BTreeMap<&str, Named> = BTreeMap::new();
    for (task, steps) in file.head.tasks.iter().zip(&file.steps) {
        if task.background || only.is_some_and(|only| !task.comm.contains(only)) {
            continue;
        }
        let named = names.entry(&task.comm).or_default();
        named.tasks += task.threads;
        named
            .of
            .add(OfTask::of(task.cpu_ns, task.switches, task.wait_ns));
        for step in steps {
            match step {
                Step::Wait | Step::Meet(_) => named.steps[0] += 1,
                Step::Sleep(_) | Step::Until(_) => named.steps[1] += 1,
                Step::Device(_) => named.steps[2] += 1,
                Step::Post(_) => named.steps[3] += 1,
                _ => {}
            }
        }
    }
    let mut names: Vec<(String, Named)> = names
        .into_iter()
        .map(|(name, of)| (name.to_owned(), of))
        .collect();
    names.sort_by_key(|(_, named)| std::cmp::Reverse(named.of.cpu_ns));
    names
}

/// Describes the recording of a workload file: program, losses, waits, tasks. `only` keeps tasks whose names contain it.
pub fn show(name: &str, file: &File, only: Option<&str>) -> String {
    let mut text = String::new();
    let head = &file.head;
    let of = |background| {
        let tasks = head
            .tasks
            .iter()
            .filter(move |task| task.background == background);
        tasks.map(|task| u64::from(task.threads)).sum::<u64>()
    };
    let (members, others) = (of(false), of(true));
    let steps: usize = file.steps.iter().map(Vec::len).sum();
    let (tasks, steps) = (counted(members, "task"), counted(steps as u64, "step"));
    let _ = writeln!(text, "{name}");
    let _ = writeln!(
        text,
        "  program      {}: {tasks} ({others} beside it), {steps}",
        head.name
    );
    if let Some(recorded) = &head.recorded {
        let measured = &recorded.measured;
        if let Some(command) = &recorded.command {
            let _ = writeln!(text, "  recorder     {}", cut(command, 65));
        }
        let kernel = recorded.kernel.as_deref().unwrap_or("unknown");
        let _ = writeln!(
            text,
            "  source       {}, Linux {}, {} used",
            recorded.source,
            cut(kernel, 24),
            counted(recorded.cpus, "CPU")
        );
        let _ = writeln!(
            text,
            "  events       {} read, {} lost",
            recorded.events, recorded.lost_events
        );
        let second = measured.makespan_ns.max(1) as f64 / 1e9;
        let _ = writeln!(
            text,
            "  makespan     {}, {} of CPU time, {:.0} switches/s ({:.0} % preemptions)",
            time(measured.makespan_ns),
            time(measured.cpu_ns),
            measured.switches as f64 / second,
            percent(measured.preemptions, measured.switches)
        );
        let _ = writeln!(
            text,
            "  others       took {} of CPU time there, the recorder {} of it",
            time(recorded.others_cpu_ns),
            time(recorded.recorder_cpu_ns)
        );
        let waits = &recorded.waits;
        let total = waits.total_ns();
        let _ = writeln!(text, "  waits        {} in all, ended by", time(total));
        for (what, ns) in [
            ("a task of the program", waits.task_ns),
            ("a barrier", waits.barrier_ns),
            ("a timer", waits.timer_ns),
            ("an interrupt, of a device or unexplained", waits.device_ns),
            ("a task outside (kept as a fixed time)", waits.outside_ns),
            ("nothing in the recording (fixed, too)", waits.unknown_ns),
        ] {
            if ns > 0 {
                let _ = writeln!(text, "    {:>5.1} %    {what}", percent(ns, total));
            }
        }
    }
    let _ = writeln!(
        text,
        "\n{:<15} {:>5} {:>9} {:>9} {:>8} {:>7} {:>6} {:>6} {:>7}",
        "TASK", "TASKS", "CPU", "CPU WAIT", "SWITCHES", "WAITS", "SLEEPS", "FIXED", "WAKES"
    );
    let names = by_name(file, only);
    for (name, named) in names.iter().take(ROWS_MAX) {
        let [waits, sleeps, fixed, wakes] = named.steps;
        let _ = writeln!(
            text,
            "{:<15} {:>5} {:>9} {:>9} {:>8} {:>7} {:>6} {:>6} {:>7}",
            cut(name, 15),
            named.tasks,
            time(named.of.cpu_ns),
            time(named.of.wait_ns),
            named.of.switches,
            waits,
            sleeps,
            fixed,
            wakes
        );
    }
    if names.len() > ROWS_MAX {
        let more = counted((names.len() - ROWS_MAX) as u64, "more name");
        let _ = writeln!(text, "and {more}");
    }
    text
}

/// The warning where the recorder lost events, beside those that were read.
pub fn lost(lost: u64, read: u64) -> Option<String> {
    (lost > 0).then(|| {
        let all = counted(lost + read, "event");
        format!("the recorder lost {lost} of {all}; all that is made from this recording says so")
    })
}

/// The warning where too much of the waiting has no known cause.
pub fn not_inferred(file: &File) -> Option<String> {
    let recorded = file.head.recorded.as_ref()?;
    let share = recorded.waits.not_inferred();
    (share > NOT_INFERRED_MAX).then(|| {
        format!(
            "{:.0} % of the time that its tasks waited has no cause in the recording and is replayed as a fixed time: a prediction for another scheduler is only as good as the rest",
            100.0 * share
        )
    })
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// By how many percent a figure is off; nothing where the recorded one is 0.
fn off(recorded: u64, replayed: u64) -> String {
    match recorded {
        0 => "-".to_owned(),
        _ => format!(
            "{:+.1} %",
            100.0 * (replayed as f64 / recorded as f64 - 1.0)
        ),
    }
}

/// A figure of both, with the names that people and scripts know it by.
pub struct Compared {
    /// For people.
    pub label: &'static str,
    /// For scripts.
    pub key: &'static str,
    /// Whether it is a time in ns; a count otherwise.
    pub is_time: bool,
    /// In the recording.
    pub recorded: u64,
    /// The median of the replays.
    pub replayed: u64,
}

/// Label, key, whether it is a time, and where it is.
type Row = (&'static str, &'static str, bool, fn(&Measured) -> u64);

/// The measures of a recording beside the medians of its replays.
pub fn compare(recorded: &Measured, replays: &[Measured]) -> Vec<Compared> {
    let rows: [Row; 11] = [
        ("makespan", "makespan_ns", true, |of| of.makespan_ns),
        ("CPU time", "cpu_ns", true, |of| of.cpu_ns),
        ("switches", "switches", false, |of| of.switches),
        ("preemptions", "preemptions", false, |of| of.preemptions),
        ("wakeups", "wakeups", false, |of| of.wakeups),
        ("wait for a CPU, sum", "wait_ns_sum", true, |of| {
            of.wait_ns_sum
        }),
        ("wait for a CPU, p50", "wait_ns_p50", true, |of| {
            of.wait_ns_p50
        }),
        ("wait for a CPU, p99", "wait_ns_p99", true, |of| {
            of.wait_ns_p99
        }),
        ("wakeup latency, p50", "wakeup_ns_p50", true, |of| {
            of.wakeup_ns_p50
        }),
        ("wakeup latency, p90", "wakeup_ns_p90", true, |of| {
            of.wakeup_ns_p90
        }),
        ("wakeup latency, p99", "wakeup_ns_p99", true, |of| {
            of.wakeup_ns_p99
        }),
    ];
    rows.into_iter()
        .map(|(label, key, is_time, get)| Compared {
            label,
            key,
            is_time,
            recorded: get(recorded),
            replayed: median(replays.iter().map(get)),
        })
        .collect()
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values
        .get(values.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0)
}

/// The table of a recording and its replays.
pub fn comparison(file: &File, recorded: &Measured, replays: &[Replayed]) -> String {
    let measured: Vec<Measured> = replays.iter().map(Replayed::measured).collect();
    let mut text = format!(
        "{:<22} {:>12} {:>12} {:>10}\n",
        "MEASURE", "RECORDED", "REPLAYED", "ERROR"
    );
    for row in compare(recorded, &measured) {
        let shown = |value: u64| match row.is_time {
            true => time(value),
            false => value.to_string(),
        };
        let _ = writeln!(
            text,
            "{:<22} {:>12} {:>12} {:>10}",
            row.label,
            shown(row.recorded),
            shown(row.replayed),
            off(row.recorded, row.replayed)
        );
    }
    let _ = writeln!(
        text,
        "\n{:<22} {:>12} {:>12} {:>10}",
        "CPU TIME OF", "RECORDED", "REPLAYED", "ERROR"
    );
    let names = by_name(file, None);
    for (name, named) in names.iter().take(ROWS_MAX) {
        let replayed = median(replays.iter().map(|replay| replay.named(name).cpu_ns));
        let label = format!("{} ({})", cut(name, 15), named.tasks);
        let _ = writeln!(
            text,
            "{label:<22} {:>12} {:>12} {:>10}",
            time(named.of.cpu_ns),
            time(replayed),
            off(named.of.cpu_ns, replayed)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let shown: Vec<String> = [999, 1_234, 12_345, 123_456, 5_000_000, 61_000_000_000]
            .map(time)
            .into();
        assert_eq!(
            shown,
            [
                "999 ns", "1.23 us", "12.3 us", "123 us", "5.00 ms", "61.0 s"
            ]
        );
    }

    fn file(tasks: usize) -> File {
        let mut text =
            "schedlab_workload = 1\nname = \"p\"\nwork_percent = 100\nthink_percent = 100\n"
                .to_owned();
        for task in 0..tasks {
            text += &format!("\n[[task]]\ncomm = \"t{task}\"\nprocess = 1\n");
        }
        text += "---\n";
        for task in 1..=tasks {
            text += &format!("task {task}\nr1000\n");
        }
        File::parse("x", &text).unwrap()
    }

    #[test]
    fn one_is_no_plural() {
        let program = |tasks| {
            let text = show("x", &file(tasks), None);
            text.lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(program(1), "  program      p: 1 task (0 beside it), 1 step");
        assert_eq!(
            program(2),
            "  program      p: 2 tasks (0 beside it), 2 steps"
        );
        let last = |tasks| {
            let text = show("x", &file(tasks), None);
            text.lines().last().unwrap().to_owned()
        };
        assert!(last(ROWS_MAX).starts_with("t"));
        assert_eq!(last(ROWS_MAX + 1), "and 1 more name");
        assert_eq!(last(ROWS_MAX + 2), "and 2 more names");
    }

    #[test]
    fn lost_events_are_told() {
        assert_eq!(lost(0, 7), None);
        let end = "all that is made from this recording says so";
        assert_eq!(
            lost(1, 0).unwrap(),
            format!("the recorder lost 1 of 1 event; {end}")
        );
        assert_eq!(
            lost(3, 7).unwrap(),
            format!("the recorder lost 3 of 10 events; {end}")
        );
    }

    #[test]
    fn an_entry_of_several_threads_is_several_tasks() {
        let mut one = file(2);
        one.head.tasks[0].threads = 3;
        one.head.tasks[1].background = true;
        let text = show("x", &one, None);
        assert!(text.contains("p: 3 tasks (1 beside it), 2 steps"), "{text}");
        assert!(text.contains("\nt0                  3 "), "{text}");
    }

    #[test]
    fn a_recording_without_causes_comes_with_a_warning() {
        use schedlab_workload::recorded::Recorded;
        let mut one = file(1);
        assert_eq!(not_inferred(&one), None);
        let mut recorded = Recorded {
            cpus: 1,
            ..Recorded::default()
        };
        recorded.waits.task_ns = 60;
        recorded.waits.unknown_ns = 40;
        one.head.recorded = Some(recorded);
        assert_eq!(
            not_inferred(&one).unwrap(),
            "40 % of the time that its tasks waited has no cause in the recording and is replayed as a fixed time: a \
             prediction for another scheduler is only as good as the rest"
        );
        let text = show("x", &one, None);
        assert!(text.contains("Linux unknown, 1 CPU used\n"), "{text}");
        let causes: Vec<&str> = text
            .lines()
            .filter(|line| line.contains(" %    "))
            .collect();
        assert_eq!(
            causes,
            [
                "     60.0 %    a task of the program",
                "     40.0 %    nothing in the recording (fixed, too)"
            ]
        );
        let recorded = one.head.recorded.as_mut().unwrap();
        recorded.waits.unknown_ns = 0;
        assert_eq!(not_inferred(&one), None);
    }

    #[test]
    fn errors_are_of_the_median_and_signed() {
        let of = |makespan_ns, switches| Measured {
            makespan_ns,
            switches,
            ..Measured::default()
        };
        let rows = compare(&of(100, 0), &[of(90, 7), of(400, 9), of(95, 8)]);
        assert_eq!((rows[0].recorded, rows[0].replayed), (100, 95));
        assert_eq!(off(rows[0].recorded, rows[0].replayed), "-5.0 %");
        assert_eq!(off(rows[2].recorded, rows[2].replayed), "-");
    }
}
