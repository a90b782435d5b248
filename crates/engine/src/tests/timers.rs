//! When sleeps end: timer slack, and timers of jiffies.

use schedlab_machine::{Machine, Timers};
use schedlab_trace::{Duration, Event};
use schedlab_workload::{Action, SchedClass, TaskSpec};

use crate::Scenario;
use crate::testing::*;

const SLACK_NS: u64 = 50_000;

/// A task that does one thing.
fn once(action: fn(u64) -> Action, us: u64) -> TaskSpec {
    task("sleeper", move |n, _| (n == 0).then(|| action(us)))
}

fn sleep(us: u64) -> Action {
    Action::Sleep(Duration::from_us(us))
}

fn io(us: u64) -> Action {
    Action::Io(Duration::from_us(us))
}

/// Runs with the kernel's timer slack; answers with when each task was woken the second time.
fn wakeups(scenario: Scenario) -> Vec<u64> {
    let nr = scenario.workload.tasks.len();
    let checked = run_checked(scenario, Stub::fifo(&[]));
    checked.is_done();
    (0..nr).map(|task| second_wakeup(&checked, task)).collect()
}

fn second_wakeup(checked: &Checked, task: usize) -> u64 {
    let own = checked.events.iter().filter(
        |(_, _, event)| matches!(event, Event::Wakeup { task: woken, .. } if woken.index() == task),
    );
    own.map(|&(at, ..)| at).nth(1).expect("it wakes")
}

fn with_slack(nr_cpus: usize, tasks: Vec<TaskSpec>) -> Scenario {
    Scenario {
        timer_slack_ns: SLACK_NS,
        ..scenario(nr_cpus, tasks)
    }
}

/// How long the way into a sleep and out of it is, at most.
const PATHS_NS: u64 = 20_000;

#[track_caller]
fn is_at(found_ns: u64, at_ns: u64) {
    let around = at_ns..at_ns + PATHS_NS;
    assert!(around.contains(&found_ns), "{found_ns}, not {at_ns}");
}

#[test]
fn the_default_is_that_of_linux() {
    let workload = workload(Vec::new(), vec![hog("hog", 1)]);
    assert_eq!(
        Scenario::new(machine(1), workload, 1).timer_slack_ns,
        SLACK_NS
    );
}

/// Normal tasks sleep up to 50 µs longer; devices are not late, nor are the sleeps of real-time tasks.
#[test]
fn a_sleep_alone_lasts_its_time_and_the_slack() {
    let alone = |spec: TaskSpec| wakeups(with_slack(1, vec![spec]))[0];
    is_at(alone(once(sleep, 1_000)), 1_050_000);
    is_at(alone(once(sleep, 100)), 150_000);
    is_at(alone(once(io, 1_000)), 1_000_000);
    let mut real_time = once(sleep, 1_000);
    real_time.class = SchedClass::Fifo(1);
    is_at(alone(real_time), 1_000_000);
    let mut batch = once(sleep, 1_000);
    batch.class = SchedClass::Batch;
    is_at(alone(batch), 1_050_000);
    let exact = wakeups(scenario(1, vec![once(sleep, 1_000)]))[0];
    is_at(exact, 1_000_000);
}

/// The interrupt for one ends all sleeps of its CPU whose time is over, and none of another CPU.
#[test]
fn sleeps_that_end_nearly_together_end_by_one_interrupt() {
    let pair = |nr_cpus, later_us| {
        let tasks = vec![once(sleep, 1_000), once(sleep, later_us)];
        let woken = wakeups(with_slack(nr_cpus, tasks));
        woken[1] - woken[0]
    };
    assert!(pair(1, 1_030) < 5_000);
    is_at(pair(1, 1_100), 90_000);
    is_at(pair(2, 1_030), 20_000);
}

/// A tick comes 30 µs after the sleep's time is over, and 20 µs before the kernel's timer would end it.
#[test]
fn a_tick_ends_a_sleep() {
    let period_us = 4_000;
    let busy = vec![once(sleep, period_us - 30 - 5), hog("hog", 20)];
    let checked = run_checked(with_slack(1, busy), Stub::fifo(&[]));
    is_at(second_wakeup(&checked, 0), period_us * 1_000);
}

/// Linux 2.4 rounds up to whole jiffies and adds one: 1 ms and 10 ms end with the second tick from now on, 11 ms with
/// the third.
#[test]
fn sleeps_of_linux_2_4_end_with_a_tick() {
    let woken = |action, us| {
        let machine = Machine::builtin("netfinity-8500r")
            .unwrap()
            .with_cpus(1)
            .unwrap();
        assert_eq!((machine.hz, machine.timers), (100, Timers::Jiffies));
        let workload = workload(Vec::new(), vec![once(action, us)]);
        wakeups(Scenario::new(machine, workload, 1))[0]
    };
    is_at(woken(sleep, 1_000), 20_000_000);
    is_at(woken(sleep, 10_000), 20_000_000);
    is_at(woken(sleep, 11_000), 30_000_000);
    is_at(woken(io, 1_000), 1_000_000);
}
