//! Holds the statistics of each task: a few words, since there may be a million tasks.

use schedlab_trace::{CpuId, DEADLINE_PRIORITY, Duration, Instant, TaskMeta};

use crate::weight;

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// Not runnable: not started, blocked or gone.
    #[default]
    Quiescent,
    /// Runnable and waiting, since it was woken.
    Woken,
    /// Runnable and waiting, since it was created.
    Created,
    /// Runnable and waiting, since it left a CPU.
    Preempted,
    /// On a CPU.
    Running,
}

/// One task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    state: State,
    /// Whether it has been on a CPU.
    ran: bool,
    realtime: bool,
    /// It is under SCHED_DEADLINE.
    pub(crate) deadline: bool,
    /// Load weight.
    weight: u32,
    /// The CPU it ran on last.
    last_cpu: CpuId,
    /// Since when it is in `state`.
    since: Instant,
    /// CPU time since the weight last changed.
    cpu_ns: u64,
    /// CPU time times 1024 / weight until the weight last changed.
    weighted_ns: u64,
    /// Time runnable, running included, without that as a real-time task. Below zero while a wait is not added yet of
    /// which a part was before the measures began.
    wanted_ns: i64,
}

/// The data that a start on a CPU yields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// How long it has waited for a CPU.
    pub(crate) waited_ns: u64,
    /// The same, if a wakeup led to it.
    pub(crate) wakeup_latency_ns: Option<u64>,
    /// Whether the task last ran on another CPU.
    pub(crate) elsewhere: bool,
}

impl Default for Task {
    fn default() -> Self {
        Task {
            state: State::Quiescent,
            ran: false,
            realtime: false,
            deadline: false,
            weight: weight::of_nice(0),
            last_cpu: CpuId(0),
            since: Instant::ZERO,
            cpu_ns: 0,
            weighted_ns: 0,
            wanted_ns: 0,
        }
    }
}

impl Task {
    /// The identity of the task; reported again when it changes, at `at`.
    pub(crate) fn define(&mut self, meta: &TaskMeta, at: Instant) {
        // Until now it ran at the old weight. Its waiting time has no weight, and goes on. CPUs may be a little ahead
        // of each other.
        if self.state == State::Running {
            self.finish(at.max(self.since));
        }
        self.weighted_ns += self.weighted(self.cpu_ns);
        self.cpu_ns = 0;
        self.weight = if meta.idle {
            weight::IDLE
        } else {
            weight::of_nice(meta.nice)
        };
        self.realtime = meta.is_realtime();
        self.deadline = meta.rt_priority == DEADLINE_PRIORITY;
    }

    fn weighted(&self, cpu_ns: u64) -> u64 {
        let scaled = u128::from(cpu_ns) * 1024 / u128::from(self.weight);
        u64::try_from(scaled).expect("a run of less than 270 years")
    }

    /// Returns whether it is runnable and not on a CPU.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, State::Woken | State::Created | State::Preempted)
    }

    /// Returns whether it was created and has not run nor become runnable.
    pub(crate) fn is_fresh(&self) -> bool {
        self.state == State::Quiescent && !self.ran
    }

    /// Returns whether it is runnable, running included.
    pub(crate) fn is_runnable(&self) -> bool {
        self.state != State::Quiescent
    }

    /// Returns the CPU that it ran on last; the first one if it never ran.
    pub(crate) fn last_cpu(&self) -> CpuId {
        self.last_cpu
    }

    /// It runs on `cpu` as the recording begins, at `at`.
    pub(crate) fn found_running(&mut self, at: Instant, cpu: CpuId) {
        self.state = State::Running;
        self.since = at;
        self.ran = true;
        self.last_cpu = cpu;
    }

    /// Measures begin at `at`: the task stays where it is, and what it did before does not count. A wait that goes on
    /// keeps its beginning, for the wakeup's latency.
    pub(crate) fn begin(&mut self, at: Instant) {
        self.weighted_ns = 0;
        self.cpu_ns = 0;
        self.wanted_ns = 0;
        self.ran = self.state == State::Running;
        if self.waits() && !self.realtime {
            self.wanted_ns = -signed(at.since(self.since).ns());
        } else {
            self.since = self.since.max(at);
        }
    }

    /// It ends at `at`. What it still does until it has left its CPU does not count in its service.
    pub(crate) fn exit(&mut self, at: Instant) {
        self.finish(at.max(self.since));
        self.realtime = true;
    }

    /// Returns how long it has waited for a CPU until `at`, if it has not got one.
    pub(crate) fn unfinished_wait_ns(&self, at: Instant) -> Option<u64> {
        self.waits().then(|| at.since(self.since).ns())
    }

    /// Returns the same, if a wakeup led to it.
    pub(crate) fn unfinished_wakeup_ns(&self, at: Instant) -> Option<u64> {
        (self.state == State::Woken).then(|| at.since(self.since).ns())
    }

    /// It becomes runnable at `at`, which was decided `since` before.
    pub(crate) fn wake(&mut self, at: Instant, since: Duration) {
        // A task that is woken before it has left its CPU does not wait.
        if self.state == State::Quiescent {
            self.state = if self.ran {
                State::Woken
            } else {
                State::Created
            };
            // The waker may have decided so while the task was still leaving its CPU: then it did not wait yet.
            self.since = self.since.max(at - since);
        }
    }

    pub(crate) fn start(&mut self, at: Instant, cpu: CpuId) -> Start {
        let waited_ns = at.since(self.since).ns();
        let start = Start {
            waited_ns: if self.waits() { waited_ns } else { 0 },
            wakeup_latency_ns: (self.state == State::Woken).then_some(waited_ns),
            elsewhere: self.ran && self.last_cpu != cpu,
        };
        if self.state != State::Quiescent {
            self.wants(waited_ns);
        }
        self.state = State::Running;
        self.since = at;
        self.ran = true;
        self.last_cpu = cpu;
        start
    }

    pub(crate) fn stop(&mut self, at: Instant, runnable: bool) {
        self.finish(at);
        self.state = if runnable {
            State::Preempted
        } else {
            State::Quiescent
        };
    }

    /// Adds up until `at`, where the run ends or the task stops.
    pub(crate) fn finish(&mut self, at: Instant) {
        let ns = at.since(self.since).ns();
        if self.state == State::Running && !self.realtime {
            self.cpu_ns += ns;
        }
        if self.state != State::Quiescent {
            self.wants(ns);
        }
        self.since = at;
    }

    /// It wanted a CPU, or had one, for `ns`. A real-time task takes what it wants: that is outside of fairness.
    fn wants(&mut self, ns: u64) {
        if !self.realtime {
            self.wanted_ns += signed(ns);
        }
    }

    /// CPU time per weight, relative to the time during which the task wanted a CPU, both without what it did as
    /// a real-time task; `None` if it never wanted one otherwise.
    pub(crate) fn service(&self) -> Option<f64> {
        let service_ns = self.weighted_ns + self.weighted(self.cpu_ns);
        (self.wanted_ns > 0).then(|| service_ns as f64 / self.wanted_ns as f64)
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).expect("a run of less than 290 years")
}

/// Returns Jain's fairness index of the tasks' shares: 1 if all got the same, 1/n if one got everything. `None` if
/// all shares are 0.
pub(crate) fn jain(services: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum, squares) = services.fold((0u64, 0.0, 0.0), |(n, sum, squares), x| {
        (n + 1, sum + x, squares + x * x)
    });
    (squares > 0.0).then(|| sum * sum / (n as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_on_known_cases() {
        assert_eq!(jain([1.0, 1.0, 1.0].into_iter()), Some(1.0));
        assert_eq!(jain([4.0, 0.0, 0.0, 0.0].into_iter()), Some(0.25));
        assert_eq!(jain([1.0, 3.0].into_iter()), Some(0.8));
        assert_eq!(jain([0.0].into_iter()), None);
        assert_eq!(jain(std::iter::empty()), None);
    }

    #[test]
    fn service_counts_only_the_time_a_cpu_was_wanted() {
        let at = Instant::from_ns;
        let mut task = Task::default();
        task.wake(at(100), Duration::ZERO);
        task.start(at(150), CpuId(0));
        task.stop(at(200), false);
        task.wake(at(1_000), Duration::ZERO);
        task.start(at(1_050), CpuId(0));
        task.finish(at(1_100));
        // 100 ns on a CPU of 200 ns wanted.
        assert_eq!(task.service(), Some(0.5));
    }

    #[test]
    fn a_wait_begins_with_the_decision_to_wake_it() {
        let at = Instant::from_ns;
        let mut task = Task::default();
        task.wake(at(0), Duration::ZERO);
        task.start(at(0), CpuId(0));
        task.stop(at(1_000), false);
        task.wake(at(1_300), Duration::from_ns(200));
        let latency = task.start(at(1_400), CpuId(0)).wakeup_latency_ns;
        assert_eq!(latency, Some(300));
        task.stop(at(2_000), false);
        // Decided 300 ns before it had left its CPU.
        task.wake(at(2_100), Duration::from_ns(400));
        let latency = task.start(at(2_150), CpuId(0)).wakeup_latency_ns;
        assert_eq!(latency, Some(150));
        // It ran 1,600 ns and waited 450.
        assert_eq!(task.service(), Some(1_600.0 / 2_050.0));
    }

    #[test]
    fn a_new_weight_counts_from_when_it_is_told() {
        let at = Instant::from_ns;
        let meta = |nice| TaskMeta {
            comm: String::new(),
            nice,
            affinity: Default::default(),
            rt_priority: 0,
            idle: false,
        };
        let mut task = Task::default();
        task.define(&meta(0), at(0));
        task.wake(at(0), Duration::ZERO);
        task.start(at(0), CpuId(0));
        task.stop(at(1_000), true);
        task.define(&meta(5), at(1_000));
        task.start(at(1_000), CpuId(0));
        task.finish(at(2_000));
        // 1000 ns at weight 1024 and 1000 ns at weight 335 (3056 ns of nice-0 time).
        assert_eq!(task.service(), Some((1_000.0 + 3_056.0) / 2_000.0));
    }

    #[test]
    fn an_idle_task_has_its_own_weight_and_real_time_is_left_out() {
        let at = Instant::from_ns;
        let meta = |rt_priority, idle| TaskMeta {
            comm: String::new(),
            nice: 0,
            affinity: Default::default(),
            rt_priority,
            idle,
        };
        let mut task = Task::default();
        task.define(&meta(0, true), at(0));
        task.wake(at(0), Duration::ZERO);
        task.start(at(0), CpuId(0));
        // 300 ns at weight 3 are 102,400 ns of nice-0 time.
        task.define(&meta(50, false), at(300));
        // As a real-time task it runs 500 ns, waits 100 and runs 50.
        task.stop(at(800), true);
        task.start(at(900), CpuId(0));
        task.define(&meta(0, false), at(950));
        // 50 ns on a CPU, 100 waiting.
        task.stop(at(1_000), true);
        task.start(at(1_100), CpuId(0));
        assert_eq!(task.service(), Some((102_400.0 + 50.0) / 450.0));
        task.define(&meta(1, false), at(1_100));
        task.finish(at(2_000));
        assert_eq!(task.service(), Some((102_400.0 + 50.0) / 450.0));

        let mut never = Task::default();
        never.define(&meta(1, false), at(0));
        never.start(at(0), CpuId(0));
        never.finish(at(10));
        assert_eq!(never.service(), None);
    }

    #[test]
    fn what_was_before_the_measures_begin_does_not_count() {
        let at = Instant::from_ns;
        let mut running = Task::default();
        running.found_running(at(0), CpuId(1));
        running.begin(at(100));
        running.stop(at(150), false);
        assert_eq!(running.service(), Some(1.0));
        assert!(!running.is_fresh());

        // It waits 60 ns before and 40 ns after, and runs 10: 10 of 50 count, and a latency of 100.
        let mut waiting = running;
        waiting.wake(at(240), Duration::ZERO);
        waiting.begin(at(300));
        let start = waiting.start(at(340), CpuId(0));
        assert_eq!(start.wakeup_latency_ns, Some(100));
        assert!(!start.elsewhere);
        waiting.finish(at(350));
        assert_eq!(waiting.service(), Some(0.2));

        let mut asleep = Task::default();
        asleep.begin(at(300));
        assert!(asleep.is_fresh());
        asleep.wake(at(310), Duration::ZERO);
        assert_eq!(asleep.start(at(320), CpuId(0)).wakeup_latency_ns, None);
    }

    #[test]
    fn what_a_task_does_after_its_end_is_not_its_service() {
        let at = Instant::from_ns;
        let mut task = Task::default();
        task.wake(at(0), Duration::ZERO);
        task.start(at(10), CpuId(0));
        task.exit(at(20));
        task.stop(at(90), false);
        // It ran 10 of 20 ns.
        assert_eq!(task.service(), Some(0.5));
    }

    /// A task that changes its own nice level is on a CPU.
    #[test]
    fn a_new_weight_while_it_runs_counts_from_when_it_is_told() {
        let at = Instant::from_ns;
        let meta = |nice| TaskMeta {
            comm: String::new(),
            nice,
            affinity: Default::default(),
            rt_priority: 0,
            idle: false,
        };
        let mut task = Task::default();
        task.define(&meta(0), at(0));
        task.wake(at(0), Duration::ZERO);
        task.start(at(0), CpuId(0));
        task.define(&meta(5), at(1_000));
        // Told by a CPU that is behind: no time counts twice.
        task.define(&meta(5), at(900));
        task.stop(at(2_000), true);
        assert_eq!(task.service(), Some((1_000.0 + 3_056.0) / 2_000.0));
        // While it waits, the latency of its wakeup goes on.
        task.start(at(2_000), CpuId(0));
        task.stop(at(2_000), false);
        task.wake(at(3_000), Duration::ZERO);
        task.define(&meta(0), at(3_500));
        assert_eq!(task.unfinished_wakeup_ns(at(4_000)), Some(1_000));
    }
}
