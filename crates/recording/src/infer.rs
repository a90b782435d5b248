//! From events to what each task does.
//!
//! A task's stretches of CPU time are added up until it does something that others see: a wakeup, a fork, a wait. So
//! preemptions leave no trace. A wait is told by what ended it:
//!
//! - a task of the program, in task context: a post. In a softirq on a CPU where a task of the program runs, too: a
//!   message over the loopback device comes to its receiver there.
//! - an interrupt: a timer where the wait's system call says so, a device otherwise.
//! - another task: outside; replayed as a fixed time, as of a device.
//!
//! Where system calls were recorded, pipes and sockets are found by the wakeups of a reader by a writer; then each read
//! waits for the write that completes its data, whether it slept or not (`channel.rs`).
//!
//! A wakeup may be told before the wait that it ends: the waker saw the task's state change. It counts for that wait if
//! none comes until the task runs again, and for nothing otherwise.

use std::collections::BTreeMap;

use schedlab_machine::Machine;
use schedlab_workload::recorded::{File, Waits};

use crate::channel::{Channels, Direction};
use crate::program::{Finish, finish};
use crate::tally::{Off, Tally};
use crate::task::{Of, Raw};
use crate::{About, Call, Comm, Context, Event, Left, RecordingError, Tid, What};

/// Kernel time of the virtual kernel's own paths, in ns: a replay pays it again, so it is taken out of what was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// A choice and a context switch.
    pub switch_ns: u64,
    /// To wake a task.
    pub wake_ns: u64,
    /// To begin a wait for a task.
    pub wait_ns: u64,
    /// To begin a sleep or a wait for a device.
    pub sleep_ns: u64,
    /// To create a task.
    pub fork_ns: u64,
    /// To end.
    pub exit_ns: u64,
}

impl Costs {
    /// Those of a machine.
    pub fn of(machine: &Machine) -> Costs {
        let paths = &machine.paths;
        Costs {
            switch_ns: paths.schedule_ns + paths.switch_ns,
            wake_ns: paths.syscall_ns + paths.futex_ns + paths.wakeup_ns,
            wait_ns: paths.syscall_ns + paths.futex_ns,
            sleep_ns: paths.syscall_ns,
            fork_ns: paths.syscall_ns + paths.fork_ns,
            exit_ns: paths.syscall_ns + paths.exit_ns,
        }
    }
}

/// Which tasks are the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select {
    /// The command that the recorder started, with all that it creates; without one, or if it is `sleep`, all tasks.
    Command,
    /// All tasks but the recorder's and the kernel's threads.
    All,
}

/// The event that ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wake {
    /// A post of that number, and whether data came with it.
    Post(usize, bool),
    Interrupt,
    Outside,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not seen yet.
    Unknown,
    Running {
        cpu: u32,
        since_ns: u64,
    },
    Runnable,
    Blocked {
        since_ns: u64,
        wake: Option<(u64, Wake)>,
    },
    Dead,
}

/// A task of the recording.
struct Task {
    tid: Tid,
    comm: Comm,
    process: Tid,
    prio: i32,
    is_member: bool,
    /// Its owner is known.
    is_recorder: bool,
    state: State,
    /// It came to its CPU while another one had it, which is counted: its leaving need not fit.
    is_double: bool,
    call: Option<Call>,
    /// The transfer of the call under way, if it has been put down.
    transfer: Option<usize>,
    /// When the call under way began to be one that did not wait since.
    moving_since_ns: Option<u64>,
    early: Option<(u64, Wake)>,
    /// CPU time that no step has yet.
    time_ns: u64,
    /// Costs that could not be taken out yet.
    debt_ns: u64,
    /// When it first ran in the window.
    begun_ns: Option<u64>,
    steps: Vec<Raw>,
}

/// Collects what tasks do.
pub struct Inference {
    select: Select,
    costs: Costs,
    /// From when to when, in ns from the recording's first event.
    cut: (u64, u64),
    autogroup: bool,
    first_ns: Option<u64>,
    tasks: Vec<Task>,
    by_tid: BTreeMap<Tid, usize>,
    /// The task on each CPU.
    on_cpu: BTreeMap<u32, usize>,
    /// Facts about processes that came before their fork.
    processes: BTreeMap<Tid, Tid>,
    /// By post: whether a wait took it.
    posts: Vec<bool>,
    channels: Channels,
    root: Option<usize>,
    /// Whether what tasks do counts.
    open: bool,
    closed: bool,
    begun_ns: Option<u64>,
    ended_ns: u64,
    members_alive: usize,
    cpus: BTreeMap<u32, u64>,
    /// CPU time of others, by CPU.
    others: BTreeMap<u32, u64>,
    recorder_ns: u64,
    waits: Waits,
    paths_ns: u64,
    gaps: u64,
    wakings: u64,
    contexts: bool,
    tally: Tally,
}

/// The result of the inference.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// The workload file.
    pub file: File,
    /// Notes for the reader.
    pub warnings: Vec<String>,
}

impl Inference {
    /// Begins.
    pub fn new(select: Select, costs: Costs) -> Self {
        Inference {
            select,
            costs,
            cut: (0, u64::MAX),
            autogroup: false,
            first_ns: None,
            tasks: Vec::new(),
            by_tid: BTreeMap::new(),
            on_cpu: BTreeMap::new(),
            processes: BTreeMap::new(),
            posts: Vec::new(),
            channels: Channels::default(),
            root: None,
            open: false,
            closed: false,
            begun_ns: None,
            ended_ns: 0,
            members_alive: 0,
            cpus: BTreeMap::new(),
            others: BTreeMap::new(),
            recorder_ns: 0,
            waits: Waits::default(),
            paths_ns: 0,
            gaps: 0,
            wakings: 0,
            contexts: false,
            tally: Tally::default(),
        }
    }

    /// Whether the recorder started a command that is the program: `sleep` only says for how long to record.
    pub fn has_command(&self) -> bool {
        self.root
            .is_some_and(|root| self.tasks[root].comm.text() != "sleep")
    }

    /// Only what happens from `from_ns` until `to_ns` after the recording's first event.
    #[must_use]
    pub fn cut(mut self, from_ns: u64, to_ns: u64) -> Self {
        self.cut = (from_ns, to_ns);
        self
    }

    /// Whether nice levels of tasks beside the program do not count against it.
    #[must_use]
    pub fn autogroup(mut self, is_on: bool) -> Self {
        self.autogroup = is_on;
        self
    }

    fn slot(&mut self, tid: Tid) -> usize {
        if let Some(slot) = self.by_tid.get(&tid) {
            return *slot;
        }
        let slot = self.tasks.len();
        self.tasks.push(Task {
            tid,
            comm: Comm::default(),
            process: self.processes.get(&tid).copied().unwrap_or(tid),
            prio: 120,
            is_member: false,
            is_recorder: false,
            state: State::Unknown,
            is_double: false,
            call: None,
            transfer: None,
            moving_since_ns: None,
            early: None,
            time_ns: 0,
            debt_ns: 0,
            begun_ns: None,
            steps: Vec::new(),
        });
        self.by_tid.insert(tid, slot);
        slot
    }

    fn named(&mut self, tid: Tid, comm: Comm, prio: Option<i32>) -> usize {
        let select = self.select;
        let slot = self.slot(tid);
        let task = &mut self.tasks[slot];
        let is_new = task.comm == Comm::default();
        let is_renamed = !is_new && task.comm != comm;
        task.comm = comm;
        task.prio = prio.unwrap_or(task.prio);
        if is_new {
            let name = comm.text();
            task.is_recorder |= is_recorder(&name);
            if select == Select::All && !task.is_recorder && !is_kernel(&name) && tid != 0 {
                task.is_member = true;
            }
        } else if is_renamed && task.is_recorder && select == Select::All {
            // The recorder's child has become the command, without an event of it.
            self.renamed(slot);
        }
        slot
    }

    /// A task of the recorder has another name: if it is no recorder's, the task belongs to the program from now on.
    fn renamed(&mut self, slot: usize) {
        let open = self.open;
        let task = &mut self.tasks[slot];
        let name = task.comm.text();
        if is_recorder(&name) || is_kernel(&name) {
            return;
        }
        (task.is_recorder, task.is_member) = (false, true);
        task.steps.clear();
        if let (State::Running { since_ns, .. }, true) = (task.state, open) {
            task.begun_ns.get_or_insert(since_ns);
            self.tally.on(since_ns, slot);
        }
    }

    /// The next event.
    pub fn event(&mut self, event: &Event) {
        let at_ns = event.at_ns;
        let passed_ns = at_ns - *self.first_ns.get_or_insert(at_ns);
        if self.open && passed_ns > self.cut.1 {
            self.close(at_ns);
        }
        if self.closed {
            return;
        }
        let begins = !self.open && passed_ns >= self.cut.0;
        if begins && (self.select == Select::All || self.root.is_some()) {
            self.open(at_ns);
        }
        if self.open {
            self.ended_ns = at_ns;
        }
        match event.what {
            What::Switch {
                prev,
                prev_comm,
                prev_prio,
                left,
                next,
                next_comm,
                next_prio,
            } => {
                self.leave_cpu(event.cpu, prev);
                if prev != 0 {
                    let prev = self.named(prev, prev_comm, Some(prev_prio));
                    self.off(at_ns, event.cpu, prev, left);
                }
                if next != 0 && !self.closed {
                    let next = self.named(next, next_comm, Some(next_prio));
                    self.on(at_ns, event.cpu, next);
                    self.on_cpu.insert(event.cpu, next);
                }
            }
            What::Waking { task, comm } if task != 0 => self.waking(event, task, comm),
            What::New { task } => {
                let slot = self.slot(task);
                self.tasks[slot].state = State::Runnable;
                if self.counts(slot) {
                    self.tally.runnable(at_ns, slot, false);
                }
            }
            What::Fork { parent, child } => self.fork(at_ns, parent, child),
            What::Process { task, process } => {
                self.processes.insert(task, process);
            }
            What::Exec { task } => self.exec(at_ns, task),
            What::Enter(call) => {
                if let Some(slot) = event.current.and_then(|tid| self.by_tid.get(&tid)) {
                    self.enter(at_ns, *slot, call);
                }
            }
            What::Leave(result) => {
                if let Some(slot) = event.current.and_then(|tid| self.by_tid.get(&tid)) {
                    self.leave(at_ns, *slot, result);
                }
            }
            What::Waking { .. } | What::Migrate { .. } | What::Lost(_) => {}
        }
    }

    /// Whether the tally has this task.
    fn counts(&self, slot: usize) -> bool {
        self.open && self.tasks[slot].is_member
    }

    /// The task's CPU time up to now.
    fn mark(&mut self, at_ns: u64, slot: usize) {
        let open = self.open;
        let task = &mut self.tasks[slot];
        let State::Running { cpu, since_ns } = &mut task.state else {
            return;
        };
        let ns = at_ns.saturating_sub(*since_ns);
        *since_ns = at_ns;
        if !open {
            return;
        }
        if task.is_member {
            task.time_ns += ns;
            add(self.cpus.entry(*cpu).or_default(), ns);
        } else {
            add(self.others.entry(*cpu).or_default(), ns);
            if task.is_recorder {
                add(&mut self.recorder_ns, ns);
            } else if ns > 0 {
                task.steps.push(Raw::RunOn { ns, cpu: *cpu });
            }
        }
    }

    /// Takes a cost of the model out of what comes before, or else of what follows.
    fn charge(&mut self, slot: usize, ns: u64) {
        self.tasks[slot].debt_ns += ns;
    }

    /// The time that the task has run becomes a step.
    fn flush(&mut self, slot: usize) {
        let task = &mut self.tasks[slot];
        let paid = task.debt_ns.min(task.time_ns);
        task.debt_ns -= paid;
        self.paths_ns += paid;
        let ns = std::mem::take(&mut task.time_ns) - paid;
        if ns > 0 {
            task.steps.push(Raw::Run(ns));
        }
    }

    /// `prev` is about to leave: whoever is known to run there instead left unseen, and nobody knows when. Its id may
    /// have changed: a thread that calls execve() takes the id of its process.
    fn leave_cpu(&mut self, cpu: u32, prev: Tid) {
        let Some(known) = self.on_cpu.remove(&cpu) else {
            return;
        };
        let task = &mut self.tasks[known];
        let runs_there = matches!(task.state, State::Running { cpu: on, .. } if on == cpu);
        if runs_there && self.by_tid.get(&prev) != Some(&known) {
            task.state = State::Runnable;
            self.gaps += 1;
        }
    }

    fn off(&mut self, at_ns: u64, cpu: u32, slot: usize, left: Left) {
        match self.tasks[slot].state {
            State::Running { cpu: known, .. } if known == cpu => self.mark(at_ns, slot),
            State::Unknown => {}
            _ => self.gaps += u64::from(!self.tasks[slot].is_double),
        }
        let how = match left {
            Left::Runnable => Off::Runnable,
            Left::Dead => Off::Exited,
            _ => Off::Blocked,
        };
        if self.counts(slot) {
            self.tally.off(at_ns, slot, how);
        }
        let is_member = self.counts(slot);
        if is_member && how == Off::Runnable && self.tasks[slot].call == Some(Call::Yield) {
            self.charge(slot, self.costs.sleep_ns);
            self.flush(slot);
            self.tasks[slot].steps.push(Raw::Yield);
        }
        self.tasks[slot].state = match how {
            Off::Runnable => State::Runnable,
            Off::Blocked => {
                self.tasks[slot].moving_since_ns = None;
                State::Blocked {
                    since_ns: at_ns,
                    wake: None,
                }
            }
            Off::Exited => State::Dead,
        };
        if how == Off::Exited {
            let (tid, belongs) = (self.tasks[slot].tid, self.tasks[slot].is_member);
            self.by_tid.remove(&tid);
            if belongs {
                self.charge(slot, self.costs.exit_ns);
                self.flush(slot);
                self.members_alive = self.members_alive.saturating_sub(1);
                if self.root.is_some() && self.members_alive == 0 {
                    self.close(at_ns);
                }
            }
        }
    }

    fn on(&mut self, at_ns: u64, cpu: u32, slot: usize) {
        let counts = self.counts(slot);
        let early = self.tasks[slot].early.take();
        // It cannot run in two places: it left the other one before this time, or the clocks disagree.
        let runs = matches!(self.tasks[slot].state, State::Running { cpu: on, .. } if on != cpu);
        self.gaps += u64::from(runs);
        self.tasks[slot].is_double = runs;
        if let State::Blocked { since_ns, wake } = self.tasks[slot].state
            && self.open
        {
            let (woken_ns, wake) = match (wake, early) {
                (Some((at, wake)), _) => (at, Some(wake)),
                (None, Some((_, wake))) => (since_ns, Some(wake)),
                (None, None) => (at_ns, None),
            };
            if counts {
                // Facts that came early are known only now. Without any, its wait for a CPU is unknown.
                if wake.is_some() {
                    self.tally.runnable(woken_ns, slot, true);
                }
                self.wait(slot, since_ns, woken_ns, wake);
            } else {
                let ns = woken_ns.saturating_sub(since_ns);
                self.tasks[slot].steps.push(Raw::Device(ns));
            }
        }
        if counts {
            self.tasks[slot].begun_ns.get_or_insert(at_ns);
            self.tally.on(at_ns, slot);
            self.charge(slot, self.costs.switch_ns);
        } else if self.open && self.tasks[slot].state == State::Unknown {
            // It was not seen before: it waited from the start.
            let ns = at_ns.saturating_sub(self.begun_ns.unwrap_or(at_ns));
            self.tasks[slot].steps.push(Raw::Device(ns));
        }
        self.tasks[slot].state = State::Running {
            cpu,
            since_ns: at_ns,
        };
    }

    /// A wait of a task of the program has ended.
    fn wait(&mut self, slot: usize, since_ns: u64, woken_ns: u64, wake: Option<Wake>) {
        let ns = woken_ns.saturating_sub(since_ns);
        let begun_ns = self.tasks[slot].begun_ns.unwrap_or(since_ns);
        let timer = match self.tasks[slot].call {
            Some(Call::Sleep) => Some(Raw::Sleep(ns)),
            Some(Call::SleepUntil) => Some(Raw::Until(woken_ns.saturating_sub(begun_ns))),
            _ => None,
        };
        let (cost, step, class) = match wake {
            Some(Wake::Post(post, data)) => {
                self.posts[post] = true;
                (
                    self.costs.wait_ns,
                    Raw::Wait { post, ns, data },
                    &mut self.waits.task_ns,
                )
            }
            Some(Wake::Interrupt) => match timer {
                Some(step) => (self.costs.sleep_ns, step, &mut self.waits.timer_ns),
                None => (
                    self.costs.sleep_ns,
                    Raw::Device(ns),
                    &mut self.waits.device_ns,
                ),
            },
            Some(Wake::Outside) => (
                self.costs.sleep_ns,
                Raw::Device(ns),
                &mut self.waits.outside_ns,
            ),
            None => (
                self.costs.sleep_ns,
                Raw::Device(ns),
                &mut self.waits.unknown_ns,
            ),
        };
        add(class, ns);
        self.charge(slot, cost);
        self.flush(slot);
        self.tasks[slot].steps.push(step);
    }

    fn waking(&mut self, event: &Event, tid: Tid, comm: Comm) {
        self.wakings += 1;
        self.contexts |= event.context != Context::Unknown;
        let slot = self.named(tid, comm, None);
        let at_ns = event.at_ns;
        if !matches!(
            self.tasks[slot].state,
            State::Blocked { wake: None, .. } | State::Running { .. }
        ) {
            if self.tasks[slot].state == State::Unknown {
                if self.open && self.tasks[slot].is_member {
                    self.tally.runnable(at_ns, slot, true);
                }
                // It slept from before the start.
                self.tasks[slot].state = State::Blocked {
                    since_ns: self.begun_ns.unwrap_or(at_ns),
                    wake: Some((at_ns, Wake::Outside)),
                };
            }
            return;
        }
        let waker = event.current.and_then(|tid| self.by_tid.get(&tid).copied());
        let waker = waker.filter(|waker| self.tasks[*waker].is_member && *waker != slot);
        let wake = match (event.context, waker) {
            (Context::Hard, _) => Wake::Interrupt,
            (Context::Unknown, _) if event.current == Some(0) => Wake::Interrupt,
            (_, Some(waker)) if self.counts(slot) => self.post(at_ns, waker, slot),
            (Context::Soft, _) => Wake::Interrupt,
            _ => Wake::Outside,
        };
        match &mut self.tasks[slot].state {
            State::Blocked { wake: known, .. } => *known = Some((at_ns, wake)),
            _ => self.tasks[slot].early = Some((at_ns, wake)),
        }
        let is_asleep = matches!(self.tasks[slot].state, State::Blocked { .. });
        if is_asleep && self.counts(slot) {
            self.tally.runnable(at_ns, slot, true);
        }
    }

    fn post(&mut self, at_ns: u64, waker: usize, to: usize) -> Wake {
        self.mark(at_ns, waker);
        let post = self.posts.len();
        self.posts.push(false);
        self.charge(waker, self.costs.wake_ns);
        self.flush(waker);
        let calls = (self.tasks[waker].call, self.tasks[to].call);
        let data = match calls {
            (Some(Call::Write(from)), Some(Call::Read(into))) => {
                let ends = [(waker, from), (to, into)]
                    .map(|(slot, file)| (self.tasks[slot].process, file));
                self.channels.join(ends[0], ends[1]);
                self.transfer(at_ns, waker, from, Direction::Write);
                true
            }
            _ => false,
        };
        self.tasks[waker].steps.push(Raw::Post { to, post, data });
        Wake::Post(post, data)
    }

    fn enter(&mut self, at_ns: u64, slot: usize, call: Call) {
        let task = &mut self.tasks[slot];
        (task.call, task.transfer, task.moving_since_ns) = (Some(call), None, Some(at_ns));
        if let Call::Close(file) = call {
            self.channels.close((task.process, file));
        }
    }

    fn leave(&mut self, at_ns: u64, slot: usize, result: i64) {
        let call = self.tasks[slot].call.take();
        let moved = match call {
            Some(Call::Write(file)) => Some((file, Direction::Write)),
            Some(Call::Read(file)) => Some((file, Direction::Read)),
            _ => None,
        };
        let Some((file, direction)) = moved.filter(|_| result > 0 && self.counts(slot)) else {
            return;
        };
        self.mark(at_ns, slot);
        self.flush(slot);
        self.transfer(at_ns, slot, file, direction);
        if let Some(transfer) = self.tasks[slot].transfer.take() {
            self.channels.moved(transfer, result.unsigned_abs());
        }
    }

    /// Puts a transfer down where the task is now, once in each call.
    fn transfer(&mut self, at_ns: u64, slot: usize, file: i32, direction: Direction) {
        if self.tasks[slot].transfer.is_some() || !self.counts(slot) {
            return;
        }
        let end = (self.tasks[slot].process, file);
        // A write that did not wait may have moved its data from its begin on; a read has when it ends.
        let moved_ns = match direction {
            Direction::Write => self.tasks[slot].moving_since_ns.unwrap_or(at_ns),
            Direction::Read => at_ns,
        };
        let transfer = self.channels.begin(end, slot, direction, moved_ns);
        self.tasks[slot].transfer = Some(transfer);
        self.tasks[slot].steps.push(Raw::Transfer(transfer));
    }

    fn fork(&mut self, at_ns: u64, parent: Tid, child: Tid) {
        let parent = self.slot(parent);
        // A task that died unseen had this id.
        self.by_tid.remove(&child);
        let slot = self.slot(child);
        let process = self.processes.remove(&child);
        let (comm, is_member, is_recorder) = {
            let parent = &self.tasks[parent];
            (parent.comm, parent.is_member, parent.is_recorder)
        };
        let task = &mut self.tasks[slot];
        task.comm = comm;
        task.process = process.unwrap_or(child);
        task.is_member = is_member;
        task.is_recorder = is_recorder;
        task.state = State::Runnable;
        self.members_alive += usize::from(is_member);
        if self.counts(slot) {
            self.mark(at_ns, parent);
            self.charge(parent, self.costs.fork_ns);
            self.flush(parent);
            self.tasks[parent].steps.push(Raw::Fork(slot));
        }
    }

    /// The recorder's child becomes the command: here the program begins.
    fn exec(&mut self, at_ns: u64, tid: Tid) {
        let slot = self.slot(tid);
        let recorder = self.tasks[slot].comm.text();
        let is_command = ["perf-exec", "trace-cmd"].contains(&recorder.as_str());
        if !is_command || self.root.is_some() {
            return;
        }
        self.mark(at_ns, slot);
        let root = &mut self.tasks[slot];
        (root.is_member, root.is_recorder) = (true, false);
        if self.select == Select::All {
            if let (State::Running { .. }, true) = (self.tasks[slot].state, self.open) {
                self.tally.on(at_ns, slot);
            }
            return;
        }
        self.root = Some(slot);
        self.members_alive = 1;
        let passed_ns = at_ns - self.first_ns.unwrap_or(at_ns);
        if passed_ns >= self.cut.0 {
            self.open(at_ns);
        }
    }

    /// From here on counts what tasks do.
    fn open(&mut self, at_ns: u64) {
        self.open = true;
        (self.begun_ns, self.ended_ns) = (Some(at_ns), at_ns);
        for (slot, task) in self.tasks.iter_mut().enumerate() {
            match &mut task.state {
                State::Running { since_ns, .. } => {
                    *since_ns = at_ns;
                    if task.is_member {
                        task.begun_ns = Some(at_ns);
                        self.tally.on(at_ns, slot);
                    }
                }
                State::Blocked { since_ns, wake } => {
                    *since_ns = at_ns;
                    // The waker does not post in the window.
                    if let Some((woken_ns, wake)) = wake {
                        (*woken_ns, *wake) = (at_ns, Wake::Outside);
                        if task.is_member {
                            self.tally.runnable(at_ns, slot, true);
                        }
                    }
                }
                State::Runnable if task.is_member => self.tally.runnable(at_ns, slot, false),
                _ => {}
            }
            task.early = None;
        }
    }

    /// From here on nothing counts.
    fn close(&mut self, at_ns: u64) {
        for slot in 0..self.tasks.len() {
            self.mark(at_ns, slot);
            self.flush(slot);
            if let (State::Running { .. }, true) = (self.tasks[slot].state, self.counts(slot)) {
                self.tally.off(at_ns, slot, Off::Blocked);
            }
        }
        (self.closed, self.open) = (true, false);
    }

    /// Ends: the workload file, and what its user should know.
    ///
    /// # Errors
    /// If there is no program in the recording.
    pub fn finish(mut self, path: &str, about: &About) -> Result<Inferred, RecordingError> {
        let no_program = |message: &str| RecordingError::NoProgram {
            path: path.to_owned(),
            message: message.to_owned(),
        };
        if self.begun_ns.is_none() {
            return Err(no_program(
                "the recorder's command does not begin in it: `--all` takes all tasks",
            ));
        }
        if self.open {
            self.close(self.ended_ns);
        }
        let mut warnings = Vec::new();
        if self.wakings == 0 {
            warnings.push(
                "no wakeups were recorded: neither who ended a wait is known nor how long its task then waited for a CPU, which counts as a part of the wait".to_owned(),
            );
        } else if !self.contexts {
            warnings.push(
                "the source does not tell interrupts from tasks: a wakeup by an interrupt counts as one by the task that it interrupted".to_owned(),
            );
        }
        if self.gaps > 0 {
            warnings.push(format!(
                "switches that do not fit to what was recorded before: {}; events are missing, or the clocks of CPUs disagree",
                self.gaps
            ));
        }
        let tasks = self.tasks.iter_mut().map(|task| Of {
            comm: task.comm.text(),
            process: task.process,
            prio: task.prio,
            is_member: task.is_member,
            is_recorder: task.is_recorder,
            steps: std::mem::take(&mut task.steps),
        });
        // Where it only passed through, as before taskset took effect, it did not compete.
        let all_ns = sum(self.cpus.values());
        self.cpus.retain(|_, ns| *ns >= all_ns / SHARE_MIN);
        let others = sum(self.cpus.keys().filter_map(|cpu| self.others.get(cpu)));
        let file = finish(Finish {
            tasks: tasks.collect(),
            posts: self.posts,
            channels: self.channels,
            tally: &self.tally,
            about,
            cpus: self.cpus.keys().copied().collect(),
            others_ns: others,
            recorder_ns: self.recorder_ns,
            paths_ns: self.paths_ns,
            waits: self.waits,
            autogroup: self.autogroup,
        });
        let file =
            file.ok_or_else(|| no_program("no task of it ran: record for longer, or `--all`"))?;
        Ok(Inferred { file, warnings })
    }
}

/// Adds a time; the times of many tasks and CPUs may be more than a number holds.
fn add(to: &mut u64, ns: u64) {
    *to = to.saturating_add(ns);
}

/// Adds times up.
fn sum<'a>(all: impl Iterator<Item = &'a u64>) -> u64 {
    all.fold(0, |sum, ns| sum.saturating_add(*ns))
}

/// A CPU is the program's if it took at least one part in so many of its CPU time there.
const SHARE_MIN: u64 = 20;

/// Programs that record.
fn is_recorder(comm: &str) -> bool {
    [
        "perf",
        "perf-exec",
        "trace-cmd",
        "traced",
        "traced_probes",
        "atrace",
        "wprof",
    ]
    .contains(&comm)
}

/// Threads of the kernel, by their names: no event tells.
fn is_kernel(comm: &str) -> bool {
    let begins = |prefix: &&str| comm.starts_with(*prefix);
    [
        "kworker/",
        "ksoftirqd/",
        "migration/",
        "rcu",
        "swapper",
        "irq/",
        "kcompactd",
        "kswapd",
        "jbd2/",
        "cpuhp/",
        "idle_inject/",
    ]
    .iter()
    .any(begins)
        || ["khugepaged", "kthreadd", "kauditd", "oom_reaper", "ksmd"].contains(&comm)
}
