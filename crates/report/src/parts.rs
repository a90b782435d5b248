//! Measures by task, for each part of a workload that is composed of several.

use std::collections::BTreeSet;

use schedlab_trace::event::PrevState;
use schedlab_trace::{CpuId, Event, Instant, Listener, TaskId};

use crate::task_stats::Task;
use crate::{Histogram, Measures};

/// Latencies above this (17 minutes) fall into one bucket.
const LATENCY_NS_MAX: u64 = 1 << 40;

/// Hears whose tasks run and wait.
pub struct PartsRecorder {
    parts: Vec<Part>,
    /// The main thread, which creates the first tasks of all parts in order, and tasks of no part.
    starters: BTreeSet<TaskId>,
    /// First tasks so far.
    nr_first: u32,
    tasks: Vec<Known>,
}

struct Part {
    name: String,
    /// Its first tasks are those before this one.
    end: u32,
    wakeup_latency: Histogram,
    cpu_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Known {
    part: Option<u32>,
    task: Task,
    /// Since when it is on a CPU.
    runs: Option<Instant>,
}

impl PartsRecorder {
    /// For parts with these names and numbers of tasks; tasks that are created later belong to the part of who creates
    /// them.
    pub fn new(parts: impl Iterator<Item = (String, usize)>) -> Self {
        let mut end = 0;
        let parts = parts.map(|(name, tasks)| {
            end += u32::try_from(tasks).expect("fewer than 2^32 tasks");
            Part {
                name,
                end,
                wakeup_latency: Histogram::new(LATENCY_NS_MAX),
                cpu_ns: 0,
            }
        });
        PartsRecorder {
            parts: parts.collect(),
            starters: BTreeSet::new(),
            nr_first: 0,
            tasks: Vec::new(),
        }
    }

    fn known(&mut self, task: TaskId) -> &mut Known {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, Known::default());
        }
        &mut self.tasks[task.index()]
    }

    fn part(&mut self, task: TaskId) -> Option<&mut Part> {
        let part = self.known(task).part?;
        self.parts.get_mut(part as usize)
    }

    fn stops(&mut self, at: Instant, task: TaskId) {
        if let Some(since) = self.known(task).runs.take()
            && let Some(part) = self.part(task)
        {
            part.cpu_ns += at.since(since).ns();
        }
    }

    /// Sets the measures of each part, of a run that ended at `end`.
    pub fn measures(mut self, end: Instant, measures: &mut Measures) {
        for task in 0..self.tasks.len() {
            self.stops(end, TaskId(task as u32));
        }
        for Part {
            name,
            wakeup_latency,
            cpu_ns,
            ..
        } in &self.parts
        {
            measures.int(format!("{name}.cpu_ns"), *cpu_ns);
            if let Some(ns) = wakeup_latency.permilles([500, 900, 990, 999]) {
                for (ns, percentile) in ns.into_iter().zip(["p50", "p90", "p99", "p99_9"]) {
                    measures.int(format!("{name}.wakeup.latency_ns_{percentile}"), ns);
                }
            }
            wakeup_latency.mean_and_max(&format!("{name}.wakeup.latency_ns"), measures);
        }
    }
}

impl Listener for PartsRecorder {
    fn define_starter(&mut self, task: TaskId) {
        self.starters.insert(task);
    }

    fn record(&mut self, at: Instant, _: CpuId, event: Event) {
        match event {
            Event::TaskNew { task, parent } => {
                let part = match parent {
                    _ if self.starters.contains(&task) => None,
                    Some(parent) if !self.starters.contains(&parent) => self.known(parent).part,
                    // Others may create tasks before the main thread has come to all of its own.
                    _ => {
                        let number = self.nr_first;
                        self.nr_first += 1;
                        let part = self.parts.iter().position(|part| number < part.end);
                        part.map(|part| part as u32)
                    }
                };
                self.known(task).part = part;
            }
            Event::Wakeup { task, since, .. } => self.known(task).task.wake(at, since),
            Event::Switch {
                prev,
                prev_state,
                next,
            } => {
                if let Some(prev) = prev {
                    let runnable = matches!(prev_state, PrevState::Preempted | PrevState::Yielded);
                    self.known(prev).task.stop(at, runnable);
                    self.stops(at, prev);
                }
                if let Some(next) = next {
                    let known = self.known(next);
                    known.runs = Some(at);
                    let start = known.task.start(at, CpuId(0));
                    if let (Some(ns), Some(part)) = (start.wakeup_latency_ns, self.part(next)) {
                        part.wakeup_latency.record(ns);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use schedlab_trace::Duration;

    use super::*;

    #[test]
    fn each_task_counts_for_its_part() {
        let mut recorder =
            PartsRecorder::new([("a".to_owned(), 1), ("b".to_owned(), 1)].into_iter());
        let mut record = |at, event| recorder.record(Instant::from_ns(at), CpuId(0), event);
        let new = |task, parent: Option<u32>| Event::TaskNew {
            task: TaskId(task),
            parent: parent.map(TaskId),
        };
        let wakeup = |task| Event::Wakeup {
            task: TaskId(task),
            to: CpuId(0),
            since: Duration::ZERO,
        };
        let switch = |prev: Option<u32>, next: Option<u32>| Event::Switch {
            prev: prev.map(TaskId),
            prev_state: PrevState::Blocked,
            next: next.map(TaskId),
        };
        record(0, new(0, None));
        record(0, new(1, None));
        record(0, new(2, Some(1)));
        // Task 0 runs for 100 ns, sleeps, waits for 30 and runs for 50; its child-less part has no others.
        record(0, wakeup(0));
        record(10, switch(None, Some(0)));
        record(110, switch(Some(0), None));
        record(200, wakeup(0));
        record(230, switch(None, Some(0)));
        record(280, switch(Some(0), Some(2)));
        // The child of task 1 runs to the end, for 720.
        let mut measures = Measures::default();
        recorder.measures(Instant::from_ns(1_000), &mut measures);
        assert_eq!(measures.number("a.cpu_ns"), Some(150.0));
        assert_eq!(measures.number("b.cpu_ns"), Some(720.0));
        assert_eq!(measures.number("a.wakeup.latency_ns_max"), Some(30.0));
        assert_eq!(measures.number("b.wakeup.latency_ns_max"), None);
    }
}
