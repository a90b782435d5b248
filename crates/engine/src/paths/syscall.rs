//! Carrying out what tasks do: computation, system calls and what they wait for.
//!
//! A system call is a stretch of kernel time followed by its effect. An effect that has to wait
//! blocks the task and is tried again when the task runs next, as the kernel's own wait loops do.

use std::collections::VecDeque;

use schedlab_machine::{KernelPath, Timers, address};
use schedlab_trace::{CpuMode, Event, Instant, LockClass, Recorder, TaskId};
use schedlab_workload::{Action, ObjectId, Outcome, TaskSpec};

use crate::contract::consts::wake;
use crate::contract::policy::Policy;
use crate::contract::scenario::{RtMode, WorkloadFailure};
use crate::paths::kernel::Kernel;
use crate::paths::pi::Taking;
use crate::paths::sched::Change;
use crate::state::cpu::Cpu;
use crate::state::event_queue::Timer;
use crate::state::object::Object;
use crate::state::task::{Class, Task, TaskState};

/// How an effect ended.
pub(crate) enum Effect {
    Done(Outcome),
    /// To be tried again when the task is woken.
    Wait,
    /// The action does not fit the object.
    Wrong(ObjectId),
}

/// How a message passes from its writer to its reader.
enum StreamKind {
    Pipe,
    Socket,
    /// As [`crate::paths::tcp`] has it.
    Tcp,
}

/// Name of an action, for messages.
pub(crate) fn action_name(action: &Action) -> &'static str {
    match action {
        Action::Compute(_) => "Compute",
        Action::Yield => "Yield",
        Action::Sleep(_) => "Sleep",
        Action::SleepUntil(_) => "SleepUntil",
        Action::Io(_) => "Io",
        Action::Write { .. } => "Write",
        Action::Read { .. } => "Read",
        Action::Lock(_) => "Lock",
        Action::Unlock(_) => "Unlock",
        Action::TryUserLock(_) => "TryUserLock",
        Action::UserUnlock(_) => "UserUnlock",
        Action::Wait { .. } => "Wait",
        Action::Signal(_) => "Signal",
        Action::Broadcast(_) => "Broadcast",
        Action::Barrier(_) => "Barrier",
        Action::Post(_) => "Post",
        Action::Acquire(_) => "Acquire",
        Action::Suspend(_) => "Suspend",
        Action::Notify(_) => "Notify",
        Action::Fork(_) => "Fork",
        Action::Exec => "Exec",
        Action::Fault(_) => "Fault",
        Action::SetNice(_) => "SetNice",
        Action::SetAffinity(_) => "SetAffinity",
        Action::SetClass(_) => "SetClass",
        Action::JoinCgroup(_) => "JoinCgroup",
        Action::Touch(_) => "Touch",
        Action::Syscall => "Syscall",
        Action::Begin => "Begin",
        Action::Work(_) => "Work",
        Action::Exit => "Exit",
    }
}

/// The object of a call that may enter the kernel for a futex.
fn futex_of(action: &Action) -> Option<ObjectId> {
    match action {
        Action::Lock(object)
        | Action::Unlock(object)
        | Action::Post(object)
        | Action::Acquire(object)
        | Action::Signal(object)
        | Action::Broadcast(object) => Some(*object),
        _ => None,
    }
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Asks the task's behaviour what it does next, and begins it.
    #[inline(always)]
    pub(crate) fn next_action(&self, c: &Cpu, p: &Task) {
        self.sync(c);
        let action = loop {
            let action = p.program.next(self.now(c), c.id);
            if !self.count_action(c, p, &action) {
                return;
            }
            let Action::Work(n) = action else {
                break action;
            };
            self.tally.add_work(n);
            self.record(c, Event::Work { task: p.id, n });
            // It takes no time, so the next action comes at once, unless something came up before it.
            if c.is_called_off() {
                return;
            }
        };
        match action {
            Action::Compute(time) => {
                let ns = time.ns() + self.initial_refill(c, p);
                p.program.compute(ns, self.costs.traffic);
            }
            Action::Sleep(_) => p
                .program
                .enter_kernel(self.machine.paths.syscall_ns, action),
            action => self.begin_action(c, p, action),
        }
    }

    /// Begins an action that is not one of the commonest.
    #[inline(never)]
    fn begin_action(&self, c: &Cpu, p: &Task, action: Action) {
        let paths = &self.machine.paths;
        let kernel_ns = match &action {
            Action::Touch(touch) => {
                let (ns, traffic) = self.touch(c, p, *touch);
                p.program.compute(ns, traffic);
                return;
            }
            Action::Begin => {
                self.tally.begin(c.this.now.get());
                return;
            }
            Action::TryUserLock(object) | Action::UserUnlock(object) => {
                self.user_lock(c, p, *object, matches!(action, Action::TryUserLock(_)));
                return;
            }
            Action::Lock(_)
            | Action::Unlock(_)
            | Action::Post(_)
            | Action::Acquire(_)
            | Action::Signal(_)
            | Action::Broadcast(_) => {
                if self.futex_fast_path(c, p, &action) {
                    return;
                }
                self.use_shared(c, p, KernelPath::Futex, futex_of(&action), 0);
                paths.syscall_ns + paths.futex_ns
            }
            Action::Wait { condition, .. } => {
                if !self.begin_wait(c, p, *condition) {
                    self.wrong_object(p, "Wait", *condition);
                    return;
                }
                self.use_shared(c, p, KernelPath::Futex, Some(*condition), 0);
                paths.syscall_ns + paths.futex_ns
            }
            Action::Barrier(object) | Action::Suspend(object) | Action::Notify(object) => {
                self.use_shared(c, p, KernelPath::Futex, Some(*object), 0);
                paths.syscall_ns + paths.futex_ns
            }
            Action::Write { to, bytes } => {
                let (path, ns) = match self.stream_kind(*to) {
                    StreamKind::Pipe => (KernelPath::PipeWrite, paths.pipe_ns),
                    StreamKind::Socket => (KernelPath::Send, paths.socket_send_ns),
                    StreamKind::Tcp => (KernelPath::Send, self.append_ns()),
                };
                self.use_shared(c, p, path, Some(*to), *bytes);
                paths.syscall_ns + ns
            }
            Action::Read { from, .. } => {
                let (path, ns) = match self.stream_kind(*from) {
                    StreamKind::Pipe => (KernelPath::PipeRead, paths.pipe_ns),
                    StreamKind::Socket | StreamKind::Tcp => {
                        (KernelPath::Receive, paths.socket_recv_ns)
                    }
                };
                self.use_shared(c, p, path, Some(*from), 0);
                paths.syscall_ns + ns
            }
            Action::Fork(_) => {
                self.use_shared(c, p, KernelPath::Fork, None, 0);
                paths.syscall_ns + paths.fork_ns
            }
            Action::Fault(_) => {
                self.use_shared(c, p, KernelPath::Fault, None, 0);
                paths.fault_ns()
            }
            Action::Exit => {
                p.exit();
                self.sync_task(p);
                self.use_shared(c, p, KernelPath::Exit, None, 0);
                paths.syscall_ns + paths.exit_ns
            }
            Action::Yield
            | Action::Syscall
            | Action::Exec
            | Action::Sleep(_)
            | Action::SleepUntil(_)
            | Action::Io(_)
            | Action::SetNice(_)
            | Action::SetAffinity(_)
            | Action::SetClass(_)
            | Action::JoinCgroup(_) => paths.syscall_ns,
            Action::Compute(_) | Action::Work(_) => unreachable!("begun by next_action()"),
        };
        p.program.enter_kernel(kernel_ns, action);
    }

    /// Bounds actions without time. Returns whether the task may go on.
    #[inline(always)]
    fn count_action(&self, c: &Cpu, p: &Task, action: &Action) -> bool {
        let nr_actions = p.program.count_action(c.this.now.get());
        if nr_actions <= self.setup.limits.zero_time_actions {
            return true;
        }
        self.too_many_actions(c, p, action, nr_actions);
        false
    }

    /// The task does nothing but act without time.
    #[cold]
    fn too_many_actions(&self, c: &Cpu, p: &Task, action: &Action, actions: u32) {
        self.fail(WorkloadFailure::ZeroTimeLoop {
            task: p.label(),
            actions,
            last: action_name(action).to_owned(),
        });
        // Time goes on, so that the run can end.
        self.charge(c, 1_000);
    }

    /// `lock_kernel()` to `unlock_kernel()` in `do_exit()`, Linux 2.4.
    #[cold]
    fn exit_under_big_kernel_lock(&self, c: &Cpu, ns: u64) {
        let lock = self.locks.big_kernel_lock().unwrap_or_else(|| {
            let address = address::kernel_lock(u32::MAX);
            let new = self.new_lock(address, "kernel_flag", LockClass::Other);
            self.locks.set_big_kernel_lock(new);
            new
        });
        self.spin_lock(c, lock);
        self.charge(c, ns);
        self.spin_unlock(c, lock);
    }

    /// Modelled address of a workload's object: user memory, beside the kernel's locks.
    fn object_address(&self, object: ObjectId) -> u64 {
        crate::state::costs::object_address(object.0)
    }

    fn stream_kind(&self, object: ObjectId) -> StreamKind {
        match self.objects.borrow().get(object.0 as usize) {
            Some(Object::Channel(channel)) if channel.is_tcp() => StreamKind::Tcp,
            Some(Object::Channel(channel)) if channel.is_socket() => StreamKind::Socket,
            _ => StreamKind::Pipe,
        }
    }

    /// User code looks at an object.
    fn user_read(&self, c: &Cpu, object: ObjectId) {
        self.set_mode(c, CpuMode::User);
        let line = self.line_at(self.object_address(object));
        self.read_line(c, line);
    }

    /// One atomic operation of user code on an object.
    fn user_atomic(&self, c: &Cpu, object: ObjectId) {
        self.set_mode(c, CpuMode::User);
        let line = self.line_at(self.object_address(object));
        self.write_line(c, line, self.machine.memory.atomic_ps);
    }

    fn user_lock(&self, c: &Cpu, p: &Task, object: ObjectId, take: bool) {
        self.user_atomic(c, object);
        let mut objects = self.objects.borrow_mut();
        let Some(Object::UserLock { owner }) = objects.get_mut(object.0 as usize) else {
            let action = if take { "TryUserLock" } else { "UserUnlock" };
            drop(objects);
            self.wrong_object(p, action, object);
            return;
        };
        if take {
            let free = owner.is_none();
            if free {
                *owner = Some(p.id);
            }
            p.program
                .tell(if free { Outcome::Taken } else { Outcome::Busy });
        } else {
            *owner = None;
        }
    }

    /// Mutexes and semaphores that are free, and conditions without a waiter, never enter the kernel: glibc's
    /// pthread_cond_signal() looks at the number of waiters first. Returns whether the action is done.
    fn futex_fast_path(&self, c: &Cpu, p: &Task, action: &Action) -> bool {
        let object = match action {
            Action::Lock(object)
            | Action::Unlock(object)
            | Action::Post(object)
            | Action::Acquire(object) => {
                self.user_atomic(c, *object);
                object
            }
            Action::Signal(object) | Action::Broadcast(object) => {
                self.user_read(c, *object);
                object
            }
            _ => return false,
        };
        if let Action::Lock(_) | Action::Unlock(_) = action
            && self.pi_fast_path(p, *object, matches!(action, Action::Lock(_)))
        {
            return true;
        }
        let mut objects = self.objects.borrow_mut();
        match (action, objects.get_mut(object.0 as usize)) {
            (Action::Lock(_), Some(Object::Mutex { owner, .. })) if owner.is_none() => {
                *owner = Some(p.id);
                true
            }
            (Action::Unlock(_), Some(Object::Mutex { owner, waiters })) if waiters.is_empty() => {
                *owner = None;
                true
            }
            (Action::Post(_), Some(Object::Semaphore { count, waiters })) if waiters.is_empty() => {
                *count += 1;
                true
            }
            (Action::Acquire(_), Some(Object::Semaphore { count, .. })) if *count > 0 => {
                *count -= 1;
                true
            }
            (Action::Signal(_) | Action::Broadcast(_), Some(Object::Condition { waiters })) => {
                waiters.is_empty()
            }
            _ => false,
        }
    }

    fn wrong_object(&self, p: &Task, action: &'static str, object: ObjectId) {
        let is = self
            .objects
            .borrow()
            .get(object.0 as usize)
            .map_or("not there", Object::what)
            .to_owned();
        self.fail(WorkloadFailure::WrongObject {
            task: p.label(),
            action,
            object: object.0,
            is,
        });
        p.program.compute_instead(1_000);
    }

    /// The action under way takes effect, at the end of its kernel time or when it is tried again.
    #[inline(always)]
    pub(crate) fn take_effect(&self, c: &Cpu, p: &Task) {
        self.set_mode(c, CpuMode::Kernel);
        self.sync(c);
        if let Some(time) = p.program.take_sleep() {
            let until = self.now(c) + time;
            self.sleep_until(c, p, until);
        } else {
            self.take_other_effect(c, p);
        }
    }

    /// As [`Kernel::take_effect`], of what is not a sleep.
    #[inline(never)]
    fn take_other_effect(&self, c: &Cpu, p: &Task) {
        let action = p.program.take_action();
        let name = action_name(&action);
        let action = match action {
            Action::Fork(spec) => {
                self.fork(c, p, *spec);
                p.program.end_action();
                return;
            }
            action => action,
        };
        let effect = match action {
            Action::SetAffinity(ref set) => {
                let set = set.resized(self.cpus.len());
                self.set_affinity(c, p, set);
                Effect::Done(Outcome::Done)
            }
            Action::SetNice(nice) => {
                let nice = nice.clamp(-20, 19);
                if nice != p.attributes().nice {
                    self.sched_change(c, p, Change::Nice(nice));
                }
                Effect::Done(Outcome::Done)
            }
            Action::SetClass(class) => {
                if self.dl_admit(p, class) {
                    self.sched_change(c, p, Change::Class(class));
                }
                Effect::Done(Outcome::Done)
            }
            Action::JoinCgroup(cgroup) => {
                self.join_cgroup(c, p, cgroup);
                Effect::Done(Outcome::Done)
            }
            Action::Exit => {
                if let Some(ns) = self.machine.locks.big_kernel_lock_ns {
                    self.exit_under_big_kernel_lock(c, ns);
                }
                while let Some(mutex) = self.pi_held(p) {
                    self.unlock_mutex(c, p, mutex);
                }
                p.set_state(TaskState::Dead);
                p.program.end_action();
                self.schedule(c, false);
                return;
            }
            Action::Yield => {
                p.program.end_action();
                self.sched_yield(c, p);
                return;
            }
            Action::Exec => {
                self.use_shared(c, p, KernelPath::Exec, None, 0);
                // The new program has nothing in a cache yet.
                p.memory.renew();
                let ns = self.machine.paths.exec_ns();
                p.program.enter_kernel(ns, Action::Syscall);
                return self.sched_exec(c, p);
            }
            Action::Fault(pages) if pages > 1 => {
                return self.begin_action(c, p, Action::Fault(pages - 1));
            }
            Action::SleepUntil(until) => return self.sleep_until(c, p, until),
            Action::Io(time) => {
                p.program.end_action();
                let until = self.now(c) + time;
                return self.block_until(c, p, Timer::Task(p.id), until.ns());
            }
            ref action => self.object_effect(c, p, action),
        };
        match effect {
            Effect::Done(outcome) => {
                p.program.tell(outcome);
                p.program.end_action();
            }
            Effect::Wait => {
                p.program.retry(action);
                p.set_state(TaskState::Blocked);
                self.schedule(c, false);
            }
            Effect::Wrong(object) => self.wrong_object(p, name, object),
        }
    }

    /// `do_sched_yield()`.
    fn sched_yield(&self, c: &Cpu, p: &Task) {
        self.set_mode(c, CpuMode::Sched);
        self.rq_lock(c, c);
        match p.class() {
            Class::Ext => self.yield_task_scx(c, p),
            Class::Fair => self.yield_task_fair(c, p),
            Class::Rt => self.yield_task_rt(c, p),
            Class::Deadline => self.yield_task_dl(c, p),
            Class::Idle | Class::Stop => {}
        }
        self.rq_unlock(c, c);
        p.set_yielded();
        self.schedule(c, false);
    }

    /// `sched_setaffinity()` of the task itself.
    fn set_affinity(&self, c: &Cpu, p: &Task, set: schedlab_trace::CpuSet) {
        if set.is_empty() {
            self.fail(WorkloadFailure::NoCpu {
                task: p.label(),
                allowed: set.to_string(),
                last_cpu: self.cpus.len() as u32 - 1,
            });
            return;
        }
        if *p
            .affinity
            .borrow()
            .as_ref()
            .unwrap_or(self.online.possible())
            == set
        {
            return;
        }
        // dl_task_check_affinity()
        if p.reservation().is_some() && !self.may_run_everywhere(Some(&set)) {
            self.fail(WorkloadFailure::Refused {
                task: p.label(),
                what: "change its CPUs",
                why: "a task under SCHED_DEADLINE must be allowed on all CPUs (EBUSY)".to_owned(),
            });
            return;
        }
        // Tasks whose CPUs are changed one after another are dealt out over them (`__set_cpus_allowed_ptr_locked()`).
        let Some(dest) = c.any_and_distribute(&self.online.borrow(), &set) else {
            // None of them online: EINVAL, and everything stays as it is.
            return;
        };
        self.sched_change(c, p, Change::Affinity(set));
        if !p.allows(c.id) {
            p.stop.move_to(dest);
            // The stopper is woken, above all classes.
            self.taken_by_class(c, c, Class::Stop);
            self.resched_curr(c, c);
        }
    }

    fn fork(&self, c: &Cpu, parent: &Task, spec: TaskSpec) {
        let is_first = self.is_starter(parent);
        if !is_first && self.nr_tasks() >= self.setup.limits.tasks {
            self.fail(WorkloadFailure::TooManyTasks {
                task: parent.label(),
                limit: self.setup.limits.tasks,
            });
            return;
        }
        // sched_fork()
        if parent.reservation().is_some() {
            self.fail(WorkloadFailure::Refused {
                task: parent.label(),
                what: "create a thread",
                why: "a task under SCHED_DEADLINE may not (EAGAIN)".to_owned(),
            });
            return;
        }
        let number = self.next_number(is_first);
        let p = self.new_task(spec, Some(parent.id), c.id, number);
        if !is_first && !p.origin.is_background {
            self.population.add_alive();
        }
        if p.affinity.nr() == 0 {
            self.fail(WorkloadFailure::NoCpu {
                task: p.label(),
                allowed: p
                    .affinity
                    .borrow()
                    .as_ref()
                    .map_or(String::new(), ToString::to_string),
                last_cpu: self.cpus.len() as u32 - 1,
            });
            return;
        }
        p.set_cgroup(parent.cgroup());
        self.start_task(c, p);
    }

    /// Effects on shared objects.
    fn object_effect(&self, c: &Cpu, p: &Task, action: &Action) -> Effect {
        let done = Effect::Done(Outcome::Done);
        match *action {
            Action::Syscall | Action::Fault(_) => done,
            Action::Write { to, bytes } => self.write(c, p, to, bytes),
            Action::Read { from, limit } => self.read(c, p, from, limit),
            Action::Lock(mutex) => self.lock_mutex(c, p, mutex),
            Action::Unlock(mutex) => self.unlock_mutex(c, p, mutex),
            Action::Wait { mutex, .. } => self.wait_condition(c, p, mutex),
            Action::Signal(object) => {
                let waiter = match self.objects.borrow_mut().get_mut(object.0 as usize) {
                    Some(Object::Condition { waiters }) => waiters.pop_front(),
                    _ => return Effect::Wrong(object),
                };
                if let Some(waiter) = waiter {
                    self.grant(c, waiter);
                }
                done
            }
            Action::Broadcast(object) => {
                let waiters = match self.objects.borrow_mut().get_mut(object.0 as usize) {
                    Some(Object::Condition { waiters }) => std::mem::take(waiters),
                    _ => return Effect::Wrong(object),
                };
                self.grant_all(c, waiters);
                done
            }
            Action::Barrier(object) => self.barrier(c, p, object),
            Action::Post(object) => {
                let waiter = match self.objects.borrow_mut().get_mut(object.0 as usize) {
                    Some(Object::Semaphore { count, waiters }) => {
                        *count += 1;
                        waiters.pop_front()
                    }
                    _ => return Effect::Wrong(object),
                };
                if let Some(waiter) = waiter {
                    self.wake(c, waiter, 0);
                }
                done
            }
            Action::Acquire(object) => match self.objects.borrow_mut().get_mut(object.0 as usize) {
                Some(Object::Semaphore { count, waiters }) => {
                    if *count > 0 {
                        *count -= 1;
                        done
                    } else {
                        waiters.push_back(p.id);
                        Effect::Wait
                    }
                }
                _ => Effect::Wrong(object),
            },
            Action::Suspend(object) => {
                if p.program.leave_wait() {
                    return done;
                }
                match self.objects.borrow_mut().get_mut(object.0 as usize) {
                    Some(Object::Event { waiters }) => {
                        if p.program.enter_wait() {
                            waiters.push_back(p.id);
                        }
                        Effect::Wait
                    }
                    _ => Effect::Wrong(object),
                }
            }
            Action::Notify(object) => {
                let waiters = match self.objects.borrow_mut().get_mut(object.0 as usize) {
                    Some(Object::Event { waiters }) => std::mem::take(waiters),
                    _ => return Effect::Wrong(object),
                };
                self.grant_all(c, waiters);
                done
            }
            _ => unreachable!("carried out elsewhere"),
        }
    }

    /// The task's next action comes at `until`, but not before now.
    #[inline(always)]
    fn sleep_until(&self, c: &Cpu, p: &Task, until: Instant) {
        p.program.end_action();
        if until <= self.now(c) {
            p.program.tell(Outcome::Done);
            return;
        }
        if self.machine.timers == Timers::Jiffies {
            let until = self.jiffy_of(self.now(c), until);
            return self.block_until(c, p, Timer::Task(p.id), until);
        }
        match self.setup.timer_slack_ns {
            slack_ns @ 1.. if !self.sleeps_exactly(p) => {
                self.block_until(c, p, Timer::Sleep(p.id), until.ns() + slack_ns)
            }
            _ => self.block_until(c, p, Timer::Task(p.id), until.ns()),
        }
    }

    /// Real-time tasks have no timer slack.
    #[inline(always)]
    fn sleeps_exactly(&self, p: &Task) -> bool {
        match self.setup.rt_mode {
            // The class is at hand.
            RtMode::Kernel => p.class() == Class::Rt,
            RtMode::Policy => p.is_realtime(),
        }
    }

    /// The tick that ends a sleep from `now` until `until` in Linux 2.4: its time is rounded up to whole jiffies
    /// (`timespec_to_jiffies()`), and one is added since the one that has begun is no whole one (`sys_nanosleep()`).
    ///
    /// Model: real-time tasks sleep for 2 ms and less, too; there they spin (`udelay()`).
    #[cold]
    fn jiffy_of(&self, now: Instant, until: Instant) -> u64 {
        let period_ns = self.costs.tick_period_ns;
        let jiffies = until.since(now).ns().div_ceil(period_ns) + 1;
        (now.ns() / period_ns + jiffies) * period_ns
    }

    #[inline(always)]
    fn block_until(&self, c: &Cpu, p: &Task, timer: Timer, time: u64) {
        self.set_task_timer(timer, c.id, time);
        p.set_state(TaskState::Blocked);
        self.schedule(c, false);
    }

    /// Wakes a task that waits for an object.
    fn wake(&self, c: &Cpu, task: TaskId, flags: u64) {
        self.try_to_wake_up(c, self.task(task), flags);
        self.set_mode(c, CpuMode::Kernel);
        if c.has_irq() {
            // Interrupts are on between two wakeups.
            self.handle_interrupts(c);
            self.set_mode(c, CpuMode::Kernel);
        }
    }

    /// Ends a task's wait for good.
    fn grant(&self, c: &Cpu, task: TaskId) {
        self.task(task).program.grant();
        self.wake(c, task, 0);
    }

    /// Grants the object to all of `waiters`. They are no longer in its list: a task that comes back to wait while
    /// the others are woken waits for the next time.
    fn grant_all(&self, c: &Cpu, waiters: VecDeque<TaskId>) {
        for waiter in waiters {
            self.grant(c, waiter);
        }
    }

    /// How pipes and sockets wake.
    pub(crate) fn channel_wake(&self) -> u64 {
        if self.machine.sync_wakeups {
            wake::SYNC
        } else {
            0
        }
    }

    fn write(&self, c: &Cpu, p: &Task, to: ObjectId, bytes: u32) -> Effect {
        let (reader, writer) = {
            let mut objects = self.objects.borrow_mut();
            let Some(Object::Channel(channel)) = objects.get_mut(to.0 as usize) else {
                return Effect::Wrong(to);
            };
            channel.note_writer(p.id);
            if channel.is_tcp() {
                drop(objects);
                return self.tcp_write(c, p, to, bytes);
            }
            if !channel.put(bytes) {
                channel.wait_to_write(p.id);
                return Effect::Wait;
            }
            channel.put_buffer(p.program.take_message());
            let writer = channel.next_writer_with_room();
            (channel.next_reader(), writer)
        };
        if let Some(reader) = reader {
            self.wake(c, reader, self.channel_wake());
        }
        if let Some(writer) = writer {
            self.wake(c, writer, self.channel_wake());
        }
        Effect::Done(Outcome::Done)
    }

    fn read(&self, c: &Cpu, p: &Task, from: ObjectId, limit: u32) -> Effect {
        let (taken, is_socket, reader, writer) = {
            let mut objects = self.objects.borrow_mut();
            let Some(Object::Channel(channel)) = objects.get_mut(from.0 as usize) else {
                return Effect::Wrong(from);
            };
            if channel.is_tcp() && !channel.is_empty() {
                drop(objects);
                return self.tcp_read(c, from, limit);
            }
            if channel.is_empty() {
                if p.program.leave_wait() {
                    return Effect::Done(Outcome::Closed);
                }
                channel.wait_to_read(p.id);
                return Effect::Wait;
            }
            let taken = channel.read(limit);
            let reader = match taken.is_all {
                true => None,
                false => channel.next_reader(),
            };
            (taken, channel.is_socket(), reader, channel.next_writer())
        };
        if !taken.buffers.is_empty() {
            let path = match is_socket {
                true => KernelPath::Receive,
                false => KernelPath::PipeRead,
            };
            self.empty_buffers(c, path, &taken.buffers);
        }
        if let Some(writer) = writer {
            self.wake(c, writer, self.channel_wake());
        }
        if let Some(reader) = reader {
            self.wake(c, reader, self.channel_wake());
        }
        Effect::Done(Outcome::Messages(taken.messages))
    }

    fn lock_mutex(&self, c: &Cpu, p: &Task, mutex: ObjectId) -> Effect {
        match self.pi_lock(c, p, mutex) {
            Taking::Taken => return Effect::Done(Outcome::Done),
            // glibc lets a thread that would wait for itself wait for ever.
            Taking::Waits | Taking::Deadlock => return Effect::Wait,
            Taking::Wrong => {}
        }
        match self.objects.borrow_mut().get_mut(mutex.0 as usize) {
            Some(Object::Mutex { owner, waiters }) => {
                if owner.is_none() {
                    *owner = Some(p.id);
                    Effect::Done(Outcome::Done)
                } else {
                    waiters.push_back(p.id);
                    Effect::Wait
                }
            }
            _ => Effect::Wrong(mutex),
        }
    }

    fn unlock_mutex(&self, c: &Cpu, p: &Task, mutex: ObjectId) -> Effect {
        if let Some(waiter) = self.pi_unlock(c, p, mutex) {
            if let Some(waiter) = waiter {
                self.wake(c, waiter, 0);
            }
            return Effect::Done(Outcome::Done);
        }
        let waiter = match self.objects.borrow_mut().get_mut(mutex.0 as usize) {
            Some(Object::Mutex { owner, waiters }) => {
                *owner = None;
                waiters.pop_front()
            }
            _ => return Effect::Wrong(mutex),
        };
        if let Some(waiter) = waiter {
            self.wake(c, waiter, 0);
        }
        Effect::Done(Outcome::Done)
    }

    /// pthread_cond_wait() up to its system call: from here on signals are for this task, too.
    fn begin_wait(&self, c: &Cpu, p: &Task, condition: ObjectId) -> bool {
        self.user_atomic(c, condition);
        match self.objects.borrow_mut().get_mut(condition.0 as usize) {
            Some(Object::Condition { waiters }) => {
                waiters.push_back(p.id);
                true
            }
            _ => false,
        }
    }

    fn wait_condition(&self, c: &Cpu, p: &Task, mutex: ObjectId) -> Effect {
        if !p.program.is_relocking() {
            if p.program.enter_wait()
                && let Effect::Wrong(object) = self.unlock_mutex(c, p, mutex)
            {
                return Effect::Wrong(object);
            }
            // A task may have signalled before or while the mutex was let go of (futex_wait() finds its word
            // changed).
            if !p.program.relock() {
                return Effect::Wait;
            }
            // Signalled: now for the mutex, which may take a wait of its own.
        }
        let effect = self.lock_mutex(c, p, mutex);
        if matches!(effect, Effect::Done(_)) {
            p.program.relocked();
        }
        effect
    }

    fn barrier(&self, c: &Cpu, p: &Task, object: ObjectId) -> Effect {
        if p.program.leave_wait() {
            return Effect::Done(Outcome::Done);
        }
        let last = match self.objects.borrow_mut().get_mut(object.0 as usize) {
            Some(Object::Barrier {
                parties,
                arrived,
                waiters,
            }) => {
                if p.program.has_entered_wait() {
                    return Effect::Wait;
                }
                *arrived += 1;
                if *arrived < *parties {
                    p.program.enter_wait();
                    waiters.push_back(p.id);
                    return Effect::Wait;
                }
                *arrived = 0;
                std::mem::take(waiters)
            }
            _ => return Effect::Wrong(object),
        };
        self.grant_all(c, last);
        Effect::Done(Outcome::Done)
    }

    /// Returns the time that bringing the working set to this CPU adds to the computation that begins.
    #[inline(always)]
    fn initial_refill(&self, c: &Cpu, p: &Task) -> u64 {
        if p.memory.working_set_bytes == 0 {
            return 0;
        }
        match p.memory.come_to(c.id) {
            Some(from) if from != c.id => self.refill_ns(p, from, c.id),
            _ => 0,
        }
    }

    /// No task can go on by itself. Readers of pipes whose writers have all exited see the end of the file. Without
    /// such readers the workload hangs for ever, or until the duration that it names is over: rt-app, for one, ends
    /// its threads' waits then, except waits for a mutex.
    ///
    /// Model: the end of the file is seen when nothing else is left to happen, because a workload does
    /// not say who will write.
    pub(crate) fn deadlocked(&self) {
        let mut closed = Vec::new();
        for object in self.objects.borrow_mut().iter_mut() {
            if let Object::Channel(channel) = object {
                let gone = |task: &TaskId| self.task(*task).state() == TaskState::Dead;
                if channel.is_closed(gone) {
                    closed.extend(channel.all_readers());
                }
            }
        }
        for task in closed.iter().copied() {
            let p = self.task(task);
            p.program.grant();
            self.set_task_timer(Timer::Task(task), p.cpu(), self.progress.clock());
        }
        if closed.is_empty() {
            let tasks = self.tasks.iter();
            let blocked: Vec<&Task> = tasks
                .filter(|p| p.state() == TaskState::Blocked && !self.is_starter(p))
                .collect();
            // A task that waits for a mutex cannot even be cancelled when the duration is over (pthreads(7)), nor can
            // one that was signalled and wants its mutex back.
            let wants_mutex = |p: &&Task| {
                p.program.is_relocking() || matches!(*p.program.action(), Some(Action::Lock(_)))
            };
            let fails = self.setup.is_endless || blocked.iter().any(wants_mutex);
            let told = blocked.iter().take(10).map(|p| {
                let waits = p.program.action().as_ref().map_or("?", action_name);
                format!("{} ({waits})", p.label())
            });
            let deadlock = WorkloadFailure::Deadlock {
                at: Instant::from_ns(self.progress.clock()),
                blocked: told.collect(),
            };
            if fails {
                self.fail(deadlock);
            } else {
                self.set_stuck(deadlock);
            }
        }
    }
}
