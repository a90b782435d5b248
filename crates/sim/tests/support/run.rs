//! Runs a compiled policy in the virtual kernel.
#![allow(dead_code, reason = "each test file uses the part of it that it needs")]

use std::sync::Arc;

use schedlab_abi::{KernelVersion, NativeObject, NativePolicy};
use schedlab_engine::{RunEnd, Scenario};
use schedlab_machine::Machine;
use schedlab_trace::check::{Checkers, Start};
use schedlab_trace::{
    CpuId, CpuSet, Duration, Event, Listener, LockClass, LockId, Scheduler, TaskId, TaskMeta,
};

/// A machine cut to so many CPUs.
pub fn machine(name: &str, cpus: usize) -> Machine {
    Machine::find(name)
        .and_then(|machine| machine.with_cpus(cpus))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a scenario under a private copy of `object` with default options.
pub fn run<R: Listener>(
    object: &Arc<NativeObject>,
    scenario: Scenario,
    recorder: R,
) -> RunEnd<NativePolicy, R> {
    run_with(object, "", scenario, recorder)
}

/// The same with `options`.
pub fn run_with<R: Listener>(
    object: &Arc<NativeObject>,
    options: &str,
    scenario: Scenario,
    recorder: R,
) -> RunEnd<NativePolicy, R> {
    let settings = object
        .settings(&Scheduler::parse_options(options))
        .unwrap_or_else(|error| panic!("{error}"));
    let policy = NativePolicy::load(
        object,
        &settings,
        &scenario.machine,
        KernelVersion::default(),
    )
    .unwrap_or_else(|error| panic!("{error}"));
    schedlab_engine::run(scenario, policy, recorder)
}

/// The invariants that hold for every run, with a stall bound of `timeout_ms` (0: the kernel's 30 s).
/// The watchdog looks twice per time-out, so it may come half of it late.
pub fn checkers(nr_cpus: usize, timeout_ms: u32) -> Checkers {
    let ms = if timeout_ms == 0 { 30_000 } else { timeout_ms };
    let bound = Duration::from_us(u64::from(ms) * 1_500);
    Checkers::new(nr_cpus, Start::Idle, bound)
}

/// The findings of the checkers, as text; empty without findings.
pub fn violations(checkers: Checkers) -> String {
    let found = checkers.finish();
    let lines: Vec<String> = found.first().iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Everything that a recorder hears, as bytes: equal streams give equal bytes and the other way round.
#[derive(Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        use std::io::Write as _;
        writeln!(self.0, "{line}").expect("memory can be written");
    }
}

impl Listener for Bytes {
    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        self.line(format_args!("{task} {meta:?}"));
    }
    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        self.line(format_args!("{task} {allowed}"));
    }
    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        self.line(format_args!("{lock} {name} {class:?}"));
    }
    fn record(&mut self, at: schedlab_trace::Instant, cpu: CpuId, event: Event) {
        self.line(format_args!("{} {cpu} {event:?}", at.ns()));
    }
}
