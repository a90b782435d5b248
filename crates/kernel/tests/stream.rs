//! The real kernel's event stream, on the kernel that runs here: the measures of its events are those that the programs at
//! the tracepoints count, measure by measure, and the invariants hold.
//!
//! Needs no sched_ext: the kernel's own scheduler is what is measured. Where BPF is not allowed it says so, in the file
//! that `make test` repeats at its end.

#[path = "inside/programs.rs"]
mod programs;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use schedlab_kernel::measure::{Measurement, Want};
use schedlab_kernel::run::{self, Job, Outcome};
use schedlab_report::origin::origin;
use schedlab_report::{Exit, Measures, Origin, World};
use schedlab_testing::checks::{self, Check, Ended};
use schedlab_testing::skipped;
use schedlab_trace::{CpuId, Event, Instant, Listener, Scheduler};

/// Programs, each with whether it is that of a workload, and what its events are at least.
const PROGRAMS: [(&[&str], bool); 6] = [
    (&["pingpong", "500"], false),
    (&["yielders", "3", "300"], false),
    (&["hogs", "300", "5"], false),
    (&["compute", "100"], false),
    (&["storm", "200"], false),
    (&["load", "hackbench:groups=2,fds=5,loops=20"], true),
];

/// How far measures of the events may be from those of the counters, as a share; of those that are not named here, not
/// at all.
///
/// Percentiles: the counters' histogram has 128 steps an octave, the recorder's 1,000. Lengths and inversions: another
/// CPU may change the number of runnable tasks, or who waits, between the moment of a record and the look at the counter.
/// Fairness: the counters are in fixed point; up to 7e-6 were seen. See [`FAIRNESS_OF_STORM`].
const TOLERANCES: [(&str, f64); 7] = [
    ("wakeup.latency_ns_p50", 1.0 / 64.0),
    ("wakeup.latency_ns_p90", 1.0 / 64.0),
    ("wakeup.latency_ns_p99", 1.0 / 64.0),
    ("wakeup.latency_ns_p99_9", 1.0 / 64.0),
    ("runqueue.len_mean", 0.02),
    ("schedule.priority_inversions", 0.02),
    ("fairness.jain", 1e-4),
];

/// The same for the fairness of `storm`, whose tasks live for a fraction of a millisecond: the time between a record and the
/// look at the counter shows. A busy machine makes it longer: up to 7e-3 were seen with two busy CPUs.
const FAIRNESS_OF_STORM: f64 = 2e-2;

/// The measures that both ways have for every program.
const BOTH: [&str; 9] = [
    "schedule.picked_elsewhere",
    "schedule.priority_inversions",
    "runqueue.len_mean",
    "runqueue.len_max",
    "switches.total",
    "switches.voluntary",
    "switches.involuntary",
    "migrations.total",
    "fairness.jain",
];

/// So often a program is run until its events are sound. Some kernels leave out records: of Linux 6.18 in a Firecracker
/// guest, `perf record -e sched:sched_wakeup,sched:sched_switch` lacks wakeups, too. There `storm`, which forks all the time,
/// is sound in about every second run.
const ATTEMPTS: usize = 20;

/// At most this many tasks more or fewer.
const LENGTH_TOLERANCE: f64 = 1.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == programs::MARK) {
        let known = programs::run(&arguments[1..]);
        return known.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let names = PROGRAMS.map(|(arguments, _)| name_of(arguments));
    checks::run(names.map(Check::short), |chosen, verdicts| {
        let shown = match Measurement::attach(Want::default()) {
            Ok(measurement) => measurement.shown(),
            Err(error) => {
                return Ended::Missing(format!("the real kernel's event stream: {error}"));
            }
        };
        for (arguments, is_workload) in PROGRAMS {
            let name = name_of(arguments);
            if !chosen.contains(&name) {
                continue;
            }
            // Only programs at functions of the kernel know of yields, and when a nice level changes.
            if arguments[0] == "hogs" && !shown.yields {
                let why = "the real kernel's event stream of tasks that change their nice level: this kernel lets no program follow its functions";
                skipped(why);
                verdicts.skip(&name, why);
                continue;
            }
            let mut compared = compare(arguments, is_workload);
            for _ in 1..ATTEMPTS {
                let Err(Wrong::Unsound(why)) = &compared else {
                    break;
                };
                println!("{name}: once more after: {why}");
                compared = compare(arguments, is_workload);
            }
            let verdict = match compared {
                Ok(told) => {
                    println!("{name}: {told}");
                    Ok(())
                }
                Err(Wrong::Unsound(why) | Wrong::Differs(why)) => Err(why),
            };
            verdicts.tell(&name, verdict);
        }
        Ended::Judged(Ok(()))
    })
}

/// Returns the name of the check of a program.
fn name_of(arguments: &[&str]) -> String {
    arguments.join("_")
}

/// Counts events by what the test wants to see.
#[derive(Default)]
struct Seen {
    events: u64,
    switches: u64,
    begins: u64,
    ends: u64,
    latest: Instant,
    out_of_order: u64,
}

impl Listener for Seen {
    fn record(&mut self, at: Instant, _: CpuId, event: Event) {
        self.events += 1;
        self.switches += u64::from(matches!(event, Event::Switch { .. }));
        self.begins += u64::from(event == Event::Begin);
        self.ends += u64::from(event == Event::End);
        self.out_of_order += u64::from(at < self.latest);
        self.latest = self.latest.max(at);
    }
}

/// A run that proves nothing, or something wrong with its measures.
enum Wrong {
    /// The kernel left out records: the invariants do not hold.
    Unsound(String),
    Differs(String),
}

fn compare(arguments: &[&str], is_workload: bool) -> Result<String, Wrong> {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = vec![program.into_os_string(), programs::MARK.into()];
    command.extend(arguments.iter().map(OsString::from));
    let job = Job {
        command,
        timeout: Duration::from_secs(60),
        want: Want {
            events: true,
            check: true,
            root_is_starter: is_workload,
        },
    };
    let mut seen = Seen::default();
    let outcome = run::run_told(&Scheduler::plain(Scheduler::KERNELS_OWN), &job, &mut seen)
        .map_err(|error| Wrong::Differs(error.to_string()))?;
    if outcome.exit != Exit::Done {
        let why = format!("{} {:?}", outcome.exit, outcome.message);
        return Err(Wrong::Unsound(why));
    }
    let marks = (seen.begins, seen.ends, seen.out_of_order);
    if marks != (1, 1, 0) {
        return Err(Wrong::Differs(format!(
            "{} beginnings, {} ends, {} events out of order",
            seen.begins, seen.ends, seen.out_of_order
        )));
    }
    let compared = differences(arguments[0], &outcome).map_err(Wrong::Differs)?;
    Ok(format!(
        "{} events, {} switches, {compared} measures",
        seen.events, seen.switches
    ))
}

/// How many measures both ways know of a program's run; an error where they differ.
fn differences(program: &str, outcome: &Outcome) -> Result<usize, String> {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (name, counted) in outcome.counted.iter() {
        let (Some(counted), Some(told)) = (counted.number(), outcome.told.number(name)) else {
            continue;
        };
        let tolerance = TOLERANCES.iter().find(|(of, _)| *of == name);
        let allowed = match name {
            "runqueue.len_max" => LENGTH_TOLERANCE,
            "schedule.priority_inversions" => (counted * 0.02).max(1.0),
            "fairness.jain" if program == "storm" => counted * FAIRNESS_OF_STORM,
            _ => counted * tolerance.map_or(0.0, |(_, share)| *share),
        };
        compared += 1;
        if (counted - told).abs() > allowed {
            wrong.push(format!("{name}: {counted} counted, {told} in the events"));
        }
    }
    for (name, _) in outcome.told.iter() {
        if !origin(name, World::Kernel).is_some_and(Origin::is_of_events) {
            wrong.push(format!(
                "{name} is of events, and docs/measures.md says otherwise"
            ));
        }
    }
    for (name, _) in outcome
        .counted
        .iter()
        .filter(|(name, _)| *name != "makespan_ns")
    {
        let counters = [Origin::Counters, Origin::EventsOrCounters];
        if !origin(name, World::Kernel).is_some_and(|origin| counters.contains(&origin)) {
            wrong.push(format!(
                "{name} is counted, and docs/measures.md says otherwise"
            ));
        }
    }
    // Only functions of the kernel tell yields, where they may be followed.
    let is_in = |measures: &Measures| measures.get("switches.yielded").is_some();
    if is_in(&outcome.counted) != is_in(&outcome.told) {
        wrong.push("yields are known one way".to_owned());
    }
    for name in BOTH {
        if outcome.counted.get(name).is_none() || outcome.told.get(name).is_none() {
            wrong.push(format!("{name} is not known both ways"));
        }
    }
    if wrong.is_empty() {
        Ok(compared)
    } else {
        Err(wrong.join("; "))
    }
}
