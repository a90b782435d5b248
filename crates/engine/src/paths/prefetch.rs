//! Prefetches what is kept of tasks into the host's caches shortly before it is needed.
//!
//! A task is looked at when it wakes and when it is dispatched. Between the two every other task has its turn, and
//! the state of a thousand tasks in the virtual kernel, the policy, the cache model and the measures does not fit
//! into the nearer caches of a host. The next tasks are known: the timers and the dispatch queues are in order.

use schedlab_fiber::prefetch;
use schedlab_machine::CacheModel;
use schedlab_trace::{CpuId, Recorder, TaskId};

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::dsq::Dsq;
use crate::state::event_queue::Timer;
use crate::state::task::Task;

/// The state of fewer tasks stays near by itself.
const MANY: u32 = 1_000;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// A task's sleep has ended: prepares for those that end next.
    #[inline]
    pub(crate) fn prefetch_wakeups(&self) {
        if self.tasks.len() >= MANY {
            self.prefetch_next_wakeups();
        }
    }

    #[inline(never)]
    fn prefetch_next_wakeups(&self) {
        if let Some((_, Timer::Task(later) | Timer::Sleep(later))) = self.queue.soon(1) {
            self.prefetch_task(later);
        }
        if let Some((cpu, Timer::Task(next) | Timer::Sleep(next))) = self.queue.soon(0)
            && let Some(p) = self.tasks.get(next)
        {
            let cache = self.shared.cache.borrow();
            prefetch(cache.kept_of(p.line));
            for cpu in [cpu, p.cpu()] {
                self.prefetch_set(&cache, cpu, self.task_address(next));
            }
        }
    }

    /// `c` is about to take `p` off the queue: prepares for that, and for those behind it.
    #[inline]
    pub(crate) fn prefetch_dispatches(&self, c: &Cpu, queue: &Dsq, p: &Task) {
        if self.tasks.len() >= MANY {
            self.prefetch_next_dispatches(c, queue, p);
        }
    }

    #[inline(never)]
    fn prefetch_next_dispatches(&self, c: &Cpu, queue: &Dsq, p: &Task) {
        let cache = self.shared.cache.borrow();
        // Another CPU's lock, as a rule, which this one has not had for a long time.
        self.prefetch_set(&cache, c.id, self.rq_address(p.cpu()));
        let Some(next) = queue.next(&p.node) else {
            return;
        };
        let next = self.task(next);
        if let Some(later) = queue.next(&next.node) {
            self.prefetch_task(later);
        }
        if let Some(behaviour) = next.program.behaviour().as_deref() {
            prefetch(behaviour);
        }
        prefetch(cache.kept_of(next.line));
        self.prefetch_set(&cache, next.cpu(), self.task_address(next.id));
    }

    /// `cpu` accesses the line that holds `address` soon.
    #[inline]
    fn prefetch_set(&self, cache: &CacheModel, cpu: CpuId, address: u64) {
        if let Some(set) = cache.set_of(cpu, address) {
            prefetch(set);
        }
    }

    /// `task` is looked at soon.
    fn prefetch_task(&self, task: TaskId) {
        prefetch(self.task(task));
        self.policy.prefetch(task);
        self.recorder.show_kept(task, prefetch);
    }
}
