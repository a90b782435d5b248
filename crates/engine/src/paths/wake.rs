//! Wakeups and the beginning of tasks (kernel/sched/core.c).

use schedlab_trace::{CpuId, CpuMode, Duration, Event, LockPath, Recorder, TaskMeta};
use schedlab_workload::SchedClass;

use crate::contract::consts::{enq, wake};
use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::{Cpu, Wait};
use crate::state::task::{Class, OnRq, Task, TaskState};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `try_to_wake_up()`. Returns whether it woke the task.
    pub(crate) fn try_to_wake_up(&self, c: &Cpu, p: &Task, flags: u64) -> bool {
        self.set_mode(c, CpuMode::Sched);
        let path = self.set_lock_path(c, LockPath::Wakeup);
        self.charge(c, self.machine.paths.wakeup_ns);
        self.sync(c);
        self.write_line(c, p.line, 0);
        let woken = self.ttwu(c, p, flags | wake::TTWU);
        self.set_lock_path(c, path);
        woken
    }

    fn ttwu(&self, c: &Cpu, p: &Task, mut wake_flags: u64) -> bool {
        if p.state() != TaskState::Blocked {
            return false;
        }
        if p.on_rq() != OnRq::No {
            // ttwu_runnable(): it has not got to schedule() yet and need not sleep.
            let rq = self.cpu(p.cpu());
            self.rq_lock(c, rq);
            let still = p.on_rq() != OnRq::No && p.state() == TaskState::Blocked;
            if still {
                p.set_state(TaskState::Running);
            }
            self.rq_unlock(c, rq);
            if still {
                return true;
            }
            if p.state() != TaskState::Blocked {
                return false;
            }
        }
        // trace_sched_waking()
        let decided = c.this.now.get();
        p.set_state(TaskState::Waking);
        self.wait_until_off_cpu(c, p);
        let cpu = self.select_task_rq(c, p, p.cpu(), &mut wake_flags);
        if cpu != p.cpu() {
            wake_flags |= wake::MIGRATED;
            self.set_task_cpu(c, p, cpu);
        }
        // ttwu_queue(), ttwu_do_activate()
        let rq = self.cpu(cpu);
        self.rq_lock(c, rq);
        let mut en_flags = enq::WAKEUP | enq::NOCLOCK;
        if wake_flags & wake::RQ_SELECTED != 0 {
            en_flags |= enq::CPU_SELECTED;
        }
        if wake_flags & wake::MIGRATED != 0 {
            en_flags |= enq::MIGRATED;
        }
        self.wake_up_on(c, rq, p, decided, en_flags);
        true
    }

    /// Makes `p`, whose wakeup was `decided` then, runnable on `rq`, which is locked on entry and free on return.
    #[inline(always)]
    fn wake_up_on(&self, c: &Cpu, rq: &Cpu, p: &Task, decided: u64, en_flags: u64) {
        self.record(
            c,
            Event::Wakeup {
                task: p.id,
                to: rq.id,
                since: Duration::from_ns(c.this.now.get() - decided),
            },
        );
        p.set_state(TaskState::Running);
        self.activate_task(c, rq, p, en_flags);
        self.wakeup_preempt(c, rq, p);
        match p.class() {
            // task_woken_scx()
            Class::Ext => self.run_deferred(c, rq),
            Class::Rt => self.task_woken_rt(c, rq, p),
            Class::Deadline => self.task_woken_dl(c, rq, p),
            Class::Fair | Class::Idle | Class::Stop => {}
        }
        self.rq_unlock(c, rq);
    }

    /// `select_task_rq()`.
    #[inline(always)]
    fn select_task_rq(&self, c: &Cpu, p: &Task, prev: CpuId, wake_flags: &mut u64) -> CpuId {
        let cpu = if p.affinity.nr() > 1 {
            let cpu = match p.class() {
                Class::Ext => self.select_task_rq_scx(c, p, prev, *wake_flags),
                Class::Fair => self.select_task_rq_fair(c, p, prev, *wake_flags),
                Class::Rt => self.select_task_rq_rt(c, p, prev),
                Class::Deadline => self.select_task_rq_dl(c, p, prev),
                Class::Idle | Class::Stop => prev,
            };
            *wake_flags |= wake::RQ_SELECTED;
            cpu
        } else {
            p.affinity
                .borrow()
                .as_ref()
                .and_then(|set| set.first())
                .unwrap_or(prev)
        };
        if p.allows(cpu) && self.is_online(cpu) {
            return cpu;
        }
        self.select_fallback_rq(c, p)
    }

    /// Spins while `p` is still being switched out (`smp_cond_load_acquire(&p->on_cpu)`).
    #[inline]
    pub(crate) fn wait_until_off_cpu(&self, c: &Cpu, p: &Task) {
        if p.on_cpu() {
            self.wait_on_cpu(c, p);
        }
    }

    #[inline(never)]
    fn wait_on_cpu(&self, c: &Cpu, p: &Task) {
        let mode = self.set_mode(c, CpuMode::Spin);
        p.await_off_cpu();
        c.await_off_cpu(p.id);
        c.set_wait(Wait::Resume);
        self.pause();
        self.set_mode(c, mode);
    }

    /// `p` is off its CPU at the local time of `c`: waiters for that go on.
    pub(crate) fn wake_on_cpu_waiters(&self, c: &Cpu, p: &Task) {
        for waiter in &self.cpus {
            if waiter.awaits_off_cpu(p.id) {
                waiter.end_spin();
                let at = c.this.now.get().max(waiter.this.now.get());
                waiter.this.now.set(at);
                self.queue.add_turn(waiter.id, at);
            }
        }
    }

    /// Tells recorder and policy of a new task.
    pub(crate) fn introduce_task(&self, c: &Cpu, p: &Task) {
        if self.is_starter(p) || self.population.is_daemon(p.id) {
            self.recorder.define_starter(p.id);
        }
        self.define_task(p);
        self.record(
            c,
            Event::TaskNew {
                task: p.id,
                parent: p.origin.parent,
            },
        );
        self.sync_task(p);
        self.policy.set_task_cpu(p.id, p.cpu());
        // init_scx_entity()
        self.set_slice(p, crate::contract::consts::SLICE_DFL);
    }

    /// Tells the recorder what a task is.
    pub(crate) fn define_task(&self, p: &Task) {
        let affinity = p.affinity.borrow().clone();
        let meta = TaskMeta {
            comm: p.origin.comm.to_string(),
            nice: p.attributes().nice,
            affinity: affinity.unwrap_or_else(|| self.online.possible().clone()),
            rt_priority: match p.prio() {
                -1 => schedlab_trace::DEADLINE_PRIORITY,
                _ => p.rt_priority(),
            },
            idle: p.attributes().policy == SchedClass::Idle,
        };
        self.recorder.define_task(p.id, &meta);
    }

    /// `wake_up_new_task()`.
    pub(crate) fn wake_up_new_task(&self, c: &Cpu, p: &Task) {
        self.set_mode(c, CpuMode::Sched);
        let path = self.set_lock_path(c, LockPath::Wakeup);
        self.charge(c, self.machine.paths.wakeup_ns);
        self.sync(c);
        self.write_line(c, p.line, 0);
        p.set_state(TaskState::Waking);
        let mut wake_flags = wake::FORK;
        let cpu = self.select_task_rq(c, p, p.cpu(), &mut wake_flags);
        self.place_task(p, cpu);
        let rq = self.cpu(cpu);
        self.rq_lock(c, rq);
        self.wake_up_on(c, rq, p, c.this.now.get(), enq::NOCLOCK | enq::INITIAL);
        self.set_lock_path(c, path);
    }

    /// A task of the workload begins its life.
    pub(crate) fn start_task(&self, c: &Cpu, p: &Task) {
        self.set_mode(c, CpuMode::Kernel);
        if p.reservation().is_some() && !self.dl_admit(p, p.attributes().policy) {
            return;
        }
        if p.scx.state() == crate::state::scx::ScxState::None {
            p.place_on(c.id);
            p.account.fork(c.this.now.get());
            self.introduce_task(c, p);
            let refused = self.scx_fork(c, p);
            if refused != 0 {
                self.fork_refused(c, p, refused);
                return;
            }
        }
        self.wake_up_new_task(c, p);
    }
}
