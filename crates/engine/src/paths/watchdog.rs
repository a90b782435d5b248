//! The watchdog: a policy that leaves a runnable task waiting too long is ejected.

use schedlab_trace::{CpuId, Recorder};

use crate::contract::outcome::ExitKind;
use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::event_queue::Timer;
use crate::state::scx::OpsState;
use crate::state::sorted::NIL;
use crate::state::task::Task;

/// As the kernel writes how long a task has waited.
fn seconds(ns: u64) -> String {
    let ms = ns / 1_000_000;
    format!("{}.{:03}s", ms / 1_000, ms % 1_000)
}

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// How often all runnable tasks are looked at: twice per time-out.
    pub(crate) fn watchdog_interval_ns(&self) -> u64 {
        self.ops.timeout_ns / 2
    }

    /// `scx_watchdog_workfn()`.
    pub(crate) fn watchdog(&self, now: u64) {
        if !self.life.scx_enabled() || self.life.is_stopping() {
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
            .filter_map(|p| p.scx.runnable_seq().map(|seq| (p.cpu(), seq, p)))
            .filter(|(_, _, p)| jiffies > p.scx.runnable_at() + timeout)
            .min_by_key(|&(cpu, seq, _)| (cpu, seq));
        if let Some((_, _, p)) = late {
            let late_ns = (jiffies - p.scx.runnable_at()) * self.costs.tick_period_ns;
            let late_ms = late_ns / 1_000_000;
            self.exit_with(
                ExitKind::ErrorStall,
                0,
                format!(
                    "{} failed to run for {}: {}",
                    p.label(),
                    seconds(late_ms * 1_000_000),
                    self.whereabouts(p, now)
                ),
            );
        }
    }

    /// Where a task is that waits, for people.
    fn whereabouts(&self, p: &Task, now: u64) -> String {
        let dsq = p.dsq();
        if dsq == NIL {
            return match p.scx.ops_state() {
                OpsState::None => format!("it is nowhere: CPU {} has it", p.cpu()),
                _ => self.policy.describe_custody(p.id).unwrap_or_else(|| {
                    "the policy has had it since ops.enqueue() and inserted it into no DSQ"
                        .to_owned()
                }),
            };
        }
        if self.is_local(dsq) {
            let rq = self.cpu(CpuId(dsq));
            let runs = match rq.curr().map(|task| self.task(task)) {
                Some(other) if other.is_realtime() => {
                    format!("runs {}, of a higher class", other.label())
                }
                Some(other) => format!("runs {}", other.label()),
                None => "is idle and was not kicked".to_owned(),
            };
            return format!("it is in the local DSQ of CPU {}, which {runs}", rq.id);
        }
        let queue = self.dsqs.get(dsq);
        let name = match queue.is_builtin() {
            true => "the global DSQ".to_owned(),
            false => format!("DSQ {}", queue.id()),
        };
        let taken = match queue.taken_ns() {
            0 => "from which no CPU has taken a task yet".to_owned(),
            at => format!(
                "from which no CPU has taken a task for {}",
                seconds(now.saturating_sub(at))
            ),
        };
        let nr = queue.nr();
        format!("it is in {name} ({nr} queued), {taken}")
    }
}
