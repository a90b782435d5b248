//! A specification becomes a scenario, the scenario a result.

use std::cell::RefCell;

use schedlab_engine::policy::Probes;
use schedlab_engine::{
    ExitInfo, ExitKind, KernelVersion, NormalClass, RtMode, Scenario, UnknownKernel,
    WorkloadFailure,
};
use schedlab_machine::address::Structure;
use schedlab_machine::cache::{LineCounts, PAGE_BYTES};
use schedlab_machine::{CacheModel, CacheStats, Machine, ProfileError};
use schedlab_policies::SelectError;
use schedlab_report::histogram::Buckets;
use schedlab_report::{Exit, Measures, MetricsRecorder, RunResult, Sources};
use schedlab_trace::check::{Checkers, Start};
use schedlab_trace::{Duration, Listener, counted};
use schedlab_workload::{Workload, WorkloadError};

use crate::SimSpec;
use crate::policy::{self, Ended, Loaded, SchedulerError};

/// Why a run could not be begun. How a run ended is no error but part of its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The workload cannot be used.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The machine cannot be used.
    #[error(transparent)]
    Machine(#[from] ProfileError),
    /// The scheduler cannot be used.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// No such kernel is simulated.
    #[error(transparent)]
    Kernel(#[from] UnknownKernel),
}

impl SimError {
    /// Whether it is what a compiler says of a scheduler's source: lines, each with its place.
    pub fn is_of_source(&self) -> bool {
        matches!(
            self,
            SimError::Scheduler(SchedulerError::Select(SelectError::Source(_)))
        )
    }
}

/// A stalled task is noticed up to half its time-out later (`scx_watchdog_workfn()` runs that often).
const WATCHDOG_SLACK_PCT: u64 = 150;
/// The watchdog's time-out where a policy names none.
const TIMEOUT_MS: u32 = 30_000;

/// Everything that a specification names, found.
struct Prepared {
    machine: Machine,
    workload: Workload,
    policy: Loaded,
    version: KernelVersion,
    /// Whether the time limit is what ends the run if nothing else does.
    limited: bool,
}

fn machine(spec: &SimSpec) -> Result<Machine, SimError> {
    let mut machine = Machine::find(&spec.machine)?;
    if let Some(layout) = spec.task_layout {
        machine = machine.with_layout(layout)?;
    }
    if let Some(cpus) = spec.cpus {
        machine = machine.with_cpus(cpus)?;
    }
    Ok(machine)
}

fn prepare(spec: &SimSpec) -> Result<Prepared, SimError> {
    let machine = machine(spec)?;
    let version = spec.kernel.parse()?;
    let mut workload = Workload::parse(&spec.workload, machine.topology.nr_cpus())?;
    let limit = Duration::from_secs(spec.time_limit_s);
    let limited = workload.duration.is_none_or(|duration| duration > limit);
    // One without any is given up there, or at once where its tasks wait for each other.
    if limited && workload.duration.is_some() {
        workload.duration = Some(limit);
    }
    Ok(Prepared {
        policy: policy::load(&spec.scheduler, &machine, version)?,
        machine,
        workload,
        version,
        limited,
    })
}

/// The number of CPUs that the run will have.
///
/// # Errors
/// If the machine cannot be used.
pub fn nr_cpus(spec: &SimSpec) -> Result<usize, SimError> {
    Ok(machine(spec)?.topology.nr_cpus())
}

/// Whether the run could be begun, without running it. Answers with what its user should know.
///
/// # Errors
/// As [`run`].
pub fn check(spec: &SimSpec) -> Result<Vec<String>, SimError> {
    let prepared = prepare(spec)?;
    let mut notes = prepared.workload.notes;
    notes.extend(prepared.policy.notes());
    Ok(notes)
}

/// Runs it. `listener` hears every event.
///
/// # Errors
/// If something it names is not there or cannot be used. How the run ended stands in the result.
pub fn run(spec: &SimSpec, listener: Option<&mut dyn Listener>) -> Result<RunResult, SimError> {
    let Prepared {
        machine,
        workload,
        policy,
        version,
        limited,
    } = prepare(spec)?;
    let nr_cpus = machine.topology.nr_cpus();
    let baseline = policy.is_baseline();
    let sources = Sources {
        kernel_locks: machine.sched_ext.rq_locks,
        policy_locks: !baseline,
        examined: !baseline,
        // Its structures are not modelled line by line.
        memory: !baseline,
        ..Sources::ALL
    };
    let timeout_ms = match policy.timeout_ms() {
        0 => TIMEOUT_MS,
        ms => ms,
    };
    let bound = if machine.sched_ext.watchdog {
        Duration::from_us(u64::from(timeout_ms) * 10 * WATCHDOG_SLACK_PCT)
    } else {
        Duration::from_ns(u64::MAX)
    };
    let checkers = spec
        .check
        .then(|| Checkers::new(nr_cpus, Start::Idle, bound));
    let metrics = MetricsRecorder::new(nr_cpus, sources);
    let score = workload.score.clone();
    let mut result = RunResult {
        workload: workload.name.clone(),
        asked: spec.workload.clone(),
        params: workload.params.clone(),
        scheduler: spec.scheduler.to_string(),
        machine: spec.machine.clone(),
        task_layout: Some(machine.layout().to_string()),
        cpus: u32::try_from(nr_cpus).expect("CPU numbers are 32 bits wide"),
        seed: spec.seed,
        exit: Exit::Done,
        replay: spec.replay_command(),
        ..RunResult::default()
    };
    let clock_mhz = machine.clock_mhz;
    let mut scenario = Scenario::new(machine, workload, spec.seed);
    scenario.count_by_offset = spec.task_layout.is_some();
    scenario.version = version;
    scenario.limits.simulated = Duration::from_secs(spec.time_limit_s);
    scenario.normal_class = if baseline {
        NormalClass::Fair
    } else {
        NormalClass::Ext
    };
    scenario.rt_mode = if spec.rt_policy {
        RtMode::Policy
    } else {
        RtMode::Kernel
    };
    // What most runs are is compiled for itself: no event asks who else listens.
    let (mut end, metrics, checkers) = if checkers.is_none() && listener.is_none() {
        let (end, metrics) = policy.run(scenario, metrics);
        (end, metrics, None)
    } else {
        let mut others = (checkers, listener);
        let recorder = (metrics, RefCell::new(&mut others as &mut dyn Listener));
        let (end, (metrics, _)) = policy.run(scenario, recorder);
        (end, metrics, others.0)
    };
    metrics.ended(end.end);
    (result.exit, result.message) = exit(&end, limited.then_some(spec.time_limit_s));
    result.exit_code = Some(end.exit.code).filter(|code| *code != 0);
    result.printed = std::mem::take(&mut end.printed);
    result.dump = std::mem::take(&mut end.dump);
    if let Some(violations) = checkers.map(Checkers::finish) {
        // Of a run that ended otherwise the end itself is the news; a stall, for one, is a violation too.
        if violations.count() > 0 && result.is_done() {
            result.exit = Exit::Violation;
            let shown: Vec<_> = violations.first().iter().map(ToString::to_string).collect();
            result.message = Some(format!(
                "{} in all: {}",
                violations.count(),
                shown.join("; ")
            ));
        }
    }
    let measures = &mut result.measures;
    if matches!(result.exit, Exit::Done | Exit::Violation) {
        let last = end.makespan.unwrap_or(end.end);
        if let Some(value) = score.value(end.work, last.since(end.begun), &end.counters) {
            measures.float("score", value);
            measures.text("score_unit", score.unit);
            measures.text("score_better", score.better());
            measures.float(score.name, value);
        }
        measures.int("makespan_ns", last.ns());
    }
    for (name, value) in metrics.measures(Some(clock_mhz)).iter() {
        measures.set(name, value.clone());
    }
    if !baseline {
        let sum = |of: fn(&Probes) -> u64| end.probes.iter().map(of).sum();
        measures.int("policy.failed_lookups", sum(|probes| probes.failed_lookups));
        measures.int("policy.pinned_local", sum(|probes| probes.pinned_local));
        cache_measures(&end.cache, measures);
    }
    measures.counters(end.counters.values(), end.counters.measures());
    result.histograms = vec![("runqueue.len".to_owned(), metrics.queue_histogram())];
    result.histograms.extend(by_offset(&end.cache));
    result.series = metrics.series();
    if let (Some(transactions), 1..) = (result.measures.number("cache.bus_transactions"), end.work)
    {
        let per_work = transactions / end.work as f64;
        result
            .measures
            .float("cache.bus_transactions_per_work", per_work);
    }
    Ok(result)
}

/// How a run ended, with the explanation.
fn exit(end: &Ended, time_limit_s: Option<u64>) -> (Exit, Option<String>) {
    match &end.failure {
        // Without an end of its own the limit is the workload's.
        None | Some(WorkloadFailure::Endless { .. }) => {}
        Some(failure) => return (failure_exit(failure), Some(failure.to_string())),
    }
    let ExitInfo {
        kind,
        code,
        reason,
        message,
    } = &end.exit;
    if *kind != ExitKind::Done {
        let reason = match code {
            0 => reason.clone(),
            // Half of it is flags (SCX_ECODE_…).
            code => format!("{reason}, code {code:#x}"),
        };
        let text = match kind {
            _ if message.is_empty() => reason,
            // The exit's name says it already.
            ExitKind::Fault => message.clone(),
            _ => format!("{reason} ({message})"),
        };
        return (Exit::of_scx(*kind as u64), Some(text));
    }
    match time_limit_s {
        Some(seconds) if !end.unfinished.is_empty() => {
            let count = counted(end.unfinished.len() as u64, "task");
            let text = format!(
                "{count} had not ended after {seconds} s of simulated time: give it more with --time-limit, or the workload an end"
            );
            (Exit::TimeLimit, Some(text))
        }
        _ => {
            let note = end.stuck.as_ref().map(|why| {
                format!(
                    "what was left of the tasks idled until the workload's duration was over: {why}"
                )
            });
            (Exit::Done, note)
        }
    }
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
