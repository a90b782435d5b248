//! Makes the sentences about runs. Each is computed.

#[cfg(test)]
mod tests;

use schedlab_report::RunResult;
use schedlab_report::export::number::{amount, digits, grouped};
use schedlab_trace::{LockClass, counted};

use crate::differs::Differs;
use crate::path::{Decomposed, Lock, Times};
use crate::watched::{Behind, Longest, Runner, Watched};

/// A change of less than this part of the makespan is not worth a word, in percent.
const PART_PCT: f64 = 0.5;
/// Nor is a share of waits or of time below this.
const SHARE_PCT: f64 = 1.0;

/// A run of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its result.
    pub result: &'a RunResult,
    /// The rest of it; absent if it was not watched.
    pub watched: Option<&'a Watched>,
}

impl Shown<'_> {
    fn number(&self, measure: &str) -> Option<f64> {
        self.result.measures.number(measure)
    }

    fn name(&self) -> &str {
        &self.result.scheduler
    }
}

/// A share or a difference in percent, with a digit behind the point below ten.
pub fn percent(value: f64) -> String {
    match value.abs() {
        small if small < 9.95 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

/// A time in the unit that suits it.
pub fn time(ns: u64) -> String {
    amount(ns as f64, "ns")
}

/// `its score is 12 % lower, which is better`: the same figure as in the tables.
pub fn scores(differs_pct: f64, higher_is_better: bool) -> String {
    let shown = percent(differs_pct.abs());
    if is_same(differs_pct) {
        return "its score is about the same".to_owned();
    }
    let word = if differs_pct < 0.0 { "lower" } else { "higher" };
    let is_good = (differs_pct > 0.0) == higher_is_better;
    let judged = if is_good { "better" } else { "worse" };
    format!("its score is {shown} {word}, which is {judged}")
}

/// The beginning of a text that has room in a column.
pub fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Whether no digit of a difference is shown.
pub fn is_same(differs_pct: f64) -> bool {
    percent(differs_pct.abs()) == percent(0.0)
}

/// Returns all sentences about a run by itself: how it ended, its locks, its choices, its CPUs, its waits, its critical path.
pub fn sentences(run: &Shown<'_>) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(ending(run));
    said.extend(run.watched.and_then(|watched| locks(run.name(), watched)));
    said.extend(choice(run));
    said.extend(cpus(run));
    if let Some(watched) = run.watched {
        if watched.span_ns == 0 {
            return said;
        }
        said.extend(waiting(watched));
        said.extend(critical_path(run.name(), &watched.time));
        if watched.is_cut {
            said.push(
                "The run is too long to keep all of it: the timeline and the waits are of its first part."
                    .to_owned(),
            );
        }
    }
    said
}

/// How the score of a scheduler differs from the first one's, over runs of the same seeds.
pub fn against(
    name: &str,
    first: &str,
    own: &[&RunResult],
    others: &[&RunResult],
) -> Option<String> {
    if let Some(why) = not_compared(name, first, own, others) {
        return Some(why);
    }
    let score = |run: &RunResult| match run.is_done() {
        true => run.measures.number("score"),
        false => None,
    };
    let pairs = own.iter().filter_map(|run| {
        let other = others.iter().find(|other| other.seed == run.seed)?;
        Some((score(run)?, score(other)?))
    });
    let (mine, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let higher = own.first().is_some_and(|run| !run.less_is_better());
    let differs = Differs::of(&mine, &theirs, higher)?;
    let known = match differs.interval_pct {
        Some([low, high]) => {
            let chance = match differs.is_shown() {
                true => "",
                false => ", which may be chance",
            };
            format!(" (95 % interval: {low:+.1} to {high:+.1} %){chance}")
        }
        None if differs.seeds_same => "; the seed changes nothing here".to_owned(),
        None if differs.seeds == 1 => ", by one seed".to_owned(),
        None => format!(
            ", by {}, which are too few to tell that from chance",
            counted(differs.seeds as u64, "seed")
        ),
    };
    Some(format!(
        "`{name}` beside `{first}`: {}{known}.",
        scores(differs.percent, higher)
    ))
}

/// Says that no run of one came to its end with a seed with which the other one's did, and why.
fn not_compared(
    name: &str,
    first: &str,
    own: &[&RunResult],
    others: &[&RunResult],
) -> Option<String> {
    let is_done = |run: &RunResult, seed| run.is_done() && run.seed == seed;
    let pairs = own.iter().filter(|run| run.is_done());
    let mut pairs = pairs.filter(|run| others.iter().any(|other| is_done(other, run.seed)));
    let is_compared = pairs.next().is_some();
    let failed = |name: &str, runs: &[&RunResult]| {
        let failed = runs.iter().find(|run| !run.is_done())?;
        Some(did_not_end(name, failed))
    };
    let why = failed(name, own).or_else(|| failed(first, others));
    why.filter(|_| !is_compared)
        .map(|why| format!("`{name}` is not compared with `{first}`: {why}."))
}

/// How a run ended that failed.
pub(crate) fn did_not_end(name: &str, run: &RunResult) -> String {
    let why = run.message.as_deref().unwrap_or("no message");
    format!("`{name}` did not come to its end ({}: {why})", run.exit)
}

/// The sentence on scores of emulated machines, in the place of their differences.
pub(crate) const WITHHELD: &str =
    "Times and scores are not compared: emulated CPUs do not keep the proportions of real ones.";

fn ending(run: &Shown<'_>) -> Option<String> {
    (!run.result.is_done()).then(|| {
        let told = did_not_end(run.name(), run.result);
        match run.watched.is_some_and(|watched| watched.span_ns == 0) {
            true => format!("{told}."),
            false => format!("{told}; all that follows is until then."),
        }
    })
}

/// The cost of the locks of the scheduler's queues.
fn locks(name: &str, watched: &Watched) -> Option<String> {
    let of_queues = |lock: &&Lock| matches!(lock.class, LockClass::RunQueue | LockClass::Dsq);
    let all: Vec<&Lock> = watched.locks.iter().filter(of_queues).collect();
    let busiest = all.first()?;
    let span = watched.span_ns.max(1) as f64;
    let held = percent(100.0 * busiest.held_ns as f64 / span);
    let sum = |of: fn(&Lock) -> u64| all.iter().map(|lock| of(lock)).sum::<u64>();
    let attempts = sum(|lock| lock.acquisitions + lock.failed);
    let contended = sum(|lock| lock.contended);
    let waited = contended - sum(|lock| lock.failed);
    let holds = match all.len() {
        1 => format!("`{name}` holds its one lock {held} of the time"),
        several => format!(
            "`{name}` has {several} locks of queues in use, and holds the busiest, `{}`, {held} of the time",
            busiest.name
        ),
    };
    let (its, theirs) = match all.len() {
        1 => ("it", "it"),
        _ => ("its lock", "theirs"),
    };
    let taken = match contended {
        0 => format!("no attempt finds {its} taken"),
        _ => format!(
            "{} of attempts find {theirs} taken",
            percent(100.0 * contended as f64 / attempts.max(1) as f64)
        ),
    };
    let waits = match waited {
        0 => String::new(),
        _ => format!(
            ", and those that wait take {} for it",
            time(sum(|lock| lock.waited_ns) / waited)
        ),
    };
    Some(format!("{holds}; {taken}{waits}."))
}

/// The cost of a choice.
fn choice(run: &Shown<'_>) -> Option<String> {
    let takes = run
        .number("schedule.time_ns_mean")
        .map(|ns| format!("takes {}", amount(ns, "ns")));
    let examined = run.number("schedule.examined_mean");
    // None of a scheduler that takes the head of a queue.
    let examines = examined.filter(|mean| *mean > 0.0).map(|mean| {
        let most = run.number("schedule.examined_max");
        let most = most.map_or(String::new(), |most| {
            format!(" ({} at most)", grouped(most))
        });
        let tasks = if digits(mean) == digits(1.0) {
            "task"
        } else {
            "tasks"
        };
        format!("examines {} {tasks}{most}", digits(mean))
    });
    match (examines, takes) {
        (Some(examines), Some(takes)) => {
            Some(format!("A choice {examines} and {takes} in the mean."))
        }
        (Some(one), None) | (None, Some(one)) => Some(format!("A choice {one} in the mean.")),
        (None, None) => None,
    }
}

/// Where the time of CPUs goes.
fn cpus(run: &Shown<'_>) -> Option<String> {
    let idle = run.number("cpu.idle_pct")?;
    let Some(user) = run.number("cpu.user_pct") else {
        return Some(format!("CPUs idle {} of the time.", percent(idle)));
    };
    let of = |measure: &str| run.number(measure).unwrap_or(0.0);
    let spin = of("cpu.spin_pct");
    let sched = (of("sched.share_of_all_pct") - spin).max(0.0);
    Some(format!(
        "Of the time of all CPUs {} is the tasks' own code, {} calls and interrupts, {} the scheduler, {} spinning and {} idle.",
        percent(user),
        percent(of("cpu.kernel_pct")),
        percent(sched),
        percent(spin),
        percent(idle)
    ))
}

/// How long tasks wait for a CPU, for whom, and whether a CPU idles meanwhile.
fn waiting(watched: &Watched) -> Vec<String> {
    let names = watched.time.names.iter();
    let (woken, preempted) = names.fold((0, 0), |(woken, preempted), (_, of)| {
        (woken + of.times.woken_ns, preempted + of.times.preempted_ns)
    });
    let all = woken + preempted;
    if all == 0 {
        return vec!["No task waits for a CPU.".to_owned()];
    }
    let share = |ns: u64| 100.0 * ns as f64 / all as f64;
    let mut said = vec![format!(
        "All tasks together wait {} for a CPU: {} of it after a wakeup, {} after another task took theirs or they yielded it.",
        time(all),
        percent(share(woken)),
        percent(share(preempted))
    )];
    said.extend(watched.longest.as_ref().map(longest_wait));
    said.extend(largest_part(watched, share));
    if let Some(idles) = watched.idle_while_waiting_pct {
        said.push(match idles >= SHARE_PCT {
            true => format!(
                "For {} of the time a CPU idles although a task waits.",
                percent(idles)
            ),
            false => "A CPU hardly ever idles while a task waits.".to_owned(),
        });
    }
    said
}

/// Most of the waits, by their cause; all waits that had not ended are one.
fn largest_part(watched: &Watched, share: impl Fn(u64) -> f64) -> Option<String> {
    let (open, ended): (Vec<&Behind>, Vec<&Behind>) = watched
        .behind
        .iter()
        .partition(|one| one.runner == Runner::NotEnded);
    let open: u64 = open.iter().map(|one| one.ns).sum();
    let most = ended.first().filter(|most| most.ns > open);
    let (ns, what) = match most {
        None => (
            open,
            "in waits that had not ended when the run did".to_owned(),
        ),
        Some(most) => {
            let waiter = &most.waiter;
            let what = match &most.runner {
                Runner::Task(runner) => format!("`{waiter}` behind `{runner}`"),
                _ => format!("`{waiter}` with no other task on the CPU that ended the wait"),
            };
            (most.ns, what)
        }
    };
    let part = match share(ns) > 50.0 {
        true => "Most of it",
        false => "The largest part",
    };
    let is_told = ns > 0 && share(ns) >= SHARE_PCT;
    is_told.then(|| format!("{part}, {}, is {what}.", percent(share(ns))))
}

/// The longest wait of a task.
fn longest_wait((name, longest): &(String, Longest)) -> String {
    let (ns, at) = (time(longest.ns), time(longest.at_ns));
    let Some(cpu) = longest.cpu else {
        return format!(
            "The longest wait is {ns}: `{name}` from {at} on; it had not ended when the run did."
        );
    };
    let behind = match &longest.behind {
        Some(runner) => format!("behind `{runner}`"),
        None => "with no other task before it".to_owned(),
    };
    format!("The longest wait is {ns}: `{name}` on CPU {cpu} at {at}, {behind}.")
}

/// Parts of a path with their names.
fn parts(path: &Times) -> [(&'static str, u64); 5] {
    [
        ("on a CPU", path.running_ns),
        ("waits for a CPU after a wakeup", path.woken_ns),
        ("waits for a CPU lost or yielded", path.preempted_ns),
        ("sleeps until a timer or device", path.timer_ns),
        ("sleeps at the end, or not seen", path.other_ns),
    ]
}

/// Parts of paths beside each other, with their names. The last part has a row where it is worth a word; the begin of the
/// main thread, which is not seen, is time on a CPU.
pub fn parts_beside(paths: &[&Times]) -> Vec<(&'static str, Vec<u64>)> {
    let is_worth =
        |path: &&Times| 100.0 * path.other_ns as f64 >= PART_PCT * path.total_ns() as f64;
    let has_rest = paths.iter().any(|path| path.other_ns > 0 && is_worth(path));
    let shown = paths.iter().map(|path| match has_rest {
        true => **path,
        false => Times {
            running_ns: path.running_ns + path.other_ns,
            other_ns: 0,
            ..**path
        },
    });
    let all: Vec<_> = shown.map(|path| parts(&path)).collect();
    let names = parts(&Times::default()).map(|(name, _)| name);
    let rows = names.into_iter().enumerate().map(|(row, name)| {
        let times = all.iter().map(|parts| parts[row].1);
        (name, times.collect())
    });
    let nr = names.len() - usize::from(!has_rest);
    rows.take(nr).collect()
}

/// Returns the parts of the critical path of a run.
pub fn critical_path(name: &str, run: &Decomposed) -> Option<String> {
    let path = run.path.as_ref()?;
    let all = path.total_ns().max(1) as f64;
    let share = |ns: u64| 100.0 * ns as f64 / all;
    let rest = match share(path.other_ns) {
        rest if rest < PART_PCT => String::new(),
        rest => {
            format!(" The rest, {rest:.0} %, is a sleep at the end of the run, or was not seen.")
        }
    };
    Some(format!(
        "Of the critical path under `{name}` {:.0} % is on a CPU, {:.0} % waits for one and {:.0} % sleeps until a timer or a \
         device.{rest}",
        share(path.running_ns),
        share(path.waits_ns()),
        share(path.timer_ns)
    ))
}

/// Returns the changes under another scheduler: parts of the critical path, the tasks whose waits change most, changes of CPUs.
pub fn changes(own: &Decomposed, other: &Decomposed, name: &str) -> Vec<String> {
    let mut said = Vec::new();
    if let (Some(a), Some(b)) = (&own.path, &other.path) {
        said.extend(path_change(a, b, name));
    }
    said.extend(tasks_change(own, other, name));
    said.extend(moves(own, other, name));
    said
}

fn path_change(own: &Times, other: &Times, name: &str) -> Option<String> {
    let all = own.total_ns().max(1) as f64;
    let changes = parts(own).into_iter().zip(parts(other));
    let mut changes: Vec<(&str, i128)> = changes
        .map(|((what, a), (_, b))| (what, i128::from(b) - i128::from(a)))
        .filter(|(_, change)| 100.0 * change.unsigned_abs() as f64 / all >= PART_PCT)
        .collect();
    if changes.is_empty() {
        return Some(format!(
            "Under `{name}` no part of the path changes by {PART_PCT} % of it."
        ));
    }
    changes.sort_by_key(|(_, change)| std::cmp::Reverse(change.unsigned_abs()));
    let told = changes.iter().map(|(what, change)| {
        let ns = time(u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX));
        let word = if *change < 0 { "less" } else { "more" };
        format!("{what}: {ns} {word}")
    });
    let told: Vec<String> = told.collect();
    Some(format!("Under `{name}` the path has {}.", told.join("; ")))
}

/// A task's name with its waits for a CPU under both.
pub fn waits(own: &Decomposed, other: &Decomposed) -> Vec<(String, u64, u64)> {
    let of = |run: &Decomposed, name: &str| {
        let found = run.names.iter().find(|(known, _)| known == name);
        found.map_or(0, |(_, of)| of.times.waits_ns())
    };
    let mut all: Vec<(String, u64, u64)> = own
        .names
        .iter()
        .map(|(name, times)| (name.clone(), times.times.waits_ns(), of(other, name)))
        .collect();
    all.sort_by_key(|(_, a, b)| std::cmp::Reverse(a.abs_diff(*b)));
    all
}

fn tasks_change(own: &Decomposed, other: &Decomposed, name: &str) -> Option<String> {
    let all = own.makespan_ns.max(1) as f64;
    let changed = waits(own, other)
        .into_iter()
        .filter(|(_, a, b)| 100.0 * a.abs_diff(*b) as f64 / all >= PART_PCT)
        .take(3)
        .map(|(task, a, b)| format!("{task} {} instead of {}", time(b), time(a)));
    let changed: Vec<String> = changed.collect();
    (!changed.is_empty()).then(|| {
        format!(
            "Waits for a CPU under `{name}`, of all tasks of a name together: {}.",
            changed.join(", ")
        )
    })
}

/// Changes of CPUs under another scheduler.
pub(crate) fn moves(own: &Decomposed, other: &Decomposed, name: &str) -> Option<String> {
    let of = |run: &Decomposed| run.names.iter().map(|(_, of)| of.migrations).sum::<u64>();
    let (a, b) = (of(own), of(other));
    let much = a.abs_diff(b) * 10 > a.max(b) && a.max(b) >= 10;
    much.then(|| format!("Under `{name}` tasks change their CPU {b} times instead of {a}."))
}
