//! The watchdog: a policy that leaves a runnable task waiting too long is ejected.

use schedlab_trace::{CpuId, Recorder};

use crate::event_queue::Timer;
use crate::kernel::Kernel;
use crate::outcome::ExitKind;
use crate::policy::Policy;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// How often all runnable tasks are looked at: twice per time-out.
    pub(crate) fn watchdog_interval_ns(&self) -> u64 {
        self.ops.timeout_ns / 2
    }

    /// `scx_watchdog_workfn()`.
    pub(crate) fn watchdog(&self, now: u64) {
        if !self.scx_enabled.get() || self.stopping.get() {
            return;
        }
        self.check_for_timeouts(now);
        self.set_timer(Timer::Watchdog, CpuId(0), now + self.watchdog_interval_ns());
    }

    /// `check_rq_for_timeouts()` of every CPU: the first late task by CPU and place in its list.
    fn check_for_timeouts(&self, now: u64) {
        let jiffies = self.jiffies(now);
        let timeout = self.ops.timeout_ns.div_ceil(self.costs.tick_period_ns);
        let late = self
            .tasks
            .iter()
            .filter_map(|p| p.runnable_seq.get().map(|seq| (p.cpu.get(), seq, p)))
            .filter(|(_, _, p)| jiffies > p.runnable_at.get() + timeout)
            .min_by_key(|&(cpu, seq, _)| (cpu, seq));
        if let Some((_, _, p)) = late {
            let late_ns = (jiffies - p.runnable_at.get()) * self.costs.tick_period_ns;
            let late_ms = late_ns / 1_000_000;
            self.exit_with(
                ExitKind::ErrorStall,
                0,
                format!(
                    "{} failed to run for {}.{:03}s",
                    p.label(),
                    late_ms / 1_000,
                    late_ms % 1_000
                ),
            );
        }
    }
}
