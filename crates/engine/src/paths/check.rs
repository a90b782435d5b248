//! The full check of the state: what holds whenever no CPU is executing. In builds with debug assertions, as tests are,
//! the executor calls it from time to time.

use schedlab_trace::{CpuId, Recorder, TaskId};
use schedlab_workload::CgroupId;

use crate::contract::policy::Policy;
use crate::paths::fair::has_place;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::dsq::Dsq;
use crate::state::fair_group::Groups;
use crate::state::scx::OpsState;
use crate::state::sorted::NIL;
use crate::state::task::{Class, OnRq, Task, TaskState};

/// Where a task is. It is in one place at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whereabouts {
    Dsq(u32),
    /// On the queue of another class.
    Queue(CpuId),
    Runs(CpuId),
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// Checks the whole state.
    ///
    /// # Panics
    /// If a queue's count and its list differ, a task is in two places or in none, or a lock and its holder disagree.
    pub(crate) fn check_state(&self) {
        let mut found = vec![None; self.tasks.len() as usize];
        let queues = self.dsqs.iter().chain(self.cpus.iter().map(|c| &c.local));
        for queue in queues {
            self.check_dsq(queue, &mut found);
        }
        for c in &self.cpus {
            self.check_cpu(c, &mut found);
        }
        for p in self.tasks.iter() {
            self.check_task(p, found[p.id.index()]);
        }
        self.check_locks();
    }

    fn place(&self, found: &mut [Option<Whereabouts>], task: TaskId, at: Whereabouts) {
        let Some(former) = found[task.index()].replace(at) else {
            return;
        };
        // A task that is about to run may still be on its queue, and one that stops may be on one again.
        let runs = |at| matches!(at, Whereabouts::Runs(_));
        assert!(
            self.task(task).on_cpu() && runs(at) != runs(former),
            "{} is in two places: {former:?} and {at:?}",
            self.task(task).label()
        );
    }

    fn check_dsq(&self, queue: &Dsq, found: &mut [Option<Whereabouts>]) {
        let mut nr = 0;
        for task in queue.tasks(&self.tasks) {
            nr += 1;
            assert!(
                nr <= queue.nr(),
                "DSQ {:#x} counts {nr} and has more",
                queue.id()
            );
            self.place(found, task, Whereabouts::Dsq(queue.index));
        }
        assert_eq!(
            nr,
            queue.nr(),
            "DSQ {:#x} counts tasks that it has not",
            queue.id()
        );
    }

    fn check_cpu(&self, c: &Cpu, found: &mut [Option<Whereabouts>]) {
        let at = Whereabouts::Queue(c.id);
        for &task in c.rt.waiting().iter() {
            self.place(found, task, at);
        }
        for &task in c.fair.waiting().iter().chain(c.dl.waiting().iter()) {
            self.place(found, task, at);
        }
        if let Some(groups) = &self.groups {
            for task in groups.stopped(c.id) {
                self.place(found, task, at);
            }
            self.check_groups(groups, c);
        }
        if let Some(task) = c.curr() {
            let p = self.task(task);
            assert!(
                p.on_cpu(),
                "{} is current on CPU {} and runs nowhere",
                p.label(),
                c.id
            );
            self.place(found, task, Whereabouts::Runs(c.id));
        }
    }

    /// A group counts its tasks and the limits that hold it, and a limit knows the CPUs that wait for it.
    fn check_groups(&self, groups: &Groups, c: &Cpu) {
        let queue = c.fair.waiting();
        let running = c.curr().filter(|task| !queue.contains(task));
        let running = running.filter(|&task| has_place(self.task(task)));
        let members: Vec<CgroupId> = (queue.iter().copied().chain(running))
            .map(|task| self.task(task).cgroup())
            .collect();
        for id in groups.below_root() {
            let rq = groups.rq(id, c.id);
            let holds = |&&of: &&CgroupId| groups.path(of).any(|other| other == id);
            assert_eq!(
                rq.nr() as usize,
                members.iter().filter(holds).count(),
                "group {} counts tasks that it has not on CPU {}",
                id.0,
                c.id
            );
            let limits = groups.path(id);
            assert_eq!(
                rq.nr_throttled() as usize,
                limits
                    .filter(|&id| groups.rq(id, c.id).is_throttled())
                    .count(),
                "group {} counts other limits than hold it on CPU {}",
                id.0,
                c.id
            );
            let waiting = groups.pool(id).map(|pool| pool.waiting());
            let waiting = waiting.iter().flatten().filter(|&&cpu| cpu == c.id);
            assert_eq!(
                usize::from(rq.is_throttled()),
                waiting.count(),
                "the limit of group {} does not know how CPU {} fares",
                id.0,
                c.id
            );
        }
    }

    fn check_task(&self, p: &Task, found: Option<Whereabouts>) {
        let label = || p.label();
        match found {
            Some(Whereabouts::Dsq(index)) => {
                assert!(
                    p.dsq() == index || p.dsq() == NIL,
                    "{} is on DSQ {index} and takes itself to be on {}",
                    label(),
                    p.dsq()
                );
                assert!(
                    p.on_rq() != OnRq::No,
                    "{} waits on DSQ {index} and is not runnable",
                    label()
                );
            }
            Some(Whereabouts::Queue(cpu)) => {
                assert!(
                    matches!(p.class(), Class::Fair | Class::Rt | Class::Deadline),
                    "{} waits on the run queue of CPU {cpu} as {:?}",
                    label(),
                    p.class()
                );
            }
            Some(Whereabouts::Runs(_)) => {
                assert!(
                    p.state() != TaskState::New,
                    "{} runs before it is started",
                    label()
                );
            }
            None if p.on_rq() == OnRq::Queued && p.class() == Class::Ext => {
                // The policy has it, somebody moves it, or it is on the way to its queue.
                let in_hands = p.scx.ops_state() != OpsState::None
                    || p.scx.in_custody()
                    || p.scx.holding_cpu().is_some()
                    || p.scx.is_deferred()
                    || p.on_cpu()
                    || self.cpus.iter().any(|c| c.is_in_kernel());
                assert!(in_hands, "{} is runnable, and nobody has it", label());
            }
            None => {}
        }
        assert!(
            p.dsq() == NIL
                || p.scx.holding_cpu().is_some()
                || matches!(found, Some(Whereabouts::Dsq(_) | Whereabouts::Runs(_))),
            "{} takes itself to be on DSQ {}, which has it not",
            label(),
            p.dsq()
        );
    }

    fn check_locks(&self) {
        let mut held = vec![0; self.cpus.len()];
        for (lock, state) in self.locks.iter() {
            if let Some(holder) = state.holder() {
                held[holder.index()] += 1;
            }
            let spinners = state.spinners();
            assert_eq!(state.has_spinners(), !spinners.is_empty(), "{}", state.name);
            for &cpu in spinners.iter() {
                assert_eq!(
                    self.cpu(cpu).spins_for(),
                    Some(lock),
                    "CPU {cpu} spins for {}",
                    state.name
                );
            }
        }
        for c in &self.cpus {
            assert_eq!(
                held[c.id.index()],
                c.held.all(),
                "CPU {} holds other locks than it knows",
                c.id
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::state::cpu::Wait;
    use crate::state::dsq::Place;
    use crate::testing::{Events, Stub, periodic, scenario};
    use schedlab_trace::LockClass;

    type Run = Kernel<Stub, RefCell<Events>>;

    /// Returns the check's complaint about a run's first state after `act`.
    fn complaint(act: impl FnOnce(&Run, &Task)) -> String {
        let tasks = vec![periodic("a", 1, 1, 1), periodic("b", 1, 1, 1)];
        let kernel = Run::new(scenario(2, tasks), Stub::minimal(), RefCell::default());
        for c in &kernel.cpus {
            c.set_wait(Wait::Idle);
        }
        kernel.check_state();
        act(&kernel, kernel.task(TaskId(0)));
        let check = catch_unwind(AssertUnwindSafe(|| kernel.check_state()));
        let said = check.expect_err("the state is broken");
        said.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    fn queue(kernel: &Run, cpu: usize, p: &Task) {
        let queue = &kernel.cpus[cpu].local;
        queue.insert(&kernel.tasks, &p.node, Place::Tail).unwrap();
    }

    #[test]
    fn a_broken_state_is_told() {
        let told = complaint(|kernel, p| {
            p.enter_dsq(0);
            queue(kernel, 0, p);
        });
        assert_eq!(told, "a[1000] waits on DSQ 0 and is not runnable");
        let told = complaint(|kernel, p| {
            queue(kernel, 0, p);
            queue(kernel, 1, p);
        });
        assert_eq!(told, "a[1000] is in two places: Dsq(0) and Dsq(1)");
        let told = complaint(|_, p| p.enter_dsq(1));
        assert_eq!(
            told,
            "a[1000] takes itself to be on DSQ 1, which has it not"
        );
        let told = complaint(|kernel, p| {
            p.set_on_rq(OnRq::Queued);
            p.enter_dsq(1);
            queue(kernel, 0, p);
        });
        assert_eq!(told, "a[1000] is on DSQ 0 and takes itself to be on 1");
        let told = complaint(|_, p| p.set_on_rq(OnRq::Queued));
        assert_eq!(told, "a[1000] is runnable, and nobody has it");
        let told = complaint(|kernel, p| kernel.cpus[1].switch_to(Some(p.id)));
        assert_eq!(told, "a[1000] is current on CPU 1 and runs nowhere");
        let told = complaint(|kernel, p| {
            p.switch_in();
            kernel.cpus.iter().for_each(|c| c.switch_to(Some(p.id)));
        });
        assert!(told.starts_with("a[1000] is in two places: Runs"), "{told}");
    }

    #[test]
    fn a_lock_that_its_holder_does_not_know_is_told() {
        let told = complaint(|kernel, _| {
            let lock = kernel.new_lock(64, "l", LockClass::Dsq);
            let (_, state) = kernel.locks.iter().last().unwrap();
            state.give_to(CpuId(0), &kernel.cpus[1].held);
            assert_eq!(kernel.locks.holder(lock), Some(CpuId(0)));
        });
        assert!(
            told.contains("CPU 0 holds other locks than it knows"),
            "{told}"
        );
        let told = complaint(|kernel, _| {
            kernel.new_lock(64, "l", LockClass::Dsq);
            let (_, state) = kernel.locks.iter().last().unwrap();
            state.add_spinner(CpuId(1));
        });
        assert!(told.contains("CPU 1 spins for l"), "{told}");
    }
}
