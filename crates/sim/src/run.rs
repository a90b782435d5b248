//! A specification becomes a scenario, the scenario a result.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use schedlab_engine::policy::Probes;
use schedlab_engine::{ExitInfo, ExitKind, NormalClass, RtMode, Scenario, WorkloadFailure};
use schedlab_machine::address::Structure;
use schedlab_machine::cache::{LineCounts, PAGE_BYTES};
use schedlab_machine::{CacheModel, CacheStats, Machine};
use schedlab_report::histogram::Buckets;
use schedlab_report::origin::Beside;
use schedlab_report::{Exit, Measures, MetricsRecorder, Origin, PartsRecorder, RunResult, Sources};
use schedlab_trace::check::{Checkers, Start};
use schedlab_trace::{Duration, Listener, counted};
use schedlab_workload::{Part, Score, Workload, note, rtapp};

use crate::scheduler::{Ended, ReadyScheduler};
use crate::{Inputs, Prepared, SimError, SimSpec, parts};

/// A stalled task is noticed up to half its time-out later (`scx_watchdog_workfn()` runs that often).
const WATCHDOG_SLACK_PCT: u64 = 150;
/// The watchdog's time-out where a policy names none.
const TIMEOUT_MS: u32 = 30_000;

/// Returns whether the run could be begun, without running it. Answers with what its user should know.
///
/// # Errors
/// As [`run`].
pub fn check(spec: &SimSpec) -> Result<Vec<String>, SimError> {
    Inputs::default().read(spec)?.check()
}

/// Runs it. `listener` hears every event. Of what is run several times the files are read once by [`Inputs`].
///
/// # Errors
/// If something it names is not there or cannot be used, or the host has no room for it. How the run ended stands in the result.
pub fn run(spec: &SimSpec, listener: Option<&mut dyn Listener>) -> Result<RunResult, SimError> {
    Inputs::default().read(spec)?.run(listener)
}

impl Prepared {
    /// Runs it. `listener` hears every event.
    ///
    /// # Errors
    /// If something it names cannot be used, or the host has no room for it beside what else runs. How the run ended stands in the result.
    pub fn run(&self, listener: Option<&mut dyn Listener>) -> Result<RunResult, SimError> {
        Ok(self.run_with_stream(listener)?.0)
    }

    /// As [`Prepared::run`]; also answers with what a reader of the events must know of them.
    ///
    /// # Errors
    /// As [`Prepared::run`].
    pub fn run_with_stream(
        &self,
        listener: Option<&mut dyn Listener>,
    ) -> Result<(RunResult, StreamOf), SimError> {
        let machine = self.machine()?;
        let mut workload = self.workload(&machine)?;
        let time_limit = self.limit(&mut workload);
        let policy = self.load(&machine)?;
        let mut result = self.result(&machine, &workload);
        let about = About {
            score: workload.score.clone(),
            parts: workload.parts.clone(),
            clock_mhz: machine.clock_mhz,
            has_policy: !policy.is_baseline(),
        };
        self.passed.begin(workload.duration);
        let shows = sources(&machine, about.has_policy);
        let stall_bound = stall_bound(&machine, &policy);
        let metrics = MetricsRecorder::new(machine.topology.nr_cpus(), shows)
            .telling(Arc::clone(&self.passed.now_ns));
        let nr_cpus = machine.topology.nr_cpus();
        let checkers = self
            .spec
            .check
            .then(|| Checkers::new(nr_cpus, Start::Idle, stall_bound));
        let scenario = self.scenario(machine, workload, about.has_policy);
        // The most frequent kind of run is compiled for itself: no event checks for other listeners.
        let by_part = (!about.parts.is_empty()).then(|| {
            let parts = about.parts.iter();
            PartsRecorder::new(parts.map(|part| (part.name.clone(), part.tasks)))
        });
        let alone = checkers.is_none() && listener.is_none() && by_part.is_none();
        let (mut end, metrics, (checkers, by_part)) = if alone {
            let (end, metrics) = policy.run(scenario, metrics).map_err(SimError::Host)?;
            (end, metrics, (None, None))
        } else {
            let mut others = ((checkers, by_part), listener);
            let recorder = (metrics, RefCell::new(&mut others as &mut dyn Listener));
            let run = policy.run(scenario, recorder).map_err(SimError::Host)?;
            let (end, (metrics, _)) = run;
            (end, metrics, others.0)
        };
        self.passed.end();
        metrics.ended(end.end);
        verdict(&mut result, &end, time_limit, checkers);
        result.exit_code = Some(end.exit.code).filter(|code| *code != 0);
        result.printed = std::mem::take(&mut end.printed);
        result.dump = std::mem::take(&mut end.dump);
        let of_events = metrics.measures(Some(about.clock_mhz));
        measure(&mut result, &about, &mut end, &metrics, &of_events);
        if let Some(by_part) = by_part {
            by_part.measures(end.end, &mut result.measures);
        }
        let stream = StreamOf {
            nr_cpus,
            clock_mhz: about.clock_mhz,
            shows,
            stall_bound,
            measures: of_events,
        };
        Ok((result, stream))
    }

    /// Returns the result of a run that could not be carried out, for the results of the others.
    pub fn not_run(&self, why: impl fmt::Display) -> RunResult {
        let found = self.machine().and_then(|machine| {
            let workload = self.workload(&machine)?;
            Ok(self.result(&machine, &workload))
        });
        RunResult {
            exit: Exit::NotRun,
            message: Some(why.to_string()),
            // A file that cannot be read any more was there when it was checked.
            ..found.unwrap_or_default()
        }
    }

    /// Ends a workload at the time limit, if that comes before its own end; then it is what ends the run if nothing
    /// else does, and the answer is it.
    fn limit(&self, workload: &mut Workload) -> Option<Duration> {
        let limit = self.time_limit();
        if workload.duration.is_some_and(|duration| duration <= limit) {
            return None;
        }
        // One without any is given up there, or at once where its tasks wait for each other.
        if workload.duration.is_some() {
            workload.duration = Some(limit);
        }
        Some(limit)
    }

    /// Returns the part of a result that is known before the run.
    fn result(&self, machine: &Machine, workload: &Workload) -> RunResult {
        let spec = &self.spec;
        RunResult {
            workload: workload.name.clone(),
            asked: spec.workload.clone(),
            params: workload.params.clone(),
            scheduler: spec.scheduler.to_string(),
            machine: spec.machine.clone(),
            task_layout: Some(machine.layout().to_string()),
            cpus: u32::try_from(machine.topology.nr_cpus()).expect("CPU numbers are 32 bits wide"),
            seed: spec.seed,
            exit: Exit::Done,
            replay: spec.replay_command(),
            ..RunResult::default()
        }
    }

    fn scenario(&self, machine: Machine, workload: Workload, has_policy: bool) -> Scenario {
        let spec = &self.spec;
        let mut scenario = Scenario::new(machine, workload, spec.seed);
        let nr_cpus = scenario.machine.topology.nr_cpus();
        scenario.allowed = self.allowed(nr_cpus).expect("inputs are checked first");
        scenario.count_by_offset = spec.task_layout.is_some();
        scenario.version = self.version;
        scenario.limits.simulated = self.time_limit();
        scenario.normal_class = match has_policy {
            true => NormalClass::Ext,
            false => NormalClass::Fair,
        };
        scenario.rt_mode = match spec.rt_policy {
            true => RtMode::Policy,
            false => RtMode::Kernel,
        };
        scenario
    }
}

/// The facts that a later reader of a run's events needs for measures and checks.
#[derive(Clone, Debug)]
pub struct StreamOf {
    pub nr_cpus: usize,
    pub clock_mhz: u32,
    pub shows: Sources,
    /// No runnable task may wait longer.
    pub stall_bound: Duration,
    /// The measures of the events alone.
    pub measures: Measures,
}

/// The facts of a scenario that its measures need.
struct About {
    score: Score,
    /// The parts of the workload.
    parts: Vec<Part>,
    clock_mhz: u32,
    /// Whether a policy schedules, not the virtual kernel's own scheduler.
    has_policy: bool,
}

fn sources(machine: &Machine, has_policy: bool) -> Sources {
    Sources {
        kernel_locks: machine.sched_ext.rq_locks,
        policy_locks: has_policy,
        examined: has_policy,
        // The structures of the virtual kernel's own scheduler are not modelled line by line.
        memory: has_policy,
        ..Sources::ALL
    }
}

/// How long a runnable task may wait.
fn stall_bound(machine: &Machine, policy: &ReadyScheduler) -> Duration {
    let timeout_ms = match policy.timeout_ms() {
        0 => TIMEOUT_MS,
        ms => ms,
    };
    match machine.sched_ext.watchdog {
        true => Duration::from_us(u64::from(timeout_ms) * 10 * WATCHDOG_SLACK_PCT),
        false => Duration::from_ns(u64::MAX),
    }
}

/// The number of data races that are printed; further ones have the same causes, as a rule.
const RACES_SHOWN: usize = 3;

/// Puts into the result how the run ended, and what the checkers say of it.
fn verdict(
    result: &mut RunResult,
    end: &Ended,
    time_limit: Option<Duration>,
    checkers: Option<Checkers>,
) {
    (result.exit, result.message) = exit(end, time_limit);
    // An ejection ends in the midst of ops, with locks held and tasks in nobody's hands; and a stall is a violation, too.
    let is_whole = matches!(result.exit, Exit::Done | Exit::TimeLimit);
    let violations = checkers.filter(|_| is_whole).map(Checkers::finish);
    let events = violations.as_ref().map_or(0, |found| found.count());
    let first = violations.iter().flat_map(|found| found.first());
    let races = end.races.iter().take(RACES_SHOWN).cloned();
    let shown: Vec<String> = first.map(ToString::to_string).chain(races).collect();
    let all = events + end.races.len() as u64;
    if all == 0 {
        return;
    }
    let text = format!("{all} in all: {}", shown.join("; "));
    match result.exit {
        Exit::Done => (result.exit, result.message) = (Exit::Violation, Some(text)),
        _ => result.violations = Some(text),
    }
}

/// Puts into the result what was measured.
fn measure(
    result: &mut RunResult,
    about: &About,
    end: &mut Ended,
    metrics: &MetricsRecorder,
    of_events: &Measures,
) {
    let measures = &mut result.measures;
    let scored = matches!(result.exit, Exit::Done | Exit::Violation);
    let last = end.makespan.unwrap_or(end.end);
    let mut notes = parts::measure(&about.parts, &mut end.counters, last, scored, measures);
    if scored {
        let score = &about.score;
        let value = score.value(end.work, last.since(end.begun), &end.counters);
        if about.parts.is_empty() {
            notes.extend(note(
                &result.workload,
                &result.workload,
                &end.counters,
                value,
            ));
        }
        if let (Some(value), true) = (value, about.parts.is_empty()) {
            measures.score(value, score.unit, score.higher_is_better);
            measures.float(score.name, value);
        }
        measures.int("makespan_ns", last.ns());
    }
    for (name, value) in of_events.iter() {
        measures.set(name, value.clone());
    }
    if about.has_policy {
        PolicyCounts(&end.probes).measures(measures);
        CacheCounts(&end.cache).measures(measures);
        // Only of policies that ask: the simulator does not change the frequency.
        if end.cpuperf_requests > 0 {
            measures.int("policy.cpuperf_requests", end.cpuperf_requests);
        }
    }
    measures.counters(end.counters.values(), end.counters.measures());
    if let (Some(transactions), 1..) = (measures.number("cache.bus_transactions"), end.work) {
        let per_work = transactions / end.work as f64;
        measures.float("cache.bus_transactions_per_work", per_work);
    }
    if result.is_done() {
        result.message = parts::with_notes(result.message.take(), notes);
    }
    result.histograms = vec![("runqueue.len".to_owned(), metrics.queue_histogram())];
    result.histograms.extend(by_offset(&end.cache));
    result.series = metrics.series();
}

/// How a run ended, with the explanation.
fn exit(end: &Ended, time_limit: Option<Duration>) -> (Exit, Option<String>) {
    match &end.failure {
        // Without an end of its own the limit is the workload's.
        None | Some(WorkloadFailure::Endless { .. }) => {}
        Some(failure) => return (failure_exit(failure), Some(failure.to_string())),
    }
    if end.exit.kind != ExitKind::Done {
        let exit = Exit::of_scx(end.exit.kind as u64);
        return (exit, Some(ejection(&end.exit)));
    }
    if let Some(why) = rtapp::failure(&end.counters) {
        return (Exit::CommandFailed, Some(why));
    }
    match time_limit {
        Some(limit) if !end.unfinished.is_empty() => {
            let count = counted(end.unfinished.len() as u64, "task");
            let text = format!(
                "{count} had not ended after {} of simulated time: give it more with --time-limit, or the workload an end",
                limit.words()
            );
            (Exit::TimeLimit, Some(text))
        }
        _ => {
            let idled = end.stuck.as_ref().map(|why| {
                format!(
                    "what was left of the tasks idled until the workload's duration was over: {why}"
                )
            });
            (Exit::Done, idled.or_else(|| not_created(end.to_come)))
        }
    }
}

/// Returns the words of a policy's exit: the kernel's reason and message, and the place in the policy.
fn ejection(exit: &ExitInfo) -> String {
    let reason = match exit.code {
        0 => exit.reason.clone(),
        // Half of it is flags (SCX_ECODE_…).
        code => format!("{}, code {code:#x}", exit.reason),
    };
    let text = match exit.message.as_str() {
        "" => reason,
        // The exit's name says it already.
        message if exit.kind == ExitKind::Fault => message.to_owned(),
        message => format!("{reason} ({message})"),
    };
    match &exit.place {
        Some(place) => format!("{text}, {place}"),
        None => text,
    }
}

/// Returns the note on the tasks that the main thread had not created yet when the run was over.
fn not_created(tasks: u32) -> Option<String> {
    (tasks > 0).then(|| {
        format!(
            "{} had not been created yet when the run was over: give it a longer duration, or start=together",
            counted(tasks, "task")
        )
    })
}

fn failure_exit(failure: &WorkloadFailure) -> Exit {
    match failure {
        WorkloadFailure::Deadlock { .. } => Exit::Deadlock,
        WorkloadFailure::ZeroTimeLoop { .. } => Exit::EndlessLoop,
        WorkloadFailure::Endless { .. } => Exit::Endless,
        WorkloadFailure::TooManyTasks { .. } => Exit::TooManyTasks,
        WorkloadFailure::ForkRefused { .. } => Exit::ForkRefused,
        WorkloadFailure::WrongObject { .. } => Exit::WrongObject,
        WorkloadFailure::NoCpu { .. } => Exit::NoCpu,
        WorkloadFailure::Refused { .. } => Exit::Refused,
    }
}

/// Where in their pages the lines lie that missed and that went over the bus: `[first byte, last byte,
/// count]`. Nothing if it was not counted.
fn by_offset(cache: &CacheModel) -> Vec<(String, Buckets)> {
    let counts = cache.by_offset();
    let Some(line_bytes) = PAGE_BYTES.checked_div(counts.len() as u64) else {
        return Vec::new();
    };
    let histogram = |name: &str, of: fn(&LineCounts) -> u64| {
        let lines = (0..).step_by(line_bytes as usize).zip(counts);
        let buckets = lines
            .filter(|(_, counts)| of(counts) > 0)
            .map(|(offset, counts)| (offset, offset + line_bytes - 1, of(counts)))
            .collect();
        (name.to_owned(), buckets)
    };
    vec![
        histogram("cache.misses_by_offset", |counts| counts.misses),
        histogram("cache.bus_transactions_by_offset", |counts| {
            counts.bus_transactions
        }),
    ]
}

/// The policy's own counts, of each CPU.
struct PolicyCounts<'a>(&'a [Probes]);

impl Beside for PolicyCounts<'_> {
    const ORIGIN: Origin = Origin::Policy;

    fn measures(&self, measures: &mut Measures) {
        let sum = |of: fn(&Probes) -> u64| self.0.iter().map(of).sum();
        measures.int("policy.failed_lookups", sum(|probes| probes.failed_lookups));
        measures.int("policy.pinned_local", sum(|probes| probes.pinned_local));
    }
}

/// The counts of the model of the caches.
struct CacheCounts<'a>(&'a CacheModel);

impl Beside for CacheCounts<'_> {
    const ORIGIN: Origin = Origin::Caches;

    fn measures(&self, measures: &mut Measures) {
        cache_measures(self.0, measures);
    }
}

fn cache_measures(cache: &CacheModel, measures: &mut Measures) {
    let sum = |of: fn(&CacheStats) -> u64| -> u64 { cache.all_stats().map(of).sum() };
    measures.int("cache.accesses", sum(|stats| stats.accesses()));
    measures.int("cache.misses", sum(|stats| stats.misses()));
    let (first, coherence) = (
        sum(|stats| stats.misses_first),
        sum(|stats| stats.misses_coherence),
    );
    measures.int("cache.misses_first", first);
    measures.int("cache.misses_coherence", coherence);
    measures.int(
        "cache.misses_absent",
        sum(|stats| stats.misses()) - first - coherence,
    );
    measures.int("cache.from_memory", sum(|stats| stats.from_memory));
    measures.int("cache.from_llc", sum(|stats| stats.from_llc));
    measures.int("cache.transfers", sum(|stats| stats.transfers));
    measures.int("cache.invalidations", sum(|stats| stats.invalidations));
    measures.int(
        "cache.bus_transactions",
        sum(|stats| stats.bus_transactions()),
    );
    // Whatever memory serves has left the last-level cache.
    measures.int("cache.bus_memory", sum(|stats| stats.from_memory));
    measures.int("cache.bus_transfers", sum(|stats| stats.bus_transfers));
    measures.int(
        "cache.bus_invalidations",
        sum(|stats| stats.bus_invalidations),
    );
    for structure in Structure::ALL {
        let counts = cache.by_structure(structure);
        let name = structure.name();
        measures.int(format!("cache.{name}.misses"), counts.misses);
        measures.int(
            format!("cache.{name}.bus_transactions"),
            counts.bus_transactions,
        );
    }
    measures.int("cache.bus_wait_ns", sum(|stats| stats.bus_wait_ps) / 1_000);
}

#[cfg(test)]
mod tests {
    use schedlab_engine::Place;
    use schedlab_engine::policy::OpKind;
    use schedlab_report::World;
    use schedlab_report::origin::origin;
    use schedlab_trace::{CpuId, Event, Instant};

    use super::*;
    use crate::Scheduler;

    /// Counts events.
    struct Heard(u64);

    impl Listener for Heard {
        fn record(&mut self, _: Instant, _: CpuId, _: Event) {
            self.0 += 1;
        }
    }

    #[test]
    fn an_exit_has_its_reason_message_and_place() {
        let words = |kind, code, message: &str, line: Option<&str>| {
            ejection(&ExitInfo {
                kind,
                code,
                reason: "reason".into(),
                message: message.into(),
                place: line.map(|line| Place {
                    op: OpKind::Enqueue,
                    line: Some(line.to_owned()),
                }),
            })
        };
        let line = Some("a.bpf.c:7");
        assert_eq!(words(ExitKind::Error, 0, "", None), "reason");
        assert_eq!(words(ExitKind::Error, 0, "m", None), "reason (m)");
        assert_eq!(words(ExitKind::UnregBpf, 31, "", None), "reason, code 0x1f");
        assert_eq!(
            words(ExitKind::UnregBpf, 31, "m", line),
            "reason, code 0x1f (m), in ops.enqueue at a.bpf.c:7"
        );
        assert_eq!(words(ExitKind::Fault, 0, "m", None), "m");
        assert_eq!(
            words(ExitKind::Fault, 0, "", line),
            "reason, in ops.enqueue at a.bpf.c:7"
        );
    }

    #[test]
    fn tasks_that_were_never_created_are_told() {
        let one = "1 task had not been created yet when the run was over: give it a longer duration, or start=together";
        assert_eq!(not_created(1).as_deref(), Some(one));
        let message = |start: &str| {
            let spec = SimSpec {
                cpus: Some(2),
                ..SimSpec::new(
                    format!("cpu:tasks=1000,duration=1ms{start}"),
                    Scheduler::parse("kernel"),
                    "laptop",
                )
            };
            let result = run(&spec, None).unwrap();
            assert_eq!(result.exit, Exit::Done);
            result.message
        };
        // A fork takes 40 µs and a tick more, so at most 24 of them fit; the jitter of `cpu` is off, as nothing sleeps.
        let told = message("").expect("it tells");
        let (number, rest) = told.split_once(' ').expect("a number is first");
        assert!((976..990).contains(&number.parse().unwrap()), "{told}");
        assert!(rest.starts_with("tasks had not been created yet"), "{told}");
        assert_eq!(message(",start=together"), None);
    }

    /// The list of origins is that of `docs/measures.md`.
    #[test]
    fn measures_come_from_where_the_list_says() {
        for scheduler in ["dss", "kernel"] {
            let spec = SimSpec {
                cpus: Some(2),
                ..SimSpec::new(
                    "chat:rooms=1,messages=5",
                    Scheduler::parse(scheduler),
                    "laptop",
                )
            };
            let prepared = Inputs::default().read(&spec).unwrap();
            let (result, stream) = prepared.run_with_stream(None).unwrap();
            let mut of_events = 0;
            for (name, value) in result.measures.iter() {
                let listed = origin(name, World::Simulator).is_some_and(Origin::is_of_events);
                // `work` is also what the workload reports.
                assert_eq!(
                    listed,
                    stream.measures.get(name) == Some(value),
                    "{scheduler}: {name}"
                );
                of_events += u32::from(listed);
            }
            assert_eq!(of_events as usize, stream.measures.iter().count());
            let beside = ["cache.misses", "policy.failed_lookups"];
            let known = beside.map(|name| result.measures.get(name).is_some());
            assert_eq!(known, [scheduler == "dss"; 2]);
        }
    }

    #[test]
    fn whoever_was_asked_to_listens_and_changes_nothing() {
        let mut measures = None;
        for (check, listens) in [(false, false), (false, true), (true, false), (true, true)] {
            // The second task waits for the first: longer than the watchdog's bound, if it cared for real-time tasks.
            let spec = SimSpec {
                cpus: Some(1),
                check,
                ..SimSpec::new(
                    "cpu:tasks=2,run=50s,loops=1,duration=0,policy=fifo:1",
                    Scheduler::parse("kernel"),
                    "laptop",
                )
            };
            let mut heard = Heard(0);
            let listener: Option<&mut dyn Listener> = if listens { Some(&mut heard) } else { None };
            let result = run(&spec, listener).unwrap();
            let exit = if check { Exit::Violation } else { Exit::Done };
            assert_eq!(result.exit, exit, "{:?}", result.message);
            assert_eq!(heard.0 > 0, listens, "check: {check}");
            let first = measures.get_or_insert_with(|| result.measures.clone());
            assert_eq!(*first, result.measures, "{check} {listens}");
        }
    }
}
