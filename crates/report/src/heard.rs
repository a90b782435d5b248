//! Hears an event stream and answers for all of it: measures, and what the invariants find.

use schedlab_trace::check::{Checkers, Violations};
use schedlab_trace::{
    CpuId, CpuSet, Event, Instant, Listener, LockClass, LockId, Recorder, TaskId, TaskMeta,
};

use crate::MetricsRecorder;

/// A recorder of measures and, where wanted, the checkers, on one stream of either world.
pub struct Heard {
    recorder: MetricsRecorder,
    checkers: Option<Checkers>,
}

impl Heard {
    /// Measures by `recorder`, judges by `checkers`.
    pub fn new(recorder: MetricsRecorder, checkers: Option<Checkers>) -> Self {
        Heard { recorder, checkers }
    }

    /// The measures so far.
    pub fn recorder(&self) -> &MetricsRecorder {
        &self.recorder
    }

    /// Ends the checks; `None` where there were none.
    pub fn finish(self) -> (MetricsRecorder, Option<Violations>) {
        (self.recorder, self.checkers.map(Checkers::finish))
    }
}

impl Listener for Heard {
    fn define_starter(&mut self, task: TaskId) {
        Recorder::define_starter(&self.recorder, task);
        self.checkers.define_starter(task);
    }

    fn define_task(&mut self, task: TaskId, meta: &TaskMeta) {
        Recorder::define_task(&self.recorder, task, meta);
        self.checkers.define_task(task, meta);
    }

    fn define_affinity(&mut self, task: TaskId, allowed: &CpuSet) {
        Recorder::define_affinity(&self.recorder, task, allowed);
        self.checkers.define_affinity(task, allowed);
    }

    fn define_lock(&mut self, lock: LockId, name: &str, class: LockClass) {
        Recorder::define_lock(&self.recorder, lock, name, class);
        self.checkers.define_lock(lock, name, class);
    }

    fn record(&mut self, at: Instant, cpu: CpuId, event: Event) {
        Recorder::record(&self.recorder, at, cpu, event);
        self.checkers.record(at, cpu, event);
    }
}
