//! How many tasks there are, are to come, live, can run and sleep.

use std::cell::Cell;

use schedlab_trace::TaskId;

/// Counts of a run's tasks. Each goes up and down by its methods alone; below zero it panics.
#[derive(Default)]
pub(crate) struct Population {
    /// The main thread, where one creates the workload's first tasks.
    starter: Cell<Option<TaskId>>,
    /// How many first tasks the workload has, and how many of them are there.
    nr_first: Cell<u32>,
    nr_started: Cell<u32>,
    /// Tasks that the run waits for.
    nr_alive: Cell<u32>,
    nr_runnable: Cell<u32>,
    /// Pending timers of tasks: sleeps and starts.
    nr_timers: Cell<u32>,
    /// Tasks of the machine's background, which are made one after another: the first one's number, and how many. Each has a
    /// timer while it sleeps.
    first_daemon: Cell<u32>,
    nr_daemons: Cell<u32>,
}

impl Population {
    /// The workload has `nr_first` tasks at first, and the run waits for `nr_alive` of them.
    pub fn announce(&self, nr_first: u32, nr_alive: u32) {
        self.nr_first.set(nr_first);
        self.nr_alive.set(nr_alive);
    }

    pub fn set_starter(&self, task: TaskId) {
        self.starter.set(Some(task));
    }

    pub fn starter(&self) -> Option<TaskId> {
        self.starter.get()
    }

    /// How many of `nr_tasks`, those that there have been so far, are the workload's.
    pub fn of_workload(&self, nr_tasks: u32) -> u32 {
        nr_tasks - u32::from(self.starter.get().is_some()) - self.nr_daemons.get()
    }

    /// The machine has one more task that runs beside any workload.
    pub fn add_daemon(&self, task: TaskId) {
        if self.nr_daemons.get() == 0 {
            self.first_daemon.set(task.0);
        }
        self.nr_daemons.set(self.nr_daemons.get() + 1);
    }

    /// Returns whether a task is one of them.
    pub fn is_daemon(&self, task: TaskId) -> bool {
        let first = self.first_daemon.get();
        (first..first + self.nr_daemons.get()).contains(&task.0)
    }

    /// First tasks that have not been created yet.
    pub fn nr_to_come(&self) -> u32 {
        self.nr_first.get() - self.nr_started.get()
    }

    /// The number of the next first task, which is created now.
    pub fn start_first(&self) -> u32 {
        let number = self.nr_started.get();
        self.nr_started.set(number + 1);
        number
    }

    /// The number of the next task that is not a first one, if there have been `nr_tasks` of the workload.
    pub fn next_later(&self, nr_tasks: u32) -> u32 {
        self.nr_first.get() + nr_tasks - self.nr_started.get()
    }

    /// Tasks that the run waits for.
    pub fn nr_alive(&self) -> u32 {
        self.nr_alive.get()
    }

    /// The run waits for one more.
    pub fn add_alive(&self) {
        self.nr_alive.set(self.nr_alive.get() + 1);
    }

    /// The run waits for one less.
    pub fn remove_alive(&self) {
        self.nr_alive.set(self.nr_alive.get() - 1);
    }

    #[inline(always)]
    pub fn nr_runnable(&self) -> u32 {
        self.nr_runnable.get()
    }

    #[inline(always)]
    pub fn add_runnable(&self) {
        self.nr_runnable.set(self.nr_runnable.get() + 1);
    }

    #[inline(always)]
    pub fn remove_runnable(&self) {
        self.nr_runnable.set(self.nr_runnable.get() - 1);
    }

    #[inline(always)]
    pub fn add_timer(&self) {
        self.nr_timers.set(self.nr_timers.get() + 1);
    }

    #[inline(always)]
    pub fn remove_timer(&self) {
        self.nr_timers.set(self.nr_timers.get() - 1);
    }

    /// No task can run, and none is about to by the passing of time, the tasks of the machine's background apart.
    #[inline(always)]
    pub fn is_at_rest(&self) -> bool {
        self.nr_runnable.get() == 0 && self.nr_timers.get() <= self.nr_daemons.get()
    }
}
