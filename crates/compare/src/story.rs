//! A run that a test writes event by event.

use schedlab_trace::{
    CpuId, CpuMode, Duration, Event, Instant, Listener as _, LockClass, LockId, PrevState, TaskId,
    TaskMeta,
};

use crate::path::Decomposer;

/// A run of tasks with these names, and one lock of a queue.
pub(crate) struct Story(pub(crate) Decomposer);

impl Story {
    pub(crate) fn new(names: &[&str]) -> Story {
        Story::of(Decomposer::watching(), names)
    }

    /// Heard by this one.
    pub(crate) fn of(mut story: Decomposer, names: &[&str]) -> Story {
        for (task, name) in (0..).zip(names) {
            let meta = TaskMeta {
                comm: (*name).to_owned(),
                nice: 0,
                affinity: Default::default(),
                rt_priority: 0,
                idle: false,
            };
            story.define_task(TaskId(task), &meta);
        }
        story.define_lock(LockId(0), "queue", LockClass::RunQueue);
        Story(story)
    }

    pub(crate) fn at(&mut self, at: u64, cpu: u32, event: Event) -> &mut Story {
        self.0.record(Instant::from_ns(at), CpuId(cpu), event);
        self
    }

    pub(crate) fn wakes(&mut self, at: u64, cpu: u32, task: u32) -> &mut Story {
        let (task, to, since) = (TaskId(task), CpuId(0), Duration::ZERO);
        self.at(at, cpu, Event::Wakeup { task, to, since })
    }

    pub(crate) fn switch(
        &mut self,
        at: u64,
        cpu: u32,
        prev: Option<(u32, PrevState)>,
        next: Option<u32>,
    ) -> &mut Story {
        self.at(
            at,
            cpu,
            Event::Switch {
                prev: prev.map(|(task, _)| TaskId(task)),
                prev_state: prev.map_or(PrevState::Blocked, |(_, state)| state),
                next: next.map(TaskId),
            },
        )
    }

    pub(crate) fn mode(&mut self, at: u64, cpu: u32, mode: CpuMode) -> &mut Story {
        self.at(at, cpu, Event::Mode(mode))
    }
}
